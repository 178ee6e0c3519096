"""Keep nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from encore.interfaces import RetentionContext


class Nothing:
    """No example is remembered, and no room is set aside for any."""

    keeps = False

    def __call__(self, context: RetentionContext) -> Tensor:
        """Return the scratch slot for every example [B]."""
        return torch.full_like(context.incoming.labels, context.memory.scratch)
