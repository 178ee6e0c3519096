"""How often each class comes along a stream: what pictures of it show, in a terminal or in a file.

A picture has rows, a class or several each, in the order in which the classes come, and cells from left to
right, letters or pixels, of which each task has a share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from encore.stream import Task, cut_into_tasks

FEWEST_IMAGES = 50  # that a share is taken of, where a task has so many: of fewer it would be chance
NEARLY_EQUAL = 1.1  # the largest task over the smallest, up to which they look alike


@dataclass(frozen=True)
class Frequencies:
    """What a picture of a stream shows.

    >>> rows, none = torch.arange(200), torch.arange(0)
    >>> tasks = [Task((1,), rows[:100], none), Task((0,), rows[100:], none)]
    >>> labels = np.repeat([1, 0, 0, 0], 50)
    >>> measure(tasks, labels, most_rows=5, widths=[4, 1]).shares
    array([[1., 1., 0., 0., 0.],
           [0., 0., 1., 1., 1.]])
    """

    rows: tuple[tuple[int, ...], ...]  # the classes of each row
    homes: tuple[int, ...]  # the task that each row's classes belong to; of several, the first
    shares: NDArray[np.float64]  # [rows, cells], of the images of that time, those of a row's classes
    highest: float  # the largest share that a row has of the images of a task
    num_images: float  # that a share is taken of, on the average

    @property
    def strengths(self) -> NDArray[np.float64]:
        """The shares in relation to the highest, cut off at 1."""
        return np.minimum(self.shares / self.highest, 1.0)


def measure(
    tasks: Sequence[Task],
    labels: NDArray[np.int64],
    most_rows: int,
    widths: Sequence[int],
    narrowest: int = 1,
) -> Frequencies:
    """Count the classes along a stream, of which each task has so many cells.

    A share is that of so many cells at least, where a task has them.
    """
    in_order = [labels[task.train.numpy()] for task in tasks]
    rows, homes = _choose_rows(tasks, in_order, most_rows)
    row_of_class = np.full(int(labels.max()) + 1, -1)
    for row, classes in enumerate(rows):
        row_of_class[list(classes)] = row
    shares, by_task, num_parts = [], [], 0
    for of_task, width in zip(in_order, widths, strict=True):
        of_rows = row_of_class[of_task]
        parts = np.array_split(of_rows, max(1, min(width // narrowest, len(of_rows) // FEWEST_IMAGES)))
        num_parts += len(parts)
        edges = np.linspace(0, width, len(parts) + 1).round().astype(int)
        for part, num_cells in zip(parts, np.diff(edges), strict=True):
            shares += [np.bincount(part, minlength=len(rows)) / len(part)] * num_cells
        by_task.append(np.bincount(of_rows, minlength=len(rows)) / len(of_rows))
    num_images = sum(map(len, in_order)) / num_parts
    return Frequencies(rows, homes, np.array(shares).T, float(np.max(by_task)), num_images)


def share_out(sizes: Sequence[int], num_cells: int) -> list[int]:
    """Return how many cells each task gets: in proportion to its size, but one at least.

    Tasks that are nearly equal get equal numbers. There must not be more tasks than cells.

    >>> share_out([1000, 3000, 10], 40)
    [10, 29, 1]
    >>> share_out([1000, 999, 998], 40)
    [13, 13, 13]
    """
    if max(sizes) <= NEARLY_EQUAL * min(sizes):
        return [num_cells // len(sizes)] * len(sizes)
    ideal = np.array(sizes) / sum(sizes) * num_cells
    widths = np.maximum(1, np.floor(ideal).astype(int))
    while widths.sum() < num_cells:
        widths[np.argmax(ideal - widths)] += 1
    while widths.sum() > num_cells:  # as the smallest have got more than their due
        widths[np.argmax(widths)] -= 1
    return [int(width) for width in widths]


def join(tasks: Sequence[Task], most: int) -> tuple[list[Task], int]:
    """Return so many tasks at most, and how many of the given ones each of them stands for."""
    step = -(-len(tasks) // most)
    return [_as_one(tasks[start : start + step]) for start in range(0, len(tasks), step)], step


def _as_one(tasks: Sequence[Task]) -> Task:
    classes = dict.fromkeys(label for task in tasks for label in task.classes)
    return Task(tuple(classes), torch.cat([task.train for task in tasks]), tasks[0].test[:0])


def _choose_rows(
    tasks: Sequence[Task], in_order: Sequence[NDArray[np.int64]], most: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return the classes of each row, with the task they belong to: a class each, if there is room."""
    home_of: dict[int, int] = {}
    for number, task in enumerate(tasks):
        for label in task.classes:
            home_of.setdefault(label, number)
    for number, of_task in enumerate(in_order):  # classes whose own task is left out come as strangers
        for label in dict.fromkeys(of_task.tolist()):
            home_of.setdefault(label, number)
    by_home: dict[int, list[int]] = {}
    for label, home in home_of.items():
        by_home.setdefault(home, []).append(label)
    rows: list[tuple[int, ...]]
    if len(home_of) <= most:
        rows = [(label,) for label in home_of]
    elif len(by_home) <= most:  # then no row holds classes of two tasks
        parts = most // len(by_home)
        rows = [
            row for classes in by_home.values() for row in cut_into_tasks(classes, min(parts, len(classes)))
        ]
    else:
        rows = cut_into_tasks(list(home_of), most)
    return tuple(rows), tuple(home_of[row[0]] for row in rows)
