"""Slots drawn at random, with shapes that do not depend on what the memory holds."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from encore.memory import Memory

KEY_BITS = 31  # of the random part of a key; the slot itself lies in the 32 bits below
SLOT_BITS = 32


MOST_PER_CLASS = 100  # samples of a class: each takes a round of drawing


def random_keys(memory: Memory, generator: Generator) -> Tensor:
    """Return a random number from 0 to 1 for each slot, float32 [capacity]; -1 where it is not filled.

    The slots of the largest keys are a uniform sample without replacement.
    """
    keys = torch.rand(memory.capacity, generator=generator, device=memory.labels.device)
    slots = torch.arange(memory.capacity, device=memory.labels.device)
    return keys.masked_fill_(slots >= memory.num_filled_on_device, -1.0)


def draw_from_classes(memory: Memory, num_classes: int, count: int, generator: Generator) -> Tensor:
    """Draw so many examples of each class, uniformly and without replacement: slots [count * num_classes].

    The first of every class come first, in the order of the classes, then the second, and so on. Where a
    class has fewer examples stands `memory.scratch`, for nothing.
    """
    device = memory.labels.device
    slots = torch.arange(memory.capacity + 1, device=device)
    keys = torch.randint(1 << KEY_BITS, slots.shape, generator=generator, device=device)
    # With the slot in its lower bits, the largest key of a class says which slot it belongs to.
    keys = (keys << SLOT_BITS) + slots
    keys.masked_fill_(slots >= memory.num_filled_on_device, -1)
    drawn: list[Tensor] = []
    for _ in range(count):
        if drawn:
            keys.index_fill_(0, drawn[-1], -1)
        largest = torch.full((num_classes,), -1, device=device)
        largest.scatter_reduce_(0, memory.labels, keys, "amax")
        found = largest & ((1 << SLOT_BITS) - 1)
        drawn.append(found.clamp_(max=memory.scratch))  # all bits of -1 are set, so nothing becomes scratch
    return torch.cat(drawn)
