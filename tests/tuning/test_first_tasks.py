"""Tuning on the first tasks: the choice, what it is made from, and that nothing stops it for good."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
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
from encore.keeper import Display, Interrupted
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
    StreamSettings(first_tasks=3, batch_size=60),
    RehearsalSettings(memory_size=20),
    training=TrainingSettings(device="cpu", checkpoint_every=2),
    part_options={"model.width": 2},
)
WORDS = [
    "tune", "--repeats-grid", "1", "2", "--num-ops-grid", "0", "1", "--magnitude-grid", "14",
    "--seeds", "3", "4", "--first-tasks", "3", "--batch-size", "60", "--memory-size", "20",
    "--device", "cpu", "--checkpoint-every", "2", "--model.width", "2",
]  # fmt: skip
SEEDS = [3, 4]


def outcome(directory: Path) -> dict[str, Any]:
    """Return all that must not depend on how a search came to its end."""
    choice = json.loads((directory / "choice.json").read_text())["choices"]
    for of_seed in choice.values():
        del of_seed["search_seconds"]
        for trial in of_seed["trials"]:
            del trial["seconds"]
    config = json.loads((directory / "config.json").read_text())
    found, seeds = {"choice": choice, "plans": config["plans"]}, config["seeds"]
    for seed in seeds:
        record = json.loads((directory / f"seed-{seed}" / "record.json").read_text())
        found[f"record {seed}"] = (record["config"]["plan"], record["accuracy_matrix"], record["sgd_steps"])
        found[f"learner {seed}"] = (directory / f"seed-{seed}" / "learner.encore").read_bytes()
    for group in sorted((directory / "search").iterdir()):
        for seed in seeds:
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
        last_row = teach(learner, tasks, batch_size=60)[-1]
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
def test_run_with_the_choice_is_an_ordinary_run(left_alone: Path, tmp_path: Path, seed: int) -> None:
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
        assert batches[0] == sum(task["train"] // 60 for task in records[0]["tasks"])
        assert described[str(seed)]["search_sgd_steps"] == (1 + 1 + 2 + 2) * batches[0]
        assert all(len(record["tasks"]) == 2 for record in records)
        assert not list((left_alone / "search").rglob("learner.encore"))


def test_choice_is_the_same_in_parallel(left_alone: Path, tmp_path: Path) -> None:
    tune(SETTINGS, SEEDS, tmp_path / "runs", Quiet(), grid=GRID, parallel=5)
    assert outcome(tmp_path / "runs") == outcome(left_alone)


class Killed(BaseException):
    """The process is gone."""


SMALL = replace(SETTINGS, stream=replace(SETTINGS.stream, first_tasks=2))
SMALL_GRID = make_grid([2], [0, 1], [14])


def tune_small(directory: Path, display: Display | None = None) -> None:
    tune(SMALL, [3], directory, display or Quiet(), grid=SMALL_GRID, num_tasks=1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("runs") / "small"
    tune_small(directory)
    return outcome(directory)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *[("search.json", 1), ("config.json", 1), ("checkpoint.encore", 2), ("record.json", 1)],
        *[("config.json", 2), ("record.json", 2), ("choice.json", 1)],  # config.json 3: of the run itself
        *[("config.json", 3), ("checkpoint.encore", 9), ("learner.encore", 1), ("record.json", 3)],
    ],
)
@pytest.mark.parametrize("is_renamed", [False, True])
def test_kill_around_the_renaming_of_a_file(
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    is_renamed: bool,
) -> None:
    replace_file, counts = Path.replace, Counter[str]()

    def replace_or_end(self: Path, target: Path) -> Path:
        counts[target.name] += 1
        is_time = target.name == name and counts[name] == number
        if is_time and not is_renamed:
            raise Killed
        moved = replace_file(self, target)
        if is_time:
            raise Killed
        return moved

    directory = tmp_path / "runs"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace_or_end)
        with pytest.raises(Killed):
            tune_small(directory)
    if name == "search.json" and not is_renamed:  # nothing was promised yet
        assert all(path.name.startswith(".") for path in directory.iterdir())
        tune_small(directory)
    else:
        assert main(["resume", "--quiet", str(directory)]) == 0
    assert outcome(directory) == small


def test_kill_without_warning_by_the_command_line(left_alone: Path, tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-m", "encore", *WORDS, "--quiet", "--out", str(directory)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not list(directory.glob("search/*/seed-4/checkpoint.encore")):
        assert process.poll() is None, "ended too early"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (directory / "choice.json").exists()
    assert main(["resume", "--quiet", str(tmp_path)]) == 0, "by the directory that holds it, too"
    assert outcome(directory) == outcome(left_alone)


class Impatient(Quiet):
    """Asks to stop after so many batches."""

    def __init__(self, num_batches: int) -> None:
        self.num_left = num_batches

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("num_batches", [1, 5, 9])
def test_asked_to_stop_names_the_directory_of_the_whole(
    small: dict[str, Any], tmp_path: Path, num_batches: int
) -> None:
    directory = tmp_path / "runs"
    with pytest.raises(Interrupted) as stopped:
        tune_small(directory, Impatient(num_batches))
    assert stopped.value.directory == directory
    first_tasks.resume(directory, Quiet(), parallel=2)
    assert outcome(directory) == small


def trial(plan: Plan, accuracy: float, diverged: bool = False) -> Trial:
    return Trial(plan, accuracy, 10 * plan.repeats, 200 * plan.repeats, 1.0, diverged)


def test_of_equal_settings_the_cheapest_is_chosen() -> None:
    grid = make_grid([1, 2, 3], [1], [5, 14])
    accuracies = [0.3, 0.5, 0.9, 0.9, 0.9, 0.2]
    choice = choose([trial(plan, accuracy) for plan, accuracy in zip(grid, accuracies, strict=True)])
    assert choice.best.plan == Plan(2, 1, 5)
    assert choice.sgd_steps == 10 * (1 + 1 + 2 + 2 + 3 + 3)
    assert choice.seconds == 6.0


def test_what_diverged_is_not_chosen() -> None:
    trials = [trial(Plan(1), 0.4), trial(Plan(2), 0.9, diverged=True)]
    assert choose(trials).best.plan == Plan(1)
    with pytest.raises(EncoreError, match="diverged with every setting of the grid"):
        choose(trials[1:])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--tune-tasks 6", "the stream has 5 tasks, so it cannot be tuned on the first 6: choose a smaller"),
        ("--first-tasks 1", "the stream has 1 task, so it cannot be tuned on the first 2"),
        (
            "--tune-tasks 0",
            "tasks to tune on (--tune-tasks) must be a whole number of at least 1",
        ),
        ("--hold-out 0", "the share that is held out (--hold-out) must be"),
        ("--hold-out 1", "the share that is held out (--hold-out) must be above 0 and below 1"),
        ("--repeats-grid 0", "repeats (K) must be a whole number from 1 to 100, got 0"),
        ("--num-ops-grid 9", "num_ops (P) must be a whole number from 0 to 4, got 9"),
        ("--magnitude-grid 31", "magnitude (Q) must be a whole number from 0 to 30, got 31"),
        ("--trials 0", "(--trials) must be a whole number of at least 1, got 0"),
        ("--parallel 0", "--parallel"),
        ("--seeds 1 1", "seeds must be one or more different numbers"),
        ("--batch-size 280", "the batch size must be from 1 to"),
        ("--controller bpg", "--controller"),
        ("--repeats 3", "--repeats"),
        ("--learning-rate -1", "learning rate"),
    ],
)
def test_mistakes_get_one_sentence_and_write_nothing(
    words: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "--device", "cpu", "--model.width", "2", *words.split()]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_controller_that_chooses_plans_itself_is_refused(tmp_path: Path) -> None:
    settings = replace(SETTINGS, plan=PlanSettings(controller="bpg"))
    with pytest.raises(EncoreError, match="the controller must be 'fixed', got 'bpg'"):
        tune(settings, [0], tmp_path / "runs", Quiet())
    with pytest.raises(EncoreError, match="the grid is empty"):
        tune(SETTINGS, [0], tmp_path / "runs", Quiet(), grid=[])
    assert list(tmp_path.iterdir()) == []


def test_existing_search_is_not_touched(left_alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in left_alone.rglob("*.json")}
    assert main([*WORDS, "--out", str(left_alone)]) == 2
    assert f"exists already: choose another --out, or go on with `encore resume {left_alone}`" in (
        capsys.readouterr().err
    )
    assert main(["resume", str(left_alone)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in left_alone.rglob("*.json")}


@pytest.mark.parametrize("name", ["search.json", "choice.json", "search/K2-P0/seed-3/record.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_damaged_file_gets_one_sentence(
    left_alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    directory = tmp_path / "runs"
    shutil.copytree(left_alone, directory)
    if name.startswith("search/"):
        (directory / "choice.json").unlink()  # the choice is made anew from the records
    (directory / name).write_text(content)
    assert main(["resume", str(directory)]) == 2
    said = capsys.readouterr().err
    assert f"{directory / name} is damaged" in said
    assert said.count("\n") == 1


def test_show_tells_the_choice_and_what_it_cost(left_alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(left_alone)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("tuned on the first 2 tasks, 20% of their training images held out" in line for line in lines)
    for seed, choice in first_tasks.read_choices(left_alone).items():
        run_steps = json.loads((left_alone / f"seed-{seed}" / "record.json").read_text())["sgd_steps"]
        plan = choice.best.plan
        row = [
            str(seed), str(plan.repeats), str(plan.num_ops), str(plan.magnitude) if plan.num_ops else "-",
            f"{100 * choice.best.accuracy:.1f}", "4", str(choice.sgd_steps), str(run_steps),
            f"{choice.sgd_steps / run_steps:.1f}",
        ]  # fmt: skip
        assert row in [line.split() for line in lines]


def test_show_of_an_unfinished_search_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "runs"
    with pytest.raises(Interrupted):
        tune_small(directory, Impatient(5))
    assert main(["show", str(directory)]) == 2
    printed = capsys.readouterr()
    assert f"1 of 2 runs of the search are finished; go on with `encore resume {directory}`" in (
        printed.out.replace("\n", " ")
    )
    assert "is finished yet" in printed.err


def test_trials_are_a_part_of_the_grid(tmp_path: Path) -> None:
    choices = tune(SMALL, [3], tmp_path / "runs", Quiet(), grid=GRID, num_trials=2, num_tasks=1)
    tried = {trial.plan for trial in choices[3].trials}
    assert len(tried) == 2
    assert tried < set(GRID)


def test_choices_survive_the_way_through_a_file(left_alone: Path) -> None:
    choices = first_tasks.read_choices(left_alone)
    assert sorted(choices) == SEEDS
    assert all(isinstance(choice, Choice) for choice in choices.values())
    assert all(choice.best in choice.trials for choice in choices.values())
