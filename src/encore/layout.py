"""From a benchmark's images to one seed's stream: which classes when, what is tested, how often it comes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from encore import registry
from encore.config import choose_run_part
from encore.data.benchmark import Benchmark
from encore.errors import EncoreError, unknown_name
from encore.image_store import ImageStore
from encore.interfaces import Material, StreamKind
from encore.settings import CLASS_ORDERS, RunSettings, StreamSettings
from encore.stream import (
    Stream,
    Task,
    check_class_order,
    cut_by_sizes,
    cut_into_tasks,
    draw_class_order,
    shuffled,
)
from encore.values import whole_number


def make_stream(
    settings: RunSettings, seed: int, benchmark: Benchmark, store: ImageStore, generator: Generator
) -> Stream:
    """Return the stream that the settings ask for; the generator is on the host."""
    chosen = settings.stream
    arrangement = benchmark.arrange(store.image_set, seed, chosen.split)
    is_test = torch.from_numpy(arrangement.is_test)
    kind = choose_run_part(settings, "stream")
    lay_out: StreamKind = registry.make("stream", kind.name, **kind.options)
    tasks = lay_out(
        Material(
            labels=torch.from_numpy(store.image_set.labels),
            train=(~is_test).nonzero().squeeze(1),
            test=is_test.nonzero().squeeze(1),
            class_groups=_group_classes(chosen, arrangement.tasks, store, seed),
            times=_as_tensor(store.image_set.times),
            given_tasks=_as_tensor(store.image_set.given_tasks),
            generator=generator,
        )
    )
    epochs = whole_number("epochs", chosen.epochs, lowest=1)
    tasks = [_repeat(task, epochs, generator) for task in tasks]
    return Stream(store, _first(tasks, chosen))


def _group_classes(
    chosen: StreamSettings, usual: tuple[tuple[int, ...], ...], store: ImageStore, seed: int
) -> tuple[tuple[int, ...], ...]:
    """Return the classes of each task: the benchmark's, in another order or other numbers where asked for."""
    order = [label for group in usual for label in group]
    official = store.image_set.official_tasks
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
            order = draw_class_order(store.num_classes, seed)
        case ("sorted",):
            order = list(range(store.num_classes))
        case numbers:
            order = check_class_order(numbers, store.num_classes)
    if chosen.tasks is not None:
        return tuple(cut_into_tasks(order, whole_number("the number of tasks", chosen.tasks, lowest=1)))
    return tuple(cut_by_sizes(order, [len(group) for group in usual]))


def _repeat(task: Task, epochs: int, generator: Generator) -> Task:
    """Return a task whose examples come so many times, each time but the first in a new random order."""
    if epochs == 1:
        return task
    again = [shuffled(task.train, generator) for _ in range(epochs - 1)]
    return Task(task.classes, torch.cat([task.train, *again]), task.test)


def _first(tasks: Sequence[Task], chosen: StreamSettings) -> Sequence[Task]:
    """Return the tasks that were asked for, or refuse a stream that nothing could be learnt from."""
    for number, task in enumerate(tasks, start=1):
        if len(task.test) == 0:
            raise EncoreError(f"task {number} has no test images: choose fewer tasks or another split")
    size = whole_number("the batch size", chosen.batch_size, lowest=1)
    if chosen.first_tasks is not None:
        whole_number("first_tasks", chosen.first_tasks, lowest=1)
        if not 1 <= chosen.first_tasks <= len(tasks):
            raise EncoreError(
                f"first_tasks must be from 1 to {len(tasks)} for this benchmark, got {chosen.first_tasks}"
            )
        tasks = tasks[: chosen.first_tasks]
    shortest = min(len(task.train) for task in tasks)
    if not 1 <= size <= shortest:
        raise EncoreError(
            f"the batch size must be from 1 to {shortest}, the size of the smallest task, got {size}"
        )
    return tasks


def _as_tensor(column: object) -> Tensor | None:
    return None if column is None else torch.as_tensor(column)
