"""Named random generators, all derived from one seed.

Every part draws from its own generator, so that a change in one part does not shift another's numbers.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator

from encore.values import whole_number

ON_HOST = "host/"  # before the names of generators on the host
_GLOBAL_GENERATOR = threading.Lock()  # two learners made in two threads would draw from it by turns


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
        self.seed = whole_number("a seed", seed, 0, 2**63 - 1)
        self.device = torch.device(device)
        self._generators: dict[str, Generator] = {}

    def generator(self, name: str) -> Generator:
        """Return the generator of this name on the run's device, for what is drawn there."""
        return self._find(name, self.device)

    def host_generator(self, name: str) -> Generator:
        """Return the generator of this name on the host, for what is decided there."""
        return self._find(f"{ON_HOST}{name}", torch.device("cpu"))

    def device_generators(self) -> list[Generator]:
        """Return the generators on the run's device that were asked for so far."""
        return [made for name, made in self._generators.items() if not name.startswith(ON_HOST)]

    @contextmanager
    def seeded_initialisation(self) -> Iterator[None]:
        """Make torch's global generator give this seed's initial weights, and leave it as it was."""
        with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed, which would seed the generators of all GPUs, too.
            torch.default_generator.manual_seed(self._derive("initialisation"))
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every generator that was asked for."""
        states = {name: generator.get_state() for name, generator in self._generators.items()}
        return {"device": self.device.type, "generators": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Bring every generator to where it was.

        The generators of a GPU and of a CPU have different states. On the other kind of device the run goes
        on with new ones, and so with other numbers than it would have had.
        """
        for name, generator in self._generators.items():  # in place: they may be part of recorded graphs
            generator.manual_seed(self._derive(name))
        for name, generator_state in state["generators"].items():
            on_host = name.startswith(ON_HOST)
            if on_host or state["device"] == self.device.type:
                device = torch.device("cpu") if on_host else self.device
                self._find(name, device).set_state(generator_state.cpu())

    def _find(self, name: str, device: torch.device) -> Generator:
        if name not in self._generators:
            self._generators[name] = Generator(device).manual_seed(self._derive(name))
        return self._generators[name]

    def _derive(self, name: str) -> int:
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:7], "big")
