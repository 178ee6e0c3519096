"""The plan that never changes."""

from __future__ import annotations

from torch import Generator

from encore.interfaces import FeedbackValues, Plan


class Fixed:
    """The same K, P and Q for every incoming batch."""

    needs_feedback = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def start_task(self, task: int) -> None:
        """Do as before."""

    def choose(self, generator: Generator) -> Plan:
        """Return the plan."""
        return self.plan

    def learn_from(self, feedback: FeedbackValues) -> None:
        """Learn nothing: the plan is fixed."""
