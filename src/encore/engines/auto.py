"""The fastest engine for a device."""

from __future__ import annotations

from collections.abc import Callable

from encore.engines.eager import Eager
from encore.engines.graph import Graph
from encore.interfaces import Engine, Inputs, Result
from encore.randomness import Randomness


class Auto:
    """The fastest that works: CUDA graphs on a GPU, plain PyTorch on a CPU."""

    def __init__(self, draws: Randomness) -> None:
        self.chosen: Engine = Graph(draws) if draws.device.type == "cuda" else Eager(draws)

    def run(self, work: Callable[[Inputs], Result], inputs: Inputs, times: int = 1) -> Result:
        """Have it done."""
        return self.chosen.run(work, inputs, times)
