"""What kinds of stream that follow the classes have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from encore.interfaces import Material
from encore.stream import Task, rows_of, shuffled


def rows_by_class(material: Material) -> list[list[Tensor]]:
    """Return for each task, for each of its classes, the training rows in random order.

    >>> from torch import Generator
    >>> labels, rows = torch.tensor([0, 1, 2, 1]), torch.arange(4)
    >>> material = Material(labels, rows, rows[:0], ((2, 1), (0,)), None, None, Generator())
    >>> [[sorted(rows.tolist()) for rows in task] for task in rows_by_class(material)]
    [[[2], [1, 3]], [[0]]]
    """
    labels = material.labels[material.train]
    num_classes = 1 + max((label for group in material.class_groups for label in group), default=-1)
    counts = torch.bincount(labels, minlength=num_classes).tolist()
    of_class = material.train[labels.argsort(stable=True)].split(counts)
    return [
        [shuffled(of_class[label], material.generator) for label in group] for group in material.class_groups
    ]


def tasks_of_classes(material: Material, train: Sequence[Tensor]) -> list[Task]:
    """Return a task for each group of classes, with these training rows, tested on the group's classes."""
    return [
        Task(classes, rows, rows_of(material.labels, material.test, classes))
        for classes, rows in zip(material.class_groups, train, strict=True)
    ]


def classes_in_order(labels: Tensor, rows: Tensor) -> tuple[int, ...]:
    """Return the classes of the rows, each once, in the order in which they first come.

    >>> classes_in_order(torch.tensor([5, 3, 5, 4]), torch.tensor([3, 0, 1, 2]))
    (4, 5, 3)
    """
    return tuple(dict.fromkeys(labels[rows].tolist()))
