"""Squares cut out of images that are kept larger than the network takes them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def random_crops(images: Tensor, side: int, numbers: np.random.Generator) -> Tensor:
    """Return a square of each image [N, C, H, W], each at a place of its own: [N, C, side, side].

    >>> images = torch.arange(16).view(1, 1, 4, 4)
    >>> random_crops(images, 3, np.random.default_rng(0)).flatten().tolist()
    [5, 6, 7, 9, 10, 11, 13, 14, 15]
    """
    *_, height, width = images.shape
    places = numbers.integers([height - side + 1, width - side + 1], size=(len(images), 2)).tolist()
    if not places:
        return images[:, :, :side, :side]
    if images.device.type == "cpu":  # by NumPy: torch's threads would wait for those that decode
        pixels = images.numpy()
        cut = [image[:, y : y + side, x : x + side] for image, (y, x) in zip(pixels, places, strict=True)]
        return torch.from_numpy(np.stack(cut))
    return torch.stack(
        [image[:, y : y + side, x : x + side] for image, (y, x) in zip(images, places, strict=True)]
    )


def central_crops(images: Tensor, side: int) -> Tensor:
    """Return the middle square of each image [N, C, H, W]: [N, C, side, side].

    >>> central_crops(torch.arange(16).view(1, 1, 4, 4), 2).flatten().tolist()
    [5, 6, 9, 10]
    """
    *_, height, width = images.shape
    y, x = (height - side) // 2, (width - side) // 2
    return images[:, :, y : y + side, x : x + side].contiguous()
