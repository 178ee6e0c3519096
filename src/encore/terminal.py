"""What a person sees in a terminal while runs go, and the tables afterwards."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from encore.interfaces import Feedback
from encore.metrics import mean_and_deviation
from encore.run import Run

SECONDS_BETWEEN_LOOKS = 0.25  # at the feedback: a look makes the host wait for the device
SMOOTHING = 0.9  # of the running accuracies, from one look to the next

Row = dict[str, Any]


class Quiet:
    """Shows nothing."""

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


class Lines:
    """A plain line for each finished task: for files, pipes and logs."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, run: Run) -> None:
        """Say what begins or goes on."""
        if run.task or run.batch:
            self._print(f"seed {run.seed}  goes on in task {run.task + 1}, after batch {run.batch}")

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        """Show nothing: a batch is not worth a line."""

    def after_task(self, run: Run) -> None:
        """Say how the tasks so far are known now."""
        row = run.accuracy[-1]
        known = row[: run.task]
        seconds = run.seconds["training"][run.task - 1] + run.seconds["evaluation"][run.task - 1]
        num_tasks = len(run.stream.tasks)
        self._print(
            f"seed {run.seed}  task {run.task:>{len(str(num_tasks))}} of {num_tasks}   "
            f"this task {known[-1]:6.1%}   all so far {sum(known) / len(known):6.1%}   {seconds:6.1f} s"
        )

    def finish(self, run: Run) -> None:
        """Show nothing more: the table follows."""

    def skip(self, seed: int) -> None:
        """Say that a seed needs no work."""
        self._print(f"seed {seed}  is finished already")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


class Live(Lines):
    """The same lines, and below them a bar that moves with every batch."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("batch {task.fields[batch]}"),
            _ImagesPerSecond(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[accuracy]}"),
            console=console,
            transient=True,
        )
        self._last_look = 0.0
        self._accuracies: tuple[float, float] | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def start(self, run: Run) -> None:
        """Begin the bar of a run."""
        super().start(run)
        counts = [run.stream.num_batches(task, run.batch_size) for task in range(len(run.stream.tasks))]
        done = sum(counts[: run.task]) + run.batch
        self._accuracies = None
        self._bar = self._progress.add_task("", total=sum(counts), completed=done, batch="", accuracy="")
        self._describe(run)

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        """Move the bar; look at the feedback now and then."""
        now = time.monotonic()
        self._progress.advance(self._bar)
        if now - self._last_look >= SECONDS_BETWEEN_LOOKS:
            self._last_look = now
            self._look(feedback)
            self._describe(run)

    def finish(self, run: Run) -> None:
        """Take the bar away."""
        self._progress.remove_task(self._bar)

    def _look(self, feedback: Feedback) -> None:
        values = feedback.read()
        seen = (values.memory_accuracy, values.incoming_accuracy)
        if self._accuracies is None or self._accuracies[0] != self._accuracies[0]:  # NaN: no memory yet
            self._accuracies = seen
        else:
            memory, incoming = self._accuracies
            self._accuracies = (
                SMOOTHING * memory + (1 - SMOOTHING) * seen[0],
                SMOOTHING * incoming + (1 - SMOOTHING) * seen[1],
            )

    def _describe(self, run: Run) -> None:
        task = min(run.task, len(run.stream.tasks) - 1)
        accuracy = ""
        if self._accuracies is not None:
            memory, incoming = self._accuracies
            accuracy = f"memory {memory:4.0%}  incoming {incoming:4.0%}"
        self._progress.update(
            self._bar,
            description=f"seed {run.seed}  task {task + 1} of {len(run.stream.tasks)}",
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


def display_for(console: Console, quiet: bool) -> Quiet | Lines | Live:
    """Return what shows runs on this console best."""
    if quiet:
        return Quiet()
    return Live(console) if console.is_terminal else Lines(console)


def table_of_groups(groups: dict[Path, list[Row]], narrow: bool = False) -> Table:
    """Return a table with a line for each directory of runs: mean and deviation over its seeds."""
    table = make_table(
        "method",
        "K",
        "P",
        "Q",
        "M",
        "accuracy\n%",
        "forgetting\n%",
        "backward\ntransfer %",
        "SGD\nsteps",
        "images\ntrained",
        "seconds",
        narrow=narrow,
    )
    for records in groups.values():
        settings = records[0]["config"]
        plan = settings["plan"]
        table.add_row(
            name_of(settings),
            *(str(plan[key]) for key in ("repeats", "num_ops")),
            str(plan["magnitude"]) if plan["num_ops"] else "-",
            str(settings["rehearsal"]["memory_size"]),
            *(
                _percent([record["metrics"][metric] for record in records])
                for metric in ("average_accuracy", "forgetting", "backward_transfer")
            ),
            *(_number([record[key] for record in records]) for key in ("sgd_steps", "images_trained")),
            _plus_minus([record["seconds"] for record in records]),
        )
    return table


def name_of(settings: Row) -> str:
    """Return what the paper calls a method under a plan: ER, R-ER with repeats alone, ER-RAR with both."""
    name = str(settings["rehearsal"]["method"]).upper().replace("_", "-")
    plan = settings["plan"]
    augmented = plan["num_ops"] > 0 and plan["augment_target"] != "none"
    if plan["repeats"] > 1:
        name = f"{name}-RAR" if augmented else f"R-{name}"
    elif augmented:
        name += " augmented"
    remarks = []
    if augmented and plan["augment_target"] != "both":
        remarks.append(f"{plan['augment_target']} only")
    if augmented and plan["operation_space"] != "paper":
        remarks.append(f"{plan['operation_space']}' operations")
    if settings["rehearsal"]["classifier"]:
        remarks.append(settings["rehearsal"]["classifier"])
    return ", ".join([name, *remarks])


def table_of_seeds(records: list[Row]) -> Table:
    """Return a table with a line for each seed, and the mean and deviation below."""
    metrics = ("average_accuracy", "forgetting", "backward_transfer", "plasticity", "stability")
    headings = ("accuracy\n%", "forgetting\n%", "backward\ntransfer %", "plasticity\n%", "stability\n%")
    table = make_table("seed", *headings, "seconds")
    for record in records:
        table.add_row(
            str(record["seed"]),
            *(f"{100 * record['metrics'][metric]:.2f}" for metric in metrics),
            f"{record['seconds']:.1f}",
        )
    if len(records) > 1:
        table.add_row(
            "mean",
            *(_percent([record["metrics"][metric] for record in records]) for metric in metrics),
            _plus_minus([record["seconds"] for record in records]),
        )
    return table


def table_of_matrix(record: Row) -> Table:
    """Return the accuracy matrix of a run: a row after each task, a column for each task's test set."""
    matrix = record["accuracy_matrix"]
    table = make_table("after task", *(str(task + 1) for task in range(len(matrix))), "mean")
    for number, row in enumerate(matrix):
        known = row[: number + 1]
        cells = [f"{100 * value:.1f}" for value in known] + ["·"] * (len(row) - len(known))
        table.add_row(str(number + 1), *cells, f"{100 * sum(known) / len(known):.1f}")
    return table


def make_table(first: str, *others: str, narrow: bool = False) -> Table:
    """Return an empty table: a column of names, then columns of numbers."""
    padding = (0, 1, 0, 0) if narrow else (0, 1)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=padding)
    table.add_column(first, vertical="bottom", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", vertical="bottom", no_wrap=True)
    return table


def _percent(values: list[float]) -> str:
    return _plus_minus([100 * value for value in values])


def _plus_minus(values: list[float]) -> str:
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.1f} ± {deviation:.1f}" if len(values) > 1 else f"{mean:.1f}"


def _number(values: list[float]) -> str:
    mean, _ = mean_and_deviation(values)
    return f"{mean:,.0f}"
