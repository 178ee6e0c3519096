"""In the order in which the images were taken."""

from __future__ import annotations

import torch

from encore.errors import EncoreError
from encore.interfaces import Material
from encore.stream import Task
from encore.streams._classes import classes_in_order


class ByTime:
    """Images come in the order in which they were taken; a task is a period with as many as any other.

    The training images are ordered by their times, equal times by row, and cut into tasks of equal size;
    what cannot be shared equally goes to the first tasks. The period of a task begins with the time of its
    first training image, and that of the first task with the world: a test image belongs to the last task
    that has begun when it is taken. A task's classes are those of its training images, in the order in which
    they first come. Nothing is drawn: the stream is the same for every seed, unless the split is not.

    >>> times = torch.tensor([3.0, 1.0, 2.0, 0.0, 0.5, 2.5])
    >>> labels = torch.tensor([0, 1, 1, 2, 0, 0])
    >>> train, test = torch.arange(4), torch.arange(4, 6)
    >>> material = Material(labels, train, test, ((0, 1), (2,)), times, None, torch.Generator())
    >>> for task in ByTime()(material):
    ...     print(task.train.tolist(), task.test.tolist(), task.classes)
    [3, 1] [4] (2, 1)
    [2, 0] [5] (1, 0)
    """

    def __call__(self, material: Material) -> list[Task]:
        """Return as many tasks as there are groups of classes."""
        if material.times is None:
            raise EncoreError(
                "this benchmark does not know when its images were taken: choose another --stream"
            )
        times = material.times.double()
        num_unknown = int(times.isnan().sum())
        if num_unknown:
            raise EncoreError(
                f"it is not known when {num_unknown} of the images were taken: choose another --stream"
            )
        in_order = material.train[times[material.train].argsort(stable=True)]
        parts = in_order.tensor_split(len(material.class_groups))
        begins = torch.stack([times[rows[0]] for rows in parts])
        task_of_test = torch.searchsorted(begins, times[material.test], right=True).sub(1).clamp(min=0)
        return [
            Task(classes_in_order(material.labels, rows), rows, material.test[task_of_test == task])
            for task, rows in enumerate(parts)
        ]
