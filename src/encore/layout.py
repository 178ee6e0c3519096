"""From a benchmark's images to one seed's stream: which classes when, what is tested, how often it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from encore import registry
from encore.config import choose_run_part, usual
from encore.data.benchmark import Arrangement
from encore.data.held_out import check_share, draw_share
from encore.data.image_set import ImageSet
from encore.errors import EncoreError, unknown_name
from encore.image_store import ImageStore
from encore.interfaces import Material, StreamKind
from encore.randomness import Randomness
from encore.settings import CLASS_ORDERS, RunSettings, StreamSettings
from encore.stream import (
    Stream,
    Task,
    check_batch_size,
    check_class_order,
    cut_by_sizes,
    cut_into_tasks,
    draw_class_order,
    shuffled,
)
from encore.values import whole_number

ClassGroups = tuple[tuple[int, ...], ...]


class Arranges(Protocol):
    """A benchmark, or whatever else says which images are for testing and which classes make a task."""

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Say so for one seed; `split` is what was asked for."""


def make_stream(
    settings: RunSettings, seed: int, benchmark: Arranges, store: ImageStore, generator: Generator
) -> Stream:
    """Return the stream that the settings ask for; the generator is on the host."""
    return Stream(store, lay_out(settings, seed, benchmark, store.image_set, generator), seed)


def lay_out(
    settings: RunSettings, seed: int, benchmark: Arranges, images: ImageSet, generator: Generator
) -> list[Task]:
    """Return the tasks that the settings ask for; no image is decoded.

    The first pass over a task is the same however many epochs there are, and so are the first tasks
    however many are asked for.

    >>> from encore.datasets.digits import Digits
    >>> settings = RunSettings(StreamSettings(tasks=2, first_tasks=1, epochs=3))
    >>> (task,) = lay_out(settings, 0, Digits(), Digits().load(None), torch.Generator())
    >>> task.classes, len(task.train), len(task.test)
    ((2, 8, 4, 9, 1), 2151, 177)
    """
    chosen = settings.stream
    arrangement = benchmark.arrange(images, seed, chosen.split)
    is_test = torch.from_numpy(arrangement.is_test)
    material = Material(
        labels=torch.from_numpy(images.labels),
        train=(~is_test).nonzero().squeeze(1),
        test=is_test.nonzero().squeeze(1),
        class_groups=_group_classes(chosen, arrangement.tasks, images, seed),
        times=_as_tensor(images.times),
        given_tasks=_as_tensor(images.given_tasks),
        generator=generator,
    )
    num_tasks, num_images = len(material.class_groups), len(material.train)
    if num_tasks > num_images:
        raise EncoreError(f"{num_images} training images make at most {num_images} tasks, got {num_tasks}")
    kind = choose_run_part(settings, "stream")
    lay_out_kind: StreamKind = registry.make("stream", kind.name, **kind.options)
    tasks = lay_out_kind(material)
    _check_choices(chosen, kind.name, material.class_groups, tasks)
    tasks = _first(tasks, chosen)
    if chosen.hold_out is not None:
        tasks = hold_out_of_tasks(tasks, images.labels, chosen.hold_out, seed)
    check_batch_size(tasks, chosen.batch_size)
    epochs = num_epochs(settings)
    return [_repeat(task, epochs, generator) for task in tasks]


def num_epochs(settings: RunSettings) -> int:
    """Return how often the examples of a task come."""
    given = usual(settings.rehearsal.method, "epochs", settings.stream.epochs)
    return whole_number("epochs", given, lowest=1)


def _group_classes(chosen: StreamSettings, usual: ClassGroups, images: ImageSet, seed: int) -> ClassGroups:
    """Return the classes of each task: the benchmark's, in another order or other numbers where asked for."""
    num_classes = len(images.class_names)
    order = [label for group in usual for label in group]
    official = images.official_tasks
    match chosen.class_order:
        case None:
            pass
        case (str(word),) if word not in CLASS_ORDERS:
            raise unknown_name("class order", word, CLASS_ORDERS)
        case ("official",) if official is None:
            raise EncoreError(
                "this benchmark has no official class order: leave --class-order out, or use seed or sorted"
            )
        case ("official",):
            order = [label for group in official or () for label in group]
        case ("seed",):
            order = draw_class_order(num_classes, seed)
        case ("sorted",):
            order = list(range(num_classes))
        case numbers:
            order = check_class_order(numbers, num_classes)
    if chosen.tasks is None:
        return tuple(cut_by_sizes(order, [len(group) for group in usual]))
    num_tasks = whole_number("the number of tasks", chosen.tasks, 1, len(images.labels))
    # Some kinds of stream do not need a class for each task.
    without_classes: ClassGroups = ((),) * (num_tasks - len(order))
    return (*cut_into_tasks(order, min(num_tasks, len(order))), *without_classes)


def _check_choices(chosen: StreamSettings, kind: str, groups: ClassGroups, tasks: Sequence[Task]) -> None:
    """Refuse what was asked for and not done, and tasks that nothing can be learnt from or tested on."""
    if chosen.tasks is not None and len(tasks) != len(groups):
        raise EncoreError(
            f"with --stream {kind} the data decide that there are {len(tasks)} tasks: leave --tasks out"
        )
    if chosen.class_order is not None and tuple(task.classes for task in tasks) != groups:
        raise EncoreError(f"with --stream {kind} classes have no order to choose: leave --class-order out")
    for number, task in enumerate(tasks, start=1):
        if not task.classes:
            most = sum(map(bool, groups))
            raise EncoreError(
                f"{most} classes make from 1 to {most} tasks of --stream {kind}, got {len(groups)}"
            )
        for name, rows in (("training", task.train), ("test", task.test)):
            if len(rows) == 0:
                raise EncoreError(
                    f"task {number} has no {name} images: choose fewer tasks, another split or another "
                    "kind of stream"
                )


def _first(tasks: list[Task], chosen: StreamSettings) -> list[Task]:
    """Return the tasks that were asked for."""
    if chosen.first_tasks is None:
        return tasks
    number = whole_number("first_tasks", chosen.first_tasks, lowest=1)
    if number > len(tasks):
        raise EncoreError(f"first_tasks must be from 1 to {len(tasks)} for this benchmark, got {number}")
    return tasks[:number]


def hold_out_of_tasks(tasks: list[Task], labels: NDArray[np.int64], share: float, seed: int) -> list[Task]:
    """Return tasks that are tested on a share of what they would train on, and do not train on it.

    It is a random share of each class of each task, at least one image but never all; those that are left
    come in the order in which they came before, and the test images are not used. What is held out of a
    task does not depend on how many tasks follow.

    >>> whole = Task((3,), train=torch.arange(8), test=torch.arange(8, 10))
    >>> (task,) = hold_out_of_tasks([whole], labels=np.full(10, 3), share=0.25, seed=0)
    >>> len(task.train), len(task.test), sorted([*task.train.tolist(), *task.test.tolist()])
    (6, 2, [0, 1, 2, 3, 4, 5, 6, 7])
    """
    share = check_share("the share that is held out", share)
    generator = Randomness(seed).host_generator("hold out")
    parted = []
    for number, task in enumerate(tasks, start=1):
        is_held_out = torch.from_numpy(draw_share([labels[task.train.numpy()]], share, generator))
        if not is_held_out.any():
            raise EncoreError(
                f"task {number} has one training image of each class, so that none can be held out: choose "
                "fewer tasks"
            )
        parted.append(Task(task.classes, task.train[~is_held_out], task.train[is_held_out].sort().values))
    return parted


def _repeat(task: Task, epochs: int, generator: Generator) -> Task:
    """Return a task whose examples come so many times, each time but the first in a new random order."""
    if epochs == 1:
        return task
    again = [shuffled(task.train, generator) for _ in range(epochs - 1)]
    return Task(task.classes, torch.cat([task.train, *again]), task.test)


def _as_tensor(column: object) -> Tensor | None:
    return None if column is None else torch.as_tensor(column)
