"""Choosing plans by a bandit: softmax policies, and the bootstrapped policy gradient.

A controller of this family is a subclass of `TwoPolicies` with a constructor and an `update` of a few lines:
see controllers/bpg.py. All of it is plain numbers on the host, as a policy has some twenty arms.

The arms of a policy stand in the order of the memory accuracy that they are expected to lead to, the lowest
first: few repeats before many, strong augmentation before weak. So one rule serves both: where memory
accuracy is too high, the arms below the chosen one are better, and where it is too low those above.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator

from encore.errors import EncoreError
from encore.interfaces import MAX_MAGNITUDE, MAX_NUM_OPS, MAX_REPEATS, FeedbackValues, Plan

PAPER_REPEATS = "1-20"
PAPER_AUGMENTATIONS = "1x5,1x14,2x14,3x14,4x14"
DIGITS = 6  # of an accuracy: in float32, 7 of 10 are less than 0.7, and the rules compare with such numbers

Augmentation = tuple[int, int]  # P and Q


def softmax(weights: Sequence[float]) -> list[float]:
    """Return exp(w_a) / sum_k exp(w_k) for each a.

    >>> softmax([100.0, 100.0])
    [0.5, 0.5]
    """
    highest = max(weights)
    powers = [math.exp(weight - highest) for weight in weights]
    total = sum(powers)
    return [power / total for power in powers]


class Policy:
    """Draws an arm a with the probability pi(a) = softmax(w)_a."""

    def __init__(self, num_arms: int, initial_weight: float = 0.0) -> None:
        self._initial = [initial_weight] * num_arms
        self.weights = list(self._initial)

    @property
    def probabilities(self) -> list[float]:
        """The probability of each arm."""
        return softmax(self.weights)

    def draw(self, generator: Generator) -> int:
        """Draw an arm."""
        left = torch.rand((), generator=generator, dtype=torch.float64).item()
        probabilities = self.probabilities
        for arm, probability in enumerate(probabilities):
            left -= probability
            if left < 0:
                return arm
        return probabilities.index(max(probabilities))  # where rounding has left something over

    def move(self, direction: Sequence[float], step: float) -> None:
        """Let w <- w + step * direction."""
        self.weights = [weight + step * part for weight, part in zip(self.weights, direction, strict=True)]

    def reset(self) -> None:
        """Make all arms equally likely again."""
        self.weights = list(self._initial)


def better_and_worse(chosen: int, num_arms: int, is_too_high: bool) -> tuple[range, range]:
    """Return the arms that would have been better than the chosen one, and those that would have been worse.

    >>> better_and_worse(1, 5, is_too_high=True)
    (range(0, 1), range(2, 5))
    """
    below, above = range(chosen), range(chosen + 1, num_arms)
    return (below, above) if is_too_high else (above, below)


def bootstrapped_gradient(
    weights: Sequence[float], better: Sequence[int], worse: Sequence[int]
) -> list[float]:
    """Return the gradient of log sum_{better} pi - log sum_{worse} pi with respect to the weights.

    The first term's is pi_k / sum_{better} pi - pi_k for k in the set, and -pi_k for the others. A set
    without arms has no logarithm, and its term is left out.

    >>> bootstrapped_gradient([0.0, 0.0, 0.0], better=[0], worse=[2])
    [1.0, 0.0, -1.0]
    """
    gradient = [0.0] * len(weights)
    probabilities = softmax(weights)
    for arms, sign in ((better, 1.0), (worse, -1.0)):
        if arms:
            within = softmax([weights[arm] for arm in arms])  # pi_k / sum pi, however small both are
            for arm, share in zip(arms, within, strict=True):
                gradient[arm] += sign * share
            gradient = [
                part - sign * probability for part, probability in zip(gradient, probabilities, strict=True)
            ]
    return gradient


class TwoPolicies:
    """Draws K from one policy and (P, Q) from another, and lets both learn from the memory accuracy."""

    needs_feedback = True
    targets: Mapping[str, tuple[float, float]]  # for each policy the memory accuracies it is content with

    def __init__(
        self, repeats: str, augmentations: str, reset_at_tasks: bool, initial_weight: float = 0.0
    ) -> None:
        self.repeats = read_repeats(repeats)
        self.augmentations = read_augmentations(augmentations)[::-1]  # the strongest first
        self.reset_at_tasks = reset_at_tasks
        self.policies = {
            "repeats": Policy(len(self.repeats), initial_weight),
            "augmentations": Policy(len(self.augmentations), initial_weight),
        }
        self.chosen = dict.fromkeys(self.policies, 0)  # the arm that each has drawn last

    @abstractmethod
    def update(self, name: str, policy: Policy, chosen: int, accuracy: float) -> None:
        """Change a policy's weights by what has come of the arm that it has chosen."""

    @property
    def arms(self) -> dict[str, list[str]]:
        """What each policy chooses among."""
        return {
            "repeats": [str(number) for number in self.repeats],
            "augmentations": [f"{num_ops}x{magnitude}" for num_ops, magnitude in self.augmentations],
        }

    @property
    def probabilities(self) -> list[float]:
        """With which probability each arm is drawn next: those of the first policy, then of the second."""
        return [value for policy in self.policies.values() for value in policy.probabilities]

    def start_task(self, task: int) -> None:
        """Begin anew, as an old task's accuracies say little of a new one's."""
        if self.reset_at_tasks:
            self.reset()

    def reset(self) -> None:
        """Make all arms equally likely again."""
        for policy in self.policies.values():
            policy.reset()

    def choose(self, generator: Generator) -> Plan:
        """Draw a plan."""
        self.chosen = {name: policy.draw(generator) for name, policy in self.policies.items()}
        num_ops, magnitude = self.augmentations[self.chosen["augmentations"]]
        return Plan(self.repeats[self.chosen["repeats"]], num_ops, magnitude)

    def learn_from(self, feedback: FeedbackValues) -> None:
        """Change both policies, unless nothing was remembered."""
        if math.isnan(feedback.memory_accuracy):
            return
        accuracy = round(feedback.memory_accuracy, DIGITS)
        for name, policy in self.policies.items():
            self.update(name, policy, self.chosen[name], accuracy)

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed."""
        weights = {name: list(policy.weights) for name, policy in self.policies.items()}
        return {"weights": weights, "chosen": dict(self.chosen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        for name, policy in self.policies.items():
            policy.weights = list(state["weights"][name])
        self.chosen = dict(state["chosen"])


def check_accuracy(name: str, value: float) -> float:
    """Return an accuracy to aim at, or refuse what can never be reached from both sides."""
    if not 0 < value < 1:
        raise EncoreError(f"{name} must be an accuracy above 0 and below 1, got {value!r}")
    return value


def read_repeats(text: str) -> list[int]:
    """Return numbers of repeats in ascending order.

    >>> read_repeats("1-5,10,20")
    [1, 2, 3, 4, 5, 10, 20]
    """
    found: list[int] = []
    for word in _words(text):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= MAX_REPEATS:
            raise EncoreError(
                f"controller.repeats must be whole numbers from 1 to {MAX_REPEATS} such as 1-20 or "
                f"1,2,5,10,20, got {word!r} in {text!r}"
            )
        found += range(first, last + 1)
    _refuse_none_or_twice("controller.repeats", found, text, PAPER_REPEATS)
    return sorted(found)


def read_augmentations(text: str) -> list[Augmentation]:
    """Return pairs of P and Q, from the weakest to the strongest, as they are written.

    >>> read_augmentations("1x5,1x14,2x14")
    [(1, 5), (1, 14), (2, 14)]
    """
    found: list[Augmentation] = []
    for word in _words(text):
        match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", word)
        if not match or int(match[1]) > MAX_NUM_OPS or int(match[2]) > MAX_MAGNITUDE:
            raise EncoreError(
                "controller.augmentations must be operations x magnitude, weakest first, such as 1x5,1x14: "
                f"up to {MAX_NUM_OPS} operations and magnitude {MAX_MAGNITUDE}, got {word!r} in {text!r}"
            )
        found.append((int(match[1]), int(match[2])))
    _refuse_none_or_twice("controller.augmentations", found, text, PAPER_AUGMENTATIONS)
    return found


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _refuse_none_or_twice(name: str, found: Sequence[Any], text: str, usual: str) -> None:
    if not found:
        raise EncoreError(f"{name} is empty: name one or more to choose among, such as {usual}")
    if len(set(found)) < len(found):
        raise EncoreError(f"{name} names the same more than once: {text!r}")
