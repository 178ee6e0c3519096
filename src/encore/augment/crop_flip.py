"""Random crops and mirror images: the augmentation that the paper gives for dark experience replay."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from encore.augment.rand_augment import check_call
from encore.pixels import as_floats

PADDING = 4  # black pixels on each side, whatever the image's size


class Crops(NamedTuple):
    """What every image draws for each of its operations."""

    shifts: Tensor  # int64 [num_ops, N, 2]: how far the window lies below and right of the image's own place
    mirrored: Tensor  # int64 [num_ops, N]: 1 or 0


class CropFlip:
    """Cuts every image's own size out of it, padded with 4 black pixels, and mirrors half of the images.

    Each image draws its window, (2 * 4 + 1)^2 are possible, and whether left and right change places. With
    several operations it is done as often. The magnitude plays no part. There is one execution for all
    devices, in whole numbers and fixed shapes.

    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> CropFlip()(images, num_ops=1, magnitude=14, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """

    def __call__(self, images: Tensor, num_ops: int, magnitude: int | Tensor, generator: Generator) -> Tensor:
        """Augment images, uint8 [N, C, H, W] with 1 or 3 channels, to float32 of that shape in [0, 1].

        The generator must be on the images' device.
        """
        check_call(images, num_ops, magnitude, generator)
        if num_ops == 0:
            return as_floats(images)
        return self.apply(images, self.draw(len(images), num_ops, generator))

    def draw(self, num_images: int, num_ops: int, generator: Generator) -> Crops:
        """Draw for every image; what is taken from the generator depends on nothing but the two counts."""
        shape, device = (num_ops, num_images), generator.device
        shifts = torch.randint(-PADDING, PADDING + 1, (*shape, 2), generator=generator, device=device)
        return Crops(shifts, torch.randint(2, shape, generator=generator, device=device))

    def apply(self, images: Tensor, crops: Crops) -> Tensor:
        """Augment images by what they have drawn."""
        for shifts, mirrored in zip(crops.shifts.unbind(0), crops.mirrored.unbind(0), strict=True):
            images = crop(images, shifts, mirrored)
        return as_floats(images)


def crop(images: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
    """Fetch the pixels of each image's window; black where it lies outside the image."""
    height, width = images.shape[2:]
    xs = torch.arange(width, device=images.device)
    ys = torch.arange(height, device=images.device)
    down, right = shifts.unsqueeze(2).unbind(1)  # [N, 1]
    y = ys + down
    x = xs + right + mirrored.unsqueeze(1) * (width - 1 - 2 * xs)
    inside_y, inside_x = (y >= 0) & (y < height), (x >= 0) & (x < width)
    inside = (inside_y.unsqueeze(2) & inside_x.unsqueeze(1)).flatten(1).unsqueeze(1)
    source = (y.unsqueeze(2) * width + x.unsqueeze(1)).flatten(1).unsqueeze(1) * inside
    planes = images.flatten(2)
    return (planes.gather(2, source.expand_as(planes)) * inside).view_as(images)
