"""Images as the network takes them."""

import torch
from torch import Tensor


def as_floats(images: Tensor) -> Tensor:
    """Return uint8 images [N, C, H, W] as floats from 0 to 1, with the channels innermost.

    >>> as_floats(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).flatten().tolist()
    [0.0, 1.0]
    """
    return (images / 255).contiguous(memory_format=torch.channels_last)
