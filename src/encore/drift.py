"""Noticing that a stream has changed, from a number that it shows with each batch."""

from __future__ import annotations

import math
from typing import Any

from encore.values import not_negative_number, positive_number

MEMORY = 20  # values that the mean and the deviation rest on, about
WARMING_UP = 8  # values after a change until there is a mean to compare with


class PageHinkley:
    """Page and Hinkley's test for a rise of the mean, of values measured in their own deviations.

    With z the distance of a value from the mean of those before, in their standard deviations,

        s <- max(0, s + z - slack)

    and a change is reported when s exceeds the threshold; then all begins anew. So it takes one value that is
    far off, or several that are less so. Mean and deviation are of about the last 20 values, as what a
    learner shows gets better for a while after each change.

    >>> test = PageHinkley()
    >>> [number for number in range(60) if test.is_change(number % 3 + 3.0 * (number >= 40))]
    [41]
    """

    def __init__(self, threshold: float = 5.0, slack: float = 1.0) -> None:
        self.threshold = positive_number("controller.threshold", threshold)
        self.slack = not_negative_number("controller.slack", slack)
        self._count, self._mean, self._variance, self._sum = 0, 0.0, 0.0, 0.0

    def is_change(self, value: float) -> bool:
        """Take a value in, and return whether the values have changed; what is not finite is passed by."""
        if not math.isfinite(value):
            return False
        deviation = math.sqrt(self._variance)
        if self._count >= WARMING_UP and deviation > 0:
            self._sum = max(0.0, self._sum + (value - self._mean) / deviation - self.slack)
            if self._sum > self.threshold:
                self._forget()
                return True
        self._count += 1
        share = 1 / min(self._count, MEMORY)
        step = value - self._mean
        self._mean += share * step
        self._variance = (1 - share) * (self._variance + share * step * step)
        return False

    def _forget(self) -> None:
        self._count, self._mean, self._variance, self._sum = 0, 0.0, 0.0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed."""
        return {"count": self._count, "mean": self._mean, "variance": self._variance, "sum": self._sum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        self._count, self._mean = state["count"], state["mean"]
        self._variance, self._sum = state["variance"], state["sum"]
