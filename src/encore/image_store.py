"""A benchmark's images as uint8 on the training device, read by every run and changed by none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from encore.errors import EncoreError
from encore.interfaces import Batch, ImageSet, LabelledImages


@dataclass(frozen=True)
class ImageStore:
    """Training and test images with their labels, decoded once."""

    train: Batch
    test: Batch
    class_names: tuple[str, ...]

    @classmethod
    def from_image_set(cls, images: ImageSet, device: torch.device) -> ImageStore:
        """Check a decoded data set and move it to the device.

        >>> from encore.datasets.digits import Digits
        >>> store = ImageStore.from_image_set(Digits().load(None), torch.device("cpu"))
        >>> store.train.images.shape[1:], store.num_classes
        (torch.Size([1, 8, 8]), 10)
        """
        num_classes = len(images.class_names)
        train = _to_batch("training", images.train, num_classes, device)
        test = _to_batch("test", images.test, num_classes, device)
        if train.images.shape[1:] != test.images.shape[1:]:
            raise EncoreError("training and test images must have the same shape")
        return cls(train, test, images.class_names)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width


def _to_batch(name: str, examples: LabelledImages, num_classes: int, device: torch.device) -> Batch:
    images, labels = examples
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) != len(labels) or len(labels) == 0:
        raise EncoreError(
            f"{name} images must be uint8 [N, C, H, W] with a label each, "
            f"got {images.dtype} {list(images.shape)} and {len(labels)} labels"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise EncoreError(
            f"{name} labels must be from 0 to {num_classes - 1}, got {labels.min()} to {labels.max()}"
        )
    return Batch(
        torch.from_numpy(images).to(device), torch.from_numpy(labels.astype(np.int64, copy=False)).to(device)
    )
