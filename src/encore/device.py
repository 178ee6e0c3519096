"""Where a run computes, and on how many threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from encore.errors import EncoreError

MOST_THREADS = 1024  # torch would try to start any number
MOST_THREADS_UNASKED = 8  # a batch of twenty small images has not work for more
FEW_IMAGES = 256
MOST_PIXELS = 2**20
SMALL_IMAGE = 8 * 8  # pixels; up to here a second thread gives little (docs/decisions.md)


def resolve_device(name: str) -> torch.device:
    """Return the device called so; `auto` is the GPU if there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if not isinstance(name, str):
        raise EncoreError(f"a device must be named auto, cpu, cuda or cuda:N, got {name!r}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EncoreError(f"there is no device {name!r}: use auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise EncoreError(f"Encore trains on cpu or cuda, not on {name!r}")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise EncoreError("cuda was asked for, and torch finds no CUDA device: use --device cpu or auto")
        if device.index is not None and device.index >= torch.cuda.device_count():
            raise EncoreError(f"there is no {name}: torch finds {torch.cuda.device_count()} CUDA device(s)")
    return device


@contextmanager
def enough_memory() -> Iterator[None]:
    """Say so in a sentence if the network or the memory does not fit."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        if isinstance(error, RuntimeError) and "memory" not in reason.lower():
            raise
        raise EncoreError(f"it does not fit: {reason}; choose a smaller memory or network") from error


def images_at_a_time(device: torch.device, image_shape: Sequence[int]) -> int:
    """Return how many images go through a network at a time where nothing is learnt from them.

    A GPU waits for Python if they are few. More than these take memory for maps that it may need elsewhere.

    >>> [images_at_a_time(torch.device(name), (3, 32, 32)) for name in ("cpu", "cuda")]
    [256, 1024]
    """
    if device.type == "cpu":
        return FEW_IMAGES
    return max(FEW_IMAGES, MOST_PIXELS // (image_shape[1] * image_shape[2]))


def choose_threads(image_shape: tuple[int, int, int]) -> int:
    """Return how many threads to train on images of this size with.

    >>> choose_threads((1, 8, 8))
    1
    """
    if image_shape[1] * image_shape[2] <= SMALL_IMAGE:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_THREADS_UNASKED)
