from __future__ import annotations

import torch
from scipy.stats import chisquare
from tests.helpers import SHAPE, make_batch, make_learner
from torch import Generator, Tensor

from encore.interfaces import RetrievalContext
from encore.memory import Memory
from encore.retrieval.uniform import Uniform


def draw(num_filled: int, size: int, num_times: int) -> Tensor:
    memory = Memory(9, SHAPE)
    memory.write(torch.arange(num_filled), make_batch(num_filled))
    context = RetrievalContext(
        memory, make_learner().model, make_batch(2), size, Generator().manual_seed(0), learning_rate=0.1
    )
    return torch.stack([Uniform()(context) for _ in range(num_times)])


def test_only_filled_slots_and_none_twice() -> None:
    for slots in draw(num_filled=5, size=4, num_times=200).tolist():
        assert len(set(slots)) == 4
        assert max(slots) < 5


def test_all_that_is_filled_may_be_asked_for() -> None:
    assert sorted(draw(num_filled=5, size=5, num_times=1)[0].tolist()) == [0, 1, 2, 3, 4]


def test_every_slot_is_as_likely_as_any_other() -> None:
    slots = draw(num_filled=9, size=3, num_times=5000)
    assert chisquare(torch.bincount(slots.flatten(), minlength=9).numpy()).pvalue > 0.001


def test_every_pair_is_as_likely_as_any_other() -> None:
    slots = draw(num_filled=5, size=2, num_times=5000).sort(dim=1).values
    pairs = torch.bincount(slots[:, 0] * 5 + slots[:, 1], minlength=25)
    assert chisquare(pairs[pairs > 0].numpy()).pvalue > 0.001
    assert (pairs > 0).sum() == 10


def test_nothing_is_drawn_from_an_empty_memory() -> None:
    assert draw(num_filled=0, size=0, num_times=1).shape == (1, 0)
