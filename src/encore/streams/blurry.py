"""Class after class, with a share of each class leaking into the other tasks."""

from __future__ import annotations

from typing import Annotated

import torch

from encore.errors import EncoreError
from encore.interfaces import Material
from encore.stream import Task, shuffled
from encore.streams._classes import rows_by_class, tasks_of_classes
from encore.values import not_negative_number


class Blurry:
    """Each task brings its own classes, but a share of every class's images comes in the other tasks.

    Of the n training images of a class, round(share * n) leave the task of the class, an exact half being
    rounded to the even number: which ones is drawn uniformly. They are dealt out one by one over all other
    tasks in a random order, round and round, so that each of these is equally likely to get any of them and
    no two get numbers that differ by more than one. All images of a task come in random order. So the size
    of a task is what its classes lose and what it gets from the others, and varies a little. With a single
    task nothing can leak. Test images stay with the task of their class.

    >>> labels = torch.arange(40) % 2
    >>> rows = torch.arange(40)
    >>> material = Material(labels, rows, rows, ((0,), (1,)), None, None, torch.Generator())
    >>> [labels[task.train].bincount().tolist() for task in Blurry(share=0.1)(material)]
    [[18, 2], [2, 18]]
    """

    def __init__(
        self, share: Annotated[float, "of each class's images that come in other tasks, below 1"] = 0.1
    ) -> None:
        self.share = not_negative_number("share", share)
        if self.share >= 1:
            raise EncoreError(f"share must be below 1, for something of a class to stay, got {share}")

    def __call__(self, material: Material) -> list[Task]:
        """Return a task for each group of classes."""
        num_tasks = len(material.class_groups)
        parts: list[list[torch.Tensor]] = [[material.train[:0]] for _ in range(num_tasks)]
        for home, of_task in enumerate(rows_by_class(material)):
            others = torch.tensor([task for task in range(num_tasks) if task != home])
            for rows in of_task:
                num_leaving = round(self.share * len(rows)) if num_tasks > 1 else 0
                parts[home].append(rows[num_leaving:])
                for number, task in enumerate(shuffled(others, material.generator).tolist()):
                    parts[task].append(rows[:num_leaving][number :: num_tasks - 1])
        return tasks_of_classes(material, [shuffled(torch.cat(rows), material.generator) for rows in parts])
