"""What `encore show --actions` shows: what was chosen along the stream, and what came of it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from encore.action_chart import describe_targets, draw_actions, table_of_actions
from encore.action_picture import draw_action_picture
from encore.actions import FILE, Recorded, read_actions
from encore.errors import EncoreError
from encore.files import written_atomically
from encore.keeper import is_finished
from encore.launch import find_groups, read_directory
from encore.show_stream import check_picture


def show_actions(console: Console, directories: list[Path], picture: Path | None) -> None:
    """Draw the actions of a directory of runs in the terminal, and into a file if one is named."""
    if picture is not None:
        check_picture(picture)
    groups = [group for directory in directories for group in find_groups(directory)]
    if len(groups) != 1:
        raise EncoreError(
            f"actions are shown of one directory of runs at a time, and there are {len(groups)} here"
        )
    runs = read_runs(groups[0])
    settings, _ = read_directory(groups[0])
    title = f"{settings.stream.benchmark}, {settings.rehearsal.method}, {runs[0].controller}"
    described = [f"{_name_seeds(runs)}: {len(runs[0].tasks):,} incoming batches", describe_targets(runs[0])]
    described = [line for line in described if line]
    for line in (title, *described):
        console.print(line, highlight=False, soft_wrap=True)
    console.print()
    for drawn in draw_actions(runs, console.width):
        console.print(drawn, highlight=False, no_wrap=True, overflow="crop")
    console.print()
    console.print(table_of_actions(runs))
    if picture is not None:
        with written_atomically(picture) as unfinished:
            unfinished.write_text(draw_action_picture(runs, title, described), encoding="utf-8")
        console.print(f"written to {picture}", highlight=False, soft_wrap=True)


def read_runs(directory: Path) -> list[Recorded]:
    """Read the actions of the finished runs of a directory."""
    _, seeds = read_directory(directory)
    folders = [directory / f"seed-{seed}" for seed in seeds]
    finished = [folder for folder in folders if is_finished(folder)]
    if not finished:
        raise EncoreError(f"no run in {directory} is finished yet")
    without = [folder for folder in finished if not (folder / FILE).is_file()]
    if without:
        raise EncoreError(f"{without[0]} has no {FILE}: it was removed, or the run is older than the file is")
    return [read_actions(folder / FILE) for folder in finished]


def _name_seeds(runs: list[Recorded]) -> str:
    seeds = " ".join(str(run.seed) for run in runs)
    return f"mean over seeds {seeds}" if len(runs) > 1 else f"seed {seeds}"
