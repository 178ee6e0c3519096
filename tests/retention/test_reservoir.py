from __future__ import annotations

import torch
from scipy.stats import chisquare
from torch import Generator

from encore.interfaces import Batch, RetentionContext
from encore.memory import Memory
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.retention.reservoir import Reservoir

SHAPE = (1, 1, 1)
MODEL = ReducedResNet18(SHAPE, num_classes=1, width=1)  # which the rule does not look at


def stream_of_labels(start: int, stop: int) -> Batch:
    """Return examples that are told apart by their label."""
    return Batch(torch.zeros(stop - start, *SHAPE, dtype=torch.uint8), torch.arange(start, stop))


def fill(memory: Memory, sizes: list[int], generator: Generator) -> None:
    seen = 0
    for size in sizes:
        incoming = stream_of_labels(seen, seen + size)
        memory.write(Reservoir()(RetentionContext(memory, MODEL, incoming, generator)), incoming)
        seen += size


def fill_one_by_one(capacity: int, num_examples: int, generator: Generator) -> list[int]:
    """Do Vitter's algorithm R in plain Python, with the same random numbers."""
    kept: list[int] = []
    draws = torch.rand(num_examples, generator=generator, dtype=torch.float64).tolist()
    for example, uniform in enumerate(draws):
        slot = int(uniform * (example + 1))
        if example < capacity:
            kept.append(example)
        elif slot < capacity:
            kept[slot] = example
    return kept


def test_batch_equals_one_by_one() -> None:
    for seed in range(50):
        memory = Memory(7, SHAPE)
        # One batch and the plain loop draw the same numbers; the second batch straddles the filling.
        fill(memory, [40], Generator().manual_seed(seed))
        assert memory.filled().labels.tolist() == fill_one_by_one(7, 40, Generator().manual_seed(seed))


def test_batches_equal_one_batch_when_draws_are_the_same() -> None:
    whole, parts = Memory(7, SHAPE), Memory(7, SHAPE)
    fill(whole, [40], Generator().manual_seed(3))
    # Torch's generator gives the same numbers in chunks of one as at once only one by one.
    one_by_one = Generator().manual_seed(3)
    draws = torch.rand(40, generator=Generator().manual_seed(3), dtype=torch.float64)
    singly = torch.cat([torch.rand(1, generator=one_by_one, dtype=torch.float64) for _ in range(40)])
    assert torch.equal(draws, singly)
    fill(parts, [1] * 40, Generator().manual_seed(3))
    assert torch.equal(whole.labels[:7], parts.labels[:7])


def test_every_example_is_kept_with_the_same_probability() -> None:
    capacity, num_examples, num_runs = 6, 31, 4000
    generator = Generator().manual_seed(0)
    times_kept = torch.zeros(num_examples)
    for _ in range(num_runs):
        memory = Memory(capacity, SHAPE)
        fill(memory, [4, 4, 10, 1, 12], generator)
        times_kept[memory.filled().labels] += 1
    assert times_kept.sum() == num_runs * capacity
    # Kept examples are not independent, but negatively so: the statistic is below chi-square's.
    assert chisquare(times_kept.numpy()).pvalue > 0.001


def test_probability_at_every_moment_is_m_over_j() -> None:
    capacity, num_runs = 5, 6000
    generator = Generator().manual_seed(1)
    entered = torch.zeros(20)
    for _ in range(num_runs):
        memory = Memory(capacity, SHAPE)
        slots = torch.cat(
            [_offer(memory, stream_of_labels(start, start + 1), generator) for start in range(20)]
        )
        entered += (slots < capacity).float()
    expected = torch.tensor([min(1.0, capacity / (j + 1)) for j in range(20)])
    deviation = (expected * (1 - expected) / num_runs).sqrt()
    assert ((entered / num_runs - expected).abs() <= 4 * deviation).all()


def _offer(memory: Memory, incoming: Batch, generator: Generator) -> torch.Tensor:
    slots = Reservoir()(RetentionContext(memory, MODEL, incoming, generator))
    memory.write(slots, incoming)
    return slots


def test_later_example_wins_a_slot() -> None:
    # With one slot, nearly every long batch has several that draw it; the last of them must stay.
    for seed in range(30):
        memory = Memory(1, SHAPE)
        fill(memory, [25], Generator().manual_seed(seed))
        assert memory.filled().labels.tolist() == fill_one_by_one(1, 25, Generator().manual_seed(seed))
