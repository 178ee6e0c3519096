"""Running a comparison, and keeping what came out in a folder of `benchmarks/results/`.

A folder holds a README with the command, the table, the commit, the machine and the versions, and, where
runs were compared, the record of every run, from which `encore show` makes the same table again.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import PIL
import torch
from rich.console import Console

from encore import launch
from encore.config import settle_usual
from encore.display import display_for
from encore.errors import EncoreError
from encore.keeper import Display
from encore.record import describe_machine, find_commit
from encore.results import show_results
from encore.settings import RunSettings
from encore.version import VERSION

RESULTS = Path(__file__).parent / "results"
WORK = Path("runs")


def compare(name: str, title: str, groups: Mapping[str, RunSettings], seeds: Sequence[int]) -> None:
    """Run every group over all seeds, print them side by side, and keep the records.

    What was interrupted is resumed when the comparison is started again.
    """
    console = Console()
    work = WORK / name
    for group, settings in groups.items():
        console.print(f"[bold]{group}[/bold]")
        with display_for(console, quiet=False) as display:
            _run(settings, seeds, work / group, display)
    directories = [work / group for group in groups]
    show_results(console, directories)
    folder = RESULTS / f"{date.today():%Y-%m-%d}_{name}"
    _keep(work, folder, groups, seeds)
    (folder / "README.md").write_text(_describe(name, title, folder, directories), encoding="utf-8")
    console.print(f"\nkept in {folder}", soft_wrap=True)


def keep_printed(name: str, title: str, printed: str, remarks: str = "") -> None:
    """Keep what a benchmark of speed has printed, with how much else the machine had to do."""
    folder = RESULTS / f"{date.today():%Y-%m-%d}_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(torch.device("cpu"))
    shown = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    (folder / "README.md").write_text(
        f"# {title}\n\n"
        f"    python -m benchmarks.{name}\n\n"
        f"```\n{shown}\n```\n\n{remarks}"
        f"- commit {find_commit()}\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}\n"
        f"- load {os.getloadavg()[0]:.1f} at the end, of this benchmark and of all else on the machine\n"
        f"- encore {VERSION}, python {platform.python_version()}, torch {torch.__version__}, "
        f"pillow {PIL.__version__}\n",
        encoding="utf-8",
    )
    print(f"kept in {folder}")


def _run(settings: RunSettings, seeds: Sequence[int], directory: Path, display: Display) -> None:
    settings = settle_usual(settings)
    if (directory / "config.json").is_file():
        found, found_seeds = launch.read_directory(directory)
        asked = replace(found, rehearsal=settings.rehearsal, plan=settings.plan)
        if (
            found != asked
            or found.stream.first_tasks != settings.stream.first_tasks
            or found_seeds != [*seeds]
        ):
            raise EncoreError(f"{directory} was made with other settings: remove it to measure anew")
        launch.resume(directory, display)
    else:
        launch.start(settings, seeds, directory, display)


def _keep(work: Path, folder: Path, groups: Mapping[str, RunSettings], seeds: Sequence[int]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for group in groups:
        for seed in seeds:
            kept = folder / group / f"seed-{seed}"
            kept.mkdir(parents=True)
            shutil.copy(work / group / f"seed-{seed}" / "record.json", kept)
        shutil.copy(work / group / "config.json", folder / group)


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
