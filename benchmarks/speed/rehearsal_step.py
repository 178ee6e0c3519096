"""A rehearsal step of Encore beside a bare PyTorch loop that does the same arithmetic.

Both retrieve 10 of 2,000 remembered images, put them before the same 10 incoming ones, and take one SGD
step of the reduced ResNet-18 on the sum of two means, without augmentation. The bare loop is that of
`encore bench` (encore/bare.py): no parts, no statistics, no generator of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from encore.bare import BareLoop
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


def make_learner(engine: str = "eager", precision: str = "float32") -> Learner:
    """Return a learner whose memory is full."""
    learner = Learner(
        "er",
        image_shape=IMAGE_SHAPE,
        num_classes=NUM_CLASSES,
        memory_size=MEMORY_SIZE,
        parts={"engine": engine},
        precision=precision,
        device="cpu",
    )
    learner.memory.write(torch.arange(MEMORY_SIZE), make_batch(MEMORY_SIZE))
    return learner


def make_bare_loop(memory_format: torch.memory_format) -> BareLoop:
    """Return the loop without any library, on a network and a memory of the same shape."""
    twin = make_learner()
    loop = BareLoop(twin.model.to(memory_format=memory_format), MEMORY_SIZE)
    remembered = twin.memory.filled()
    loop.images, loop.labels = list(remembered.images), remembered.labels.tolist()
    return loop


def measure(num_threads: int) -> list[dict[str, Any]]:
    """Time Encore's step and two bare ones by turns; return medians and ratios."""
    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    learner, incoming = make_learner(), make_batch(10)
    steps: dict[str, Callable[[], Any]] = {
        "bare PyTorch": lambda: bare.step(*incoming, num_ops=0, magnitude=0),
        "bare PyTorch, default layout": lambda: bare_default.step(*incoming, num_ops=0, magnitude=0),
        "Encore": lambda: learner.rehearse_once(learner.prepare(incoming, Plan())),
    }
    bare, bare_default = make_bare_loop(torch.channels_last), make_bare_loop(torch.contiguous_format)
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
