"""The tasks that the data set itself names."""

from __future__ import annotations

from encore.errors import EncoreError
from encore.interfaces import Material
from encore.stream import Task, shuffled
from encore.streams._classes import classes_in_order


class Given:
    """Each image belongs to the task whose number the data set gives it.

    Tasks come in ascending order of their numbers, the training images of each in random order; it is tested
    on the test images of the same number. A task's classes are those of its training images, in the order in
    which they first come: the same class may come again and again.

    >>> import torch
    >>> labels = torch.tensor([0, 1, 1, 0])
    >>> train, test, tasks = torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([7, 4, 4, 7])
    >>> material = Material(labels, train, test, ((0, 1),), None, tasks, torch.Generator())
    >>> [(task.train.tolist(), task.test.tolist(), task.classes) for task in Given()(material)]
    [([1], [2], (1,)), ([0], [3], (0,))]
    """

    def __call__(self, material: Material) -> list[Task]:
        """Return a task for each number."""
        if material.given_tasks is None:
            raise EncoreError(
                "this benchmark does not say which image belongs to which task: choose another --stream"
            )
        of_train, of_test = (material.given_tasks[rows] for rows in (material.train, material.test))
        numbers = sorted(set(of_train.tolist()))
        missing = sorted(set(of_test.tolist()) - set(numbers))
        if missing:
            raise EncoreError(
                f"task {missing[0]} of this benchmark has test images and no training images: choose another "
                "--stream or --split"
            )
        train = [shuffled(material.train[of_train == number], material.generator) for number in numbers]
        return [
            Task(classes_in_order(material.labels, rows), rows, material.test[of_test == number])
            for number, rows in zip(numbers, train, strict=True)
        ]
