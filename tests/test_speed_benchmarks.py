"""The scripts that measure speed and what it costs, at the smallest size at which they are themselves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from benchmarks import cpu_ladder, precision, rival_worker, rivals, waiting
from rich.console import Console

from encore.errors import EncoreError

SIZES = {"width": 1, "batch": 2, "repeats": 2, "threads": 1}


def test_rivals_take_turns_and_who_cannot_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(name: str) -> Path:
        raise subprocess.CalledProcessError(1, ["pip", "install", name])

    monkeypatch.setattr(rivals, "ENVIRONMENTS", tmp_path / "rivals")
    monkeypatch.setattr(rivals, "install", no_network)
    monkeypatch.setattr(
        rivals, "TITLES", {name: rivals.TITLES[name] for name in ("bare", "avalanche", "encore")}
    )
    console = Console(record=True, width=100)
    measured = rivals.measure(SIZES, num_rounds=2, num_batches=1, console=console)
    rows = {row["name"]: row for row in measured["rows"]}
    assert [*rows] == ["bare PyTorch loop", "Encore"]
    assert rows["bare PyTorch loop"]["wall_times_bare"] == 1
    assert rows["Encore"]["processor_milliseconds"] > 0
    assert "avalanche" in measured["absent"]["Avalanche"]
    rivals.show(console, measured)
    rivals.keep(tmp_path / "kept", console.export_text(), measured)
    page = (tmp_path / "kept" / "README.md").read_text()
    assert f"{rows['Encore']['wall_times_bare']:.2f}" in page
    assert "Avalanche is absent" in page
    assert json.loads((tmp_path / "kept" / "rivals.json").read_text()) == measured


def test_rival_that_stops_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "ENVIRONMENTS", tmp_path)
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho out of order >&2\n")
    broken.chmod(0o700)
    with pytest.raises(EncoreError, match="CapyMOA stopped: out of order"):
        rivals.Contestant("capymoa", broken, SIZES)


@pytest.mark.parametrize("name", ["bare", "encore"])
def test_contestant_takes_k_steps_for_each_batch(name: str) -> None:
    real = torch.optim.SGD.step
    try:
        steps = rival_worker._count_steps(torch)
        learn = getattr(rival_worker, name)(SIZES | {"precision": "float32"})
        learn(3)
    finally:
        torch.optim.SGD.step = real  # type: ignore[method-assign]
    assert len(steps) == 3 * 2


def test_differences_of_precision_are_those_of_each_seed(tmp_path: Path) -> None:
    for name, accuracies in {"float32": (0.5, 0.6), "bfloat16": (0.51, 0.58)}.items():
        for seed, accuracy in enumerate(accuracies):
            folder = tmp_path / f"er-{name}" / f"seed-{seed}"
            folder.mkdir(parents=True)
            record = {"seed": seed, "metrics": {"average_accuracy": accuracy}}
            (folder / "record.json").write_text(json.dumps(record))
    line = precision.describe_differences(tmp_path, "er")
    assert line == ("- er: +1.0, -2.0; mean -0.50, deviation 1.50; deviation between seeds in float32 5.00")


def test_processes_answer_with_what_an_iteration_took(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(waiting, "STEPS", 1)
    waiting.answer()
    assert json.loads(capsys.readouterr().out)["milliseconds"] > 1
    monkeypatch.setattr(cpu_ladder, "ROUNDS", 1)
    cpu_ladder.answer("neither")
    answered = json.loads(capsys.readouterr().out)
    assert answered["milliseconds"] > 1
    assert answered["faults"] >= 0


def test_first_rung_and_last_do_the_same_work() -> None:
    rungs = cpu_ladder.make_rungs()
    assert [*rungs][:4] == [
        "bare loop, Pillow", "RandAugment in NumPy", "and channels last: Encore", "Encore, fused SGD",
    ]  # fmt: skip
    for name in [*rungs][:4]:
        rungs[name]()
