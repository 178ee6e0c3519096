"""The paper's bandit: its update is the gradient of its objective, by automatic differentiation."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from encore.bandit import Policy, better_and_worse, bootstrapped_gradient, read_augmentations, read_repeats
from encore.cli import main
from encore.controllers.bpg import BootstrappedPolicyGradient
from encore.errors import EncoreError
from encore.interfaces import FeedbackValues, Plan

Rule = Callable[[float, float], bool]


def make(**options: Any) -> BootstrappedPolicyGradient:
    return BootstrappedPolicyGradient(Plan(), **options)


def feed(accuracy: float) -> FeedbackValues:
    """Return what a learner says: its numbers went through float32."""
    return FeedbackValues(torch.tensor(accuracy, dtype=torch.float32).item(), 0.5, 1.0, 1.0)


def sets_of_the_paper(
    ranks: list[float], chosen: int, accuracy: float, target: float, higher_is_weaker: bool
) -> tuple[list[int], list[int]]:
    """Return X+ and X- as the paper's eight cases have them, for Iter(a) or Aug(a) as ranks."""

    def select(rule: Rule) -> list[int]:
        return [arm for arm, rank in enumerate(ranks) if rule(rank, ranks[chosen])]

    def less(one: float, other: float) -> bool:
        return one < other

    def more(one: float, other: float) -> bool:
        return one > other

    if accuracy == target:
        return [], select(lambda one, other: one != other)
    better, worse = (less, more) if (accuracy > target) != higher_is_weaker else (more, less)
    return select(better), select(worse)


def objective(weights: Tensor, better: list[int], worse: list[int], reward: float) -> Tensor:
    """Return |r| (log pi+ - log pi-), without the logarithm of an empty sum."""
    policy = torch.softmax(weights, dim=0)
    value = 0.0 * weights.sum()
    if better:
        value = value + policy[better].sum().log()
    if worse:
        value = value - policy[worse].sum().log()
    return abs(reward) * value


@pytest.mark.parametrize("case", range(60))
def test_update_is_the_gradient_of_the_paper_s_objective(case: int) -> None:
    numbers = random.Random(case)
    controller = make(target=numbers.choice([0.3, 0.7, 0.9]), step=numbers.uniform(0.1, 20.0))
    before = {}
    for name, policy in controller.policies.items():
        spread = numbers.choice([0.0, 1.0, 5.0])
        policy.weights = [numbers.gauss(0.0, spread) for _ in policy.weights]
        before[name] = torch.tensor(policy.weights, dtype=torch.float64, requires_grad=True)
    plan = controller.choose(Generator().manual_seed(case))
    accuracy = case % 11 / 10
    controller.learn_from(feed(accuracy))

    ranks = {
        "repeats": [float(number) for number in range(1, 21)],
        "augmentations": [5.0, 4.0, 3.0, 2.0, 1.0],  # Aug(a): (4, 14) is the strongest
    }
    augmentations = [(4, 14), (3, 14), (2, 14), (1, 14), (1, 5)]
    chosen = {
        "repeats": plan.repeats - 1,
        "augmentations": augmentations.index((plan.num_ops, plan.magnitude)),
    }
    for name, weights in before.items():
        better, worse = sets_of_the_paper(
            ranks[name], chosen[name], accuracy, controller.target, higher_is_weaker=name == "augmentations"
        )
        objective(weights, better, worse, accuracy - controller.target).backward()
        assert weights.grad is not None
        expected = weights.detach() + controller.step * weights.grad
        found = torch.tensor(controller.policies[name].weights, dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_step_computed_by_hand() -> None:
    """A = 1 and A* = 0.9 make |r| = 0.1, times the step of 10: one gains 1, the other loses 1."""
    controller = make(repeats="1-3")
    policy = controller.policies["repeats"]
    controller.update("repeats", policy, 1, 1.0)
    assert policy.weights == pytest.approx([1, 0, -1])
    assert policy.probabilities == pytest.approx([0.665, 0.245, 0.090], abs=5e-4)
    policy.weights = [0.0, 0.0, 0.0]
    controller.update("repeats", policy, 0, 0.4)  # |r| = 0.5; two better arms, no worse one
    assert policy.weights == pytest.approx([-5 / 3, 5 / 2 - 5 / 3, 5 / 2 - 5 / 3])


def test_no_arm_moves_at_the_target() -> None:
    controller = make(target=0.9)
    controller.choose(Generator().manual_seed(0))
    controller.learn_from(feed(0.9))  # 0.9 is 0.89999998 in float32
    assert all(set(policy.weights) == {0.0} for policy in controller.policies.values())


def test_nothing_is_learnt_while_nothing_is_remembered() -> None:
    controller = make()
    controller.choose(Generator().manual_seed(0))
    controller.learn_from(feed(float("nan")))
    assert all(set(policy.weights) == {0.0} for policy in controller.policies.values())


def test_task_begins_with_uniform_policies_unless_told_otherwise() -> None:
    for without_resets, is_uniform in ((False, True), (True, False)):
        controller = make(without_resets=without_resets)
        controller.choose(Generator().manual_seed(0))
        controller.learn_from(feed(0.2))
        controller.start_task(1)
        assert (len(set(controller.probabilities[:20])) == 1) == is_uniform
        assert sum(controller.probabilities) == pytest.approx(2)


def test_gradient_stays_finite_where_probabilities_do_not_reach() -> None:
    weights = [0.0, -2000.0, -2001.0, 5.0]
    gradient = bootstrapped_gradient(weights, better=[1, 2], worse=[0, 3])
    assert gradient[1] == pytest.approx(1 / (1 + torch.tensor(-1.0).exp().item()))
    assert sum(gradient) == pytest.approx(0)


def test_draws_follow_the_probabilities() -> None:
    policy, generator = Policy(4), Generator().manual_seed(0)
    policy.weights = [0.0, 1.0, -1.0, 0.5]
    counts = [0] * 4
    for _ in range(20_000):
        counts[policy.draw(generator)] += 1
    expected = [20_000 * probability for probability in policy.probabilities]
    chi_square = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True))
    assert chi_square < 16.3  # three degrees of freedom, one in a thousand


def test_arm_without_chance_is_never_drawn() -> None:
    policy, generator = Policy(3), Generator().manual_seed(0)
    policy.weights = [-1e6, 0.0, -1e6]
    assert {policy.draw(generator) for _ in range(200)} == {1}


def test_sets_of_the_first_and_the_last_arm() -> None:
    assert [list(arms) for arms in better_and_worse(0, 3, is_too_high=True)] == [[], [1, 2]]
    assert [list(arms) for arms in better_and_worse(2, 3, is_too_high=False)] == [[], [0, 1]]


def test_arms_are_read_as_they_are_written() -> None:
    assert read_repeats("10, 1-3 5") == [1, 2, 3, 5, 10]
    assert read_augmentations("0x0,2x9, 4x30") == [(0, 0), (2, 9), (4, 30)]
    controller = make(repeats="7", augmentations="2x9")
    assert controller.choose(Generator().manual_seed(0)) == Plan(7, 2, 9)
    controller.learn_from(feed(0.1))
    assert controller.probabilities == [1.0, 1.0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--controller.target", "1.5"],
            "controller.target must be an accuracy above 0 and below 1, got 1.5",
        ),
        (["--controller.repeats", ""], "controller.repeats is empty"),
        (["--controller.augmentations", "1-5"], "controller.augmentations must be operations x magnitude"),
    ],
)
def test_mistake_on_the_command_line_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    out = tmp_path / "runs"
    assert (
        main(["run", "--controller", "bpg", "--model.width", "2", "--quiet", "--out", str(out), *words]) == 2
    )
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": 0.0}, r"controller.target must be an accuracy above 0 and below 1, got 0.0"),
        ({"target": 1.0}, "controller.target must be"),
        ({"target": float("nan")}, "controller.target must be"),
        ({"step": 0.0}, "controller.step must be a number above 0"),
        ({"repeats": ""}, "controller.repeats is empty: name one or more to choose among, such as 1-20"),
        ({"repeats": "0-5"}, r"whole numbers from 1 to 100 such as 1-20 .* got '0-5'"),
        ({"repeats": "5-1"}, "got '5-1'"),
        ({"repeats": "1-101"}, "got '1-101'"),
        ({"repeats": "ten"}, "got 'ten'"),
        ({"repeats": "1-3,2"}, "controller.repeats names the same more than once"),
        ({"augmentations": " , "}, "controller.augmentations is empty"),
        ({"augmentations": "5x14"}, "up to 4 operations and magnitude 30, got '5x14'"),
        ({"augmentations": "1x31"}, "got '1x31'"),
        ({"augmentations": "1,14"}, "got '1' in '1,14'"),
        ({"augmentations": "1x5,1x5"}, "more than once"),
    ],
)
def test_mistake_gets_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        make(**options)
