"""The bandit as its authors published it: constant steps outside a band."""

from __future__ import annotations

from typing import Annotated

from encore.bandit import PAPER_AUGMENTATIONS, PAPER_REPEATS, Policy, TwoPolicies, check_accuracy
from encore.errors import EncoreError
from encore.interfaces import Plan
from encore.values import positive_number

INITIAL_WEIGHT = 100.0


class PublishedBandit(TwoPolicies):
    """Moves K and (P, Q) into bands of memory accuracy, by the rule of the authors' code.

    For the memory accuracy A that came of the arm a, outside the policy's band [low, high], and
    S_up = sum of pi from a on, S_low = sum of pi up to a, both with a itself:

        A > high:  w_k -= step_high * pi_a / S_up  for k >= a,   w_k += step_high * pi_a / S_low  for k < a
        A < low:   w_k += step_low  * pi_a / S_up  for k >= a,   w_k -= step_low  * pi_a / S_low  for k < a
    """

    def __init__(
        self,
        plan: Plan,
        repeats_low: Annotated[float, "Memory accuracy below which K should be larger."] = 0.8,
        repeats_high: Annotated[float, "Memory accuracy above which K should be smaller."] = 0.9,
        augmentation_low: Annotated[float, "Memory accuracy below which to augment less."] = 0.7,
        augmentation_high: Annotated[float, "Memory accuracy above which to augment more."] = 0.8,
        step_high: Annotated[float, "How far weights move where it is too high."] = 10.0,
        step_low: Annotated[float, "How far weights move where it is too low."] = 5.0,
        repeats: Annotated[str, "Numbers of repeats to choose among (K)."] = PAPER_REPEATS,
        augmentations: Annotated[
            str, "Operations x magnitude to choose among, the weakest first (P, Q)."
        ] = PAPER_AUGMENTATIONS,
        without_resets: Annotated[bool, "Go on where a task starts, instead of beginning anew."] = False,
    ) -> None:
        super().__init__(repeats, augmentations, not without_resets, INITIAL_WEIGHT)
        self.targets = {
            "repeats": _check_band("repeats", repeats_low, repeats_high),
            "augmentations": _check_band("augmentation", augmentation_low, augmentation_high),
        }
        self.step_high = positive_number("controller.step_high", step_high)
        self.step_low = positive_number("controller.step_low", step_low)

    def update(self, name: str, policy: Policy, chosen: int, accuracy: float) -> None:
        """Take the step, if the accuracy is outside the band."""
        low, high = self.targets[name]
        if low <= accuracy <= high:
            return
        probabilities = policy.probabilities
        step = -self.step_high if accuracy > high else self.step_low
        upwards = step * probabilities[chosen] / sum(probabilities[chosen:])
        downwards = -step * probabilities[chosen] / sum(probabilities[: chosen + 1])
        num_above = len(probabilities) - chosen
        policy.move([downwards] * chosen + [upwards] * num_above, 1.0)


def _check_band(name: str, low: float, high: float) -> tuple[float, float]:
    check_accuracy(f"controller.{name}_low", low)
    check_accuracy(f"controller.{name}_high", high)
    if low > high:
        raise EncoreError(
            f"controller.{name}_low is {low!r}, above controller.{name}_high, {high!r}: swap them"
        )
    return low, high
