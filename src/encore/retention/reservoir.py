"""Keep a uniform sample of all that was ever seen."""

from __future__ import annotations

import torch
from torch import Tensor

from encore.interfaces import RetentionContext


class Reservoir:
    """Textbook reservoir sampling: the j-th example seen enters with probability M / j.

    The whole batch at once: example i of the batch is the j-th seen, j = num_seen + i + 1. It draws a
    slot uniformly from 0 to j - 1. While there is room the slot is j - 1 itself; later a slot of M or
    more means the example is not kept. Where two examples of a batch draw the same slot, the later one
    stays, as if they had come one by one.
    """

    def __call__(self, context: RetentionContext) -> Tensor:
        """Return slots [B]."""
        memory, size = context.memory, len(context.incoming.labels)
        device = memory.labels.device
        seen_before = memory.num_seen_on_device + torch.arange(size, device=device)  # j - 1
        uniform = torch.rand(size, generator=context.generator, device=device, dtype=torch.float64)
        drawn = (uniform * (seen_before + 1)).long()
        slots = torch.where(seen_before < memory.capacity, seen_before, drawn).clamp(max=memory.scratch)
        # In a stable order those of one slot are neighbours, the last of the batch at the end.
        in_order, example = slots.sort(stable=True)
        overwritten_later = torch.zeros_like(slots, dtype=torch.bool)
        overwritten_later.scatter_(0, example[:-1], in_order[:-1] == in_order[1:])
        return slots.masked_fill(overwritten_later, memory.scratch)
