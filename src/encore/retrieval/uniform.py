"""Rehearse what chance picks."""

from __future__ import annotations

from torch import Tensor

from encore.interfaces import RetrievalContext
from encore.slots import random_keys


class Uniform:
    """Every filled slot with the same probability, none twice."""

    def __call__(self, context: RetrievalContext) -> Tensor:
        """Return slots [size]: those of the largest among random keys, one key for each filled slot."""
        keys = random_keys(context.memory, context.generator)
        return keys.topk(context.size, sorted=False).indices
