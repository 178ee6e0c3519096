from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from tests.helpers import SHAPE, NoHostSynchronisation
from torch import Generator, Tensor

from encore.interfaces import Batch
from encore.memory import Memory
from encore.slots import draw_from_classes, random_keys

NUM_CLASSES = 5


def make_memory(labels: list[int], capacity: int) -> Memory:
    memory = Memory(capacity, SHAPE)
    images = torch.zeros(len(labels), *SHAPE, dtype=torch.uint8)
    memory.write(torch.arange(len(labels)), Batch(images, torch.tensor(labels)))
    return memory


def draw(memory: Memory, count: int, generator: Generator) -> Tensor:
    with NoHostSynchronisation():
        return draw_from_classes(memory, NUM_CLASSES, count, generator)


@pytest.mark.parametrize("capacity", [8, 12])
def test_each_class_gives_what_it_has(capacity: int) -> None:
    labels = [0, 2, 2, 4, 0, 2, 2, 0]
    memory, generator = make_memory(labels, capacity), Generator().manual_seed(0)
    for _ in range(50):
        slots = draw(memory, 3, generator).view(3, NUM_CLASSES)
        for label in range(NUM_CLASSES):
            found = [slot for slot in slots[:, label].tolist() if slot != memory.scratch]
            assert len(found) == len(set(found)) == min(3, labels.count(label))
            assert all(labels[slot] == label for slot in found)
            assert slots[: len(found), label].tolist() == found, "what is missing comes last"


def test_every_example_of_a_class_is_as_likely_as_any_other() -> None:
    memory, generator = make_memory([1, 3, 1, 1, 3, 1, 1, 3], 9), Generator().manual_seed(0)
    drawn = torch.stack([draw(memory, 2, generator) for _ in range(3000)]).view(-1, 2, NUM_CLASSES)
    for label, slots in ((1, [0, 2, 3, 5, 6]), (3, [1, 4, 7])):
        for place in range(2):
            counts = torch.bincount(drawn[:, place, label], minlength=10)
            assert counts.sum() == counts[slots].sum()
            assert chisquare(counts[slots].numpy()).pvalue > 0.001
        pairs = drawn[:, 0, label] * 10 + drawn[:, 1, label]
        counts = torch.bincount(pairs)
        assert (counts > 0).sum() == len(slots) * (len(slots) - 1)
        assert chisquare(counts[counts > 0].numpy()).pvalue > 0.001


def test_nothing_is_drawn_from_an_empty_memory() -> None:
    memory = Memory(4, SHAPE)
    assert draw(memory, 2, Generator().manual_seed(0)).tolist() == [memory.scratch] * 2 * NUM_CLASSES


def test_keys_of_slots_that_are_not_filled_are_negative() -> None:
    keys = random_keys(make_memory([0, 1, 2], 5), Generator().manual_seed(0))
    assert (keys >= 0).tolist() == [True, True, True, False, False]
