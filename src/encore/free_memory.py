"""How much more memory may be taken, before something large is put somewhere."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

CONTROL_GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")  # of this process in them


def free_memory(device: torch.device) -> int:
    """Return how many bytes are free on a device; on the host, the least that anything leaves this process.

    >>> free_memory(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return max(0, min([_machine(), *_control_groups(), *_ulimit()]))


def fits(num_bytes: int, free_bytes: int, share: float) -> bool:
    """Whether so much takes no more than a share of what is free.

    >>> fits(50, free_bytes=100, share=0.5), fits(51, free_bytes=100, share=0.5)
    (True, False)
    """
    return num_bytes <= share * free_bytes


def _machine() -> int:
    with suppress(OSError):  # where the system does not say, all that the machine has counts as free
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_groups(root: Path = CONTROL_GROUPS, membership: Path = MEMBERSHIP) -> Iterator[int]:
    """Return what containers and job schedulers leave, one limit within the other."""
    with suppress(OSError, ValueError, StopIteration):
        lines = membership.read_text(encoding="utf-8").splitlines()
        group = root / next(line for line in lines if line.startswith("0::")).removeprefix("0::").lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                return
            with suppress(OSError, ValueError):  # the outermost has no limit, others may have `max`
                limit = int((folder / "memory.max").read_text(encoding="ascii"))
                used = int((folder / "memory.current").read_text(encoding="ascii"))
                yield limit - used + _given_back_when_needed(folder)


def _given_back_when_needed(group: Path) -> int:
    """Return how much of what a control group uses are pages of files that nothing has touched lately."""
    lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def _ulimit() -> Iterator[int]:
    """Return what `ulimit -v` leaves."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        with suppress(OSError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            yield limit - pages * os.sysconf("SC_PAGE_SIZE")
