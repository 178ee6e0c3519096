"""ASER's retrieval against plain Python, which is handed the same draws."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from tests.helpers import (
    NUM_CLASSES,
    NoHostSynchronisation,
    assert_same_state,
    make_batch,
    make_learner,
    make_stream,
)
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Batch, Model, RetrievalContext
from encore.learner import Learner
from encore.pixels import as_floats
from encore.retrieval.aser import Aser
from encore.retrieval.uniform import Uniform

VARIANTS = ("asvm", "asv", "neg_sv")


def encode_alone(model: Model, images: Tensor) -> list[Tensor]:
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        return [twin.features(as_floats(image.unsqueeze(0)))[0] for image in images]


def values_for(
    point: Tensor, label: int, candidates: Sequence[tuple[Tensor, int]], neighbours: int
) -> list[float]:
    """Return the candidates' KNN-Shapley values for one point, by the published recursion."""
    order = sorted(range(len(candidates)), key=lambda i: float((candidates[i][0] - point).square().sum()))
    match = [float(candidates[i][1] == label) for i in order]
    num = len(order)
    values = [0.0] * num
    values[-1] = match[-1] / max(num, neighbours)
    for place in range(num - 1, 0, -1):  # counted from 1
        change = match[place - 1] - match[place]
        values[place - 1] = values[place] + change * min(neighbours, place) / (neighbours * place)
    found = dict(zip(order, values, strict=True))
    return [found[i] for i in range(num)]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def adversarial_values(
    variant: str, context: RetrievalContext, candidates: list[int], cooperative: list[int], neighbours: int
) -> list[float]:
    memory, model, incoming = context.memory, context.model, context.incoming
    labels = memory.labels.tolist()

    def encode(slots: list[int]) -> list[tuple[Tensor, int]]:
        return list(
            zip(encode_alone(model, memory.images[slots]), [labels[slot] for slot in slots], strict=True)
        )

    rows = encode(candidates)
    against = [
        values_for(point, label, rows, neighbours)
        for point, label in zip(encode_alone(model, incoming.images), incoming.labels.tolist(), strict=True)
    ]
    helping = [values_for(point, label, rows, neighbours) for point, label in encode(cooperative)]
    scores = []
    for i in range(len(candidates)):
        theirs, ours = [row[i] for row in against], [row[i] for row in helping]
        if variant == "asvm":
            scores.append(mean(ours) - mean(theirs))
        elif variant == "asv":
            scores.append(max(ours, default=0.0) - min(theirs))
        else:
            scores.append(-sum(theirs))
    return scores


def make_full(labels: Sequence[int], seed: int = 0) -> Learner:
    """Return a learner whose memory is full of random images of these classes."""
    learner = make_learner(memory_size=len(labels), seed=seed, memory_batch_size=4)
    for batch in make_stream(3, seed=seed):
        learner.observe(*batch)  # for running statistics other than those of the beginning
    generator = Generator().manual_seed(seed)
    images = torch.randint(0, 256, learner.memory.images.shape, generator=generator, dtype=torch.uint8)
    learner.memory.images.copy_(images)
    learner.memory.labels[:-1] = torch.tensor(labels)
    learner.memory.num_filled_on_device.fill_(len(labels))
    learner.memory.num_filled = len(labels)
    return learner


def make_context(learner: Learner, size: int, incoming: Batch | None = None) -> RetrievalContext:
    incoming = make_batch(5, seed=77) if incoming is None else incoming
    return RetrievalContext(
        learner.memory, learner.model, incoming, size, Generator().manual_seed(1), learning_rate=0.1
    )


MEMORIES = {
    "every class": [0, 1, 2, 3, 4, 5] * 4,
    "some classes": [4, 1, 1, 4, 0, 1, 4, 1, 0, 0, 1, 1],
    "a class seen once": [2, 2, 5, 2, 2, 2, 3, 3, 2, 2],
    "one class": [3] * 9,
    "each class once": [5, 0, 3],
    "one slot": [2],
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("held", MEMORIES)
@pytest.mark.parametrize("samples_per_class", [1.5, 2.0])
def test_scores_and_choice_are_plain_python_s(variant: str, held: str, samples_per_class: float) -> None:
    for seed in range(2):
        learner = make_full(MEMORIES[held], seed)
        size = min(3, learner.memory.capacity)
        context = make_context(learner, size)
        rule = Aser(variant=variant, samples_per_class=samples_per_class)
        candidates, cooperative = (
            [slot for slot in slots.tolist() if slot != learner.memory.scratch]
            for slots in rule.draw(context)
        )
        assert not set(candidates) & set(cooperative)
        expected = adversarial_values(variant, context, candidates, cooperative, neighbours=3)
        slots, others = rule.draw(context._replace(generator=Generator().manual_seed(1)))
        scores = rule.score(context, slots, others)[slots != learner.memory.scratch]
        torch.testing.assert_close(scores, torch.tensor(expected).double(), rtol=0, atol=1e-6)

        with NoHostSynchronisation():
            chosen = rule(context._replace(generator=Generator().manual_seed(1))).tolist()
        assert len(set(chosen)) == size
        score_of = dict(zip(candidates, expected, strict=True))
        first = min(size, len(candidates))
        best = sorted(expected, reverse=True)[:first]
        assert [score_of[slot] for slot in chosen[:first]] == pytest.approx(best, abs=1e-6)
        assert not set(chosen[first:]) & set(candidates), "the rest are others"


def test_fewer_classes_than_asked_for_are_completed_by_chance() -> None:
    learner = make_full([1, 1, 4, 4, 4, 1, 1, 4])
    context, rule = make_context(learner, 4), Aser()
    others, as_candidate = torch.zeros(8), torch.zeros(8)
    for _ in range(300):
        chosen = rule(context).tolist()
        assert len(set(chosen)) == 4
        assert sorted(learner.memory.labels[chosen[:2]].tolist()) == [1, 4]
        as_candidate[chosen[:2]] += 1
        others[chosen[2:]] += 1
    assert chisquare(others.numpy()).pvalue > 0.001
    assert chisquare(as_candidate.numpy()).pvalue > 0.001


def test_all_that_is_filled_may_be_asked_for() -> None:
    learner = make_full([1, 1, 4, 2, 2])
    assert sorted(Aser()(make_context(learner, 5)).tolist()) == [0, 1, 2, 3, 4]


def test_until_the_memory_is_full_it_is_uniform() -> None:
    learner = make_learner(memory_size=30)
    for batch in make_stream(7):
        learner.observe(*batch)
    assert torch.equal(Aser()(make_context(learner, 4)), Uniform()(make_context(learner, 4)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_scoring_disturbs_nothing(variant: str) -> None:
    learner = make_full(MEMORIES["some classes"])
    model, memory = learner.model, copy.deepcopy(learner.memory.state_dict())
    state, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    gradients = [parameter.grad for parameter in model.parameters()]
    Aser(variant=variant)(make_context(learner, 4))
    assert_same_state(model.state_dict(), state)
    assert_same_state(learner.memory.state_dict(), memory)
    assert [module.training for module in model.modules()] == modes
    assert all(one is other.grad for one, other in zip(gradients, model.parameters(), strict=True))


def test_score_prefers_what_helps_the_memory_and_not_the_incoming() -> None:
    learner = make_full([0, 0, 0, 1, 1, 1])
    images, labels = learner.memory.images, learner.memory.labels
    context = make_context(learner, 1, Batch(images[3:5], labels[3:5]))
    # Class 1's candidate helps the incoming batch as it helps the memory, class 0's the memory alone.
    for _ in range(20):
        assert int(labels[Aser()(context)]) == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_slots_are_right_even_after_a_divergence(variant: str) -> None:
    learner = make_full(MEMORIES["some classes"])
    with torch.no_grad():
        learner.model.stem.weight.fill_(torch.nan)
    assert len(set(Aser(variant=variant)(make_context(learner, 5)).tolist())) == 5


@pytest.mark.parametrize("sizes", [[1, 5, 1, 1, 7, 2], [3] * 6, [20, 1, 1]])
@pytest.mark.parametrize("memory_size", [1, 3, 8])
def test_streams_of_one_class_then_others(memory_size: int, sizes: list[int]) -> None:
    learner = make_learner(method="aser", memory_size=memory_size)
    for number, size in enumerate(sizes):
        images = make_batch(size, seed=number).images
        learner.observe(images, torch.full((size,), min(number // 2, NUM_CLASSES - 1)))
        assert learner.memory.num_filled == min(memory_size, sum(sizes[: number + 1]))
    assert learner.is_finite


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"variant": "avsm"},
            "there is no variant of the adversarial Shapley value 'avsm'; did you mean 'asvm'",
        ),
        ({"neighbours": 0}, "neighbours must be a whole number of at least 1, got 0"),
        ({"samples_per_class": 0.9}, "samples_per_class must be a number from 1 to 100, got 0.9"),
    ],
)
def test_options_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        Aser(**options)
