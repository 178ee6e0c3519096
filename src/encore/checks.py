"""From what a caller hands in to a `Batch`, or to one sentence that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encore.errors import EncoreError
from encore.interfaces import Batch

Array = Tensor | NDArray[Any]
TOLERANCE = 1e-3  # by which floats may leave 0 to 1, as after resizing: a quarter of a grey level


def check_batch(
    images: Array, labels: Array, image_shape: tuple[int, int, int], num_classes: int, device: torch.device
) -> Batch:
    """Return images and labels as a batch on the device.

    >>> two = np.zeros((2, 1, 8, 8), np.uint8)
    >>> check_batch(two, np.array([0, 10]), (1, 8, 8), 10, torch.device("cpu"))
    Traceback (most recent call last):
        ...
    encore.errors.EncoreError: labels must be from 0 to 9 for 10 classes, got 10
    """
    checked = check_images(images, image_shape, device)
    labels = _as_tensor("labels", labels)
    if labels.dtype == torch.bool or labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise EncoreError(f"labels must be whole numbers (int64), got {_name(labels.dtype)}")
    if labels.ndim != 1 or len(labels) != len(checked):
        raise EncoreError(
            f"labels must be one class for each of the {len(checked)} images, got shape {list(labels.shape)}"
        )
    lowest, highest = torch.stack(torch.aminmax(labels.long())).tolist()
    if lowest < 0 or highest >= num_classes:
        outside = lowest if lowest < 0 else highest
        raise EncoreError(
            f"labels must be from 0 to {num_classes - 1} for {num_classes} classes, got {outside}"
        )
    return Batch(checked, labels.to(device, torch.int64))


def check_images(images: Array, image_shape: tuple[int, int, int], device: torch.device) -> Tensor:
    """Return images as uint8 [N, C, H, W] on the device; floats in [0, 1] are rounded to 256 levels."""
    images = _as_tensor("images", images)
    channels, height, width = image_shape
    if images.ndim != 4 or tuple(images.shape[1:]) != image_shape:
        hint = ""
        if images.ndim == 4 and tuple(images.shape[1:]) == (height, width, channels):
            hint = ": channels come first, so permute them to (0, 3, 1, 2)"
        elif tuple(images.shape) == image_shape:
            hint = ": for a single image add the first dimension with images[None]"
        raise EncoreError(
            f"images must have shape [N, {channels}, {height}, {width}], got {list(images.shape)}{hint}"
        )
    if len(images) == 0:
        raise EncoreError("the batch is empty: hand in at least one image")
    if images.dtype == torch.uint8:
        return images.to(device)
    if not images.dtype.is_floating_point:
        raise EncoreError(f"images must be uint8, or floats from 0 to 1, got {_name(images.dtype)}")
    lowest, highest = torch.stack(torch.aminmax(images.float())).tolist()
    if not np.isfinite(lowest + highest):
        raise EncoreError("images must be finite, got NaN or infinity")
    if lowest < -TOLERANCE or highest > 1 + TOLERANCE:
        raise EncoreError(
            f"images as floats must lie between 0 and 1, without normalisation, "
            f"got {lowest:.4g} to {highest:.4g}"
        )
    return (images.to(device).clamp(0, 1) * 255).round().to(torch.uint8)


def _as_tensor(name: str, values: Array) -> Tensor:
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise EncoreError(f"{name} must be a dense tensor, got a sparse one: hand in its to_dense()")
        return values.detach()
    if not isinstance(values, np.ndarray):
        raise EncoreError(f"{name} must be a torch tensor or a NumPy array, got {type(values).__name__}")
    try:
        # A copy only where torch could not share the array: read-only, reversed, or of the other byte order.
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return torch.from_numpy(np.require(native, requirements=["C", "W"]))
    except TypeError as error:
        raise EncoreError(f"{name} must hold numbers, got a NumPy array of {values.dtype}") from error


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
