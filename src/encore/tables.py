"""Tables of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from encore.metrics import mean_and_deviation

Row = dict[str, Any]
PLAN = ("repeats", "num_ops", "magnitude")


def table_of_groups(groups: dict[Path, list[Row]], narrow: bool = False) -> Table:
    """Return a table with a line for each directory of runs: mean and deviation over its seeds."""
    several = len(groups) > 1
    table = make_table(
        "runs" if several else "method",
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
    for directory, records in groups.items():
        settings = records[0]["config"]
        plan = _mean_plan(records)
        table.add_row(
            directory.name if several else name_of(settings, plan),
            *(f"{plan[key]:.1f}".removesuffix(".0") for key in ("repeats", "num_ops")),
            "-" if plan["magnitude"] is None else f"{plan['magnitude']:.0f}",
            str(settings["rehearsal"]["memory_size"]),
            *(
                _percent([record["metrics"][metric] for record in records])
                for metric in ("average_accuracy", "forgetting", "backward_transfer")
            ),
            *(_number([record[key] for record in records]) for key in ("sgd_steps", "images_trained")),
            _plus_minus([record["seconds"] for record in records]),
        )
    return table


def name_of(settings: Row, mean_plan: Row) -> str:
    """Return what the paper calls a method under a plan: ER, R-ER with repeats alone, ER-RAR with both."""
    name = str(settings["rehearsal"]["method"]).upper().replace("_", "-")
    plan = settings["plan"]
    augmented = mean_plan["num_ops"] > 0 and plan["augment_target"] != "none"
    if mean_plan["repeats"] > 1:
        name = f"{name}-RAR" if augmented else f"R-{name}"
    elif augmented:
        name += " augmented"
    remarks = [plan["controller"]] if plan["controller"] != "fixed" else []
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
    table.add_column(first, vertical="bottom", overflow="fold")
    for name in others:
        table.add_column(name, justify="right", vertical="bottom", no_wrap=True)
    return table


def _mean_plan(records: list[Row]) -> Row:
    """Return the mean K, P and Q of runs; Q is None where nothing was augmented."""
    plans = [record["plans"] if "plans" in record else _fixed_plan(record) for record in records]
    values = {key: [plan[key] for plan in plans if plan[key] is not None] for key in PLAN}
    return {key: sum(found) / len(found) if found else None for key, found in values.items()}


def _fixed_plan(record: Row) -> Row:
    """Return the plan of a run that was recorded when plans could not change."""
    plan = record["config"]["plan"]
    return {**plan, "magnitude": plan["magnitude"] if plan["num_ops"] else None}


def _percent(values: list[float]) -> str:
    return _plus_minus([100 * value for value in values])


def _plus_minus(values: list[float]) -> str:
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.1f} ± {deviation:.1f}" if len(values) > 1 else f"{mean:.1f}"


def _number(values: list[float]) -> str:
    mean, _ = mean_and_deviation(values)
    return f"{mean:,.0f}"
