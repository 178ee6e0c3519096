"""Repeats that cost no more than a budget, spent where they pay."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import torch
from torch import Generator

from encore.errors import EncoreError
from encore.interfaces import MAX_REPEATS, FeedbackValues, Plan
from encore.values import not_negative_number, positive_number, whole_number

MEMORY = 5  # batches that the need rests on, about
PATIENCE = 10  # batches' budgets saved at which a step costs 1/e of its price
LEARNING_COST = 20  # batches that the seconds of a step rest on, about
TRIED = 20  # batches after which a budget of seconds that one step exceeds is given up


class Budgeted:
    """Chooses K so that its mean never exceeds a budget, the larger the less of the memory is known.

    What pays is where the memory batch still has mistakes, a share n of it. Steps have diminishing returns,
    n * log K, and a price; at the price p the best K is n / p. With N the mean of n so far, and S steps saved
    of a budget of B for each batch,

        p = N / B * exp(-S / (10 * B)),        K = n / p, from 1 to `most`, and never more than B + S

    so the price rises with what was spent, and where mistakes are more than usual, K is more than B. A
    budget in seconds counts what the steps take. P and Q are the settings'.
    """

    needs_feedback = True
    clock = staticmethod(time.perf_counter)

    def __init__(
        self,
        plan: Plan,
        steps: Annotated[float, "SGD steps for each incoming batch, on average."] = 5.0,
        seconds: Annotated[
            float,
            "Seconds for each incoming batch on average, instead; what is chosen then depends on the clock.",
        ] = 0.0,
        most: Annotated[int, "The largest K."] = 20,
    ) -> None:
        self.plan = plan
        self.most = whole_number("controller.most", most, 1, MAX_REPEATS)
        self.seconds = not_negative_number("controller.seconds", seconds)
        self.budget = positive_number("controller.steps", steps)
        if self.budget < 1 and not self.seconds:
            raise EncoreError(
                f"controller.steps must be at least 1, as each incoming batch takes a step, got {steps!r}"
            )
        if self.budget > self.most and not self.seconds:
            raise EncoreError(
                f"controller.steps is {steps!r}, above the largest K, {most}: choose fewer steps, or more as "
                "controller.most"
            )
        self.saved = 0.0  # of the budget, in steps or seconds
        self.need = 1.0  # n of about the last batches
        self.mean_need = 1.0  # N
        self.num_batches = 0  # learnt
        self.step_seconds: float | None = None  # what a step takes, once one was measured
        self._chosen = 1
        self._began = math.nan

    def start_task(self, task: int) -> None:
        """Do as before: that something new comes is seen."""

    def choose(self, generator: Generator) -> Plan:
        """Return the plan with the K that pays."""
        self._began = self.clock()
        budget, saved = self.budget, self.saved
        if self.seconds:
            if self.step_seconds is None:
                budget, saved = 1.0, 0.0  # nothing is known of a step yet
            else:
                budget, saved = self.seconds / self.step_seconds, self.saved / self.step_seconds
        worth = (
            budget * self.need / max(self.mean_need, 1e-9) * math.exp(min(saved / (PATIENCE * budget), 50.0))
        )
        # The part behind the point is the chance of one more, so that the mean is right.
        drawn = torch.rand((), generator=generator, dtype=torch.float64).item()
        affordable = math.floor(budget + saved + 1e-9)
        self._chosen = max(1, min(math.floor(min(worth, self.most) + drawn), affordable, self.most))
        return Plan(self._chosen, self.plan.num_ops, self.plan.magnitude)

    def learn_from(self, feedback: FeedbackValues) -> None:
        """Book what was spent, and see what there is still to learn."""
        self.num_batches += 1
        if self.seconds:
            self._book_seconds(self.clock() - self._began)
        else:
            self.saved += self.budget - self._chosen
        if math.isfinite(feedback.memory_accuracy):
            mistakes = 1 - feedback.memory_accuracy
            self.need += (mistakes - self.need) / MEMORY
            self.mean_need += (self.need - self.mean_need) / (self.num_batches + 1)

    def _book_seconds(self, elapsed: float) -> None:
        if self.num_batches == 1:
            return  # the first batch makes ready what is made once
        cost = elapsed / self._chosen
        before = cost if self.step_seconds is None else self.step_seconds
        self.step_seconds = before + (cost - before) / min(self.num_batches - 1, LEARNING_COST)
        self.saved += self.seconds - elapsed
        if self.num_batches == TRIED and self.step_seconds > self.seconds:
            raise EncoreError(
                f"controller.seconds is {self.seconds!r}, and one step for an incoming batch takes "
                f"{self.step_seconds:.2g} seconds here: choose at least that"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed."""
        return {
            "saved": self.saved,
            "need": self.need,
            "mean_need": self.mean_need,
            "num_batches": self.num_batches,
            "step_seconds": self.step_seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        self.saved, self.need, self.mean_need = state["saved"], state["need"], state["mean_need"]
        self.num_batches, self.step_seconds = state["num_batches"], state["step_seconds"]
