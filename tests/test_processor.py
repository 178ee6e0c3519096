"""What is set for the CPU: before torch is there, and for the process's memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from encore.processor import ENVIRONMENT, multiplies_bfloat16, prepare_environment


def test_environment_is_set_unless_it_is_already(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    prepare_environment()
    assert {name: os.environ[name] for name in ENVIRONMENT} == ENVIRONMENT
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    prepare_environment()
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    assert "GOMP_SPINCOUNT" not in os.environ  # it would overrule what the user has said


def test_command_sets_it_before_torch_is_imported() -> None:
    program = (
        "import sys, os, encore.__main__ as command\n"
        "assert 'torch' not in sys.modules\n"
        "sys.argv = ['encore', '--version']\n"
        "command.run_command()\n"
        "print(os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT'])"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.split()[-2:] == ["passive", "1000"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is what this is about")
def test_kept_memory_is_not_faulted_in_again() -> None:
    program = (
        "import resource, torch\n"
        "from encore.processor import keep_freed_memory\n"
        "import sys\n"
        "if sys.argv[1] == 'keep': assert keep_freed_memory()\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(3):\n"
        "        [torch.ones(2 << 20) for _ in range(16)]\n"  # 8 MiB each
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "faults()\n"
        "print(faults())"
    )

    # What glibc gives back by itself depends on what lies where; told so, it gives back all.
    giving = os.environ | {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}

    def count(how: str) -> int:
        printed = subprocess.run(
            [sys.executable, "-c", program, how], env=giving, capture_output=True, text=True, check=True
        )
        return int(printed.stdout)

    pages = 3 * 16 * (8 << 20) // resource.getpagesize()
    given_back = count("do not")
    assert given_back > pages / 10  # there is something to gain here
    assert count("keep") < given_back / 4


def test_bfloat16_is_what_the_kernel_s_flags_say() -> None:
    try:
        with open("/proc/cpuinfo", encoding="ascii") as lines:  # noqa: PTH123
            flags = next(line for line in lines if line.startswith("flags")).split()
    except (OSError, StopIteration):
        pytest.skip("there are no flags to compare with")
    assert multiplies_bfloat16() == bool({"avx512_bf16", "amx_bf16"} & set(flags))
