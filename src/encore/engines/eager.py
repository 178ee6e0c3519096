"""The reference: every operation is launched as Python reaches it."""

from __future__ import annotations

from torch import Tensor

from encore.interfaces import Batch, Plan, RehearseOnce


class Eager:
    """Plain PyTorch, on any device: what the faster engines are checked against."""

    def step(self, rehearse_once: RehearseOnce, incoming: Batch, plan: Plan) -> Tensor:
        """Call the iteration."""
        return rehearse_once(incoming, plan)
