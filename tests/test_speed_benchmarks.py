"""The scripts that measure speed and what it costs, at the smallest size at which they are themselves."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks import (
    bandit_overhead,
    cpu_ladder,
    evidence,
    gpu_ladder,
    precision,
    rival_worker,
    rivals,
    waiting,
    whole_runs,
)
from rich.console import Console

from encore.bench import BenchSettings
from encore.descent import GradientDescent
from encore.errors import EncoreError
from encore.settings import RunSettings, StreamSettings, TrainingSettings

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
def test_contestant_takes_k_steps_for_each_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = GradientDescent if name == "encore" else torch.optim.SGD
    monkeypatch.setattr(kind, "step", kind.step)  # so that it is put back
    steps = rival_worker._count_steps(kind)
    learn = getattr(rival_worker, name)(SIZES | {"precision": "float32"})
    learn(3)
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


def test_whole_runs_are_timed_and_compared_with_the_eager_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(whole_runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(whole_runs, "METHODS", {"er": ["--repeats", "1"]})
    small = ["--batch-size", "200", "--memory-size", "20", "--model.width", "1", "--device", "cpu"]
    monkeypatch.setattr(whole_runs, "STREAM", small)
    monkeypatch.setattr(whole_runs, "FIRST", 4)
    monkeypatch.setattr(whole_runs, "EIGHT", (4, 5))
    monkeypatch.setattr(whole_runs, "THREE", (4, 5))
    whole_runs.main(["ready", "alone"])
    assert "er, eager" not in capsys.readouterr().out
    whole_runs.main(["eight", "eager"])
    (folder,) = (tmp_path / "results").iterdir()
    page = (folder / "README.md").read_text()
    rows = {line.split("  ")[0]: line.split() for line in page.splitlines()}
    alone, eight = rows["er-alone"], rows["er-eight"]
    assert float(alone[1]) == float(alone[2])  # the command's seconds are those of its one run
    assert float(eight[2]) == pytest.approx(float(eight[1]) / 2, abs=0.1)
    assert sum(map(float, alone[4:7])) == pytest.approx(100, abs=0.2)
    # On a CPU both engines are the eager one, and so the accuracies are the same.
    assert rows["er, eager"][2:] == rows["er, graph"][2:]
    record = json.loads((folder / "er-eight" / "seed-5" / "record.json").read_text())
    assert rows["er, graph"][3] == f"{100 * record['metrics']['average_accuracy']:.2f}"
    assert "SGD" in (folder / "er-alone" / "log.txt").read_text()
    with pytest.raises(EncoreError, match="er-alone is there already: remove it to measure anew"):
        whole_runs.main(["alone"])
    with pytest.raises(EncoreError, match="there is no part 'both'"):
        whole_runs.main(["both"])


def test_command_that_fails_is_told_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_runs, "WORK", tmp_path)
    monkeypatch.setattr(whole_runs, "STREAM", ["--memory-size", "0"])
    with pytest.raises(EncoreError, match=r"ready-er-rar ended with 2: .*ready-er-rar.log says why"):
        whole_runs.main(["ready"])


def test_bandit_takes_as_many_steps_as_its_repeated_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(bandit_overhead, "ROUNDS", 1)
    settings = RunSettings(
        StreamSettings(first_tasks=1, batch_size=60),
        training=TrainingSettings(device="cpu"),
        part_options={"model.width": 1},
    )
    monkeypatch.setattr(bandit_overhead, "ON_CPU", settings)
    monkeypatch.setattr(bandit_overhead, "ON_GPU", settings)
    bandit_overhead.main()
    (folder,) = (tmp_path / "results").iterdir()
    page = (folder / "README.md").read_text()
    assert "python -m benchmarks.bandit_overhead" in page
    assert [line.split()[0] for line in page.splitlines() if line.startswith("bpg")] == [
        "bpg",
        "bpg_published",
    ]


def test_rungs_on_a_gpu_are_timed_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rung with the eager engine, as it is the table that is looked at."""
    monkeypatch.setattr(gpu_ladder, "ROUNDS", 2)
    monkeypatch.setattr(gpu_ladder, "SETTINGS", BenchSettings(image_size=8, width=1, batch_size=2, repeats=1))
    cases = [
        replace(case, engine=case.engine and "eager", options={}, runs=min(case.runs, 2))
        for case in gpu_ladder.RUNGS
    ]
    console = Console(width=110, record=True)
    ready = gpu_ladder.climb(cases, torch.device("cpu"), console)
    assert [made.case for made in ready] == cases
    assert {len(made.seconds) for made in ready} == {2}
    console.print(gpu_ladder.ladder(ready))
    shown = console.export_text()
    assert all(case.name in shown for case in cases)


def test_ladder_of_a_gpu_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EncoreError, match="needs a GPU with CUDA"):
        gpu_ladder.main()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_ladder_of_a_gpu_shows_own_kernels_beside_cudnn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(gpu_ladder, "ROUNDS", 1)
    cases = [case for case in gpu_ladder.RUNGS if case.runs <= 2 and case.engine != "compiled"]
    monkeypatch.setattr(gpu_ladder, "RUNGS", cases)
    gpu_ladder.main()
    page = next((tmp_path / "results").iterdir()).joinpath("README.md").read_text()
    assert "convolve" in page
    assert all(case.name in page for case in cases)
