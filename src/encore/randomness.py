"""Named random generators, all derived from one seed.

Every part draws from its own generator, so that a change in one part does not shift another's numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from encore.errors import EncoreError


class Randomness:
    """The generators of one run, made when first asked for.

    >>> draws = Randomness(seed=0)
    >>> first = torch.rand(3, generator=draws.generator("retrieval"))
    >>> again = torch.rand(3, generator=Randomness(seed=0).generator("retrieval"))
    >>> other = torch.rand(3, generator=Randomness(seed=0).generator("retention"))
    >>> bool((first == again).all()), bool((first == other).all())
    (True, False)
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise EncoreError(f"a seed must be a whole number from 0 to 2**63 - 1, got {seed!r}")
        self.seed = seed
        self.device = torch.device(device)
        self._generators: dict[str, Generator] = {}

    def generator(self, name: str) -> Generator:
        """Return the generator of this name on the run's device, for what is drawn there."""
        return self._find(name, self.device)

    def host_generator(self, name: str) -> Generator:
        """Return the generator of this name on the host, for what is decided there."""
        return self._find(f"host/{name}", torch.device("cpu"))

    @contextmanager
    def seeded_initialisation(self) -> Iterator[None]:
        """Make torch's global generator give this seed's initial weights, and leave it as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._derive("initialisation"))
            yield

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of every generator that was asked for."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Bring every generator to where it was."""
        for name, generator_state in state.items():
            device = torch.device("cpu") if name.startswith("host/") else self.device
            self._find(name, device).set_state(generator_state.cpu())

    def _find(self, name: str, device: torch.device) -> Generator:
        if name not in self._generators:
            self._generators[name] = Generator(device).manual_seed(self._derive(name))
        return self._generators[name]

    def _derive(self, name: str) -> int:
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:7], "big")
