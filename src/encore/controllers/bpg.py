"""The paper's bandit: bootstrapped policy gradient towards a memory accuracy."""

from __future__ import annotations

from typing import Annotated

from encore.bandit import (
    PAPER_AUGMENTATIONS,
    PAPER_REPEATS,
    Policy,
    TwoPolicies,
    better_and_worse,
    bootstrapped_gradient,
    check_accuracy,
)
from encore.interfaces import Plan
from encore.values import positive_number


class BootstrappedPolicyGradient(TwoPolicies):
    """Moves K and (P, Q) towards a target memory accuracy, as the paper writes it (RAR-RL).

    For the memory accuracy A that came of the arm a, and |r| = |A - A*|, each policy takes

        w <- w + step * |r| * grad_w ( log sum_{X+} pi - log sum_{X-} pi )

    where A > A* makes the arms below a the better ones X+ and those above the worse ones X-, and A < A* the
    other way round. At A = A* there is no reward, and so no step.
    """

    def __init__(
        self,
        plan: Plan,
        target: Annotated[float, "Memory accuracy to aim at (A*)."] = 0.9,
        step: Annotated[float, "How far weights move for a reward of 1; the paper does not say."] = 10.0,
        repeats: Annotated[str, "Numbers of repeats to choose among (K)."] = PAPER_REPEATS,
        augmentations: Annotated[
            str, "Operations x magnitude to choose among, the weakest first (P, Q)."
        ] = PAPER_AUGMENTATIONS,
        without_resets: Annotated[bool, "Go on where a task starts, instead of beginning anew."] = False,
    ) -> None:
        super().__init__(repeats, augmentations, not without_resets)
        self.target = check_accuracy("controller.target", target)
        self.step = positive_number("controller.step", step)
        self.targets = dict.fromkeys(self.policies, (self.target, self.target))

    def update(self, name: str, policy: Policy, chosen: int, accuracy: float) -> None:
        """Take the step."""
        better, worse = better_and_worse(chosen, len(policy.weights), is_too_high=accuracy > self.target)
        gradient = bootstrapped_gradient(policy.weights, better, worse)
        policy.move(gradient, self.step * abs(accuracy - self.target))
