"""Run every speed case and print a table of each; with a folder, keep the numbers and the tables there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.speed import rand_augment, rehearsal_step
from encore.files import write_json
from encore.record import describe_machine, find_commit
from encore.version import VERSION


def main() -> None:
    """Measure, print, and keep."""
    console = Console(record=True, width=110)
    threads = sorted({1, len(os.sched_getaffinity(0))})
    steps = [row for number in threads for row in rehearsal_step.measure(number)]
    show(console, "One rehearsal step: 10 + 10 images of 3x32x32, memory 2,000, no augmentation", steps)
    console.print("aim: Encore's ratio to bare PyTorch at most 1.05\n")
    augmentations = rand_augment.measure()
    show(console, "RandAugment of 20 images, magnitude 14: Encore, and Pillow image by image", augmentations)
    console.print("aim: a ratio of at least 5; what lean and pipeline mean: benchmarks/speed/rand_augment.py")
    if len(sys.argv) > 1:
        keep(Path(sys.argv[1]), console.export_text(), {"steps": steps, "rand_augment": augmentations})


def keep(folder: Path, printed: str, measured: dict[str, Any]) -> None:
    """Write the numbers as JSON, and the tables with the machine and the versions as a page."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(torch.device("cpu"))
    about = {"encore": VERSION, "torch": torch.__version__, "commit": find_commit(), "machine": machine}
    write_json(folder / "speed.json", about | measured)
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    (folder / "README.md").write_text(
        f"# Speed\n\n    make bench\n\n```\n{lines}\n```\n\n"
        f"- commit {about['commit']}\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['system']}\n"
        f"- encore {VERSION}, torch {torch.__version__}\n",
        encoding="utf-8",
    )


def show(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table with their own keys as headings."""
    table = Table(
        title=title, title_justify="left", min_width=len(title), box=None, pad_edge=False, header_style="bold"
    )
    for key in rows[0]:
        table.add_column(key, justify="left" if isinstance(rows[0][key], str) else "right")
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)


main()
