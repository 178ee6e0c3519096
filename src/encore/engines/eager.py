"""The reference: every operation is launched as Python reaches it."""

from __future__ import annotations

from collections.abc import Callable

from encore.interfaces import Inputs, Result
from encore.randomness import Randomness


class Eager:
    """Plain PyTorch, on any device: what the faster engines are checked against."""

    def __init__(self, draws: Randomness) -> None:
        pass

    def run(self, work: Callable[[Inputs], Result], inputs: Inputs, times: int = 1) -> Result:
        """Call the work."""
        for _ in range(times - 1):
            work(inputs)
        return work(inputs)
