"""A live stream: whatever comes, as it comes, in batches of one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from encore.checks import check_images
from encore.errors import EncoreError
from encore.from_arrays import check_labels
from encore.interfaces import Batch
from encore.values import whole_number


def recut(batches: Iterable[tuple[Any, Any]], size: int = 10) -> Iterator[Batch]:
    """Hand out the images of batches of any sizes in batches of one size, in the order in which they come.

    Nothing is taken from the source before it is needed, and nothing twice; at most one of its batches and
    what is left of those before are held. What is left at the end comes as a smaller batch. If the source
    raises, so does this; what was left then has not come.

    Args:
        batches: pairs of images, uint8 [B, C, H, W] or floats from 0 to 1, and labels, whole numbers [B].
        size: how many images there are to be in a batch.

    >>> source = ((np.zeros((count, 1, 8, 8), dtype=np.uint8), np.arange(count)) for count in (3, 4, 1))
    >>> [batch.labels.tolist() for batch in recut(source, size=3)]
    [[0, 1, 2], [0, 1, 2], [3, 0]]

    """
    return _recut(batches, whole_number("size", size, lowest=1))


def _recut(batches: Iterable[tuple[Any, Any]], size: int) -> Iterator[Batch]:
    waiting: Batch | None = None
    for number, batch in enumerate(batches, start=1):
        incoming = _check(batch, number)
        if incoming is None:
            continue
        if waiting is not None:
            incoming = _join(waiting, incoming, number)
        images, labels = incoming
        while len(labels) >= size:
            yield Batch(images[:size], labels[:size])
            images, labels = images[size:], labels[size:]
        waiting = Batch(images, labels) if len(labels) else None
    if waiting is not None:
        yield waiting


def _check(batch: Any, number: int) -> Batch | None:
    """Return a copy of what came, as the source may use its arrays again; None of an empty batch."""
    try:
        images, labels = batch
    except (TypeError, ValueError):
        raise EncoreError(
            f"batch {number} must be a pair of images and labels, got {type(batch).__name__}"
        ) from None
    if not isinstance(images, Tensor | np.ndarray) or images.ndim != 4:
        shape = getattr(images, "shape", None)
        got = type(images).__name__ if shape is None else f"shape {list(shape)}"
        hint = "" if shape is None or len(shape) != 3 else ": for a single image hand in images[None]"
        raise EncoreError(f"batch {number} must have images [B, C, H, W] in an array, got {got}{hint}")
    if len(images) == 0:
        return None
    device = images.device if isinstance(images, Tensor) else torch.device("cpu")
    _, channels, height, width = images.shape
    checked = check_images(images, (channels, height, width), device).clone()
    numbers = check_labels(f"the labels of batch {number}", labels, len(checked))
    if numbers.dtype.kind == "U":
        raise EncoreError(f"the labels of batch {number} must be numbers of classes, got {str(numbers[0])!r}")
    return Batch(checked, torch.from_numpy(numbers.astype(np.int64)).to(device))


def _join(waiting: Batch, incoming: Batch, number: int) -> Batch:
    if waiting.images.shape[1:] != incoming.images.shape[1:]:
        raise EncoreError(
            f"batch {number} has images of {list(incoming.images.shape[1:])}, and those before were of "
            f"{list(waiting.images.shape[1:])}"
        )
    if waiting.images.device != incoming.images.device:
        raise EncoreError(
            f"batch {number} is on {incoming.images.device}, and those before were on {waiting.images.device}"
        )
    return Batch(*(torch.cat(parts) for parts in zip(waiting, incoming, strict=True)))
