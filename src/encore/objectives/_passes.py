"""Forward passes in which remembered and incoming rows have batch normalisation of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def pass_apart(
    network: Callable[[Tensor], Tensor], images: Tensor, num_remembered: int, smallest_batch: int
) -> Tensor:
    """Return what the network makes of the remembered rows and of the incoming rows, each seen alone.

    Where one of them has fewer rows than batch normalisation can train on, or none, all are seen together.

    >>> centred = lambda rows: rows - rows.mean()
    >>> pass_apart(centred, torch.tensor([1.0, 3.0, 10.0, 20.0]), num_remembered=2, smallest_batch=1)
    tensor([-1.,  1., -5.,  5.])
    """
    parts = images.tensor_split([num_remembered])
    if min(len(part) for part in parts) < max(smallest_batch, 1):
        return network(images)
    return torch.cat([network(part) for part in parts])
