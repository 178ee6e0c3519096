"""What every method must stand, with RAR laid over it, over the ends of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers import (
    NUM_CLASSES,
    NoHostSynchronisation,
    assert_same_state,
    make_batch,
    make_learner,
    make_stream,
)

from encore import registry
from encore.cli import main
from encore.data.benchmark import Benchmark
from encore.interfaces import Plan
from encore.layout import lay_out, num_epochs
from encore.learner import Learner
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings
from encore.tables import name_of

RAR = Plan(repeats=2, num_ops=1)
every_method = pytest.mark.parametrize("name", registry.names("method"))


@every_method
def test_saved_in_the_middle_of_a_later_task_it_goes_on_with_the_same_bits(name: str, tmp_path: Path) -> None:
    learner = make_learner(method=name, plan=RAR)
    stream = list(make_stream(10))
    for number, batch in enumerate(stream[:5]):
        learner.observe(*batch)
        if number == 3:
            learner.end_task()
    learner.save(tmp_path / "model.encore")
    loaded = Learner.load(tmp_path / "model.encore", device="cpu")
    assert_same_state(learner.state_dict(), loaded.state_dict())
    for number, batch in enumerate(stream[5:]):
        for each in (learner, loaded):
            each.observe(*batch)
            if number == 2:
                each.end_task()
    assert_same_state(learner.state_dict(), loaded.state_dict())
    asked = make_batch(9, seed=3).images
    assert torch.equal(learner.scores(asked), loaded.scores(asked))


@every_method
@pytest.mark.parametrize("sizes", [[1, 2, 9, 1], [30, 1, 1, 30]])
def test_batches_of_any_size_over_the_ends_of_tasks(name: str, sizes: list[int]) -> None:
    learner = make_learner(method=name, plan=RAR, memory_size=3)
    for task in range(2):
        for number, size in enumerate(sizes):
            learner.observe(*make_batch(size, seed=10 * task + number))
        learner.end_task()
    assert learner.memory.num_seen == 2 * sum(sizes)
    assert learner.is_finite


@every_method
def test_first_batch_of_one_class_and_a_class_seen_once(name: str) -> None:
    learner = make_learner(method=name, plan=RAR)
    images = make_batch(6).images
    learner.observe(images, torch.zeros(6, dtype=torch.int64))
    learner.observe(images[:1], torch.tensor([3]))
    learner.end_task()
    learner.observe(images, torch.full((6,), 2))
    assert learner.is_finite
    scores = learner.scores(make_batch(40).images)
    assert not scores.isnan().any()
    assert set(scores.argmax(dim=1).tolist()) <= set(range(NUM_CLASSES))


@every_method
def test_hot_step_never_waits_for_the_device(name: str) -> None:
    learner = make_learner(method=name, plan=RAR, operation_space="crop_flip")
    for batch in make_stream(4):
        learner.observe(*batch)
    learner.end_task()
    with NoHostSynchronisation():
        for batch in make_stream(2, seed=1):
            learner.learn(batch, learner.plan)


def settings_of(method: str, **stream: Any) -> RunSettings:
    return RunSettings(StreamSettings(**stream), RehearsalSettings(method=method))


def test_offline_method_comes_50_times_and_the_memory_is_offered_each() -> None:
    settings = settings_of("er-offline", first_tasks=1)
    assert num_epochs(settings) == 50
    assert num_epochs(settings_of("er-offline", epochs=3)) == 3
    digits: Benchmark = registry.make("benchmark", "digits")
    (once,) = lay_out(settings_of("er", first_tasks=1), 0, digits, digits.load(None), torch.Generator())
    (often,) = lay_out(settings, 0, digits, digits.load(None), torch.Generator())
    assert len(often.train) == 50 * len(once.train)
    assert often.train.bincount().unique().tolist() == [0, 50]

    learner = make_learner(method="er_offline", memory_size=100)
    for _ in range(3):
        learner.observe(*make_batch(5))
    assert learner.memory.num_seen == learner.memory.num_filled == 15  # each of the five is there thrice


def test_switch_of_an_objective_is_one_word_on_the_command_line(tmp_path: Path) -> None:
    small = ["--first-tasks", "1", "--memory-size", "20", "--model.width", "2", "--batch-size", "50"]
    chosen = ["--method", "agem", "--objective.from-start", "--threads", "1", "--quiet"]
    assert main(["run", *small, *chosen, "--out", str(tmp_path / "runs")]) == 0
    recorded = json.loads((tmp_path / "runs" / "config.json").read_text())
    assert recorded["settings"]["part_options"]["objective.from_start"] is True


@pytest.mark.parametrize(
    ("method", "plan", "expected"),
    [
        ("finetune", PlanSettings(), "Finetune"),
        ("lwf", PlanSettings(), "LwF"),
        ("agem", PlanSettings(repeats=10, num_ops=1), "A-GEM-RAR"),
        ("er-rw", PlanSettings(repeats=10), "R-ER-rw"),
        ("er_rw", PlanSettings(repeats=10, num_ops=1), "ER-rw-RAR"),
        ("er_offline", PlanSettings(num_ops=1), "offline ER augmented"),
        ("der", PlanSettings(repeats=50, num_ops=1, operation_space="crop_flip"), "DER-RAR, crop and flip"),
        (
            "derpp",
            PlanSettings(repeats=10, num_ops=1, operation_space="authors", augment_target="memory"),
            "DER++-RAR, memory only, authors' operations",
        ),
        ("er", PlanSettings(), "ER"),
        ("of_a_later_version", PlanSettings(), "OF-A-LATER-VERSION"),
    ],
)
def test_methods_are_called_as_the_literature_does(method: str, plan: PlanSettings, expected: str) -> None:
    settings = RunSettings(rehearsal=RehearsalSettings(method=method), plan=plan).to_json()
    assert name_of(settings, settings["plan"]) == expected
