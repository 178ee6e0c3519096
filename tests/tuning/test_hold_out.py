from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from encore import registry
from encore.data.benchmark import Arrangement
from encore.data.image_set import ImageSet
from encore.datasets.digits import Digits
from encore.errors import EncoreError
from encore.layout import lay_out
from encore.randomness import Randomness
from encore.settings import RunSettings, StreamSettings
from encore.stream import Task

NEEDS_MORE = ("by_time", "given")  # kinds whose images have a time or a task


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return Digits().load(None)


def tasks_of(images: ImageSet, seed: int = 0, **stream: Any) -> list[Task]:
    settings = replace(RunSettings(), stream=replace(StreamSettings(), **stream))
    return lay_out(settings, seed, Digits(), images, Randomness(seed).host_generator("stream"))


@pytest.mark.parametrize("kind", [name for name in registry.names("stream") if name not in NEEDS_MORE])
@pytest.mark.parametrize("seed", [0, 1])
def test_held_out_rows_are_training_rows_that_are_not_trained_on(
    images: ImageSet, kind: str, seed: int
) -> None:
    whole = tasks_of(images, seed, kind=kind)
    parted = tasks_of(images, seed, kind=kind, hold_out=0.25)
    test_rows = {row for task in whole for row in task.test.tolist()}
    trained = {row for task in parted for row in task.train.tolist()}
    tested = {row for task in parted for row in task.test.tolist()}
    assert trained.isdisjoint(tested)
    assert tested.isdisjoint(test_rows)
    assert trained.isdisjoint(test_rows)
    for before, after in zip(whole, parted, strict=True):
        assert before.classes == after.classes
        assert set(before.train.tolist()) == {*after.train.tolist(), *after.test.tolist()}
        left = [row for row in before.train.tolist() if row in set(after.train.tolist())]
        assert after.train.tolist() == left, "those that are left come in the same order"


def test_share_is_that_of_each_class_of_each_task(images: ImageSet) -> None:
    labels = torch.from_numpy(images.labels)
    for before, after in zip(tasks_of(images), tasks_of(images, hold_out=0.25), strict=True):
        for label in before.classes:
            num_before = int((labels[before.train] == label).sum())
            assert int((labels[after.test] == label).sum()) == round(0.25 * num_before)


def test_what_is_held_out_is_the_seed_s_and_not_always_the_same_place(images: ImageSet) -> None:
    one, same = (tasks_of(images, 3, hold_out=0.2) for _ in range(2))
    assert [task.test.tolist() for task in one] == [task.test.tolist() for task in same]
    draws = [tasks_of(images, seed, class_order=("sorted",), hold_out=0.2) for seed in (3, 4)]
    first, second = ({row for task in tasks for row in task.test.tolist()} for tasks in draws)
    both = len(first & second) / len(first)
    assert 0.1 < both < 0.3, "two draws of a fifth have a fifth in common"


def test_first_tasks_hold_out_the_same_however_many_follow(images: ImageSet) -> None:
    whole = tasks_of(images, hold_out=0.2)
    first = tasks_of(images, hold_out=0.2, first_tasks=2)
    for one, other in zip(first, whole[:2], strict=True):
        assert one.train.tolist() == other.train.tolist()
        assert one.test.tolist() == other.test.tolist()


def test_epochs_repeat_only_what_is_trained_on(images: ImageSet) -> None:
    for once, thrice in zip(
        tasks_of(images, hold_out=0.2), tasks_of(images, hold_out=0.2, epochs=3), strict=True
    ):
        assert thrice.test.tolist() == once.test.tolist()
        assert sorted(thrice.train.tolist()) == sorted(3 * once.train.tolist())


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, 1.5, float("nan"), True])
def test_share_out_of_bounds_is_refused(images: ImageSet, share: float) -> None:
    with pytest.raises(EncoreError, match="the share that is held out must be"):
        tasks_of(images, hold_out=share)


def test_tasks_with_one_image_of_each_class_are_refused(images: ImageSet) -> None:
    is_test = np.ones(len(images.labels), dtype=np.bool_)
    is_test[np.unique(images.labels, return_index=True)[1]] = False

    class OneEach(Digits):
        def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
            return super().arrange(images, seed, split)._replace(is_test=is_test)

    settings = RunSettings(StreamSettings(hold_out=0.5, batch_size=1))
    with pytest.raises(EncoreError, match="task 1 has one training image of each class, so that none can"):
        lay_out(settings, 0, OneEach(), images, torch.Generator())
