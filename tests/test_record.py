"""What is recorded of a process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch

from encore.record import peak_memory

HELD = 2**29  # bytes: more than twice what a process with torch alone takes


def test_peak_memory_stays_when_memory_is_given_back() -> None:
    np.ones(HELD, dtype=np.uint8)
    assert peak_memory(torch.device("cpu"))["peak_memory_bytes"] > HELD


def test_peak_memory_is_not_that_of_the_process_that_started_this_one() -> None:
    """Linux's own count of it is handed down from process to process."""
    held = np.ones(HELD, dtype=np.uint8)
    program = (
        "import torch; from encore.record import peak_memory; "
        "print(peak_memory(torch.device('cpu'))['peak_memory_bytes'])"
    )
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert held.all()
    assert 2**26 < int(answer) < HELD
