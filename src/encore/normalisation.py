"""How batch normalisation works while a part only looks: its running statistics are never moved by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from encore.interfaces import Model


def as_in_training(model: Model, num_images: int) -> AbstractContextManager[None]:
    """Normalise with the statistics of the batch, if so many images have any: one value has no variance."""
    return batch_statistics(model) if num_images >= model.smallest_batch else running_statistics(model)


@contextmanager
def batch_statistics(model: Model) -> Iterator[None]:
    """Work as in training, but leave no trace in the running statistics and the count of batches."""
    with _mode(model, training=True):
        tracking: list[Any] = [
            module for module in model.modules() if getattr(module, "track_running_stats", False)
        ]
        for module in tracking:
            module.track_running_stats = False  # which also spares their update
        try:
            yield
        finally:
            for module in tracking:
                module.track_running_stats = True


@contextmanager
def running_statistics(model: Model) -> Iterator[None]:
    """Work as in evaluation: an image's features do not depend on what else is in its batch."""
    with _mode(model, training=False):
        yield


@contextmanager
def _mode(model: Model, training: bool) -> Iterator[None]:
    """Set the mode, and afterwards give every module its own back."""
    before = [(module, module.training) for module in model.modules()]
    for module, _ in before:
        module.training = training
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode
