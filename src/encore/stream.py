"""The stream: tasks one after the other, each example once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from encore.crops import central_crops, random_crops
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Batch
from encore.values import whole_number

if TYPE_CHECKING:
    from encore.checks import Array
    from encore.from_arrays import Labels

TEST_BATCH = 1000  # images that a task is tested on at a time
TEST_BYTES = 2**24  # which these images do not exceed


@dataclass(frozen=True)
class Task:
    """What a task teaches and is tested on, as rows of the image store."""

    classes: tuple[int, ...]  # that it is about
    train: Tensor  # int64 [N] on the host, in the order in which they come
    test: Tensor  # int64 [N] on the host


class Stream:
    """Batches of each task, in order; asking for the same batch a second time is refused.

    Where images are cropped, the seed decides where: for each batch anew, whatever was asked for before.

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

    def __init__(self, store: ImageStore, tasks: Sequence[Task], seed: int = 0) -> None:
        self.store = store
        self.tasks = tuple(tasks)
        self.seed = seed
        self._num_asked_for = [0 for _ in tasks]

    @classmethod
    def from_arrays(
        cls,
        images: Array,
        labels: Labels,
        *,
        tasks: int | None = None,
        test_images: Array | None = None,
        test_labels: Labels | None = None,
        test_share: float = 0.2,
        kind: str = "class_incremental",
        options: Mapping[str, Any] | None = None,
        class_order: str | Sequence[Any] | None = None,
        times: Any = None,
        given_tasks: Any = None,
        seed: int = 0,
        device: str = "auto",
    ) -> Stream:
        """Make a stream of images in memory, as `encore run` makes one of a benchmark.

        Args:
            images: uint8 [N, C, H, W], or floats from 0 to 1, NumPy or torch.
            labels: whole numbers from 0 on, or names of classes [N].
            tasks: how many to cut it into; else 5, or the number of classes if there are fewer.
            test_images: what is tested, instead of a share of `images`.
            test_labels: their classes.
            test_share: of each class, for testing, where there are no `test_images`.
            kind: a name from `encore list streams`.
            options: of that kind of stream.
            class_order: all classes by number or name, or `sorted`; else in the seed's order.
            times: when each image was taken, those of `test_images` last; for the kind `by_time`.
            given_tasks: to which task each image belongs, those of `test_images` last; for `given`.
            seed: what decides which images are tested, and in which order they come.
            device: where the images are kept: `auto`, `cpu`, `cuda` or `cuda:N`, as the learner's.

        >>> import numpy as np
        >>> images, labels = np.zeros((60, 1, 8, 8), dtype=np.uint8), np.arange(60) % 6
        >>> stream = Stream.from_arrays(images, labels, tasks=3, class_order="sorted", device="cpu")
        >>> [(task.classes, len(task.train), len(task.test)) for task in stream.tasks]
        [((0, 1), 16, 4), ((2, 3), 16, 4), ((4, 5), 16, 4)]

        """
        from encore import from_arrays  # which needs what is defined here

        return from_arrays.make_stream(
            from_arrays.make_pool(images, labels, test_images, test_labels, times, given_tasks),
            from_arrays.OwnArrays(test_share),
            tasks=tasks,
            kind=kind,
            options=options or {},
            class_order=class_order,
            seed=seed,
            device=device,
        )

    def num_batches(self, task: int, size: int) -> int:
        """Return how many whole batches a task has; what is left over does not come."""
        return len(self.tasks[task].train) // size

    def batches(self, task: int, size: int, start: int = 0) -> Iterator[Batch]:
        """Hand out a task's batches from number `start` on, each once.

        Broken images are left out; where all of a batch are broken, it comes empty.
        """
        if start < self._num_asked_for[task]:
            raise EncoreError(
                f"this stream passes once: task {task + 1} was already asked for "
                f"from batch {self._num_asked_for[task]} on"
            )
        if start >= self.num_batches(task, size):  # what was saved after the last batch goes on here
            return
        rows = self.tasks[task].train[start * size : self.num_batches(task, size) * size]
        for number, batch in enumerate(self.store.batches(rows, size), start):
            self._num_asked_for[task] = number + 1
            if (side := self.store.image_set.crop) is not None:
                numbers = np.random.default_rng((self.seed, task, number))
                batch = Batch(random_crops(batch.images, side, numbers), batch.labels)
            yield batch

    def test_batches(self, task: int) -> Iterator[Batch]:
        """Hand out a task's test set; this may be asked for again and again."""
        size = max(1, min(TEST_BATCH, TEST_BYTES // prod(self.store.image_shape)))
        side, is_empty = self.store.image_set.crop, True
        for batch in self.store.batches(self.tasks[task].test, size):
            if len(batch.labels) > 0:
                is_empty = False
                yield batch if side is None else Batch(central_crops(batch.images, side), batch.labels)
        if is_empty:
            raise EncoreError(f"all test images of task {task + 1} are broken, so that it cannot be tested")


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


def check_batch_size(tasks: Sequence[Task], size: int) -> int:
    """Return a batch size, or refuse one that is larger than a task: nothing of that task would come."""
    size, shortest = whole_number("the batch size", size, lowest=1), min(len(task.train) for task in tasks)
    if size > shortest:
        raise EncoreError(
            f"the batch size must be from 1 to {shortest}, the size of the smallest task, got {size}: "
            "choose a smaller one, or fewer tasks"
        )
    return size


def rows_of(labels: Tensor, rows: Tensor, classes: Sequence[int]) -> Tensor:
    """Return those of the rows that show one of the classes."""
    return rows[torch.isin(labels[rows], torch.tensor(classes))]


def shuffled(rows: Tensor, generator: Generator) -> Tensor:
    """Return the rows in random order."""
    return rows[torch.randperm(len(rows), generator=generator)]
