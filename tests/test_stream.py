from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.helpers import NUM_CLASSES, make_store
from torch import Generator

from encore.errors import EncoreError
from encore.interfaces import Material
from encore.stream import Stream, check_class_order, cut_into_tasks, draw_class_order
from encore.streams.class_incremental import ClassIncremental

# The order in which the paper's three seeds bring CIFAR-100's classes: the first and the last tasks.
PAPER_ORDERS = {
    1259051: ([42, 69, 30, 17, 29], [35, 54, 39, 34, 74]),
    1259052: ([24, 60, 59, 2, 22], [69, 79, 42, 53, 18]),
    1259053: ([11, 99, 86, 60, 10], [46, 57, 45, 88, 16]),
}


@pytest.mark.parametrize("seed", PAPER_ORDERS)
def test_paper_seeds_give_the_paper_orders(seed: int) -> None:
    order = draw_class_order(100, seed)
    assert (order[:5], order[-5:]) == PAPER_ORDERS[seed]
    assert sorted(order) == list(range(100))


def make(seed: int = 0, num_tasks: int = 3) -> Stream:
    store = make_store()
    groups = tuple(cut_into_tasks(draw_class_order(NUM_CLASSES, seed), num_tasks))
    is_test = torch.from_numpy(store.image_set.is_test)
    train, test = ((is_test == tested).nonzero().squeeze(1) for tested in (False, True))
    generator = Generator().manual_seed(seed)
    labels = torch.from_numpy(store.image_set.labels)
    return Stream(store, ClassIncremental()(Material(labels, train, test, groups, None, None, generator)))


def test_tasks_part_the_data() -> None:
    stream = make()
    train = torch.cat([task.train for task in stream.tasks])
    test = torch.cat([task.test for task in stream.tasks])
    images = stream.store.image_set
    assert images.is_test is not None
    assert sorted(train.tolist()) == np.flatnonzero(~images.is_test).tolist()
    assert sorted(test.tolist()) == np.flatnonzero(images.is_test).tolist()
    for task in stream.tasks:
        assert set(images.labels[task.train].tolist()) == set(task.classes)
        assert set(images.labels[task.test].tolist()) == set(task.classes)


def test_each_example_comes_once_and_the_rest_of_a_task_does_not() -> None:
    stream = make()
    for task in range(3):
        images = torch.cat([batch.images for batch in stream.batches(task, 10)])
        assert len(images) == 40  # of 46
        assert len({image.numpy().tobytes() for image in images}) == 40


def test_second_pass_is_refused() -> None:
    stream = make()
    list(stream.batches(0, 10))
    with pytest.raises(EncoreError, match="this stream passes once: task 1 was already asked for"):
        list(stream.batches(0, 10))
    list(stream.batches(1, 10))


def test_stream_goes_on_from_any_batch() -> None:
    whole = list(make().batches(1, 10))
    rest = list(make().batches(1, 10, start=2))
    assert len(rest) == len(whole) - 2
    for ours, theirs in zip(rest, whole[2:], strict=True):
        assert torch.equal(ours.images, theirs.images)


def test_nothing_comes_after_the_last_batch_of_a_task() -> None:
    stream = make()
    assert list(stream.batches(0, 10, start=stream.num_batches(0, 10))) == []


def test_same_seed_same_stream_and_two_seeds_differ() -> None:
    one, same, other = make(1), make(1), make(2)
    for ours, theirs in zip(one.tasks, same.tasks, strict=True):
        assert ours.classes == theirs.classes
        assert torch.equal(ours.train, theirs.train)
    assert [task.classes for task in one.tasks] != [task.classes for task in other.tasks]
    assert not torch.equal(one.tasks[0].train, one.tasks[0].train.sort().values), "examples are shuffled"


@pytest.mark.parametrize("num_tasks", [0, 7])
def test_more_tasks_than_classes_are_refused(num_tasks: int) -> None:
    with pytest.raises(EncoreError, match=f"6 classes make from 1 to 6 tasks, got {num_tasks}"):
        make(num_tasks=num_tasks)


def test_what_cannot_be_shared_equally_goes_to_the_first_tasks() -> None:
    assert [len(task.classes) for task in make(num_tasks=4).tasks] == [2, 2, 1, 1]


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 2], [0, 1, 2, 4]])
def test_wrong_class_order_is_refused(order: list[int]) -> None:
    with pytest.raises(EncoreError, match="must name each class from 0 to 3 once"):
        check_class_order(order, 4)
