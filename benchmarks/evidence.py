"""Running a comparison, and keeping what came out in a folder of `benchmarks/results/`.

A folder holds a README with the command, the table, the commit, the machine and the versions, and the
record of every run, from which `encore show` makes the same table again.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console

from encore import launch
from encore.config import settle_usual
from encore.display import display_for
from encore.errors import EncoreError
from encore.interfaces import NOTHING, Plan
from encore.keeper import Display
from encore.results import show_results
from encore.settings import RunSettings
from encore.tuning import first_tasks

RESULTS = Path(__file__).parent / "results"
WORK = Path("runs")


def compare(
    name: str,
    title: str,
    groups: Mapping[str, RunSettings],
    seeds: Sequence[int],
    grids: Mapping[str, Sequence[Plan]] = NOTHING,
) -> Path:
    """Run every group over all seeds, print them side by side, and return where the records are kept.

    Groups that have a grid are tuned on their first tasks, as `encore tune` does. What was interrupted is
    resumed when the comparison is started again.
    """
    console = Console()
    work = WORK / name
    for group, settings in groups.items():
        console.print(f"[bold]{group}[/bold]")
        with display_for(console, quiet=False) as display:
            _run(settings, seeds, work / group, display, grids.get(group))
    directories = [work / group for group in groups]
    show_results(console, directories)
    folder = RESULTS / f"{date.today():%Y-%m-%d}_{name}"
    _keep(work, folder, groups, seeds)
    (folder / "README.md").write_text(_describe(name, title, folder, directories), encoding="utf-8")
    console.print(f"\nkept in {folder}", soft_wrap=True)
    return folder


def _run(
    settings: RunSettings,
    seeds: Sequence[int],
    directory: Path,
    display: Display,
    grid: Sequence[Plan] | None,
) -> None:
    if not (directory / "config.json").is_file() and not first_tasks.is_search(directory):
        if grid is None:
            launch.start(settings, seeds, directory, display)
        else:
            first_tasks.tune(settings, seeds, directory, display, grid=grid)
        return
    settings = settle_usual(settings)
    if first_tasks.is_search(directory):
        search = first_tasks.read_search(directory)
        found, found_seeds, found_grid = search.settings, search.seeds, search.grid
    else:
        found, found_seeds = launch.read_directory(directory)
        found_grid = None
    stream = replace(found.stream, kind=settings.stream.kind, first_tasks=settings.stream.first_tasks)
    options = {**found.part_options, **settings.part_options}
    asked = replace(
        found, stream=stream, rehearsal=settings.rehearsal, plan=settings.plan, part_options=options
    )
    if found != asked or list(found_seeds) != [*seeds] or found_grid != grid:
        raise EncoreError(f"{directory} was made with other settings: remove it to measure anew")
    first_tasks.resume(directory, display)


def _keep(work: Path, folder: Path, groups: Mapping[str, RunSettings], seeds: Sequence[int]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for group in groups:
        for seed in seeds:
            kept = folder / group / f"seed-{seed}"
            kept.mkdir(parents=True)
            shutil.copy(work / group / f"seed-{seed}" / "record.json", kept)
        for described in ("config.json", "search.json", "choice.json"):
            if (work / group / described).is_file():
                shutil.copy(work / group / described, folder / group)


def _describe(name: str, title: str, folder: Path, directories: list[Path]) -> str:
    table = Console(width=120, record=True, file=io.StringIO())
    show_results(table, directories)
    record = json.loads(next(iter(sorted(folder.glob("*/seed-*/record.json")))).read_text(encoding="utf-8"))
    process: dict[str, Any] = record["processes"][-1]
    machine = process["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in process["versions"].items())
    lines = [line.rstrip() for line in table.export_text().strip("\n").splitlines()]
    shown = "\n".join(lines)
    return (
        f"# {title}\n\n"
        f"    python -m benchmarks.{name}\n\n"
        f"```\n{shown}\n```\n\n"
        f"Each run's whole record lies beside this page; "
        f"`encore show` on this folder prints the table again.\n\n"
        f"- commit {process['commit']}\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['device']}, {machine['system']}\n"
        f"- {versions}\n"
    )
