"""What `--operation-space` chooses between: the two spaces of RandAugment, and crops."""

from __future__ import annotations

from typing import Protocol

from torch import Generator, Tensor

from encore.augment.crop_flip import CropFlip
from encore.augment.operation_spaces import SPACES
from encore.augment.rand_augment import RandAugment

CROP_FLIP = "crop_flip"
OPERATION_SPACES = (*SPACES, CROP_FLIP)


class Augmentation(Protocol):
    """Augments every image of a batch by random operations of its own."""

    def __call__(self, images: Tensor, num_ops: int, magnitude: int | Tensor, generator: Generator) -> Tensor:
        """Augment images, uint8 [N, C, H, W], to float32 of that shape in [0, 1]."""


def make_augmentation(space: str) -> Augmentation:
    """Return what draws from one of the `OPERATION_SPACES`.

    >>> type(make_augmentation("crop_flip")).__name__, type(make_augmentation("authors")).__name__
    ('CropFlip', 'RandAugment')
    """
    return CropFlip() if space == CROP_FLIP else RandAugment(space)
