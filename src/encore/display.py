"""What a person sees in a terminal while runs go."""

from __future__ import annotations

import math
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from encore.interfaces import Feedback
from encore.keeper import Display
from encore.run import Run

SECONDS_BETWEEN_LOOKS = 0.25  # at the feedback: a look makes the host wait for the device
NARROW = 110  # columns, below which not all that stands beside a bar of full length finds room
SMOOTHING = 0.9  # of the running accuracies, from one look to the next


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def note(self, sentence: str) -> None:
        """Show nothing."""

    def start(self, run: Run) -> None:
        """Show nothing."""

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        """Show nothing."""

    def after_task(self, run: Run) -> None:
        """Show nothing."""

    def finish(self, run: Run) -> None:
        """Show nothing."""

    def skip(self, seed: int) -> None:
        """Show nothing."""


class Lines(Quiet):
    """A plain line for each finished task: for files, pipes and logs."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def note(self, sentence: str) -> None:
        """Say something before the first run begins."""
        self._print(sentence)

    def start(self, run: Run) -> None:
        """Say what begins or goes on."""
        if run.is_finished:
            self._print(f"{run.name}  had only its record to write")
        elif run.task or run.batch:
            self._print(f"{run.name}  goes on in task {run.task + 1}, after batch {run.batch}")

    def after_task(self, run: Run) -> None:
        """Say how the tasks so far are known now."""
        row = run.accuracy[-1]
        known = row[: run.task]
        seconds = run.seconds["training"][run.task - 1] + run.seconds["evaluation"][run.task - 1]
        num_tasks = len(run.stream.tasks)
        if not run.learner.is_finite:
            self._print(f"{run.name}  training has diverged: try a smaller --learning-rate")
        self._print(
            f"{run.name}  task {run.task:>{len(str(num_tasks))}} of {num_tasks}   "
            f"this task {known[-1]:6.1%}   all so far {sum(known) / len(known):6.1%}   {seconds:6.1f} s"
        )

    def skip(self, seed: int) -> None:
        """Say that a seed needs no work."""
        self._print(f"seed {seed}  is finished already")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


class Live(Lines):
    """The same lines, and below them a bar that moves with every batch."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        whole = Column(no_wrap=True)
        is_narrow = console.width < NARROW  # then the bar takes the room that is left
        self._progress = Progress(
            TextColumn("{task.description}", table_column=whole),
            BarColumn(bar_width=None if is_narrow else 24, table_column=Column(ratio=1)),
            TextColumn("batch {task.fields[batch]}", table_column=whole),
            _ImagesPerSecond(table_column=whole),
            TimeRemainingColumn(compact=True, table_column=whole),
            TextColumn("{task.fields[accuracy]}", table_column=whole),
            console=console,
            transient=True,
            expand=is_narrow,
        )
        self._bars: dict[Run, TaskID] = {}
        self._last_looks: dict[Run, float] = {}
        self._accuracies: dict[Run, tuple[float, float]] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._progress.stop()

    def start(self, run: Run) -> None:
        """Begin the bar of a run."""
        super().start(run)
        counts = [run.stream.num_batches(task, run.batch_size) for task in range(len(run.stream.tasks))]
        done = sum(counts[: run.task]) + run.batch
        self._bars[run] = self._progress.add_task(
            "", total=sum(counts), completed=done, batch="", accuracy=""
        )
        self._describe(run)

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        """Move the bar; look at the feedback now and then."""
        now = time.monotonic()
        self._progress.advance(self._bars[run])
        if now - self._last_looks.get(run, 0.0) >= SECONDS_BETWEEN_LOOKS * len(self._bars):
            self._last_looks[run] = now
            self._look(run, feedback)
            self._describe(run)

    def finish(self, run: Run) -> None:
        """Take the bar away."""
        self._progress.remove_task(self._bars.pop(run))

    def _look(self, run: Run, feedback: Feedback) -> None:
        values = feedback.read()
        memory, incoming = self._accuracies.get(run, (math.nan, math.nan))
        if math.isnan(memory):  # no memory yet
            self._accuracies[run] = (values.memory_accuracy, values.incoming_accuracy)
        else:
            self._accuracies[run] = (
                SMOOTHING * memory + (1 - SMOOTHING) * values.memory_accuracy,
                SMOOTHING * incoming + (1 - SMOOTHING) * values.incoming_accuracy,
            )

    def _describe(self, run: Run) -> None:
        task = min(run.task, len(run.stream.tasks) - 1)
        accuracy = ""
        if run in self._accuracies:
            memory, incoming = self._accuracies[run]
            accuracy = f"memory {memory:4.0%} incoming {incoming:4.0%}"
        self._progress.update(
            self._bars[run],
            description=f"{run.name}  task {task + 1} of {len(run.stream.tasks)}",
            batch=f"{run.batch}/{run.stream.num_batches(task, run.batch_size)}",
            accuracy=accuracy,
            images_per_batch=run.batch_size,
        )


class _ImagesPerSecond(ProgressColumn):
    """How many images of the stream are learnt in a second."""

    def render(self, task: Task) -> Text:
        """Return the speed."""
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        return Text(
            f"{speed * task.fields.get('images_per_batch', 1):.0f} images/s", style="progress.data.speed"
        )


def display_for(console: Console, quiet: bool) -> Display:
    """Return what shows runs on this console best."""
    if quiet:
        return Quiet()
    return Live(console) if console.is_terminal else Lines(console)
