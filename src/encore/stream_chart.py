"""The picture of a stream in a terminal: shades of grey by characters, and colours where there are any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from encore.stream import Task
from encore.stream_frequencies import Frequencies, join, measure, share_out

SHADES = " ·░▒▓█"
LIMITS = (0.0, 0.05, 0.25, 0.5, 0.75)  # of the highest share, above which the next shade begins
COLOURS = ("cyan", "magenta", "green", "blue", "red")  # of tasks in turn, seen on dark and on light ground
MOST_ROWS = 25
MOST_LETTERS = 14  # of the name of a class
NARROWEST = 4  # columns of a task, below which lines between tasks take more room than they are worth


def draw_chart(
    tasks: Sequence[Task], labels: NDArray[np.int64], class_names: Sequence[str], width: int
) -> list[Text]:
    """Return lines no longer than `width`: a row for each class or several, time from left to right.

    >>> import torch
    >>> rows, none = torch.arange(200), torch.arange(0)
    >>> tasks = [Task((0,), rows[:100], none), Task((1,), rows[100:], none)]
    >>> for line in draw_chart(tasks, np.repeat([0, 1], 100), ("cat", "dog"), width=25)[:4]:
    ...     print(line.plain)
     cat │█████████│
     dog │         │█████████
         └─────────┴─────────
    task  1         2
    """
    longest = max(cell_len(printable(name)) for name in class_names) + len(" +99") * (
        len(class_names) > MOST_ROWS
    )
    margin = max(len("task"), min(longest, MOST_LETTERS))
    room = max(10, width - margin - len(" │"))
    shown, step = join(tasks, room)
    has_lines = room >= NARROWEST * len(shown)
    widths = share_out([len(task.train) for task in shown], room - (len(shown) - 1) * has_lines)
    frequencies = measure(shown, labels, MOST_ROWS, widths)
    lines = []
    for row, classes in enumerate(frequencies.rows):
        name = _name(classes, class_names)
        line = Text(" " * (margin - cell_len(name)) + name + " │")
        colour = COLOURS[frequencies.homes[row] % len(COLOURS)]
        cells = "".join(SHADES[level] for level in np.searchsorted(LIMITS, frequencies.strengths[row]))
        for number, end in enumerate(np.cumsum(widths).tolist()):
            line.append("│" if number and has_lines else "", style="dim")
            line.append(cells[end - widths[number] : end], style=colour)
        line.rstrip()
        lines.append(line)
    lines.append(Text(" " * (margin + 1) + _axis(widths, has_lines)))
    lines.append(Text("task".ljust(margin + 1) + _numbers(widths, has_lines, step)))
    return [*lines, Text(""), *_explain(frequencies)]


def _axis(widths: Sequence[int], has_lines: bool) -> str:
    if has_lines:
        return "└" + "┴".join("─" * width for width in widths)
    return "└" + "".join("╵" + "─" * (width - 1) for width in widths)


def _numbers(widths: Sequence[int], has_lines: bool, step: int) -> str:
    """Return the number of each task below its beginning, where there is room for it."""
    shown, begin, end = "", 1, 1 + sum(widths) + has_lines * (len(widths) - 1)
    for number, width in enumerate(widths):
        task = str(1 + number * step)
        if begin > len(shown) and begin + len(task) <= end:
            shown = shown.ljust(begin) + task
        begin += width + has_lines
    return shown


def _explain(frequencies: Frequencies) -> list[Text]:
    """Return what the shades mean, and what a row is."""
    limits = [f"{SHADES[level]} {percent(LIMITS[level] * frequencies.highest)}" for level in (1, 2, 3, 4)]
    most = max(len(classes) for classes in frequencies.rows)
    row = "a class" if most == 1 else f"up to {most} classes"
    return [
        Text(f"up to {'  '.join(limits)}  {SHADES[-1]} more of the images of that time"),
        Text(f"a row is {row}, a shade the mean of about {frequencies.num_images:,.0f} images"),
    ]


def percent(share: float) -> str:
    """Return a share with as many digits as tell it from its neighbours.

    >>> percent(0.5), percent(0.015)
    ('50 %', '1.5 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _name(classes: Sequence[int], class_names: Sequence[str]) -> str:
    name = class_names[classes[0]]
    if len(classes) == 1:
        return _shorten(name)
    others = f" +{len(classes) - 1}"
    return _shorten(name, MOST_LETTERS - len(others)) + others


def _shorten(name: str, most: int = MOST_LETTERS) -> str:
    name = printable(name)
    return name if cell_len(name) <= most else set_cell_size(name, most - 1).rstrip() + "…"


def printable(name: str) -> str:
    r"""Return a name on one line, without what a terminal would obey or a picture could not hold.

    >>> printable("a\x1b[31m\nb")
    'a�[31m b'
    """
    words = " ".join(name.split())
    return "".join(letter if letter.isprintable() else "�" for letter in words)
