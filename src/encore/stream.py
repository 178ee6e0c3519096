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

TEST_BATCH = 1000  # images that a task is tested on at a time


@dataclass(frozen=True)
class Task:
    """What a task teaches and is tested on, as rows of the image store."""

    classes: tuple[int, ...]  # that it is about
    train: Tensor  # int64 [N] on the host, in the order in which they come
    test: Tensor  # int64 [N] on the host


class Stream:
    """Batches of each task, in order; asking for the same batch a second time is refused.

    >>> import numpy as np
    >>> from encore.data.image_set import ArrayImages, ImageSet
    >>> images = ArrayImages(np.zeros((40, 1, 8, 8), dtype=np.uint8))
    >>> store = ImageStore(ImageSet(images, np.arange(40) % 2, ("a", "b")), torch.device("cpu"))
    >>> stream = Stream(store, [Task((0, 1), train=torch.arange(30), test=torch.arange(30, 40))])
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
        """Hand out a task's batches from number `start` on, each once; broken images are left out."""
        if start < self._num_asked_for[task]:
            raise EncoreError(
                f"this stream passes once: task {task + 1} was already asked for "
                f"from batch {self._num_asked_for[task]} on"
            )
        rows = self.tasks[task].train[start * size : self.num_batches(task, size) * size]
        for number, batch in enumerate(self.store.batches(rows, size), start):
            self._num_asked_for[task] = number + 1
            yield batch

    def test_batches(self, task: int) -> Iterator[Batch]:
        """Hand out a task's test set; this may be asked for again and again."""
        return self.store.batches(self.tasks[task].test, TEST_BATCH)


def draw_class_order(num_classes: int, seed: int) -> list[int]:
    """Return the order in which classes come for a seed.

    It is what NumPy's legacy generator gives right after seeding, so that the paper's seeds give the
    paper's orders.

    >>> draw_class_order(100, seed=1259051)[:5]
    [42, 69, 30, 17, 29]
    """
    order = np.arange(num_classes)
    legacy_generator(seed).shuffle(order)
    return [int(label) for label in order]


def legacy_generator(seed: int) -> np.random.RandomState:
    """Return NumPy's legacy generator right after seeding, which the published code's orders come from."""
    return np.random.RandomState(whole_number("a seed", seed, 0, 2**63 - 1) % 2**32)


def check_class_order(order: Sequence[int | str], num_classes: int) -> list[int]:
    """Return a given order of classes, or refuse one that does not name each class once."""
    numbers = [label for label in order if isinstance(label, int)]
    if len(numbers) != len(order) or sorted(numbers) != list(range(num_classes)):
        raise EncoreError(
            f"a class order must name each class from 0 to {num_classes - 1} once, got {len(order)} names: "
            f"{' '.join(str(label) for label in order)}"
        )
    return numbers


def cut_into_tasks(class_order: Sequence[int], num_tasks: int) -> list[tuple[int, ...]]:
    """Return the classes of each task, in their order; what cannot be shared equally goes to the first tasks.

    >>> cut_into_tasks([3, 1, 0, 2, 4], num_tasks=2)
    [(3, 1, 0), (2, 4)]
    """
    num_classes = len(class_order)
    if not 1 <= num_tasks <= num_classes:
        raise EncoreError(f"{num_classes} classes make from 1 to {num_classes} tasks, got {num_tasks}")
    smaller, num_larger = divmod(num_classes, num_tasks)
    sizes = [smaller + 1] * num_larger + [smaller] * (num_tasks - num_larger)
    return cut_by_sizes(class_order, sizes)


def cut_by_sizes(class_order: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return so many classes for each task, in their order.

    >>> cut_by_sizes([3, 1, 0, 2], sizes=[1, 3])
    [(3,), (1, 0, 2)]
    """
    ends = np.cumsum(sizes).tolist()
    return [tuple(class_order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def rows_of(labels: Tensor, rows: Tensor, classes: Sequence[int]) -> Tensor:
    """Return those of the rows that show one of the classes."""
    return rows[torch.isin(labels[rows], torch.tensor(classes))]


def shuffled(rows: Tensor, generator: Generator) -> Tensor:
    """Return the rows in random order."""
    return rows[torch.randperm(len(rows), generator=generator)]
