"""Which classes come when, how many tasks there are, and how often they come."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers import make_store
from torch import Generator

from encore import launch
from encore.cli import main
from encore.data.benchmark import Arrangement, arrange_officially
from encore.data.image_set import ArrayImages, ImageSet
from encore.datasets.digits import Digits
from encore.display import Quiet
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.layout import lay_out, make_stream
from encore.settings import RunSettings, StreamSettings
from encore.stream import Task, draw_class_order

OFFICIAL = ((5, 2, 9, 0), (7, 1), (3, 8), (4, 6))  # four, then twos, as CORe50 has ten, then fives


class NeverDecoded:
    """Images of which a layout needs to know only how many there are."""

    reads_at_once = False
    shape = (1, 8, 8)

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def read(self, rows: Any) -> Any:
        raise AssertionError("a layout decodes no images")


class Official(Digits):
    """Ten classes, ten training images and two test images of each, with four official tasks."""

    name = "official"
    num_tasks = 5

    def load(self, data_dir: Path | None) -> ImageSet:
        labels = np.tile(np.arange(10), 12)
        return ImageSet(
            NeverDecoded(120), labels, tuple("abcdefghij"), np.arange(120) >= 100, OFFICIAL, np.arange(120.0)
        )

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        return arrange_officially(self, images, seed, split)


class Drawn(Official):
    """The same without an official order, so that the seed draws one: five tasks of two."""

    def load(self, data_dir: Path | None) -> ImageSet:
        return replace(super().load(data_dir), official_tasks=None)


def tasks_of(benchmark: Digits, seed: int = 3, **options: Any) -> list[Task]:
    settings = RunSettings(StreamSettings(**options))
    return lay_out(settings, seed, benchmark, benchmark.load(None), Generator().manual_seed(seed))


def classes_of(benchmark: Digits, seed: int = 3, **options: Any) -> list[tuple[int, ...]]:
    return [task.classes for task in tasks_of(benchmark, seed, **options)]


def cut(order: list[int], *sizes: int) -> list[tuple[int, ...]]:
    ends = np.cumsum(sizes)
    return [tuple(order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


OFFICIAL_ORDER = [label for task in OFFICIAL for label in task]
NUMBERS = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("benchmark", "options", "order", "sizes"),
    [
        (Official(), {}, OFFICIAL_ORDER, (4, 2, 2, 2)),
        (Official(), {"class_order": ("official",)}, OFFICIAL_ORDER, (4, 2, 2, 2)),
        (Official(), {"class_order": ("seed",)}, draw_class_order(10, 3), (4, 2, 2, 2)),
        (Official(), {"class_order": ("sorted",)}, list(range(10)), (4, 2, 2, 2)),
        (Official(), {"class_order": tuple(NUMBERS)}, NUMBERS, (4, 2, 2, 2)),
        (Official(), {"tasks": 3}, OFFICIAL_ORDER, (4, 3, 3)),
        (Official(), {"tasks": 5, "class_order": ("seed",)}, draw_class_order(10, 3), (2,) * 5),
        (Official(), {"tasks": 1}, OFFICIAL_ORDER, (10,)),
        (Drawn(), {}, draw_class_order(10, 3), (2,) * 5),
        (Drawn(), {"class_order": ("seed",)}, draw_class_order(10, 3), (2,) * 5),
        (Drawn(), {"tasks": 4}, draw_class_order(10, 3), (3, 3, 2, 2)),
        (Drawn(), {"class_order": tuple(NUMBERS), "tasks": 10}, NUMBERS, (1,) * 10),
    ],
)
@pytest.mark.parametrize("kind", ["class_incremental", "gradual"])
def test_order_and_number_of_tasks(
    benchmark: Digits, options: dict[str, Any], order: list[int], sizes: tuple[int, ...], kind: str
) -> None:
    tasks = tasks_of(benchmark, kind=kind, **options)
    assert [task.classes for task in tasks] == cut(order, *sizes)
    assert [len(task.train) for task in tasks] == [10 * size for size in sizes]
    assert [len(task.test) for task in tasks] == [2 * size for size in sizes]


def test_order_of_the_seed_changes_with_it_and_others_do_not() -> None:
    assert classes_of(Drawn(), 1) != classes_of(Drawn(), 2)
    assert classes_of(Official(), 1, class_order=("seed",)) != classes_of(
        Official(), 2, class_order=("seed",)
    )
    assert classes_of(Official(), 1) == classes_of(Official(), 2)
    assert classes_of(Drawn(), 1, class_order=("sorted",)) == classes_of(Drawn(), 2, class_order=("sorted",))


def test_first_tasks_are_those_of_the_whole_stream() -> None:
    for epochs in (1, 3):
        whole = tasks_of(Drawn(), kind="blurry", epochs=epochs)
        first = tasks_of(Drawn(), kind="blurry", epochs=epochs, first_tasks=2)
        assert len(first) == 2
        for ours, theirs in zip(first, whole, strict=False):
            assert torch.equal(ours.train, theirs.train)


def test_kinds_that_need_no_classes_may_have_more_tasks_than_classes() -> None:
    for kind in ("by_time", "shuffled"):
        tasks = tasks_of(Drawn(), kind=kind, tasks=20 if kind == "shuffled" else 1, batch_size=5)
        assert {len(task.train) for task in tasks} == {100 // len(tasks)}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tasks": 11}, "10 classes make from 1 to 10 tasks of --stream class_incremental, got 11"),
        ({"tasks": 11, "kind": "blurry"}, "10 classes make from 1 to 10 tasks of --stream blurry, got 11"),
        ({"tasks": 11, "kind": "gradual"}, "10 classes make from 1 to 10 tasks of --stream gradual, got 11"),
        ({"tasks": 11, "kind": "imbalanced"}, "10 classes make from 1 to 10 tasks of --stream imbalanced"),
        ({"tasks": 0}, "the number of tasks must be a whole number from 1 to 120, got 0"),
        ({"tasks": 110, "kind": "shuffled"}, "100 training images make at most 100 tasks, got 110"),
        ({"tasks": 25, "kind": "shuffled"}, "task 21 has no test images: choose fewer tasks"),
        ({"tasks": 2, "kind": "by_time"}, "task 1 has no test images: choose fewer tasks"),
        ({"tasks": 2, "kind": "given"}, "does not say which image belongs to which task"),
        ({"class_order": ("sorted",), "kind": "shuffled"}, "with --stream shuffled classes have no order"),
        ({"class_order": ("official",)}, "this benchmark has no official class order"),
        ({"class_order": ("offical",)}, "there is no class order 'offical'; did you mean 'official'?"),
        ({"class_order": (0, 1)}, "a class order must name each class from 0 to 9 once"),
        ({"class_order": ()}, "a class order must name each class from 0 to 9 once, got 0 names"),
        ({"first_tasks": 6}, "first_tasks must be from 1 to 5 for this benchmark, got 6"),
        ({"first_tasks": 0}, "first_tasks must be a whole number of at least 1, got 0"),
        ({"batch_size": 21}, "the batch size must be from 1 to 20, the size of the smallest task, got 21"),
        ({"batch_size": 21, "epochs": 5}, "the batch size must be from 1 to 20, the size of the smallest"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"epochs": 1.5}, "epochs must be a whole number of at least 1, got 1.5"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError) as refused:
        tasks_of(Drawn(), **options)
    assert sentence in str(refused.value)


def test_number_of_given_tasks_is_not_chosen() -> None:
    class WithTasks(Drawn):
        def load(self, data_dir: Path | None) -> ImageSet:
            return replace(super().load(data_dir), given_tasks=np.arange(120) // 10 % 2)

    assert len(tasks_of(WithTasks(), kind="given")) == 2
    assert len(tasks_of(WithTasks(), kind="given", first_tasks=1)) == 1
    with pytest.raises(EncoreError, match="with --stream given the data decide that there are 2 tasks"):
        tasks_of(WithTasks(), kind="given", tasks=3)


def test_class_without_training_images_is_said() -> None:
    class Lacking(Drawn):
        def load(self, data_dir: Path | None) -> ImageSet:
            images = super().load(data_dir)
            return replace(images, is_test=images.is_test | (images.labels == 4))

    with pytest.raises(EncoreError, match="task 2 has no training images"):
        tasks_of(Lacking(), class_order=(0, 4, 1, 2, 3, 5, 6, 7, 8, 9), tasks=10)


@pytest.mark.parametrize("kind", ["class_incremental", "gradual", "shuffled", "imbalanced"])
def test_epochs_bring_each_image_so_often_each_time_in_a_new_order(kind: str) -> None:
    once, thrice = (tasks_of(Drawn(), kind=kind, epochs=epochs, batch_size=2) for epochs in (1, 3))
    for single, task in zip(once, thrice, strict=True):
        assert task.classes == single.classes
        assert torch.equal(task.test, single.test)
        passes = task.train.chunk(3)
        assert torch.equal(passes[0], single.train), "the first pass is that of a single one"
        assert all(sorted(rows.tolist()) == sorted(single.train.tolist()) for rows in passes)
        assert len({tuple(rows.tolist()) for rows in passes}) == 3


def test_longer_stream_passes_once() -> None:
    settings = RunSettings(StreamSettings(epochs=2, batch_size=7, tasks=2))
    images = ImageSet(ArrayImages(np.zeros((120, 1, 8, 8), np.uint8)), *_columns())
    store = ImageStore(images, torch.device("cpu"))
    stream = make_stream(settings, 0, Drawn(), store, Generator().manual_seed(0))
    assert stream.num_batches(0, 7) == 14  # of two times 50 images, 98
    batches = list(stream.batches(0, 7))
    assert len(batches) == 14
    labels = torch.cat([batch.labels for batch in batches])
    assert torch.equal(labels, torch.from_numpy(images.labels)[stream.tasks[0].train[:98]])
    with pytest.raises(EncoreError, match="passes once: task 1 was already asked for from batch 14 on"):
        next(stream.batches(0, 7, start=13))
    assert len(list(stream.batches(1, 7, start=10))) == 4


def _columns() -> tuple[Any, ...]:
    images = Drawn().load(None)
    return images.labels, images.class_names, images.is_test


def test_layout_of_a_store_is_that_of_its_images() -> None:
    class Six(Drawn):
        num_tasks = 3

    store, settings = make_store(), RunSettings(StreamSettings(kind="blurry"))
    stream = make_stream(settings, 1, Six(), store, Generator().manual_seed(1))
    tasks = lay_out(settings, 1, Six(), store.image_set, Generator().manual_seed(1))
    for ours, theirs in zip(stream.tasks, tasks, strict=True):
        assert torch.equal(ours.train, theirs.train)


def test_stopped_run_of_several_epochs_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    command = [
        "run", "--first-tasks", "1", "--epochs", "2", "--stream", "gradual", "--stream.width", "0.5",
        "--memory-size", "30", "--model.width", "2", "--device", "cpu", "--checkpoint-every", "5",
        "--quiet", "--out",
    ]  # fmt: skip
    left_alone, stopped = tmp_path / "left-alone", tmp_path / "stopped"
    process = subprocess.Popen([sys.executable, "-m", "encore", *command, stopped], stderr=subprocess.DEVNULL)
    while not (stopped / "seed-0" / "checkpoint.encore").exists():
        assert process.poll() is None, "ended too early"
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    launch.resume(stopped, Quiet())
    assert main([*command, str(left_alone)]) == 0
    ours, theirs = (folder / "seed-0" / "learner.encore" for folder in (stopped, left_alone))
    assert ours.read_bytes() == theirs.read_bytes()
    record = json.loads((stopped / "seed-0" / "record.json").read_text())
    assert len(record["processes"]) == 2
    (task,) = record["tasks"]
    assert task["train"] % 2 == 0
    assert record["images_seen"] == task["train"] // 10 * 10
    assert record["config"]["parts"]["stream"] == {"name": "gradual", "options": {"width": 0.5}}
