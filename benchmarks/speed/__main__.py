"""Run every speed case and print one table each; with a path, write the numbers there as JSON."""

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
    console = Console()
    threads = sorted({1, len(os.sched_getaffinity(0))})
    steps = [row for number in threads for row in rehearsal_step.measure(number)]
    show(console, "One rehearsal step, 10 + 10 images of 3x32x32, memory 2,000, no augmentation", steps)
    augmentations = rand_augment.measure()
    show(
        console,
        "RandAugment of 20 images, magnitude 14: batched, against Pillow image by image",
        augmentations,
    )
    if len(sys.argv) > 1:
        found = {
            "encore": VERSION,
            "torch": torch.__version__,
            "commit": find_commit(),
            "machine": describe_machine(torch.device("cpu")),
            "rehearsal_step": steps,
            "rand_augment": augmentations,
        }
        write_json(Path(sys.argv[1]), found)


def show(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table with their own keys as headings."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for key in rows[0]:
        table.add_column(key, justify="left" if isinstance(rows[0][key], str) else "right")
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)
    console.print()


main()
