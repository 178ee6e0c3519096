"""The network's encoder as torch.compile makes it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from encore.errors import EncoreError
from encore.execution import Encode, compiled_by
from encore.interfaces import Inputs, Model, Result
from encore.own_kernels import has_triton
from encore.randomness import Randomness
from encore.values import whole_number


class Compiled:
    """The network's encoder, forward and backward, as torch.compile makes it; the rest is plain PyTorch.

    It is compiled once for each shape of images that goes through it, so neither K, P or Q nor the number of
    examples in memory compiles anything anew. A shape that came in only one incoming batch so far, such as
    the very first with nothing remembered beside it, is not compiled: that would take longer than it saves.
    What is compiled serves all learners of the process, and torch keeps it on the disk for the next one.
    """

    def __init__(
        self,
        draws: Randomness,
        most_shapes: Annotated[int, "Shapes of images that are compiled; others are done eagerly."] = 8,
    ) -> None:
        check_compiler(draws.device)
        self.most_shapes = whole_number("most_shapes", most_shapes, lowest=0)
        self._turn = 0
        self._met: dict[tuple[int, ...], int] = {}  # shape -> the turn in which it came first

    def run(self, work: Callable[[Inputs], Result], inputs: Inputs, times: int = 1) -> Result:
        """Do the work with compiled encoders."""
        self._turn += 1
        with compiled_by(self):
            for _ in range(times - 1):
                work(inputs)
            return work(inputs)

    def compiled(self, work: Encode[Any], model: Model, images: Tensor) -> Encode[Any]:
        """Return the encoder to use for such images."""
        shape = tuple(images.shape)
        if self._met.setdefault(shape, self._turn) == self._turn:
            return work
        if list(self._met).index(shape) >= self.most_shapes:
            return work
        return _compile(work)

    def state_dict(self) -> dict[str, Any]:
        """Return which shapes were met: what is compiled may differ in the last bit from what is not."""
        return {"met": [list(shape) for shape in self._met]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the shapes that were met for met."""
        self._turn, self._met = 1, {tuple(shape): 0 for shape in state["met"]}


@cache
def _compile(work: Encode[Any]) -> Encode[Any]:
    """Return an encoder that is compiled for each new shape it is called with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of one part of torch about another
        import torch._dynamo
        import torch._inductor.compile_fx
    settings: Any = torch._dynamo.config
    settings.recompile_limit = max(settings.recompile_limit, 64)  # of networks and shapes in one process
    compiled = torch.compile(work, dynamic=False)

    def call(model: Any, images: Tensor) -> Tensor:
        try:
            features: Tensor = compiled(model, images)
        except (torch._dynamo.exc.TorchDynamoException, torch._inductor.exc.InductorError) as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise EncoreError(
                f"the network could not be compiled ({reason}): use the engine eager"
            ) from error
        return features

    return call


def check_compiler(device: torch.device) -> None:
    """Refuse a machine on which torch.compile would fail for want of a tool."""
    advice = "; install it, or use the engine auto or eager"
    if device.type == "cuda":
        if not has_triton():
            raise EncoreError(f"the engine compiled needs Triton on a GPU, and it is not installed{advice}")
        return
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        raise EncoreError(f"the engine compiled needs a C++ compiler, and there is no {name}{advice}")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise EncoreError(f"the engine compiled needs Python's own headers, and there is no {header}{advice}")
