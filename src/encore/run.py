"""READ THIS FIRST. A whole run: stream -> plan -> rehearse -> remember -> evaluate, for one seed.

`run_one` is the program, written for one seed: its one `yield` is all that several runs on one device need
(turns.py). `Run` holds all that changes while it goes on. What lies between an incoming batch and the updated
memory, lines 3 to 9 of the paper's Algorithm 1, is `Rehearsal.learn` in rehearsal.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from encore import registry
from encore.actions import Actions
from encore.config import choose_run_part, resolve_run
from encore.data.benchmark import Benchmark
from encore.errors import EncoreError
from encore.evaluate import evaluate
from encore.image_store import ImageStore
from encore.interfaces import Controller, Feedback, Plan
from encore.layout import make_stream
from encore.learner import Learner
from encore.randomness import Randomness
from encore.settings import RunSettings


class Watcher(Protocol):
    """Looks on while a run goes, to show it, to save it, or to stop it by raising."""

    def after_batch(self, run: Run, feedback: Feedback) -> None: ...

    def before_evaluation(self, run: Run) -> None: ...

    def after_task(self, run: Run) -> None: ...


def run_one(run: Run, watcher: Watcher) -> Iterator[bool]:
    """Teach the learner the whole stream, from wherever the run stands to the end.

    Yields, after each batch, whether the next turn needs what this one gave.
    """
    learner, controller, stream = run.learner, run.controller, run.stream
    for task in range(run.task, len(stream.tasks)):
        if run.batch == 0:
            controller.start_task(task)
        for incoming in stream.batches(task, run.batch_size, start=run.batch):
            plan = controller.choose(run.draws.host_generator("controller"))  # line 2: SampleAction
            feedback = learner.learn(incoming, plan, run.looks_first)  # lines 3 to 9
            run.actions.note(task, plan, feedback)
            yield controller.needs_feedback  # other runs give the device their work meanwhile
            if controller.needs_feedback:
                controller.learn_from(feedback.read())  # line 10: UpdateRL
            run.batch += 1
            run.count_seconds("training")
            watcher.after_batch(run, feedback)
        run.wait_for_device()
        run.count_seconds("training")
        watcher.before_evaluation(run)
        learner.end_task()  # after the run was saved: who resumes it from there comes by here again
        run.accuracy.append(evaluate(learner, stream, num_seen=task + 1))
        run.count_seconds("evaluation")
        run.task, run.batch = task + 1, 0
        watcher.after_task(run)


class Run:
    """One seed's run: its parts, where it stands, and what it has measured."""

    def __init__(
        self, settings: RunSettings, seed: int, benchmark: Benchmark, store: ImageStore, device: torch.device
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.name = f"seed {seed}"  # on the screen
        self.side_by_side = 1  # how many runs shared the device; seconds are those of the clock on the wall
        self.batch_size = settings.stream.batch_size
        self.draws = Randomness(seed)
        self.stream = make_stream(settings, seed, benchmark, store, self.draws.host_generator("stream"))
        self.config = resolve_run(settings, store.image_shape, store.num_classes, seed)
        plan = Plan(settings.plan.repeats, settings.plan.num_ops, settings.plan.magnitude)
        self.learner = Learner.from_config(self.config, plan, device)
        chosen = choose_run_part(settings, "controller")
        self.controller: Controller = registry.make("controller", chosen.name, plan, **chosen.options)
        if self.controller.needs_feedback and not getattr(self.learner.retention, "keeps", True):
            retention = self.config.parts["retention"].name
            raise EncoreError(
                f"the controller {chosen.name} watches how well what is remembered is known, and the "
                f"retention {retention} keeps nothing: use the controller fixed, or another method"
            )
        self.looks_first = getattr(self.controller, "looks_first", False)
        self.actions = Actions(self.controller)
        self.task = 0  # tasks finished
        self.batch = 0  # incoming batches learnt of the current task
        self.accuracy: list[list[float]] = []  # a row for each finished task
        self.seconds: dict[str, list[float]] = {
            kind: [0.0] * len(self.stream.tasks) for kind in ("training", "evaluation", "saving")
        }
        self.processes: list[dict[str, Any]] = []  # what worked on this run: one, or more if it was resumed
        self._counted_until = time.perf_counter()

    @property
    def is_finished(self) -> bool:
        """Whether every task has been learnt and evaluated."""
        return self.task == len(self.stream.tasks)

    def count_seconds(self, kind: str) -> None:
        """Book the time since the last call on the current task."""
        now = time.perf_counter()
        current = min(self.task, len(self.stream.tasks) - 1)
        self.seconds[kind][current] += now - self._counted_until
        self._counted_until = now

    def start_clock(self) -> None:
        """Begin to count from now."""
        self._counted_until = time.perf_counter()

    def wait_for_device(self) -> None:
        """Let the device finish, so that seconds are booked where they belong: once a task."""
        if self.learner.device.type == "cuda":
            torch.cuda.current_stream(self.learner.device).synchronize()

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed since the run was made."""
        controller: Any = self.controller
        return {
            "learner": self.learner.state_dict(),
            "controller": controller.state_dict() if hasattr(controller, "state_dict") else {},
            "actions": self.actions.state_dict(),
            "draws": self.draws.state_dict(),
            "task": self.task,
            "batch": self.batch,
            "accuracy": self.accuracy,
            "seconds": self.seconds,
            "skipped": self.stream.store.skipped,
            "processes": self.processes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        self.learner.load_state_dict(state["learner"])
        controller: Any = self.controller
        if hasattr(controller, "load_state_dict"):
            controller.load_state_dict(state["controller"])
        self.actions.load_state_dict(state["actions"])
        self.draws.load_state_dict(state["draws"])
        self.task, self.batch = state["task"], state["batch"]
        self.accuracy, self.seconds = state["accuracy"], state["seconds"]
        self.stream.store.skipped.update(state["skipped"])
        self.processes = state["processes"]
