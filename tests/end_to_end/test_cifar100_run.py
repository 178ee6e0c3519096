"""Real CIFAR-100, where it is to be had: how much memory a run takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from encore.data.places import copies, places
from encore.datasets.cifar100 import Cifar100

PRESENT = any(copies(Cifar100(), place.folder) for place in places(None))


@pytest.mark.skipif(not PRESENT, reason="needs CIFAR-100: `encore data fetch cifar100`, or $ENCORE_DATA")
def test_run_stays_under_a_gibibyte_and_a_half(tmp_path: Path) -> None:
    chosen = ["--benchmark", "cifar100", "--first-tasks", "1", "--device", "cpu", "--num-ops", "1"]
    directory = tmp_path / "runs"
    # In a process of its own, whose peak is the run's alone.
    command = [sys.executable, "-m", "encore", "run", *chosen, "--out", str(directory), "--quiet"]
    subprocess.run(command, check=True)
    record = json.loads((directory / "seed-0" / "record.json").read_text())
    assert record["sgd_steps"] == 250
    assert record["peak_memory_bytes"] < 1.5 * 2**30
    assert record["metrics"]["average_accuracy"] > 0.3  # chance gives 0.2
