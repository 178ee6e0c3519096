"""Small things that many tests need: batches, learners and an image store made from a seed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from encore import registry
from encore.data.image_set import ImageSet, LabelledImages
from encore.image_store import ImageStore
from encore.interfaces import Batch, Plan
from encore.learner import Learner

SHAPE = (1, 8, 8)
NUM_CLASSES = 6
MIDDLE_PLAN = Plan(repeats=3, num_ops=1, magnitude=9)


def make_batch(size: int, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (size, *shape), generator=generator, dtype=torch.uint8)
    return Batch(images, torch.randint(0, NUM_CLASSES, (size,), generator=generator))


def make_stream(num_batches: int, size: int = 4, seed: int = 0) -> Iterator[Batch]:
    for number in range(num_batches):
        yield make_batch(size, seed=1000 * seed + number)


def make_learner(**changes: Any) -> Learner:
    settings: dict[str, Any] = {
        "image_shape": SHAPE,
        "num_classes": NUM_CLASSES,
        "memory_size": 12,
        "memory_batch_size": 4,
        "plan": Plan(repeats=2, num_ops=1, magnitude=14),
        "parts": {"model.width": 2},
        "seed": 0,
        "device": "cpu",
    }
    settings.update(changes)
    return Learner(**settings)


def make_controller(name: str, plan: Plan = MIDDLE_PLAN, repeats: str | None = None) -> Any:
    """Return a controller, with other numbers of repeats if it has any, and with a file if it needs one."""
    if name != "schedule":
        has_repeats = repeats is not None and "repeats" in registry.options("controller", name)
        return registry.make("controller", name, plan, **({"repeats": repeats} if has_repeats else {}))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "plans.csv"
        table.write_text("batch,repeats\n1,2\n2,7\n30,1\n45,3\n")
        return registry.make("controller", name, plan, file=str(table))


def make_store(num_per_class: int = 23, seed: int = 0) -> ImageStore:
    """Return a store whose every image is told from every other by its pixels."""
    numbers = np.random.default_rng(seed)

    def make(count: int) -> LabelledImages:
        labels = np.repeat(np.arange(NUM_CLASSES), count)
        images = numbers.integers(0, 256, (len(labels), *SHAPE), dtype=np.uint8)
        return LabelledImages(images, labels)

    names = tuple(str(label) for label in range(NUM_CLASSES))
    return ImageStore(ImageSet.from_parts(make(num_per_class), make(7), names), torch.device("cpu"))


def flatten(state: Any, name: str = "") -> dict[str, Any]:
    """Return a nested state as one dictionary, so that two can be compared entry by entry."""
    if isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, list | tuple):
        pairs = dict(enumerate(state)).items()
    else:
        return {name: state}
    return {key: value for inner, held in pairs for key, value in flatten(held, f"{name}/{inner}").items()}


def assert_same_state(one: Any, other: Any) -> None:
    """Compare two states bit for bit."""
    ours, theirs = flatten(one), flatten(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, theirs[name]), name
        else:
            assert value == theirs[name], name


class NoHostSynchronisation(TorchDispatchMode):
    """Fails when an operation needs a value on the host, or has a shape that depends on one."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique", "equal")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert name not in self.REFUSED, f"{func.name()} waits for the device"
        indices = args[1] if name.startswith("index") and len(args) > 1 else ()
        for index in indices if isinstance(indices, list | tuple) else ():
            assert index is None or index.dtype != torch.bool, "a boolean mask has a shape known only later"
        return func(*args, **(kwargs or {}))
