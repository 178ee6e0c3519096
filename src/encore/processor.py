"""How a CPU is put to good use: what is set before torch is there, memory that is kept, what it can compute.

Nothing here imports torch before `prepare_environment` has set what torch's threads read when they begin.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

# While the threads of torch wait for each other, they look a thousand times and then sleep. By default they
# go on looking, and on a machine that does something else besides, each holds the core that the one it waits
# for would need (docs/speed.md). The second name is libgomp's own; other libraries sleep at once.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names in glibc's malloc.h
_LARGEST_KEPT = 2**26  # bytes of a block; larger ones are given back at once


def prepare_environment() -> None:
    """Set what torch reads when it is imported, unless some of it is set already."""
    if not ENVIRONMENT.keys() & os.environ.keys():
        os.environ.update(ENVIRONMENT)


@cache
def keep_freed_memory() -> bool:
    """Let the process keep memory that was freed, for what needs it next; return whether it does.

    Else glibc gives an iteration's maps back to the system at its end, or does not, as they happen to lie;
    where it does, every page of them is faulted in again at the next one. Without glibc nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a C library that is not glibc
        return False
    return bool(set_option(_TRIM_THRESHOLD, 2**31 - 1)) and bool(set_option(_MMAP_THRESHOLD, _LARGEST_KEPT))


@cache
def multiplies_bfloat16() -> bool:
    """Whether the CPU has instructions that multiply bfloat16: else it is slower than float32."""
    import torch

    has = torch.cpu.get_capabilities()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))
