from __future__ import annotations

import pytest
import torch
from tests.helpers import SHAPE, assert_same_state, make_batch

from encore.errors import EncoreError
from encore.memory import Memory


def test_what_is_written_is_read() -> None:
    memory = Memory(5, SHAPE)
    batch = make_batch(3)
    memory.write(torch.tensor([2, 0, 1]), batch)
    found = memory.read(torch.tensor([0, 1, 2]))
    assert torch.equal(found.images, batch.images[[1, 2, 0]])
    assert torch.equal(found.labels, batch.labels[[1, 2, 0]])
    assert found.images.dtype == torch.uint8


def test_scratch_is_not_among_the_filled() -> None:
    memory = Memory(2, SHAPE)
    batch = make_batch(4)
    memory.write(torch.tensor([0, 1, memory.scratch, memory.scratch]), batch)
    assert memory.num_seen == 4
    assert memory.num_filled == 2
    assert torch.equal(memory.filled().images, batch.images[:2])


def test_counts_agree_on_host_and_device() -> None:
    memory = Memory(5, SHAPE)
    for size in (3, 1, 4):
        memory.write(torch.arange(size).clamp(max=memory.scratch), make_batch(size))
        assert memory.num_seen_on_device.item() == memory.num_seen
        assert memory.num_filled_on_device.item() == memory.num_filled
    assert (memory.num_seen, memory.num_filled) == (8, 5)


def test_memory_holds_bytes() -> None:
    memory = Memory(2000, (3, 32, 32))
    assert memory.images.numel() * memory.images.element_size() == 2001 * 3 * 32 * 32


def test_state_comes_back() -> None:
    memory, other = Memory(5, SHAPE), Memory(5, SHAPE)
    memory.write(torch.tensor([0, 1, 2]), make_batch(3))
    other.load_state_dict(memory.state_dict())
    assert_same_state(memory.state_dict(), other.state_dict())
    assert other.num_seen == 3


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True])
def test_capacity_below_one_is_refused(capacity: int) -> None:
    with pytest.raises(EncoreError, match="memory size must be a whole number of at least 1"):
        Memory(capacity, SHAPE)
