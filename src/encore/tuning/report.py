"""What `encore tune` and `encore show` print of a search: its accuracies, its choices and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Table

from encore.interfaces import Plan
from encore.metrics import mean_and_deviation
from encore.tables import Row, make_table
from encore.tuning.first_tasks import Choice, count_runs, count_tasks, read_choices, read_search


def tell_unfinished(console: Console, directory: Path) -> None:
    """Say how far a search is."""
    num_finished, num_runs = count_runs(directory)
    console.print(
        f"{directory}: {num_finished} of {num_runs} runs of the search are finished; "
        f"go on with `encore resume {quote(str(directory))}`",
        highlight=False,
        soft_wrap=True,
    )


def show_search(console: Console, directory: Path, records: Sequence[Row]) -> None:
    """Show what was found on the first tasks, what each seed chose, and what that cost beside its run."""
    search, choices = read_search(directory), read_choices(directory)
    first = "task" if search.num_tasks == 1 else count_tasks(search.num_tasks)
    of_seeds = f", mean over {len(choices)} seeds" if len(choices) > 1 else ""
    console.print(
        f"\ntuned on the first {first}, {search.share:.0%} of their training images held out: "
        f"accuracy on those in %{of_seeds}\n",
        highlight=False,
        soft_wrap=True,
    )
    console.print(table_of_trials(choices))
    console.print("* chosen by a seed\n", highlight=False, style="dim")
    console.print(table_of_choices(choices, records))


def table_of_trials(choices: Mapping[int, Choice]) -> Table:
    """Return a table with a line for each K, a column for each P and Q, and * where a seed chose."""
    accuracies: dict[Plan, list[float]] = {}
    for choice in choices.values():
        for trial in choice.trials:
            accuracies.setdefault(trial.plan, []).append(100 * trial.accuracy)
    chosen = {choice.best.plan for choice in choices.values()}
    pairs = sorted({(plan.num_ops, plan.magnitude) for plan in accuracies})
    table = make_table("K", *(f"P {ops}\nQ {magnitude if ops else '-'}" for ops, magnitude in pairs))
    for repeats in sorted({plan.repeats for plan in accuracies}):
        cells = []
        for pair in pairs:
            plan = Plan(repeats, *pair)
            mark = "*" if plan in chosen else " "
            found = accuracies.get(plan)
            cells.append(f"{mean_and_deviation(found).mean:.1f}{mark}" if found else "")
        table.add_row(str(repeats), *cells)
    return table


def table_of_choices(choices: Mapping[int, Choice], records: Sequence[Row]) -> Table:
    """Return a table with a line for each seed: what it chose, and the steps of its search and its run."""
    run_steps = {record["seed"]: record["sgd_steps"] for record in records}
    table = make_table(
        "seed",
        "K",
        "P",
        "Q",
        "held out\n%",
        "runs of\nthe search",
        "SGD steps of\nthe search",
        "of the\nrun",
        "times",
    )
    for seed, choice in choices.items():
        plan, steps = choice.best.plan, run_steps.get(seed)
        table.add_row(
            str(seed),
            str(plan.repeats),
            str(plan.num_ops),
            str(plan.magnitude) if plan.num_ops else "-",
            f"{100 * choice.best.accuracy:.1f}",
            str(len(choice.trials)),
            f"{choice.sgd_steps:,}",
            "" if steps is None else f"{steps:,}",
            "" if steps is None else f"{choice.sgd_steps / steps:.1f}",
        )
    return table
