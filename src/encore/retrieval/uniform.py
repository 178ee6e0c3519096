"""Rehearse what chance picks."""

from __future__ import annotations

import torch
from torch import Tensor

from encore.interfaces import RetrievalContext


class Uniform:
    """Every filled slot with the same probability, none twice."""

    def __call__(self, context: RetrievalContext) -> Tensor:
        """Return slots [size]: those of the largest among random keys, one key for each filled slot."""
        memory = context.memory
        keys = torch.rand(memory.capacity, generator=context.generator, device=memory.labels.device)
        slots = torch.arange(memory.capacity, device=memory.labels.device)
        keys.masked_fill_(slots >= memory.num_filled_on_device, -1.0)
        return keys.topk(context.size, sorted=False).indices
