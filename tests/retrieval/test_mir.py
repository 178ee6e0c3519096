"""MIR against a copy of the network that really takes the step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from tests.helpers import NoHostSynchronisation, assert_same_state, make_batch, make_learner, make_stream
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Batch, Model, Plan, RetrievalContext
from encore.learner import Learner
from encore.pixels import as_floats
from encore.retrieval import mir
from encore.retrieval.mir import Mir, interference
from encore.retrieval.uniform import Uniform
from encore.side_stream import SideStream
from encore.slots import random_keys

RATE = 0.3


def taught(memory_size: int = 40, num_batches: int = 10, **changes: Any) -> Learner:
    learner = make_learner(memory_size=memory_size, **changes)
    for batch in make_stream(num_batches):
        learner.observe(*batch)
    return learner


def make_context(learner: Learner, size: int, incoming: Batch | None = None) -> RetrievalContext:
    incoming = make_batch(5, seed=77) if incoming is None else incoming
    return RetrievalContext(
        learner.memory, learner.model, incoming, size, Generator().manual_seed(1), learning_rate=RATE
    )


def losses(model: Model, batch: Batch) -> Tensor:
    """Return the losses that a copy of the network has when it trains on the batch."""
    with torch.no_grad():
        return F.cross_entropy(
            copy.deepcopy(model).train()(as_floats(batch.images)), batch.labels, reduction="none"
        )


def by_a_real_step(model: Model, incoming: Batch, candidates: Batch, alone: bool = False) -> Tensor:
    twin = copy.deepcopy(model).train(not alone)
    learnt = [parameter for parameter in twin.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learnt, lr=RATE)
    optimizer.zero_grad()
    torch.autograd.backward(F.cross_entropy(twin(as_floats(incoming.images)), incoming.labels))
    optimizer.step()
    return losses(twin, candidates) - losses(model, candidates)


def test_scores_are_those_of_a_step_really_taken() -> None:
    model, candidates = taught().model, make_batch(17, seed=5)
    for seed in range(5):
        incoming = make_batch(2 + 3 * seed, seed=60 + seed)
        scores = interference(model, incoming, candidates, RATE, SideStream())
        expected = by_a_real_step(model, incoming, candidates)
        assert expected.abs().max() > 0.01, "the step must matter"
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_frozen_weights_stay_in_the_foreseen_step() -> None:
    model, incoming, candidates = taught().model, make_batch(6, seed=61), make_batch(9, seed=5)
    free = interference(model, incoming, candidates, RATE, SideStream())
    model.stages.requires_grad_(False)
    frozen = interference(model, incoming, candidates, RATE, SideStream())
    torch.testing.assert_close(frozen, by_a_real_step(model, incoming, candidates), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(free, frozen, atol=1e-4)


def test_weight_without_a_gradient_is_no_obstacle() -> None:
    model, incoming, candidates = taught().model, make_batch(6, seed=61), make_batch(9, seed=5)
    expected = interference(model, incoming, candidates, RATE, SideStream())
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    assert torch.equal(interference(model, incoming, candidates, RATE, SideStream()), expected)


def test_single_image_without_variance_takes_running_statistics() -> None:
    model, incoming, candidates = taught().model, make_batch(1, seed=61), make_batch(9, seed=5)
    scores = interference(model, incoming, candidates, RATE, SideStream())
    expected = by_a_real_step(model, incoming, candidates, alone=True)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_scoring_disturbs_nothing() -> None:
    learner = taught()
    model = learner.model
    state = copy.deepcopy(model.state_dict())
    gradients = [(parameter.grad, parameter.grad.clone()) for parameter in model.parameters()]
    weights = [parameter.data_ptr() for parameter in model.parameters()]
    modes = [(module.training, getattr(module, "track_running_stats", None)) for module in model.modules()]
    chance = torch.get_rng_state()
    with NoHostSynchronisation():
        Mir(candidates=20)(make_context(learner, 4))
    assert "num_batches_tracked" in " ".join(state)
    assert_same_state(model.state_dict(), state)
    for parameter, (gradient, value) in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, value)
    assert [parameter.data_ptr() for parameter in model.parameters()] == weights
    after = [(module.training, getattr(module, "track_running_stats", None)) for module in model.modules()]
    assert after == modes
    assert torch.equal(torch.get_rng_state(), chance)


def read(learner: Learner, slots: list[int]) -> Batch:
    return Batch(learner.memory.images[slots], learner.memory.labels[slots])


@pytest.mark.parametrize(("candidates", "size"), [(12, 4), (39, 1), (50, 7), (5, 4)])
def test_most_interfered_of_the_drawn_are_chosen(candidates: int, size: int) -> None:
    learner = taught()
    context = make_context(learner, size)
    keys = random_keys(learner.memory, Generator().manual_seed(1))
    drawn = keys.argsort(descending=True)[: min(candidates, 40)].tolist()
    scores = by_a_real_step(learner.model, context.incoming, read(learner, drawn))
    expected = [drawn[place] for place in scores.argsort(descending=True)[:size].tolist()]
    assert Mir(candidates)(context).tolist() == expected


def test_while_few_are_remembered_all_of_them_are_candidates() -> None:
    learner = taught(memory_size=40, num_batches=3)
    assert learner.memory.num_filled == 12
    context = make_context(learner, 4)
    order = random_keys(learner.memory, Generator().manual_seed(1)).argsort(descending=True)[:12].tolist()
    batch = (3 * order)[:30]  # some stand in it three times, some twice
    scores = by_a_real_step(learner.model, context.incoming, read(learner, batch))[:12]
    expected = [order[place] for place in scores.argsort(descending=True)[:4].tolist()]
    assert Mir(candidates=30)(context).tolist() == expected
    # What lies in free slots does not matter, nor does what the host has counted: graphs are replayed later.
    learner.memory.images[12:] = 255
    learner.memory.num_filled = 5
    assert Mir(candidates=30)(make_context(learner, 4)).tolist() == expected


def test_candidates_are_a_uniform_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(memory_size=9)
    learner.memory.write(torch.arange(9), Batch(make_batch(9).images, torch.arange(9)))
    seen = []

    def look_on(model: Model, incoming: Batch, candidates: Batch, *_: Any) -> Tensor:
        seen.append(candidates.labels.sort().values)
        return torch.zeros(len(candidates.labels))

    monkeypatch.setattr(mir, "interference", look_on)
    context = make_context(learner, 1)
    for _ in range(4000):
        Mir(candidates=3)(context)
    drawn = torch.stack(seen)
    assert (drawn[:, 1:] > drawn[:, :-1]).all(), "none twice"
    triples = torch.bincount(drawn @ torch.tensor([81, 9, 1]))
    assert (triples > 0).sum() == 84  # 9 over 3
    assert chisquare(triples[triples > 0].numpy()).pvalue > 0.001


@pytest.mark.parametrize("candidates", [4, 2])
def test_without_a_choice_it_is_experience_replay(candidates: int) -> None:
    plain = taught(plan=Plan(), memory_size=12)
    chosen = taught(method="mir", plan=Plan(), memory_size=12, parts=_parts(candidates))
    assert_same_state(chosen.model.state_dict(), plain.model.state_dict())
    assert_same_state(chosen.memory.state_dict(), plain.memory.state_dict())
    assert not torch.equal(
        taught(method="mir", plan=Plan(), memory_size=12, parts=_parts(9)).model.head.weight,
        plain.model.head.weight,
    )


def _parts(candidates: int) -> dict[str, Any]:
    return {"model.width": 2, "retrieval.candidates": candidates}


def test_all_that_is_filled_may_be_asked_for() -> None:
    learner = taught(memory_size=7, num_batches=1)
    assert sorted(Mir()(make_context(learner, 4)).tolist()) == [0, 1, 2, 3]
    empty = make_learner()
    assert Mir()(make_context(empty, 0)).tolist() == Uniform()(make_context(empty, 0)).tolist() == []


@pytest.mark.parametrize("num_batches", [2, 10])
def test_slots_are_right_even_after_a_divergence(num_batches: int) -> None:
    learner = taught(num_batches=num_batches)
    for value in (torch.nan, 1e38, torch.inf):
        with torch.no_grad():
            learner.model.head.weight.fill_(value)
        slots = Mir()(make_context(learner, 6)).tolist()
        assert len(set(slots)) == 6
        assert max(slots) < learner.memory.num_filled


def test_number_of_candidates_is_checked() -> None:
    with pytest.raises(EncoreError, match="candidates must be a whole number of at least 1, got 0"):
        make_learner(method="mir", parts=_parts(0))
