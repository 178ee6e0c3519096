"""Where memory accuracy rises with K and falls with augmentation, both bandits find their targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator

from encore.controllers.bpg import BootstrappedPolicyGradient
from encore.controllers.bpg_published import PublishedBandit
from encore.interfaces import FeedbackValues, Plan

EASY, HARD = 3.0, 0.5  # so hard is it to know the memory's examples
SEEDS = range(6)


class World:
    """Draws the accuracy on a memory batch from a binomial whose mean depends on the plan."""

    def __init__(self, seed: int, memory_batch_size: int) -> None:
        self.generator = Generator().manual_seed(seed)
        self.size = memory_batch_size

    def chance(self, plan: Plan, ease: float) -> float:
        strength = 0 if plan.magnitude == 5 else plan.num_ops
        return 1 / (1 + math.exp(-(ease + 0.15 * plan.repeats - 0.6 * strength)))

    def answer(self, plan: Plan, ease: float) -> FeedbackValues:
        draws = torch.rand(self.size, generator=self.generator)
        accuracy = (draws < self.chance(plan, ease)).float().mean().item()
        return FeedbackValues(accuracy, accuracy, 1.0, 1.0)


class Settled(NamedTuple):
    chance: float  # the true accuracy, in the last part of a regime
    repeats: float
    num_ops: float


def settle(
    make: Callable[[], Any], regimes: Sequence[float], memory_batch_size: int, starts_task: bool, length: int
) -> list[Settled]:
    """Return where the controller has come at the end of each regime, the mean over the seeds."""
    found: list[list[Settled]] = [[] for _ in regimes]
    for seed in SEEDS:
        controller, generator = make(), Generator().manual_seed(seed)
        world = World(1000 + seed, memory_batch_size)
        controller.start_task(0)
        for number, ease in enumerate(regimes):
            if starts_task and number:
                controller.start_task(number)
            plans = []
            for _ in range(length):
                plans.append(controller.choose(generator))
                controller.learn_from(world.answer(plans[-1], ease))
            late = plans[length // 2 :]
            found[number].append(
                Settled(
                    mean(world.chance(plan, ease) for plan in late),
                    mean(plan.repeats for plan in late),
                    mean(plan.num_ops for plan in late),
                )
            )
    return [Settled(*map(mean, zip(*of_regime, strict=True))) for of_regime in found]


def paper(target: float = 0.9) -> Callable[[], BootstrappedPolicyGradient]:
    return lambda: BootstrappedPolicyGradient(Plan(), target=target)


@pytest.mark.parametrize(("target", "ease"), [(0.9, EASY), (0.9, HARD), (0.7, HARD), (0.8, 2.0)])
def test_paper_s_bandit_settles_at_its_target(target: float, ease: float) -> None:
    (settled,) = settle(paper(target), [ease], memory_batch_size=10, starts_task=True, length=250)
    assert abs(settled.chance - target) < 0.03


def test_plans_at_random_do_not() -> None:
    """The two worlds are no trap that any rule falls into the target of."""
    generator = Generator().manual_seed(0)
    plans = [BootstrappedPolicyGradient(Plan()).choose(generator) for _ in range(400)]
    for ease, distance in ((EASY, 0.03), (HARD, 0.15)):
        assert abs(mean(World(0, 10).chance(plan, ease) for plan in plans) - 0.9) > distance


@pytest.mark.parametrize("starts_task", [True, False])
def test_paper_s_bandit_follows_a_change_of_regime(starts_task: bool) -> None:
    """With a reset where a task starts, and without one where nothing says that the world has changed."""
    settled = settle(paper(), [EASY, HARD, EASY], 10, starts_task, length=300)
    for regime in settled:
        assert abs(regime.chance - 0.9) < 0.04
    assert settled[1].repeats > settled[0].repeats + 3
    assert settled[1].num_ops < settled[0].num_ops - 1
    assert settled[1].num_ops < settled[2].num_ops - 1


def test_published_bandit_settles_in_its_bands() -> None:
    """Above 0.8 it augments more, below it repeats more: it comes to rest about there, where it can."""
    settled = settle(lambda: PublishedBandit(Plan()), [EASY, 2.0, EASY], 100, starts_task=True, length=250)
    for regime in settled:
        assert 0.76 < regime.chance < 0.88
    assert settled[1].repeats > settled[0].repeats + 2


def test_published_bandit_does_not_leave_its_strongest_augmentation_by_itself() -> None:
    """As docs/controllers.md says: without the reset, a harder world finds it stuck, far below its bands."""

    def make() -> PublishedBandit:
        return PublishedBandit(Plan(), without_resets=True)

    settled = settle(make, [EASY, 0.0], 100, starts_task=True, length=250)
    assert settled[1].num_ops > 3.5
    assert settled[1].chance < 0.6
