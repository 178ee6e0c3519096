"""What every part of a kind must do: a new file is tested by these the day it is written."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from tests.helpers import (
    NUM_CLASSES,
    SHAPE,
    NoHostSynchronisation,
    assert_same_state,
    make_batch,
    make_learner,
    make_stream,
)
from torch import Generator

from encore import registry
from encore.image_store import ImageStore
from encore.interfaces import Batch, FeedbackValues, Joint, Plan, RetrievalContext
from encore.learner import Learner
from encore.memory import Memory
from encore.models.reduced_resnet18 import ReducedResNet18

EVERY_PART = [(kind, name) for kind in registry.FOLDERS for name in registry.names(kind)]


def every(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", registry.names(kind))


def trained(**changes: Any) -> Learner:
    learner = make_learner(**changes)
    for batch in make_stream(6):
        learner.observe(*batch)
    return learner


@pytest.mark.parametrize(("kind", "name"), EVERY_PART)
def test_part_says_in_a_line_what_it_is(kind: str, name: str) -> None:
    line = registry.describe(kind, name)
    assert line.endswith(".")
    assert 20 < len(line) < 120


@pytest.mark.parametrize(("kind", "name"), EVERY_PART)
def test_part_explains_its_options(kind: str, name: str) -> None:
    for option, choice in registry.options(kind, name).items():
        assert choice.help, f"{kind} {name}: write {option}: Annotated[type, 'what it does'] = default"
        assert type(choice.default) in choice.types


@every("retrieval")
@pytest.mark.parametrize(("num_batches", "size"), [(1, 3), (6, 4), (6, 1)])
def test_retrieval_picks_filled_slots_once(name: str, num_batches: int, size: int) -> None:
    learner = make_learner(memory_size=30, parts={"retrieval": name, "model.width": 2})
    for batch in make_stream(num_batches):
        learner.observe(*batch)
    context = RetrievalContext(learner.memory, learner.model, make_batch(4), size, Generator().manual_seed(0))
    state = copy.deepcopy(learner.model.state_dict())
    with NoHostSynchronisation():
        slots = learner.retrieval(context)
    assert slots.dtype == torch.int64
    assert slots.shape == (size,)
    assert len(set(slots.tolist())) == size
    assert max(slots.tolist()) < learner.memory.num_filled
    assert_same_state(learner.model.state_dict(), state)


@every("retention")
def test_retention_fills_in_order_and_never_names_a_slot_twice(name: str) -> None:
    keep, memory, generator = registry.make("retention", name), Memory(9, SHAPE), Generator().manual_seed(0)
    for number, size in enumerate([4, 1, 7, 3, 12, 5]):
        incoming, seen = make_batch(size, seed=number), memory.num_seen
        with NoHostSynchronisation():
            slots = keep(memory, incoming, generator)
        assert slots.dtype == torch.int64
        assert slots.shape == (size,)
        kept = [slot for slot in slots.tolist() if slot != memory.scratch]
        assert len(set(kept)) == len(kept)
        assert all(0 <= slot < memory.capacity for slot in kept)
        memory.write(slots, incoming)
        free = range(seen, min(memory.num_seen, memory.capacity))
        assert set(free) <= set(kept), "free slots come first"


@every("objective")
def test_objective_reaches_the_network_whatever_the_order_of_rows(name: str) -> None:
    torch.manual_seed(0)
    model = ReducedResNet18(SHAPE, NUM_CLASSES, width=2).double()
    objective = registry.make("objective", name)
    images = torch.rand(9, *SHAPE, dtype=torch.float64, generator=Generator().manual_seed(0))
    labels = torch.arange(9) % NUM_CLASSES
    order = torch.tensor([2, 0, 3, 1, 8, 5, 4, 7, 6])  # remembered stay before incoming
    gradients = []
    for rows in (torch.arange(9), order):
        twin = copy.deepcopy(model)
        with NoHostSynchronisation():
            outputs = objective.backward(twin, Joint(images[rows], labels[rows], num_remembered=4))
        assert all(value.ndim == 0 and bool(value.isfinite()) for value in outputs)
        gradients.append([parameter.grad for parameter in twin.parameters()])
    assert any(bool(gradient.abs().sum() > 0) for gradient in gradients[0] if gradient is not None)
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert other is not None
            assert one.isfinite().all()
            torch.testing.assert_close(one, other)


@every("classifier")
def test_classifier_scores_every_class_and_disturbs_nothing(name: str) -> None:
    learner = trained(parts={"classifier": name, "model.width": 2})
    state = copy.deepcopy(learner.state_dict())
    scores = learner.scores(make_batch(7, seed=3).images)
    assert scores.shape == (7, NUM_CLASSES)
    assert not scores.isnan().any()
    assert scores.max(dim=1).values.isfinite().all()
    assert_same_state(learner.state_dict(), state)


@every("controller")
def test_controller_keeps_within_bounds_and_is_reproducible(name: str) -> None:
    plans = []
    for _ in range(2):
        controller = registry.make("controller", name, Plan(repeats=3, num_ops=1, magnitude=9))
        generator = Generator().manual_seed(5)
        chosen = []
        for number in range(60):
            if number % 20 == 0:
                controller.start_task(number // 20)
            plan = controller.choose(generator)
            assert isinstance(plan, Plan)  # whose own checks are the bounds
            chosen.append(plan)
            accuracy = 0.5 + 0.5 * (number % 2)
            controller.learn_from(FeedbackValues(accuracy, accuracy, 1.0, 1.0))
        plans.append(chosen)
    assert plans[0] == plans[1]
    assert isinstance(controller.needs_feedback, bool)


@every("model")
def test_model_keeps_its_promises(name: str) -> None:
    model = registry.make("model", name, (3, 16, 20), NUM_CLASSES)
    images = torch.rand(4, 3, 16, 20)
    assert model.features(images).shape == (4, model.num_features)
    assert model(images).shape == (4, NUM_CLASSES)
    assert model.num_classes == NUM_CLASSES
    model.train()(torch.rand(model.smallest_batch, 3, 16, 20))


@every("engine")
def test_engine_equals_the_eager_one(name: str) -> None:
    reference, learner = make_learner(), make_learner(parts={"engine": name, "model.width": 2})
    for number, batch in enumerate(make_stream(6)):
        plan = Plan(repeats=1 + number % 3, num_ops=number % 2)
        expected, feedback = reference.observe(*batch, plan=plan), learner.observe(*batch, plan=plan)
        torch.testing.assert_close(feedback.values, expected.values, equal_nan=True)
    for ours, theirs in zip(learner.model.parameters(), reference.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@every("method")
@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [1, 2, 9, 1], [30, 1]])
def test_method_learns_from_batches_of_any_size(name: str, sizes: list[int]) -> None:
    for plan in (Plan(), Plan(repeats=2, num_ops=1)):
        learner = make_learner(method=name, plan=plan)
        for number, size in enumerate(sizes):
            learner.observe(*make_batch(size, seed=number))
        assert learner.predict(make_batch(3).images).shape == (3,)


@every("method")
def test_method_goes_on_from_its_state_with_the_same_bits(name: str) -> None:
    whole, first = make_learner(method=name), make_learner(method=name)
    stream = list(make_stream(8))
    for batch in stream:
        whole.observe(*batch)
    for batch in stream[:3]:
        first.observe(*batch)
    second = make_learner(method=name)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for batch in stream[3:]:
        second.observe(*batch)
    assert_same_state(whole.state_dict(), second.state_dict())


@every("method")
@pytest.mark.parametrize("memory_size", [2, 500])
def test_memory_smaller_than_a_batch_or_larger_than_the_stream(name: str, memory_size: int) -> None:
    learner = trained(method=name, memory_size=memory_size)
    assert learner.memory.num_filled == min(memory_size, 24)
    assert learner.predict(make_batch(3).images).shape == (3,)


@every("benchmark")
def test_benchmark_is_described_and_made_without_arguments(name: str) -> None:
    benchmark = registry.make("benchmark", name)
    assert benchmark.name == name
    assert benchmark.num_tasks >= 1
    assert benchmark.steps
    assert list(inspect.signature(benchmark.load).parameters) == ["data_dir"]


def test_store_checks_what_a_benchmark_returns() -> None:
    store = ImageStore(registry.make("benchmark", "digits").load(None), torch.device("cpu"))
    assert isinstance(store.read(torch.tensor([0])), Batch)
    assert store.image_shape == (1, 8, 8)
