"""The published bandit: its rule by a slow reference, written from the description of each case."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator

from encore.controllers.bpg_published import PublishedBandit
from encore.errors import EncoreError
from encore.interfaces import FeedbackValues, Plan


def feed(accuracy: float) -> FeedbackValues:
    return FeedbackValues(torch.tensor(accuracy, dtype=torch.float32).item(), 0.5, 1.0, 1.0)


def updated(
    weights: list[float], chosen: int, accuracy: float, low: float, high: float
) -> NDArray[np.float64]:
    """Return the weights after the published rule: arm by arm, with the script's constants."""
    new = np.array(weights)
    chances = np.exp(new - new.max()) / np.exp(new - new.max()).sum()
    up_sum = low_sum = 0.0
    for arm, chance in enumerate(chances):
        if arm >= chosen:
            up_sum += chance
        if arm <= chosen:
            low_sum += chance
    for arm in range(len(new)):
        if accuracy > high and arm >= chosen:
            new[arm] -= 10 * chances[chosen] / up_sum
        elif accuracy > high:
            new[arm] += 10 * chances[chosen] / low_sum
        elif accuracy < low and arm >= chosen:
            new[arm] += 5 * chances[chosen] / up_sum
        elif accuracy < low:
            new[arm] -= 5 * chances[chosen] / low_sum
    return new


@pytest.mark.parametrize("case", range(40))
def test_update_is_the_published_rule(case: int) -> None:
    numbers, generator = random.Random(case), Generator().manual_seed(case)
    controller = PublishedBandit(Plan())
    for policy in controller.policies.values():
        assert set(policy.weights) == {100.0}
        policy.weights = [100 + numbers.gauss(0.0, 3.0) for _ in policy.weights]
    before = {name: list(policy.weights) for name, policy in controller.policies.items()}
    plan = controller.choose(generator)
    accuracy = (60 + case) / 100
    controller.learn_from(feed(accuracy))
    strongest_first = [(4, 14), (3, 14), (2, 14), (1, 14), (1, 5)]
    for name, chosen, low, high in (
        ("repeats", plan.repeats - 1, 0.8, 0.9),
        ("augmentations", strongest_first.index((plan.num_ops, plan.magnitude)), 0.7, 0.8),
    ):
        expected = updated(before[name], chosen, accuracy, low, high)
        np.testing.assert_allclose(controller.policies[name].weights, expected, rtol=1e-12)


@pytest.mark.parametrize("accuracy", [0.8, 0.85, 0.9])
def test_nothing_moves_within_the_band(accuracy: float) -> None:
    controller = PublishedBandit(Plan(), augmentation_low=0.8, augmentation_high=0.9)
    controller.choose(Generator().manual_seed(0))
    controller.learn_from(feed(accuracy))  # in float32 all three miss their decimal numbers
    assert all(set(policy.weights) == {100.0} for policy in controller.policies.values())


def test_lowest_arm_is_not_left_by_itself_when_accuracy_is_too_low() -> None:
    """All weights rise alike then, as the chosen arm counts among the better ones: the rule's weakness."""
    controller = PublishedBandit(Plan(), repeats="1-3")
    policy = controller.policies["repeats"]
    policy.weights = [100.0, 90.0, 80.0]
    before = policy.probabilities
    controller.update("repeats", policy, 0, 0.1)
    assert policy.probabilities == pytest.approx(before, rel=1e-12)
    assert policy.weights[0] > 100


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"repeats_low": 0.0}, "controller.repeats_low must be an accuracy above 0 and below 1"),
        ({"augmentation_high": 1.5}, "controller.augmentation_high must be an accuracy"),
        ({"repeats_low": 0.95}, "controller.repeats_low is 0.95, above controller.repeats_high, 0.9"),
        ({"step_low": -1.0}, "controller.step_low must be a number above 0"),
    ],
)
def test_mistake_gets_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        PublishedBandit(Plan(), **options)
