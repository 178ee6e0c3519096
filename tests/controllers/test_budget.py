"""The controller with a budget: it is never above it, uses it, and spends where there is more to learn."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from torch import Generator

from encore import launch
from encore.controllers.budget import Budgeted
from encore.display import Quiet
from encore.errors import EncoreError
from encore.interfaces import FeedbackValues, Plan
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings


def make(**options: Any) -> Budgeted:
    return Budgeted(Plan(num_ops=1, magnitude=9), **options)


def feed(mistakes: float) -> FeedbackValues:
    return FeedbackValues(1 - mistakes, 1.0, 0.5, 0.1)


def live(
    controller: Budgeted, mistakes: Callable[[int], float], num_batches: int, seed: int = 0
) -> list[int]:
    """Return K for each batch of a stream that shows so many mistakes."""
    generator, chosen = Generator().manual_seed(seed), []
    for number in range(num_batches):
        chosen.append(controller.choose(generator).repeats)
        controller.learn_from(feed(mistakes(number)))
    return chosen


@pytest.mark.parametrize("steps", [1.0, 1.5, 2.0, 5.0, 7.3, 20.0])
@pytest.mark.parametrize("seed", range(5))
def test_mean_never_exceeds_the_budget(steps: float, seed: int) -> None:
    numbers = random.Random(seed)
    level = [numbers.choice([0.0, 0.02, 0.5, 1.0]) for _ in range(20)]
    chosen = live(make(steps=steps), lambda number: level[number // 30] * numbers.random(), 600, seed)
    spent = 0
    for number, repeats in enumerate(chosen, start=1):
        spent += repeats
        assert 1 <= repeats <= 20
        assert spent <= number * steps + 1e-6


@pytest.mark.parametrize("steps", [1.5, 2.0, 5.0, 12.0])
@pytest.mark.parametrize("level", [0.05, 0.3, 0.9])
def test_budget_is_used_however_few_mistakes_are_usual(steps: float, level: float) -> None:
    numbers = random.Random(0)
    chosen = live(make(steps=steps), lambda number: level * numbers.uniform(0.5, 1.0), 500)
    assert 0.93 * steps < mean(chosen) <= steps


def test_more_is_spent_where_mistakes_are_more() -> None:
    numbers = random.Random(1)
    chosen = live(
        make(steps=5.0), lambda number: (0.8 if number // 40 % 2 else 0.1) * numbers.uniform(0.8, 1.2), 800
    )
    known, new = (
        mean(repeats for number, repeats in enumerate(chosen) if number // 40 % 2 == part) for part in (0, 1)
    )
    assert new > 1.7 * known
    assert new > 6
    assert 4.6 < mean(chosen) <= 5.0


def learn(controller: Any, num_batches: int, period: int) -> tuple[float, int]:
    """Return all mistakes and all steps in a world where steps work mistakes off, log K at a time."""
    generator, mistakes, total, spent = Generator().manual_seed(0), 1.0, 0.0, 0
    for number in range(num_batches):
        if number % period == 0:
            mistakes = 1.0
        repeats = controller.choose(generator).repeats
        total, spent = total + mistakes, spent + repeats
        controller.learn_from(feed(mistakes))
        mistakes *= math.exp(-0.06 * math.log(1 + repeats))
    return total, spent


@pytest.mark.parametrize("steps", [2, 5])
def test_the_same_steps_leave_fewer_mistakes_than_spent_evenly(steps: int) -> None:
    class Evenly:
        def choose(self, generator: Generator) -> Plan:
            return Plan(repeats=steps)

        def learn_from(self, feedback: FeedbackValues) -> None:
            pass

    even_mistakes, even_steps = learn(Evenly(), 1000, period=50)
    mistakes, num_steps = learn(make(steps=float(steps)), 1000, period=50)
    assert num_steps <= even_steps
    assert mistakes < 0.97 * even_mistakes


def test_nothing_to_learn_saves_and_what_is_new_gets_what_was_saved() -> None:
    chosen = live(make(steps=5.0), lambda number: float(number >= 100), 140)
    assert mean(chosen[20:100]) < 2
    assert chosen[106:112] == [20] * 6


def test_price_by_hand() -> None:
    controller = make(steps=4.0)
    controller.learn_from(feed(0.5))  # as if K were 1
    assert controller.saved == 3.0
    assert controller.need == pytest.approx(0.9)  # 1 - 0.5 / 5
    assert controller.mean_need == pytest.approx(0.95)  # of 1 and 0.9
    worth = 4.0 * 0.9 / 0.95 * math.exp(3.0 / 40.0)
    chosen = [controller.choose(Generator().manual_seed(seed)).repeats for seed in range(4000)]
    assert set(chosen) == {math.floor(worth), math.ceil(worth)}
    assert mean(chosen) == pytest.approx(worth, abs=0.03)


def test_only_k_is_chosen() -> None:
    plan = make().choose(Generator().manual_seed(0))
    assert (plan.num_ops, plan.magnitude) == (1, 9)


class Clock:
    """Time that passes only when work is done."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def live_by_clock(
    controller: Budgeted, cost: Callable[[int], float], num_batches: int, first: float = 0.0
) -> list[tuple[int, float]]:
    """Return K and the seconds of each batch, where a step takes so long."""
    clock, generator, numbers = Clock(), Generator().manual_seed(0), random.Random(0)
    controller.clock = clock
    lived = []
    for number in range(num_batches):
        repeats = controller.choose(generator).repeats
        elapsed = repeats * cost(number) * numbers.uniform(0.8, 1.2) + first * (number == 0)
        clock.now += elapsed
        controller.learn_from(feed(0.4 * numbers.random()))
        clock.now += 0.5  # evaluations and whatever else happens between batches is not counted
        lived.append((repeats, elapsed))
    return lived


def test_seconds_are_kept_and_used() -> None:
    lived = live_by_clock(make(seconds=0.05), lambda number: 0.01, 400)
    per_batch = mean(elapsed for _, elapsed in lived[1:])
    assert 0.045 < per_batch < 0.0505
    assert 4.3 < mean(repeats for repeats, _ in lived) < 5.3


def test_slower_machine_means_fewer_steps() -> None:
    lived = live_by_clock(make(seconds=0.05), lambda number: 0.005 if number < 300 else 0.02, 600)
    before, after = lived[100:300], lived[400:]
    assert mean(repeats for repeats, _ in before) > 3 * mean(repeats for repeats, _ in after)
    assert mean(elapsed for _, elapsed in lived[1:]) < 0.051


def test_what_is_made_once_is_not_counted() -> None:
    lived = live_by_clock(make(seconds=0.05), lambda number: 0.01, 60, first=30.0)
    assert mean(repeats for repeats, _ in lived[10:]) > 4


def test_seconds_below_one_step_are_refused_once_that_is_known() -> None:
    with pytest.raises(
        EncoreError, match=r"controller.seconds is 0.001, and one step .* takes 0.0\d+ seconds here"
    ):
        live_by_clock(make(seconds=0.001), lambda number: 0.01, 60)


@pytest.mark.parametrize("options", [{"steps": 3.0}, {"seconds": 0.05}])
def test_goes_on_from_its_state(options: dict[str, float]) -> None:
    numbers = random.Random(3)
    shown = [(numbers.random(), 0.01 + 0.01 * numbers.random()) for _ in range(80)]

    def go(controller: Budgeted, generator: Generator, part: slice) -> list[int]:
        clock = Clock()
        controller.clock = clock
        chosen = []
        for mistakes, cost in shown[part]:
            chosen.append(controller.choose(generator).repeats)
            clock.now += chosen[-1] * cost
            controller.learn_from(feed(mistakes))
        return chosen

    whole, first, second = (make(**options) for _ in range(3))
    generator, other = Generator().manual_seed(0), Generator().manual_seed(0)
    expected = go(whole, generator, slice(None))
    begun = go(first, other, slice(30))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + go(second, other, slice(30, None)) == expected


def test_nothing_remembered_is_no_news() -> None:
    controller = make(steps=5.0)
    controller.learn_from(feed(0.5))
    controller.learn_from(FeedbackValues(math.nan, 0.0, math.nan, 3.0))
    assert controller.need == pytest.approx(0.9)
    assert controller.saved == 8.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0.5}, "controller.steps must be at least 1, as each incoming batch takes a step, got 0.5"),
        ({"steps": 0.0}, "controller.steps must be a number above 0"),
        ({"steps": math.nan}, "controller.steps must be a number above 0"),
        ({"steps": 30.0}, "controller.steps is 30.0, above the largest K, 20"),
        ({"most": 0}, "controller.most must be a whole number from 1 to 100"),
        ({"most": 101}, "controller.most must be a whole number from 1 to 100"),
        ({"seconds": -1.0}, "controller.seconds must be a number of at least 0"),
    ],
)
def test_mistake_gets_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        make(**options)


def test_run_stays_within_its_budget(tmp_path: Path) -> None:
    settings = RunSettings(
        StreamSettings(first_tasks=2),
        RehearsalSettings(memory_size=30),
        PlanSettings(controller="budget"),
        TrainingSettings(device="cpu"),
        {"model.width": 2, "controller.steps": 3.0},
    )
    launch.start(settings, [0], tmp_path / "runs", Quiet())
    record = json.loads((tmp_path / "runs" / "seed-0" / "record.json").read_text())
    num_batches = sum(task["train"] // 10 for task in record["tasks"])
    assert 2.2 * num_batches < record["sgd_steps"] <= 3 * num_batches
