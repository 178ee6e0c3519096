"""The stream: tasks one after the other, each example once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Batch
from encore.values import whole_number


@dataclass(frozen=True)
class Task:
    """What a task teaches and is tested on, as rows of the image store."""

    classes: tuple[int, ...]
    train: Tensor  # int64 [N], in the order in which they come
    test: Tensor  # int64 [N]


class Stream:
    """Batches of each task, in order; asking for the same batch a second time is refused.

    >>> from encore.datasets.digits import Digits
    >>> store = ImageStore.from_image_set(Digits().load(None), torch.device("cpu"))
    >>> stream = Stream(store, class_incremental(store, draw_class_order(10, seed=0), 5, Generator()))
    >>> next(stream.batches(0, 10)).images.shape
    torch.Size([10, 1, 8, 8])
    >>> next(stream.batches(0, 10))
    Traceback (most recent call last):
        ...
    encore.errors.EncoreError: this stream passes once: task 1 was already asked for from batch 1 on
    """

    def __init__(self, store: ImageStore, tasks: Sequence[Task]) -> None:
        self.store = store
        self.tasks = tuple(tasks)
        self._num_asked_for = [0 for _ in tasks]

    def num_batches(self, task: int, size: int) -> int:
        """Return how many whole batches a task has; what is left over does not come."""
        return len(self.tasks[task].train) // size

    def batches(self, task: int, size: int, start: int = 0) -> Iterator[Batch]:
        """Hand out a task's batches from number `start` on, each once."""
        if start < self._num_asked_for[task]:
            raise EncoreError(
                f"this stream passes once: task {task + 1} was already asked for "
                f"from batch {self._num_asked_for[task]} on"
            )
        rows = self.tasks[task].train
        for number in range(start, self.num_batches(task, size)):
            self._num_asked_for[task] = number + 1
            chosen = rows[number * size : (number + 1) * size]
            yield Batch(self.store.train.images[chosen], self.store.train.labels[chosen])

    def test_examples(self, task: int) -> Batch:
        """Return a task's test set."""
        chosen = self.tasks[task].test
        return Batch(self.store.test.images[chosen], self.store.test.labels[chosen])


def draw_class_order(num_classes: int, seed: int) -> list[int]:
    """Return the order in which classes come for a seed.

    It is what NumPy's legacy generator gives right after seeding, so that the paper's seeds give the
    paper's orders.

    >>> draw_class_order(100, seed=1259051)[:5]
    [42, 69, 30, 17, 29]
    """
    seed = whole_number("a seed", seed, 0, 2**63 - 1)
    order = np.arange(num_classes)
    np.random.RandomState(seed % 2**32).shuffle(order)
    return [int(label) for label in order]


def check_class_order(order: Sequence[int], num_classes: int) -> list[int]:
    """Return a given order of classes, or refuse one that does not name each class once."""
    if sorted(order) != list(range(num_classes)):
        raise EncoreError(
            f"a class order must name each class from 0 to {num_classes - 1} once, got {len(order)} names: "
            f"{' '.join(str(label) for label in order)}"
        )
    return list(order)


def cut_into_tasks(class_order: Sequence[int], num_tasks: int) -> list[tuple[int, ...]]:
    """Return the classes of each task, in their order.

    >>> cut_into_tasks([3, 1, 0, 2], num_tasks=2)
    [(3, 1), (0, 2)]
    """
    num_classes = len(class_order)
    if num_tasks < 1 or num_classes % num_tasks:
        raise EncoreError(f"{num_classes} classes cannot be cut into {num_tasks} tasks of equal size")
    size = num_classes // num_tasks
    return [tuple(class_order[start : start + size]) for start in range(0, num_classes, size)]


def class_incremental(
    store: ImageStore, class_order: Sequence[int], num_tasks: int, generator: Generator
) -> list[Task]:
    """Cut the classes, in their order, into tasks of equal size, and shuffle the examples in each."""
    tasks = []
    for classes in cut_into_tasks(class_order, num_tasks):
        train = _rows_of(store.train.labels, classes)
        shuffled = train[torch.randperm(len(train), generator=generator).to(train.device)]
        tasks.append(Task(classes, shuffled, _rows_of(store.test.labels, classes)))
    return tasks


def _rows_of(labels: Tensor, classes: Sequence[int]) -> Tensor:
    return torch.isin(labels, torch.tensor(classes, device=labels.device)).nonzero().squeeze(1)
