"""What choosing costs a whole run: a bandit's run beside one that repeats its plans, with the same steps.

    python -m benchmarks.bandit_overhead

The second run takes every plan from the record of the first (the controller `schedule`), so it does the same
work, but never waits to see what came of a batch. On a GPU with CIFAR-100, else with digits; the two take
turns, and in every other round the repeated run comes first.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from benchmarks.evidence import carry_out, keep_printed
from encore import launch
from encore.display import Quiet
from encore.errors import EncoreError
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings
from encore.tables import make_table

ROUNDS = 5
CONTROLLERS = ("bpg", "bpg_published")
SEED = 0
ON_GPU = RunSettings(StreamSettings(benchmark="cifar100", first_tasks=2))
ON_CPU = RunSettings(rehearsal=RehearsalSettings(memory_size=50))


def main() -> None:
    """Measure each bandit, print the table, and keep it."""
    on_gpu = torch.cuda.is_available()
    settings = ON_GPU if on_gpu else ON_CPU
    console = Console(width=100, record=True, highlight=False)
    table = make_table("", "steps", "ms a step", "its plans\nrepeated", "more %\nmedian", "least", "most")
    for name in CONTROLLERS:
        with TemporaryDirectory() as work:
            choosing, repeating, steps = measure(settings, name, Path(work))
        more = [100 * (ours / theirs - 1) for ours, theirs in zip(choosing, repeating, strict=True)]
        table.add_row(
            name,
            f"{steps:,}",
            f"{median(choosing):.3f}",
            f"{median(repeating):.3f}",
            *(f"{value:+.1f}" for value in (median(more), min(more), max(more))),
        )
    console.print(table)
    data = f"{settings.stream.benchmark}, {settings.stream.first_tasks or 'all'} tasks, seed {SEED}"
    console.print(f"Training, without evaluations; medians of {ROUNDS} rounds by turns; {data}.")
    device = torch.device("cuda" if on_gpu else "cpu")
    keep_printed("bandit_overhead", "What choosing costs a run", console.export_text(), device=device)


def measure(settings: RunSettings, controller: str, work: Path) -> tuple[list[float], list[float], int]:
    """Return the milliseconds of a step while a bandit chooses, those of the repeated plans, and the steps.

    On a GPU bits differ from run to run, and then a bandit may choose otherwise: hence by the step.
    """
    choosing = replace(settings, plan=PlanSettings(controller=controller))
    _, steps = train(choosing, work / "first")  # for its plans; and what a process makes once is made
    plans = work / "first" / f"seed-{SEED}" / "actions.encore"
    repeating = replace(
        settings,
        plan=PlanSettings(controller="schedule"),
        part_options={"controller.file": str(plans.absolute())},
    )
    milliseconds: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for kind in (0, 1) if number % 2 == 0 else (1, 0):
            settings = (choosing, repeating)[kind]
            took, found = train(settings, work / f"{number}-{settings.plan.controller}")
            if kind == 1 and found != steps:
                raise EncoreError(f"the repeated run took {found} steps instead of {steps}")
            milliseconds[kind].append(1000 * took / found)
    return *milliseconds, steps


def train(settings: RunSettings, directory: Path) -> tuple[float, int]:
    """Return the seconds of training, and the steps, of a run."""
    launch.start(settings, [SEED], directory, Quiet())
    record = json.loads((directory / f"seed-{SEED}" / "record.json").read_text(encoding="utf-8"))
    return sum(record["seconds_per_task"]["training"]), record["sgd_steps"]


if __name__ == "__main__":
    carry_out(main, goes_on=False)
