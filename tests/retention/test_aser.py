"""ASER's update against plain Python, which is handed the same draws and sorts as the published code does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from tests.helpers import NUM_CLASSES, SHAPE, NoHostSynchronisation, assert_same_state, make_batch
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Batch, Model, RetentionContext
from encore.memory import Memory
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.pixels import as_floats
from encore.retention.aser import Aser, exchange


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    made = ReducedResNet18(SHAPE, NUM_CLASSES, width=2)
    made(torch.rand(8, *SHAPE))
    return made


def make_full(labels: list[int], seed: int = 0) -> Memory:
    memory = Memory(len(labels), SHAPE)
    memory.write(torch.arange(len(labels)), Batch(make_batch(len(labels), seed).images, torch.tensor(labels)))
    return memory


def make_context(memory: Memory, model: Model, size: int, seed: int = 0) -> RetentionContext:
    return RetentionContext(memory, model, make_batch(size, 100 + seed), Generator().manual_seed(seed))


def values_by_hand(
    model: Model,
    evaluation: list[tuple[Tensor, int]],
    candidates: list[tuple[Tensor, int]],
    neighbours: int,
) -> list[float]:
    """Return the candidates' KNN-Shapley values, summed over the evaluation examples."""
    twin = copy.deepcopy(model).eval()

    def encode(image: Tensor) -> Tensor:
        with torch.no_grad():
            return twin.features(as_floats(image.unsqueeze(0)))[0].double()

    encoded = [encode(image) for image, _ in candidates]
    totals = [0.0] * len(candidates)
    for image, label in evaluation:
        point = encode(image)
        distances = [float((feature - point).square().sum()) for feature in encoded]
        order = sorted(range(len(candidates)), key=lambda i: distances[i])
        value, match_after = 0.0, 0.0
        for place in range(len(order), 0, -1):  # from the farthest to the nearest
            match = float(candidates[order[place - 1]][1] == label)
            value += (match - match_after) * min(neighbours, place) / (neighbours * place)
            totals[order[place - 1]] += value
            match_after = match
    return totals


def keep_the_best(
    memory: Memory, candidates: list[int], values: list[float], incoming: Batch
) -> list[tuple[bytes, int]]:
    """Sort all, keep as many as were remembered, let who won replace who lost, and return what is held."""
    held = [_seen(image, label) for image, label in zip(memory.images[:-1], memory.labels[:-1], strict=True)]
    num = len(candidates)
    order = sorted(range(len(values)), key=lambda i: -values[i])  # stable: what is remembered comes first
    kept = set(order[:num])
    winners = [i - num for i in order if i in kept and i >= num]
    losers = [candidates[i] for i in order if i not in kept and i < num]
    assert len(winners) == len(losers)
    for winner, loser in zip(winners, losers, strict=True):
        held[loser] = _seen(incoming.images[winner], incoming.labels[winner])
    return sorted(held)


def _seen(image: Tensor, label: Tensor) -> tuple[bytes, int]:
    return image.numpy().tobytes(), int(label)


MEMORIES = {
    "every class": [0, 1, 2, 3, 4, 5] * 5,
    "some classes": [4, 1, 1, 4, 0, 1, 4, 1, 0, 0, 1, 1],
    "a class seen once": [2, 2, 5, 2, 2, 2, 3, 3, 2, 2],
    "one class": [3] * 9,
    "each class once": [5, 0, 3],
    "one slot": [2],
}


@pytest.mark.parametrize("samples_per_class", [1.5, 2.0])
@pytest.mark.parametrize("held", MEMORIES)
@pytest.mark.parametrize("size", [1, 5, 17])
def test_update_is_plain_python_s(held: str, size: int, samples_per_class: float, model: Model) -> None:
    for seed in range(2):
        memory = make_full(MEMORIES[held], seed)
        context, rule = make_context(memory, model, size, seed), Aser(samples_per_class=samples_per_class)
        incoming, drawn = context.incoming, rule.draw(context)
        there = drawn.candidates != memory.scratch
        candidates = drawn.candidates[there].tolist()
        evaluated = [slot for slot in drawn.evaluation.tolist() if slot != memory.scratch]
        assert not set(evaluated) & set(candidates), "what evaluates is no candidate"
        num_free = memory.capacity - len(evaluated)
        assert len(candidates) == min(num_free, int(samples_per_class * NUM_CLASSES))

        counts = [MEMORIES[held].count(label) for label in range(NUM_CLASSES)]
        rows = list(zip(incoming.images, incoming.labels.tolist(), strict=True))
        rare = [row for row in rows if counts[row[1]] / memory.capacity < float(drawn.threshold)]
        remembered = [(memory.images[slot], int(memory.labels[slot])) for slot in candidates]
        to_evaluate = [(memory.images[slot], int(memory.labels[slot])) for slot in evaluated]
        expected = values_by_hand(model, to_evaluate + rare, remembered + rows, neighbours=3)
        context = make_context(memory, model, size, seed)
        values = rule.evaluate(context, rule.draw(context))
        values = torch.cat([values[: len(there)][there], values[len(there) :]])
        torch.testing.assert_close(values, torch.tensor(expected).double(), rtol=0, atol=1e-6)

        then = keep_the_best(memory, candidates, values.tolist(), incoming)
        with NoHostSynchronisation():
            slots = rule(make_context(memory, model, size, seed))
        memory.write(slots, incoming)
        held_now = zip(memory.images[:-1], memory.labels[:-1], strict=True)
        assert sorted(_seen(image, label) for image, label in held_now) == then


@pytest.mark.parametrize("num_remembered", [1, 4, 9])
@pytest.mark.parametrize("num_incoming", [1, 4, 9])
def test_exchange_keeps_the_largest_values(num_remembered: int, num_incoming: int) -> None:
    numbers = Generator().manual_seed(0)
    for _ in range(100):
        remembered = torch.randint(4, (num_remembered,), generator=numbers).double()  # with many ties
        incoming = torch.randint(4, (num_incoming,), generator=numbers).double()
        slots = torch.randperm(20, generator=numbers)[:num_remembered]
        slots[torch.rand(num_remembered, generator=numbers) < 0.2] = 20
        with NoHostSynchronisation():
            taken = exchange(slots, remembered, incoming, scratch=20)
        there = slots != 20
        values = torch.cat([remembered[there], incoming])
        order = sorted(range(len(values)), key=lambda i: -float(values[i]))
        num = int(there.sum())
        lost = {int(slots[there][i]) for i in order[num:] if i < num}
        named = [slot for slot in taken.tolist() if slot != 20]
        assert len(set(named)) == len(named) == len(lost)
        assert set(named) == lost, "among equal values the first stay, and the remembered come first"
        came = {i for i, slot in enumerate(taken.tolist()) if slot != 20}
        assert came == {i - num for i in order[:num] if i >= num}


def test_slots_are_filled_in_order_and_what_finds_no_room_is_let_go(model: Model) -> None:
    memory, rule = Memory(7, SHAPE), Aser()
    named = []
    for size in (3, 2, 4):
        context = make_context(memory, model, size)
        slots = rule(context)
        memory.write(slots, context.incoming)
        named += slots.tolist()
    assert named == [0, 1, 2, 3, 4, 5, 6, memory.scratch, memory.scratch]
    assert memory.is_full
    small = Memory(2, SHAPE)
    assert rule(make_context(small, model, 5)).tolist() == [0, 1, 2, 2, 2]


def test_candidates_are_drawn_uniformly_among_those_that_do_not_evaluate(model: Model) -> None:
    memory = make_full([3] * 12)
    context = make_context(memory, model, 3)
    times = torch.zeros(13)
    thresholds = []
    for _ in range(1500):
        drawn = Aser(samples_per_class=1.0).draw(context)
        times[drawn.candidates] += 1
        thresholds.append(float(drawn.threshold))
    assert times[12] == 0
    assert chisquare(times[:12].numpy()).pvalue > 0.001
    bins = torch.tensor(thresholds).histc(8, 0, 1 / NUM_CLASSES)
    assert bins.sum() == 1500
    assert chisquare(bins.numpy()).pvalue > 0.001


def test_example_of_a_class_that_is_missing_may_enter(model: Model) -> None:
    memory = make_full([0, 1] * 10)
    entered = 0
    for seed in range(60):
        images = make_batch(4, 500 + seed).images
        incoming = Batch(images, torch.full((4,), 5))
        slots = Aser()(RetentionContext(memory, model, incoming, Generator().manual_seed(seed)))
        entered += int((slots != memory.scratch).sum())
    assert entered > 60, "as its incoming examples evaluate it: its share is below every threshold"


def test_looking_disturbs_nothing(model: Model) -> None:
    memory = make_full(MEMORIES["some classes"])
    state, held = copy.deepcopy(model.state_dict()), copy.deepcopy(memory.state_dict())
    modes = [module.training for module in model.modules()]
    Aser()(make_context(memory, model, 5))
    assert_same_state(model.state_dict(), state)
    assert_same_state(memory.state_dict(), held)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"neighbours": 0}, "neighbours must be a whole number of at least 1, got 0"),
        ({"samples_per_class": 0.5}, "samples_per_class must be a number from 1 to 100, got 0.5"),
    ],
)
def test_options_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        Aser(**options)
