"""Whether work is done by Encore's own kernels (encore/kernels), where they can do it: the engine decides.

They are written in Triton, which comes with torch's builds for CUDA; where it is missing they are not used.
Sums over a batch have no fixed order in them, so torch's deterministic mode turns off those that sum.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

_wanted = threading.local()


@contextmanager
def use_own_kernels(wanted: bool = True) -> Iterator[None]:
    """Use Encore's own kernels in this thread, or do not."""
    before = getattr(_wanted, "now", False)
    _wanted.now = wanted
    try:
        yield
    finally:
        _wanted.now = before


def in_use(where: Tensor, *, adds_up: bool) -> bool:
    """Whether to use them for a tensor; `adds_up`: with sums of floats, whose order varies."""
    return (
        getattr(_wanted, "now", False)
        and where.is_cuda
        and has_triton()
        and not (adds_up and torch.are_deterministic_algorithms_enabled())
    )


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None
