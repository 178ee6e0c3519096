"""What the verbs print that do not train: results and what there is to choose from."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from encore import registry
from encore.data.reading import MOST_LISTED
from encore.errors import EncoreError, unknown_name
from encore.launch import find_groups, read_directory
from encore.settings import RunSettings
from encore.show_stream import name_stream, tasks_for_theory
from encore.tables import Row, make_table, table_of_groups, table_of_matrix, table_of_seeds
from encore.theory import describe_stream
from encore.tuning.first_tasks import find_searches, is_search
from encore.tuning.report import show_search, tell_unfinished

PLURALS = {kind: f"{kind}s" for kind in registry.FOLDERS}


def show_results(console: Console, directories: list[Path]) -> None:
    """Show one group of runs in detail, or several side by side."""
    if not directories:
        raise EncoreError("name at least one directory of runs, the one that was given as --out")
    groups: dict[Path, tuple[list[Row], int]] = {}
    for given in directories:
        searches = [found for found in find_searches(given) if not (found / "config.json").is_file()]
        for found in searches:
            tell_unfinished(console, found)
        if not searches or (searches != [given] and any(given.glob("*/config.json"))):
            groups |= {found: _read_records(found) for found in find_groups(given)}
    for directory, (records, num_unfinished) in groups.items():
        if num_unfinished:
            console.print(
                f"{directory}: {num_unfinished} of {len(records) + num_unfinished} runs are unfinished; "
                f"go on with `encore resume {quote(str(directory))}`",
                highlight=False,
                soft_wrap=True,
            )
    finished = {directory: records for directory, (records, _) in groups.items() if records}
    if not finished:
        raise EncoreError(f"no run in {', '.join(map(str, directories))} is finished yet")
    console.print()
    console.print(table_of_groups(finished, narrow=console.width < 100))
    seeds = {" ".join(str(record["seed"]) for record in records) for records in finished.values()}
    if len(max(finished.values(), key=len)) > 1:
        which = f"seeds {seeds.pop()}" if len(seeds) == 1 else "each directory's seeds"
        console.print(f"mean ± population deviation over {which}", highlight=False, style="dim")
    if len(finished) == 1:
        (records,) = finished.values()
        console.print()
        console.print(table_of_seeds(records) if len(records) > 1 else table_of_matrix(records[0]))
        _list_skipped(console, {each for record in records for each in record.get("images_skipped", ())})
        if is_search(directory := next(iter(finished))):
            show_search(console, directory, records)


def _list_skipped(console: Console, reasons: Set[str]) -> None:
    """Name the images that runs left out as they are broken."""
    if reasons:
        console.print(f"\nleft out, as broken: {len(reasons):,} of the images", highlight=False)
    for reason in sorted(reasons)[:MOST_LISTED]:
        console.print(f"  {reason}", highlight=False, soft_wrap=True)
    if len(reasons) > MOST_LISTED:
        console.print(f"  and {len(reasons) - MOST_LISTED:,} more, all in record.json", highlight=False)


def list_kinds(console: Console, kind: str | None) -> None:
    """List the parts of a kind, or of every kind."""
    names = {plural: singular for singular, plural in PLURALS.items()}
    if kind is not None and kind not in names and kind not in PLURALS:
        raise unknown_name("kind of part", kind, names)
    wanted = [names.get(kind, kind)] if kind is not None else list(PLURALS)
    for number, each in enumerate(wanted):
        if number:
            console.print()
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(PLURALS[each], no_wrap=True)
        table.add_column("")
        for name in registry.names(each):
            table.add_row(f"  {name}", registry.describe(each, name))
            for option, choice in registry.options(each, name).items():
                flag = f"--{each}.{option.replace('_', '-')}"
                table.add_row("", Text(f"{flag} {choice.default}  {choice.help}", style="dim"))
        console.print(table)


def show_theory(
    console: Console, settings: RunSettings, memory_size: int, task_sizes: Sequence[int] | None, seed: int
) -> None:
    """Show Proposition 1's weights for each task of a stream, or of tasks of given sizes."""
    name = "a stream of your own"
    if task_sizes is None:
        tasks, is_stated = tasks_for_theory(settings, seed)
        task_sizes = [len(task.train) for task in tasks]
        name = name_stream(settings, seed)
        if is_stated:
            name += ": sizes as the benchmark states them, as its files could not be read"
    risks = describe_stream(task_sizes, memory_size)
    console.print(name, highlight=False, soft_wrap=True)
    console.print(f"{len(risks)} tasks, {sum(task_sizes):,} examples, a memory of {memory_size:,}\n")
    table = make_table(
        "task",
        "examples",
        "past",
        "in\nmemory",
        "lambda",
        "beta_t\nat the end",
        "beta_t * lambda\nat the end",
        "own share\nat the end",
    )
    for risk in risks:
        has_past = risk.ratio is not None
        table.add_row(
            str(risk.task),
            f"{risk.size:,}",
            f"{risk.num_past:,}",
            f"{risk.num_remembered:,}",
            f"{risk.ratio:.3f}" if has_past else "-",
            f"{risk.beta_at_end:.3f}" if has_past else "-",
            f"{risk.weight_at_end:.3f}" if has_past else "-",
            f"{risk.current_share_at_end:.0%}",
        )
    console.print(table)
    console.print(
        "\nbeta_t * lambda weighs the loss of each remembered example, where 1 weighs that of each of the "
        "task's own: the larger it is, the more the memory is at risk of being overfitted. It falls from "
        "lambda, at the start of a task, to what stands here. Own share is the part of the memory that the "
        "task has taken by then.",
        highlight=False,
    )


def _read_records(directory: Path) -> tuple[list[Row], int]:
    """Return the records of the finished runs of a directory, and how many are unfinished."""
    _, seeds = read_directory(directory)
    paths = [directory / f"seed-{seed}" / "record.json" for seed in seeds]
    records: list[Row] = []
    for path in paths:
        if path.is_file():
            try:
                record: Any = json.loads(path.read_text(encoding="utf-8"))
                # Whatever the tables need is there if they can be made.
                table_of_groups({directory: [record]})
                table_of_seeds([record])
                table_of_matrix(record)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise EncoreError(
                    f"{path} is damaged; delete it and run `encore resume {quote(str(directory))}`"
                ) from error
            records.append(record)
    return records, len(paths) - len(records)
