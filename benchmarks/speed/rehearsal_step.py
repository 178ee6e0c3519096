"""A rehearsal step of Encore beside a bare PyTorch loop that does the same arithmetic.

Both retrieve 10 of 2,000 remembered images, put them before the same 10 incoming ones, and take one SGD
step of the reduced ResNet-18 on the sum of two means, without augmentation. The bare loop is what one
would write in a notebook: no parts, no statistics, no generator of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from encore.interfaces import Batch, Plan
from encore.learner import Learner

IMAGE_SHAPE = (3, 32, 32)
NUM_CLASSES = 100
MEMORY_SIZE = 2000
ROUNDS = 60


def make_batch(size: int) -> Batch:
    """Return random images with random labels."""
    return Batch(
        torch.randint(0, 256, (size, *IMAGE_SHAPE), dtype=torch.uint8), torch.randint(0, NUM_CLASSES, (size,))
    )


def make_learner() -> Learner:
    """Return a learner whose memory is full."""
    learner = Learner(
        "er", image_shape=IMAGE_SHAPE, num_classes=NUM_CLASSES, memory_size=MEMORY_SIZE, device="cpu"
    )
    learner.memory.write(torch.arange(MEMORY_SIZE), make_batch(MEMORY_SIZE))
    return learner


def make_bare_step(memory_format: torch.memory_format) -> Callable[[Batch], None]:
    """Return one step of a loop without any library, on a network and a memory of the same shape."""
    twin = make_learner()
    model: torch.nn.Module = twin.model.to(memory_format=memory_format)
    images, labels = twin.memory.filled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(incoming: Batch) -> None:
        chosen = torch.randperm(MEMORY_SIZE)[:10]
        joint = torch.cat([images[chosen], incoming.images]).float() / 255
        logits = model(joint.contiguous(memory_format=memory_format))
        loss = F.cross_entropy(logits[:10], labels[chosen]) + F.cross_entropy(logits[10:], incoming.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure(num_threads: int) -> list[dict[str, Any]]:
    """Time Encore's step and two bare ones by turns; return medians and ratios."""
    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    learner, incoming = make_learner(), make_batch(10)
    steps: dict[str, Callable[[], Any]] = {
        "bare PyTorch": lambda: bare(incoming),
        "bare PyTorch, default layout": lambda: bare_default(incoming),
        "Encore": lambda: learner.rehearse_once(learner.prepare(incoming, Plan())),
    }
    bare, bare_default = make_bare_step(torch.channels_last), make_bare_step(torch.contiguous_format)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS + 5):
        # By turns, and in turning order, so that a busy machine slows all of them alike.
        names = list(steps)[number % 3 :] + list(steps)[: number % 3]
        for name in names:
            begun = time.perf_counter()
            steps[name]()
            if number >= 5:
                seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    # A ratio of each round, as neighbours in time share the machine's mood.
    ratios = {
        name: statistics.median(
            mine / base for mine, base in zip(values, seconds["bare PyTorch"], strict=True)
        )
        for name, values in seconds.items()
    }
    return [
        {"threads": num_threads, "step": name, "milliseconds": 1000 * medians[name], "ratio": ratios[name]}
        for name in steps
    ]
