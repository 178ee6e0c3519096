"""Where a run computes, and on how many threads."""

from __future__ import annotations

import os

import torch

from encore.errors import EncoreError

SMALL_IMAGE = 8 * 8  # pixels; up to here a second thread gives little (docs/decisions.md)


def resolve_device(name: str) -> torch.device:
    """Return the device called so; `auto` is the GPU if there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
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


def choose_threads(image_shape: tuple[int, int, int]) -> int:
    """Return how many threads to train on images of this size with.

    >>> choose_threads((1, 8, 8))
    1
    """
    if image_shape[1] * image_shape[2] <= SMALL_IMAGE:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
