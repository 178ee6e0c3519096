"""Rehearse nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from encore.interfaces import RetrievalContext


class Nothing:
    """No slot, whatever the memory holds: the network learns from the incoming examples alone."""

    retrieves = False

    def __call__(self, context: RetrievalContext) -> Tensor:
        """Return no slots [0]."""
        return torch.empty(0, dtype=torch.int64, device=context.memory.labels.device)
