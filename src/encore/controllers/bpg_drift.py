"""The paper's bandit for a stream that does not say where a task starts."""

from __future__ import annotations

import math
from typing import Annotated, Any

from encore.bandit import PAPER_AUGMENTATIONS, PAPER_REPEATS
from encore.controllers.bpg import BootstrappedPolicyGradient
from encore.drift import PageHinkley
from encore.interfaces import FeedbackValues, Plan


class DriftingPolicyGradient(BootstrappedPolicyGradient):
    """Moves K and (P, Q) as bpg does, and begins anew when the incoming examples turn out to be new.

    It takes no notice of tasks. A drift test watches log(1 + loss) on each incoming batch before any step on
    it: where something new comes, that loss rises at once, whatever K is.
    """

    looks_first = True

    def __init__(
        self,
        plan: Plan,
        target: Annotated[float, "Memory accuracy to aim at (A*)."] = 0.9,
        step: Annotated[float, "How far weights move for a reward of 1; the paper does not say."] = 10.0,
        repeats: Annotated[str, "Numbers of repeats to choose among (K)."] = PAPER_REPEATS,
        augmentations: Annotated[
            str, "Operations x magnitude to choose among, the weakest first (P, Q)."
        ] = PAPER_AUGMENTATIONS,
        threshold: Annotated[float, "Rise of the loss, summed up in deviations, that is a change."] = 5.0,
        slack: Annotated[float, "Rise of the loss, in deviations, that a batch may have anyway."] = 1.0,
    ) -> None:
        super().__init__(plan, target, step, repeats, augmentations, without_resets=True)
        self.drift = PageHinkley(threshold, slack)
        self.num_changes = 0

    def learn_from(self, feedback: FeedbackValues) -> None:
        """Change both policies, or begin anew where the stream has changed."""
        super().learn_from(feedback)
        loss = feedback.first_incoming_loss
        if math.isnan(loss):  # nobody has looked at the first iteration
            loss = feedback.incoming_loss
        if self.drift.is_change(math.log1p(loss) if loss > 0 else loss):
            self.num_changes += 1
            self.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed."""
        return {**super().state_dict(), "drift": self.drift.state_dict(), "num_changes": self.num_changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        super().load_state_dict(state)
        self.drift.load_state_dict(state["drift"])
        self.num_changes = state["num_changes"]
