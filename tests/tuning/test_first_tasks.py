"""Tuning on the first tasks: the choice, what it is made from, and that nothing stops it for good."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import assert_same_state

from encore import checkpoint, launch
from encore.cli import main
from encore.datasets.digits import Digits
from encore.device import resolve_device
from encore.display import Quiet
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Feedback, Plan
from encore.keeper import Interrupted
from encore.layout import make_stream
from encore.learner import Learner
from encore.randomness import Randomness
from encore.run import Run
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings
from encore.teaching import teach
from encore.tuning import first_tasks
from encore.tuning.first_tasks import Choice, Trial, choose, tune
from encore.tuning.grid import make_grid, name_plan

GRID = make_grid([1, 2], [0, 1], [14])
SETTINGS = RunSettings(
    StreamSettings(first_tasks=3, batch_size=20),
    RehearsalSettings(memory_size=20),
    training=TrainingSettings(device="cpu", checkpoint_every=4),
    part_options={"model.width": 2},
)
WORDS = [
    "tune", "--repeats-grid", "1", "2", "--num-ops-grid", "0", "1", "--magnitude-grid", "14", "--seeds", "3", "4",
    "--first-tasks", "3", "--batch-size", "20", "--memory-size", "20", "--device", "cpu", "--checkpoint-every", "4",
    "--model.width", "2",
]  # fmt: skip
SEEDS = [3, 4]


def outcome(directory: Path) -> dict[str, Any]:
    """Return all that must not depend on how a search came to its end."""
    choice = json.loads((directory / "choice.json").read_text())["choices"]
    for of_seed in choice.values():
        del of_seed["search_seconds"]
        for trial in of_seed["trials"]:
            del trial["seconds"]
    found = {"choice": choice, "config": json.loads((directory / "config.json").read_text())}
    for seed in SEEDS:
        record = json.loads((directory / f"seed-{seed}" / "record.json").read_text())
        found[f"record {seed}"] = (record["config"]["plan"], record["accuracy_matrix"], record["sgd_steps"])
        found[f"learner {seed}"] = (directory / f"seed-{seed}" / "learner.encore").read_bytes()
    for group in sorted((directory / "search").iterdir()):
        for seed in SEEDS:
            record = json.loads((group / f"seed-{seed}" / "record.json").read_text())
            found[f"{group.name} {seed}"] = record["accuracy_matrix"]
    return found


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "alone"
    tune(SETTINGS, SEEDS, directory, Quiet(), grid=GRID)
    return directory


def search_by_hand(seed: int) -> tuple[Plan, dict[Plan, float]]:
    """Try all plans on the first two tasks with learners of one's own, and return the best."""
    stream = replace(SETTINGS.stream, first_tasks=2, hold_out=0.2)
    accuracies = {}
    for plan in GRID:
        store = ImageStore(Digits().load(None), resolve_device("cpu"))
        tasks = make_stream(
            replace(SETTINGS, stream=stream), seed, Digits(), store, Randomness(seed).host_generator("stream")
        )
        learner = Learner(
            "er", image_shape=(1, 8, 8), num_classes=10, memory_size=20, plan=plan, seed=seed, device="cpu",
            parts={"model.width": 2},
        )  # fmt: skip
        last_row = teach(learner, tasks, batch_size=20)[-1]
        accuracies[plan] = sum(last_row) / len(last_row)
    best = GRID[0]
    for plan in GRID:
        if accuracies[plan] > accuracies[best]:
            best = plan
    return best, accuracies


@pytest.mark.parametrize("seed", SEEDS)
def test_choice_is_that_of_an_exhaustive_search_by_hand(left_alone: Path, seed: int) -> None:
    best, accuracies = search_by_hand(seed)
    choice = first_tasks.read_choices(left_alone)[seed]
    assert {trial.plan: trial.accuracy for trial in choice.trials} == pytest.approx(accuracies, abs=1e-12)
    assert len(set(accuracies.values())) > 1, "else there is nothing to choose"
    assert choice.best.plan == best
    record = json.loads((left_alone / f"seed-{seed}" / "record.json").read_text())
    plan = record["config"]["plan"]
    assert Plan(plan["repeats"], plan["num_ops"], plan["magnitude"]) == best


@pytest.mark.parametrize("seed", SEEDS)
def test_run_with_the_choice_is_an_ordinary_run_of_the_whole_stream(left_alone: Path, tmp_path: Path, seed: int) -> None:
    best = first_tasks.read_choices(left_alone)[seed].best.plan
    launch.start(launch.with_plan(SETTINGS, best), [seed], tmp_path / "plain", Quiet())
    plain, tuned = (
        checkpoint.load(folder / f"seed-{seed}" / "learner.encore", "learner")[1]
        for folder in (tmp_path / "plain", left_alone)
    )
    assert_same_state(plain, tuned)


def test_search_is_counted_in_steps(left_alone: Path) -> None:
    described = json.loads((left_alone / "choice.json").read_text())["choices"]
    for seed in SEEDS:
        records = [
            json.loads((left_alone / "search" / name_plan(plan) / f"seed-{seed}" / "record.json").read_text())
            for plan in GRID
        ]
        batches = [record["sgd_steps"] / plan.repeats for record, plan in zip(records, GRID, strict=True)]
        assert len(set(batches)) == 1
        assert batches[0] == sum(task["train"] // 20 for task in records[0]["tasks"])
        assert described[str(seed)]["search_sgd_steps"] == (1 + 1 + 2 + 2) * batches[0]
        assert all(len(record["tasks"]) == 2 for record in records)
        assert not list((left_alone / "search").rglob("learner.encore"))


def test_choice_is_the_same_in_parallel(left_alone: Path, tmp_path: Path) -> None:
    tune(SETTINGS, SEEDS, tmp_path / "runs", Quiet(), grid=GRID, parallel=5)
    assert outcome(tmp_path / "runs") == outcome(left_alone)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("kill_point", [1, 2, 3, 4, 5, 13, 24, 60, 79, 80, 81, 82, 83, 84, 85, 86, 90, 100])
def test_kill_around_the_renaming_of_a_file(
    left_alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_point: int
) -> None:
    """End just before (odd points) or just after (even ones) one of the renames of a search and its runs."""
    replace_file, count = Path.replace, 0

    def replace_and_count(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == kill_point:
            raise Killed
        moved = replace_file(self, target)
        count += 1
        if count == kill_point:
            raise Killed
        return moved

    directory = tmp_path / "runs"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace_and_count)
        with pytest.raises(Killed):
            tune(SETTINGS, SEEDS, directory, Quiet(), grid=GRID)
    if kill_point == 1:
        assert not any(not path.name.startswith(".") for path in directory.iterdir())
        tune(SETTINGS, SEEDS, directory, Quiet(), grid=GRID)
    else:
        assert main(["resume", "--quiet", str(directory)]) == 0
    assert outcome(directory) == outcome(left_alone)
