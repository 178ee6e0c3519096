"""The bandit without boundaries: it begins anew where the stream changes, and is told nothing of tasks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from tests.controllers.test_settling import EASY, HARD, World
from torch import Generator

from encore import launch
from encore.actions import read_actions
from encore.controllers.bpg import BootstrappedPolicyGradient
from encore.controllers.bpg_drift import DriftingPolicyGradient
from encore.display import Quiet
from encore.interfaces import FeedbackValues, Plan
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings

LENGTH = 300


class Changing(World):
    """A world whose first look at a batch has a large loss after a change, until it has been learnt."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, memory_batch_size=10)
        self.age = 0

    def show(self, plan: Plan, ease: float) -> FeedbackValues:
        self.age += 1
        noise = 0.2 * torch.rand((), generator=self.generator).item()
        return self.answer(plan, ease)._replace(
            incoming_loss=0.1, first_incoming_loss=0.3 + noise + 4.0 * math.exp(-self.age / 6)
        )


def live(controller: Any, regimes: list[float], seed: int, tells: bool = False) -> list[list[Plan]]:
    """Return the plans of each regime."""
    generator, world = Generator().manual_seed(seed), Changing(1000 + seed)
    plans: list[list[Plan]] = []
    controller.start_task(0)
    for number, ease in enumerate(regimes):
        world.age = 0
        if tells and number:
            controller.start_task(number)
        plans.append([])
        for _ in range(LENGTH):
            plans[-1].append(controller.choose(generator))
            controller.learn_from(world.show(plans[-1][-1], ease))
    return plans


@pytest.mark.parametrize("seed", range(4))
def test_changes_are_noticed_without_being_told(seed: int) -> None:
    controller = DriftingPolicyGradient(Plan())
    live(controller, [EASY, HARD, EASY], seed)
    assert controller.num_changes == 2


def test_it_settles_at_the_target_in_each_regime() -> None:
    chances: list[list[float]] = [[], [], []]
    for seed in range(6):
        world = World(seed, 10)
        for number, (ease, plans) in enumerate(
            zip(
                [EASY, HARD, EASY],
                live(DriftingPolicyGradient(Plan()), [EASY, HARD, EASY], seed),
                strict=True,
            )
        ):
            chances[number] += [world.chance(plan, ease) for plan in plans[LENGTH // 2 :]]
    for of_regime in chances:
        assert abs(mean(of_regime) - 0.9) < 0.04


def test_it_is_as_the_bandit_that_is_told_from_the_change_on() -> None:
    """Between changes both follow the same rule, so equal weights stay equal."""
    told, untold = BootstrappedPolicyGradient(Plan()), DriftingPolicyGradient(Plan())
    for controller in (told, untold):
        live(controller, [EASY], seed=3)
    assert untold.num_changes == 0
    assert told.policies["repeats"].weights == untold.policies["repeats"].weights
    untold.drift.threshold = 1e-9  # whatever comes next is a change
    for _ in range(20):
        untold.learn_from(FeedbackValues(0.5, 0.5, 1.0, 1.0, 0.0, 9.0))
    told.start_task(1)
    assert untold.num_changes > 0
    untold.reset()
    assert told.probabilities == untold.probabilities


def test_start_of_a_task_means_nothing() -> None:
    one, other = DriftingPolicyGradient(Plan()), DriftingPolicyGradient(Plan())
    assert live(one, [EASY, HARD], 0, tells=True) == live(other, [EASY, HARD], 0, tells=False)


def test_many_repeats_do_not_hide_a_change() -> None:
    """At the last iteration the loss is small whatever comes: that is why the first one is looked at."""
    controller = DriftingPolicyGradient(Plan(), repeats="20")
    for first in [0.3, 0.5] * 15 + [6.0, 5.0]:
        controller.choose(Generator().manual_seed(0))
        controller.learn_from(FeedbackValues(0.9, 1.0, 0.2, 0.05, 0.5, first))
    assert controller.num_changes == 1


def test_without_a_look_at_the_first_iteration_the_last_one_has_to_do() -> None:
    controller = DriftingPolicyGradient(Plan())
    for loss in [0.3, 0.5] * 15 + [6.0, 5.0]:
        controller.choose(Generator().manual_seed(0))
        controller.learn_from(FeedbackValues(0.9, 1.0, 0.2, loss))
    assert controller.num_changes == 1


@pytest.mark.parametrize("loss", [math.nan, math.inf, 0.0])
def test_strange_losses_are_no_change(loss: float) -> None:
    controller = DriftingPolicyGradient(Plan())
    for _ in range(60):
        controller.choose(Generator().manual_seed(0))
        controller.learn_from(FeedbackValues(0.9, 1.0, 0.2, loss, 0.0, loss))
    assert controller.num_changes == 0


def test_state_holds_the_test_too() -> None:
    whole, first, second = (DriftingPolicyGradient(Plan()) for _ in range(3))
    shown = [FeedbackValues(0.5, 0.5, 1.0, 1.0, 0.5, value) for value in [0.3, 0.5] * 9 + [0.65] * 10]
    for number, feedback in enumerate(shown):
        if number == 19:  # between two steps of the sum
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        whole.learn_from(feedback)
        (first if number < 19 else second).learn_from(feedback)
    assert whole.num_changes > 0
    assert second.state_dict() == whole.state_dict()


def test_run_on_digits_begins_anew_near_the_starts_of_tasks(tmp_path: Path) -> None:
    settings = RunSettings(
        StreamSettings(first_tasks=3),
        RehearsalSettings(memory_size=50),
        PlanSettings(controller="bpg_drift"),
        TrainingSettings(device="cpu"),
        {"model.width": 4, "controller.repeats": "4-6"},
    )
    launch.start(settings, [0], tmp_path / "runs", Quiet())
    recorded = read_actions(tmp_path / "runs" / "seed-0" / "actions.encore")
    is_uniform = [len(set(row[:3].tolist())) == 1 for row in recorded.probabilities]
    anew = [number for number, uniform in enumerate(is_uniform) if uniform and number > 2]
    starts = (np.flatnonzero(np.diff(recorded.tasks)) + 1).tolist()
    assert len(starts) == 2
    for start in starts:
        assert any(start < number <= start + 4 for number in anew), f"after the start at {start}"
