"""Class after class, the usual kind."""

from __future__ import annotations

from encore.interfaces import Material
from encore.stream import Task, rows_of, shuffled


class ClassIncremental:
    """Each task brings its own classes, all their examples in random order, and then they do not come again.

    >>> import torch
    >>> labels = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    >>> train, test = torch.arange(4), torch.arange(4, 8)
    >>> material = Material(labels, train, test, ((2, 0), (1, 3)), None, None, torch.Generator())
    >>> [task.test.tolist() for task in ClassIncremental()(material)]
    [[4, 6], [5, 7]]
    """

    def __call__(self, material: Material) -> list[Task]:
        """Return a task for each group of classes."""
        labels = material.labels
        return [
            Task(
                classes,
                shuffled(rows_of(labels, material.train, classes), material.generator),
                rows_of(labels, material.test, classes),
            )
            for classes in material.class_groups
        ]
