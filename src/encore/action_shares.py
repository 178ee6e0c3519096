"""What the actions of runs look like along the stream: what pictures of them show.

A picture has cells from left to right, letters or pixels, of which each task has a share. A part is as many
cells of a task as there are incoming batches enough to take a mean of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from encore.actions import Recorded
from encore.bandit import Augmentation
from encore.stream_frequencies import share_out

FEWEST_BATCHES = 8  # that a part stands for, all runs together, where a task has so many

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """What was chosen in each part, and what came of it."""

    repeats: Numbers  # [parts], the mean K
    chances: (
        Numbers  # [K, parts], from 1 on: the mean probability of each K, or its share where none is drawn
    )
    augmentations: Numbers  # [augmentations, parts], the share of each
    accuracy: Numbers  # [parts], the mean memory accuracy, NaN where nothing was remembered
    quartiles: Numbers  # [2, parts], of the memory accuracy


@dataclass(frozen=True)
class Parts:
    """The parts of a picture, from left to right."""

    widths: list[int]  # in cells, of each task, or of several that share them
    step: int  # how many tasks share cells
    edges: list[tuple[int, int]]  # of each part, in cells
    homes: list[int]  # the task of each part, or the group of tasks
    of_batches: list[NDArray[np.int64]]  # the part of each batch of each run


def list_augmentations(runs: Sequence[Recorded]) -> list[Augmentation]:
    """Return P and Q of all that was chosen or could have been, from the weakest on; (0, 0) is none.

    What can be chosen stands in the order of the controller's, all else by its numbers.
    """
    arms = [
        (int(num_ops), int(magnitude))
        for arm in reversed(runs[0].arms.get("augmentations", []))
        for num_ops, magnitude in [arm.split("x")]
    ]
    arms = [arm if arm[0] else (0, 0) for arm in arms]
    others = {pair for run in runs for pair in map(tuple, np.unique(_augmentations(run), axis=0).tolist())}
    return [*arms, *sorted(others - set(arms))]


def divide(runs: Sequence[Recorded], num_cells: int, narrowest: int = 1) -> Parts:
    """Divide so many cells among the tasks, and the batches of each task among parts of its cells."""
    num_tasks = 1 + max(int(run.tasks.max()) for run in runs)
    step = -(-num_tasks // num_cells)
    groups = [run.tasks // step for run in runs]
    sizes = np.bincount(np.concatenate(groups))
    widths = share_out(sizes.tolist(), num_cells)
    of_batches = [np.zeros(len(of_run), dtype=np.int64) for of_run in groups]
    edges: list[tuple[int, int]] = []
    homes: list[int] = []
    for group, width in enumerate(widths):
        num_parts = max(1, min(width // narrowest, int(sizes[group]) // FEWEST_BATCHES))
        for of_run, found in zip(groups, of_batches, strict=True):
            here = np.flatnonzero(of_run == group)
            found[here] = len(edges) + np.arange(len(here)) * num_parts // max(1, len(here))
        ends = (sum(widths[:group]) + np.linspace(0, width, num_parts + 1)).round().astype(int).tolist()
        edges += pairwise(ends)
        homes += [group] * num_parts
    return Parts(widths, step, edges, homes, of_batches)


def measure(
    runs: Sequence[Recorded],
    of_batches: Sequence[NDArray[np.int64]],
    augmentations: Sequence[Augmentation],
) -> Shares:
    """Return what was chosen in each part, the mean over all runs."""
    parts = np.concatenate(of_batches)
    repeats = np.concatenate([run.plans[:, 0] for run in runs])
    pairs = np.concatenate([_augmentations(run) for run in runs])
    accuracy = np.concatenate([run.feedback[:, 0] for run in runs]).astype(np.float64)
    num_parts = int(parts.max()) + 1
    sizes = np.bincount(parts, minlength=num_parts)

    def share(chosen: NDArray[np.bool_]) -> Numbers:
        return np.bincount(parts, weights=chosen, minlength=num_parts) / sizes

    arms = [int(arm) for arm in runs[0].arms.get("repeats", [])]
    chances = np.zeros((max([*arms, *repeats]), num_parts))
    if arms:
        drawn = np.concatenate([run.probabilities for run in runs])
        for column, arm in enumerate(arms):
            chances[arm - 1] = np.bincount(parts, weights=drawn[:, column], minlength=num_parts) / sizes
    else:
        for number in np.unique(repeats):
            chances[number - 1] = share(repeats == number)
    known = [accuracy[(parts == part) & ~np.isnan(accuracy)] for part in range(num_parts)]
    return Shares(
        repeats=np.bincount(parts, weights=repeats, minlength=num_parts) / sizes,
        chances=chances,
        augmentations=np.array([share((pairs == pair).all(axis=1)) for pair in augmentations]),
        accuracy=np.array([values.mean() if len(values) else np.nan for values in known]),
        quartiles=np.array(
            [np.quantile(values, (0.25, 0.75)) if len(values) else (np.nan, np.nan) for values in known]
        ).T,
    )


def _augmentations(run: Recorded) -> NDArray[np.int64]:
    pairs = run.plans[:, 1:].copy()
    pairs[pairs[:, 0] == 0] = 0
    return pairs


def name_augmentation(augmentation: Augmentation) -> str:
    """Return what an augmentation is called.

    >>> name_augmentation((2, 14)), name_augmentation((0, 0))
    ('P 2, Q 14', 'none')
    """
    num_ops, magnitude = augmentation
    return f"P {num_ops}, Q {magnitude}" if num_ops else "none"
