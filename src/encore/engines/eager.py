"""The reference: every operation is launched as Python reaches it."""

from __future__ import annotations

from collections.abc import Callable

from encore.interfaces import Inputs, Result


class Eager:
    """Plain PyTorch, on any device: what the faster engines are checked against."""

    def run(self, work: Callable[[Inputs], Result], inputs: Inputs) -> Result:
        """Call the work."""
        return work(inputs)
