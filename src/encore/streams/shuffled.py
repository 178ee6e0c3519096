"""Everything mixed: what a learner could reach if the stream did not change."""

from __future__ import annotations

from encore.interfaces import Material
from encore.stream import Task
from encore.stream import shuffled as in_random_order
from encore.streams._classes import classes_in_order


class Shuffled:
    """All images in one random order, so that every task is like every other: the usual upper reference.

    The training images are put into random order and cut into tasks of equal size, what cannot be shared
    equally going to the first tasks; so are the test images. A task's classes are those of its training
    images, in the order in which they first come.

    >>> import torch
    >>> labels, rows = torch.arange(10) % 2, torch.arange(10)
    >>> material = Material(labels, rows[:6], rows[6:], ((0,), (1,)), None, None, torch.Generator())
    >>> [(len(task.train), len(task.test), sorted(task.classes)) for task in Shuffled()(material)]
    [(3, 2, [0, 1]), (3, 2, [0, 1])]
    """

    def __call__(self, material: Material) -> list[Task]:
        """Return as many tasks as there are groups of classes."""
        train, test = (
            in_random_order(rows, material.generator).tensor_split(len(material.class_groups))
            for rows in (material.train, material.test)
        )
        return [
            Task(classes_in_order(material.labels, rows), rows, tested)
            for rows, tested in zip(train, test, strict=True)
        ]
