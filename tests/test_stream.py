from __future__ import annotations

import pytest
import torch
from tests.helpers import NUM_CLASSES, make_store
from torch import Generator

from encore.errors import EncoreError
from encore.stream import Stream, check_class_order, class_incremental, draw_class_order

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
    order = draw_class_order(NUM_CLASSES, seed)
    return Stream(store, class_incremental(store, order, num_tasks, Generator().manual_seed(seed)))


def test_tasks_part_the_data() -> None:
    stream = make()
    train = torch.cat([task.train for task in stream.tasks])
    test = torch.cat([task.test for task in stream.tasks])
    assert sorted(train.tolist()) == list(range(len(stream.store.train.labels)))
    assert sorted(test.tolist()) == list(range(len(stream.store.test.labels)))
    for task in stream.tasks:
        assert set(stream.store.train.labels[task.train].tolist()) == set(task.classes)
        assert set(stream.store.test.labels[task.test].tolist()) == set(task.classes)


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


def test_same_seed_same_stream_and_two_seeds_differ() -> None:
    one, same, other = make(1), make(1), make(2)
    for ours, theirs in zip(one.tasks, same.tasks, strict=True):
        assert ours.classes == theirs.classes
        assert torch.equal(ours.train, theirs.train)
    assert [task.classes for task in one.tasks] != [task.classes for task in other.tasks]
    assert not torch.equal(one.tasks[0].train, one.tasks[0].train.sort().values), "examples are shuffled"


@pytest.mark.parametrize("num_tasks", [0, 4, 7])
def test_tasks_of_unequal_size_are_refused(num_tasks: int) -> None:
    with pytest.raises(EncoreError, match=f"6 classes cannot be cut into {num_tasks} tasks"):
        make(num_tasks=num_tasks)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 2], [0, 1, 2, 4]])
def test_wrong_class_order_is_refused(order: list[int]) -> None:
    with pytest.raises(EncoreError, match="must name each class from 0 to 3 once"):
        check_class_order(order, 4)
