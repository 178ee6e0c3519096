"""Running a comparison, and keeping what came out in a folder of `benchmarks/results/`.

A folder holds a README with the command, the table, the commit, the machine and the versions, and, where
runs were compared, the record of every run, from which `encore show` makes the same table again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import PIL
import torch
from rich.console import Console
from rich.table import Table

from encore import launch
from encore.compute_picture import draw_compute_picture, point_of
from encore.config import settle_usual
from encore.display import display_for
from encore.errors import EncoreError
from encore.interfaces import NOTHING, Plan
from encore.keeper import Display, Interrupted
from encore.record import describe_machine, find_commit
from encore.results import show_results
from encore.settings import RunSettings
from encore.tables import make_table
from encore.tuning import first_tasks
from encore.version import VERSION

RESULTS = Path(__file__).parent / "results"
WORK = Path("runs")


class Chosen(NamedTuple):
    """What was asked for on the command line of a comparison."""

    groups: Mapping[str, RunSettings]
    seeds: Sequence[int]


def choose(
    name: str, groups: Mapping[str, RunSettings], seeds: Sequence[int], arguments: Sequence[str] | None
) -> Chosen:
    """Read `--seeds` and `--groups`; all, where they are not given."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    parser.add_argument("--groups", nargs="+", default=list(groups))
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.groups) - set(groups))
    if unknown:
        raise EncoreError(f"there is no group {unknown[0]!r} (known: {', '.join(groups)})")
    return Chosen({group: groups[group] for group in chosen.groups}, chosen.seeds)


def carry_out(main: Callable[[], object], *, goes_on: bool = True) -> None:
    """Run a benchmark from the command line: mistakes are one sentence, and a signal is no traceback.

    `goes_on`: what was interrupted is resumed when it is started again, as comparisons are.
    """
    try:
        main()
    except EncoreError as error:
        print(f"encore: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except Interrupted as interrupted:
        print(f"\nstopped{'; the same command goes on from here' * goes_on}", file=sys.stderr)
        raise SystemExit(128 + interrupted.signal_number) from None
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        raise SystemExit(130) from None


class Published(NamedTuple):
    """What others report for the same setting, in percent; None where nobody does."""

    accuracy: float | None = None  # of the first seed's run
    plasticity: float | None = None
    paper: float | None = None  # the mean in the paper's table


def compare(
    name: str,
    title: str,
    groups: Mapping[str, RunSettings],
    seeds: Sequence[int] | Mapping[str, Sequence[int]],
    *,
    published: Mapping[str, Published] | None = None,
    grids: Mapping[str, Sequence[Plan]] = NOTHING,
    parallel: int | None = None,
) -> Path:
    """Run every group over its seeds, print them side by side, and keep the records in a folder.

    On a GPU the runs of all groups take turns. Groups that have a grid are tuned on their first tasks, as
    `encore tune` does, one after the other. What was interrupted is resumed when the comparison is started
    again. With published values a second table puts the results beside them.
    """
    console, work = Console(), WORK / name
    wanted = {
        group: launch.Group(settings, seeds[group] if isinstance(seeds, Mapping) else seeds, work / group)
        for group, settings in groups.items()
    }
    for group, described in wanted.items():
        _refuse_others(described, grids.get(group))
    with display_for(console, quiet=False) as display:
        whole = [described for group, described in wanted.items() if group not in grids]
        begun = [described for described in whole if _is_begun(described.directory)]
        launch.resume_all([described.directory for described in begun], display, parallel)
        launch.start_all([described for described in whole if described not in begun], display, parallel)
        for group, grid in grids.items():
            _tune(wanted[group], grid, display, parallel)
    directories = [described.directory for described in wanted.values()]
    folder = folder_of(name)
    keep_records(folder, wanted)
    tables = _tables(directories, published or {})
    console.print(tables, markup=False, highlight=False, soft_wrap=True)
    (folder / "README.md").write_text(describe(name, title, folder, tables), encoding="utf-8")
    console.print(f"\nkept in {folder}", soft_wrap=True)
    return folder


def _is_begun(directory: Path) -> bool:
    return (directory / "config.json").is_file() or first_tasks.is_search(directory)


def _tune(group: launch.Group, grid: Sequence[Plan], display: Display, parallel: int | None) -> None:
    if _is_begun(group.directory):
        first_tasks.resume(group.directory, display, parallel)
    else:
        first_tasks.tune(group.settings, group.seeds, group.directory, display, grid=grid, parallel=parallel)


def _refuse_others(group: launch.Group, grid: Sequence[Plan] | None) -> None:
    """Refuse to go on with runs of other settings."""
    if not _is_begun(group.directory):
        return
    settings, found_grid = settle_usual(group.settings), None
    if first_tasks.is_search(group.directory):
        search = first_tasks.read_search(group.directory)
        found, found_seeds, found_grid = search.settings, list(search.seeds), search.grid
    else:
        found, found_seeds = launch.read_directory(group.directory)
    stream = replace(found.stream, kind=settings.stream.kind, first_tasks=settings.stream.first_tasks)
    options = {**found.part_options, **settings.part_options}
    asked = replace(
        found, stream=stream, rehearsal=settings.rehearsal, plan=settings.plan, part_options=options
    )
    if found != asked or found_seeds != [*group.seeds] or found_grid != grid:
        raise EncoreError(f"{group.directory} was made with other settings: remove it to measure anew")


def draw_costs(
    folder: Path, names: Sequence[str], joined: Sequence[str], title: str, subtitles: Sequence[str]
) -> None:
    """Draw accuracy against SGD steps of groups whose records a folder holds, into it as compute.svg."""
    points = {}
    for name in names:
        paths = sorted((folder / name).glob("seed-*/record.json"))
        points[name] = point_of([json.loads(path.read_text(encoding="utf-8")) for path in paths])
    picture = draw_compute_picture(points, joined, title, subtitles)
    (folder / "compute.svg").write_text(picture, encoding="utf-8")


def keep_printed(
    name: str, title: str, printed: str, remarks: str = "", device: torch.device | None = None
) -> Path:
    """Keep what a benchmark of speed has printed, with how much else the machine had to do."""
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(device or torch.device("cpu"))
    gpu = f"{machine['gpu']}, " if "gpu" in machine else ""
    shown = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    (folder / "README.md").write_text(
        f"# {title}\n\n"
        f"    python -m benchmarks.{name}\n\n"
        f"```\n{shown}\n```\n\n{remarks}"
        f"- commit {find_commit()}\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{gpu}{machine['system']}\n"
        f"- load {os.getloadavg()[0]:.1f} at the end, of this benchmark and of all else on the machine\n"
        f"- encore {VERSION}, python {platform.python_version()}, torch {torch.__version__}, "
        f"pillow {PIL.__version__}\n",
        encoding="utf-8",
    )
    print(f"kept in {folder}")
    return folder


def folder_of(name: str) -> Path:
    """Return the folder for today's results of a benchmark."""
    return RESULTS / f"{date.today():%Y-%m-%d}_{name}"


def keep_records(folder: Path, groups: Mapping[str, launch.Group]) -> None:
    """Put the records of groups, and what describes them, into a folder in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, group in groups.items():
        for seed in group.seeds:
            kept = folder / name / f"seed-{seed}"
            kept.mkdir(parents=True)
            shutil.copy(group.directory / f"seed-{seed}" / "record.json", kept)
        for described in ("config.json", "search.json", "choice.json"):
            if (group.directory / described).is_file():
                shutil.copy(group.directory / described, folder / name)


def _tables(directories: list[Path], published: Mapping[str, Published]) -> str:
    """Return the table of `encore show`, and one with the published values, as text."""
    console = Console(width=120, record=True, file=io.StringIO())
    show_results(console, directories)
    if published:
        console.print()
        console.print(_beside_published(directories, published))
        console.print(
            "first seed: what the notebook of the published code has for the class order of seed 1259051; "
            "paper: its mean over three seeds; difference: ours less the paper's, else the first seed's."
        )
    return "\n".join(line.rstrip() for line in console.export_text().strip("\n").splitlines())


def _beside_published(directories: list[Path], published: Mapping[str, Published]) -> Table:
    table = make_table(
        "runs",
        "accuracy\n%",
        "plasticity\n%",
        "forgetting\n%",
        "first seed:\naccuracy",
        "\nplasticity",
        "paper",
        "difference",
    )
    for directory in directories:
        records = [
            json.loads(path.read_text("utf-8")) for path in sorted(directory.glob("seed-*/record.json"))
        ]
        means = {
            metric: 100 * sum(record["metrics"][metric] for record in records) / len(records)
            for metric in ("average_accuracy", "plasticity", "forgetting")
        }
        values = published.get(directory.name, Published())
        reference = values.paper if values.paper is not None else values.accuracy
        difference = None if reference is None else means["average_accuracy"] - reference
        table.add_row(
            directory.name,
            *(f"{value:.1f}" for value in means.values()),
            *("-" if value is None else f"{value:.1f}" for value in values),
            "-" if difference is None else f"{difference:+.1f}",
        )
    return table


def describe(name: str, title: str, folder: Path, tables: str) -> str:
    """Return the page of a folder of records: the command, the tables, and what they were measured on."""
    record = json.loads(next(iter(sorted(folder.glob("*/seed-*/record.json")))).read_text(encoding="utf-8"))
    process: dict[str, Any] = record["processes"][-1]
    machine = process["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in process["versions"].items())
    device = machine.get("gpu", machine["device"])
    return (
        f"# {title}\n\n"
        f"    python -m benchmarks.{name}\n\n"
        f"```\n{tables}\n```\n\n"
        f"Each run's whole record lies beside this page; "
        f"`encore show` on this folder prints the first table again.\n\n"
        f"- commit {process['commit']}\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {device}, {machine['system']}\n"
        f"- {versions}\n"
    )
