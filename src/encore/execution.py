"""How the encoder of a network is executed: with which numbers, and compiled or as Python reaches it.

The learner says which numbers, an engine whether it is compiled, and a network leaves the work of its
`features` to `encode`. All of it concerns training alone: answers are computed in float32, by plain PyTorch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from encore.errors import EncoreError, unknown_name
from encore.interfaces import Model
from encore.processor import multiplies_bfloat16

PRECISIONS = ("float32", "bfloat16", "auto")
_now = threading.local()

Network = TypeVar("Network", bound=Model)
Encode = Callable[[Network, Tensor], Tensor]


class Compiler(Protocol):
    """Makes something faster of an encoder, or returns it as it is."""

    def compiled(self, work: Encode[Any], model: Model, images: Tensor) -> Encode[Any]: ...  # noqa: D102


def encode(work: Encode[Network], model: Network, images: Tensor) -> Tensor:
    """Return the work's features of images, float [N, num_features], executed as it was said."""
    if not (model.training and torch.is_grad_enabled()):
        return work(model, images)
    compiler: Compiler | None = getattr(_now, "compiler", None)
    if compiler is not None:
        work = compiler.compiled(work, model, images)
    if getattr(_now, "precision", "float32") == "float32" or images.dtype != torch.float32:
        return work(model, images)
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        features = work(model, images)
    return features.float()  # the head and the loss always have float32


@contextmanager
def in_precision(precision: str) -> Iterator[None]:
    """Train in float32, or with the convolutions of the encoder in bfloat16, in this thread."""
    before = getattr(_now, "precision", "float32")
    _now.precision = precision
    try:
        yield
    finally:
        _now.precision = before


@contextmanager
def compiled_by(compiler: Compiler) -> Iterator[None]:
    """Have encoders compiled in this thread."""
    before = getattr(_now, "compiler", None)
    _now.compiler = compiler
    try:
        yield
    finally:
        _now.compiler = before


def resolve_precision(name: str, device: torch.device) -> str:
    """Return the precision called so on a device; `auto` is bfloat16 on a CPU with instructions for it.

    >>> resolve_precision("float32", torch.device("cpu"))
    'float32'
    """
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    if name == "auto":
        return "bfloat16" if device.type == "cpu" and multiplies_bfloat16() else "float32"
    if name == "bfloat16" and device.type != "cpu":
        raise EncoreError(f"bfloat16 is there for CPUs only, and the device is {device}: use float32 or auto")
    return name
