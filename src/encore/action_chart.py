"""The actions of runs in a terminal: K, augmentations and memory accuracy along the stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from encore.action_shares import (
    Numbers,
    Parts,
    divide,
    list_augmentations,
    measure,
    name_augmentation,
)
from encore.actions import Recorded
from encore.stream_chart import LIMITS, NARROWEST, SHADES, percent
from encore.tables import make_table

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 6  # rows of a curve
LEVELS = len(BLOCKS) - 1  # of a row
MARGIN = 11  # columns left of the picture
COLOURS = ("cyan", "magenta")  # of tasks in turn


def draw_actions(runs: Sequence[Recorded], width: int) -> list[Text]:
    """Return lines no longer than `width`: time from left to right, the mean over all runs."""
    augmentations = list_augmentations(runs)
    parts = divide(runs, max(20, width - MARGIN - len(" │")))
    shares = measure(runs, parts.of_batches, augmentations)
    most = len(shares.chances)
    lines = [Text("repeats K, the mean", style="bold")]
    lines += _curve(parts, shares.repeats / most, str(most), "0", {})
    lines += [Text(""), Text("augmentation, the share of each", style="bold")]
    for pair, of_pair in reversed(list(zip(augmentations, shares.augmentations, strict=True))):
        cells = [SHADES[level] for level in np.searchsorted(LIMITS, of_pair)]
        lines.append(_row(parts, name_augmentation(pair), cells))
    lines += [Text(""), Text("memory accuracy, the mean", style="bold")]
    lowest = find_lowest(shares.accuracy, runs[0])
    heights = (shares.accuracy - lowest) / (1 - lowest)
    lines += _curve(parts, heights, "100 %", f"{100 * lowest:.0f} %", _target_rows(runs[0], lowest))
    lines.append(_tasks(parts))
    limits = " ".join(f"{SHADES[level]} {percent(LIMITS[level])}" for level in (1, 2, 3, 4))
    return [*lines, Text(""), Text(f"up to {limits} {SHADES[-1]} more", style="dim")]


def table_of_actions(runs: Sequence[Recorded]) -> Table:
    """Return a table with a line for each task: mean K, shares of the augmentations, memory accuracy."""
    augmentations = list_augmentations(runs)
    shares = measure(runs, [run.tasks for run in runs], augmentations)
    table = make_table(
        "task",
        "K",
        *(name_augmentation(pair).replace(", ", "\n") for pair in augmentations),
        "memory\naccuracy",
    )
    for task, repeats in enumerate(shares.repeats):
        accuracy = shares.accuracy[task]
        table.add_row(
            str(task + 1),
            f"{repeats:.1f}",
            *(f"{100 * share:.0f} %" for share in shares.augmentations[:, task]),
            "-" if np.isnan(accuracy) else f"{100 * accuracy:.1f} %",
        )
    return table


def describe_targets(run: Recorded) -> str:
    """Return at which memory accuracy the controller aims.

    >>> nothing = np.zeros((0, 3))
    >>> targets = {"repeats": [0.8, 0.9], "augmentations": [0.7, 0.8]}
    >>> describe_targets(Recorded("bpg_published", 0, {}, targets, *[nothing] * 4))
    'repeats aim at a memory accuracy from 80 % to 90 %, augmentations from 70 % to 80 %'
    """
    bands = {name: _name_band(*band) for name, band in run.targets.items()}
    if not bands:
        return ""
    if len(set(bands.values())) == 1:
        return f"the target is a memory accuracy of {next(iter(bands.values()))}"
    first, *others = (f"{name} {band}" for name, band in bands.items())
    return ", ".join([first.replace(" ", " aim at a memory accuracy ", 1), *others])


def _name_band(low: float, high: float) -> str:
    return f"{100 * low:g} %" if low == high else f"from {100 * low:g} % to {100 * high:g} %"


def find_lowest(accuracy: Numbers, run: Recorded) -> float:
    """Return where an axis of accuracies begins: a tenth below all that is to be seen."""
    shown = [*accuracy[~np.isnan(accuracy)], *(low for low, _ in run.targets.values())]
    return max(0.0, (math.ceil(10 * min(shown, default=1.0)) - 1) / 10)


def _curve(parts: Parts, heights: Numbers, top: str, bottom: str, marks: Mapping[int, str]) -> list[Text]:
    """Return the rows of a curve of bars; heights are from 0 to 1."""
    levels = np.ceil(np.nan_to_num(heights) * HEIGHT * LEVELS).astype(int)
    labels = {HEIGHT - 1: top, 0: bottom, **marks}
    lines = []
    for row in reversed(range(HEIGHT)):
        empty = "┄" if row in marks else " "
        blocks = [empty, *BLOCKS[1:]]
        cells = [blocks[min(LEVELS, max(0, level - row * LEVELS))] for level in levels]
        lines.append(_row(parts, labels.get(row, ""), cells))
    return lines


def _target_rows(run: Recorded, lowest: float) -> dict[int, str]:
    """Return in which rows of the accuracy the targets lie."""
    bounds = sorted({value for band in run.targets.values() for value in band})
    rows = {value: int((value - lowest) / (1 - lowest) * HEIGHT) for value in bounds}
    return {min(HEIGHT - 1, row): f"{100 * value:g} % ┄" for value, row in rows.items()}


def _row(parts: Parts, label: str, cells: Sequence[str]) -> Text:
    line = Text(f"{label:>{MARGIN}} │")
    for part, (begin, end) in enumerate(parts.edges):
        line.append(cells[part] * (end - begin), style=COLOURS[parts.homes[part] % len(COLOURS)])
    line.rstrip()
    return line


def _tasks(parts: Parts) -> Text:
    """Return the numbers of the tasks below their beginnings, where there is room."""
    shown, begin = " " * (MARGIN - len("task")) + "task └", MARGIN + 2
    for number, width in enumerate(parts.widths):
        task = str(1 + number * parts.step)
        if begin >= len(shown) and (width >= NARROWEST or begin > len(shown) or number == 0):
            shown = shown.ljust(begin) + task
        begin += width
    return Text(shown)
