"""Images as the network takes them."""

import torch
from torch import Tensor

HIGHEST_LEVEL = 255.0


def as_floats(images: Tensor) -> Tensor:
    """Return uint8 images [N, C, H, W] as floats from 0 to 1, with the channels innermost.

    >>> as_floats(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).flatten().tolist()
    [0.0, 1.0]
    """
    return to_unit_interval(images).contiguous(memory_format=torch.channels_last)


def to_unit_interval(images: Tensor) -> Tensor:
    """Return uint8 images as floats from 0 to 1, the same bits on every device.

    By a plain number a GPU would not divide: it multiplies by the number's rounded inverse.
    """
    return images.to(torch.float32).div_(torch.full((), HIGHEST_LEVEL, device=images.device))
