from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from encore import free_memory as module
from encore import memory
from encore.free_memory import fits, free_memory

CPU = torch.device("cpu")
GIGABYTE = 2**30


@pytest.fixture
def limit() -> Iterator[int]:
    """Leave this process a gigabyte of addresses more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    allowed = pages * resource.getpagesize() + GIGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    yield allowed
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_ulimit_is_heeded(limit: int) -> None:
    assert 0.9 * GIGABYTE < free_memory(CPU) <= GIGABYTE


def test_without_limits_it_is_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_control_groups", lambda: iter(()))
    (available,) = [
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    ]
    assert free_memory(CPU) == pytest.approx(available, rel=0.1)


def write_group(folder: Path, limit: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nactive_file 7\n")


def test_limits_of_containers_are_heeded(tmp_path: Path) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    write_group(root / "jobs" / "job-7", limit="1000", used=700, cached=50)
    write_group(root / "jobs", limit="max", used=900, cached=0)
    (root / "jobs" / "job-7" / "step").mkdir()  # one without limits of its own
    membership.write_text("4:memory:/old\n0::/jobs/job-7/step\n")
    assert list(module._control_groups(root, membership)) == [350]
    write_group(root / "jobs", limit="5000", used=4900, cached=0)
    assert list(module._control_groups(root, membership)) == [350, 100]
    membership.write_text("4:memory:/old\n")
    assert list(module._control_groups(root, membership)) == []
    assert list(module._control_groups(root, tmp_path / "nowhere")) == []


def test_a_share_of_what_is_free_may_be_taken() -> None:
    assert fits(0, 0, 0.5)
    assert fits(50, 100, 0.5)
    assert not fits(51, 100, 0.5)


@pytest.mark.parametrize(
    ("free", "place"),
    # The paper's larger memory of ImageNet takes 15,052,950,528 bytes.
    [(139 * GIGABYTE, "cuda"), (30_105_901_056, "cuda"), (30_105_901_055, "cpu"), (0, "cpu")],
)
def test_memory_lies_on_a_gpu_while_that_leaves_room(
    free: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: free)
    num_bytes = 100_001 * 3 * 224 * 224
    assert memory._place_images(num_bytes, torch.device("cuda")) == torch.device(place)
    assert memory._place_images(num_bytes, CPU) == CPU
