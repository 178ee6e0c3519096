"""What every part of a kind must do: a new file is tested by these the day it is written."""

from __future__ import annotations

import copy
import inspect
import json
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers import (
    NUM_CLASSES,
    SHAPE,
    NoHostSynchronisation,
    assert_same_state,
    make_batch,
    make_controller,
    make_learner,
    make_stream,
)
from torch import Generator

from encore import registry
from encore.data.image_set import ArrayImages, ImageSet
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Batch, FeedbackValues, Joint, Material, Plan, RetentionContext, RetrievalContext
from encore.learner import Learner
from encore.memory import Memory
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.stream import Stream, cut_into_tasks

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
    context = RetrievalContext(
        learner.memory, learner.model, make_batch(4), size, Generator().manual_seed(0), learning_rate=0.1
    )
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
    model = ReducedResNet18(SHAPE, NUM_CLASSES, width=2)
    for number, size in enumerate([4, 1, 7, 3, 12, 5]):
        incoming, seen = make_batch(size, seed=number), memory.num_seen
        with NoHostSynchronisation():
            slots = keep(RetentionContext(memory, model, incoming, generator))
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
        generator = Generator().manual_seed(0)
        with NoHostSynchronisation():
            outputs = objective.backward(twin, Joint(images[rows], labels[rows], num_remembered=4), generator)
        assert all(value.ndim == 0 and bool(value.isfinite()) for value in outputs[:4])
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


class Environment:
    """Shows a controller a memory accuracy for each plan that it chooses: 1, 0.5, or what is told."""

    def __init__(self, name: str, seed: int = 5) -> None:
        self.controller = make_controller(name)
        self.generator = Generator().manual_seed(seed)
        self.number = 0

    def go_on(self, num_batches: int, accuracy: float | None = None, task_size: int = 20) -> list[Plan]:
        plans = []
        for _ in range(num_batches):
            if self.number % task_size == 0:
                self.controller.start_task(self.number // task_size)
            plans.append(self.controller.choose(self.generator))
            shown = 0.5 + 0.5 * (self.number % 2) if accuracy is None else accuracy
            self.controller.learn_from(FeedbackValues(shown, shown, 1.0, 1.0))
            self.number += 1
        return plans


@every("controller")
def test_controller_keeps_within_bounds_and_is_reproducible(name: str) -> None:
    plans = [Environment(name).go_on(60) for _ in range(2)]
    assert all(isinstance(plan, Plan) for plan in plans[0])  # whose own checks are the bounds
    assert plans[0] == plans[1]
    assert isinstance(make_controller(name).needs_feedback, bool)


@every("controller")
def test_controller_goes_on_from_its_state_as_if_it_had_never_stopped(name: str) -> None:
    whole, first, second = (Environment(name) for _ in range(3))
    expected = whole.go_on(90)[33:]
    first.go_on(33)
    if hasattr(first.controller, "state_dict"):
        second.controller.load_state_dict(json.loads(json.dumps(first.controller.state_dict())))
    second.number = first.number
    second.generator.set_state(first.generator.get_state())
    first.go_on(10)  # and a state is no view of what goes on
    assert second.go_on(57) == expected


@every("controller")
def test_controller_moves_the_right_way_above_and_below_its_target(name: str) -> None:
    if not hasattr(make_controller(name), "targets"):
        pytest.skip("it aims at no memory accuracy")
    means = []
    for accuracy in (1.0, 0.0):
        plans = [plan for seed in range(4) for plan in Environment(name, seed).go_on(80, accuracy, 1000)[40:]]
        means.append([sum(of_plan) / len(plans) for of_plan in zip(*map(astuple, plans), strict=True)])
    (high_repeats, high_ops, _), (low_repeats, low_ops, _) = means
    assert high_repeats < low_repeats - 3
    assert high_ops > low_ops + 1


@every("controller")
def test_controller_says_how_likely_its_arms_are(name: str) -> None:
    environment = Environment(name)
    arms: dict[str, list[str]] = getattr(environment.controller, "arms", {})
    environment.go_on(7)
    left = list(environment.controller.probabilities) if arms else []
    for of_policy in arms.values():
        assert sum(left[: len(of_policy)]) == pytest.approx(1)
        left = left[len(of_policy) :]
    assert left == []


@every("model")
def test_model_keeps_its_promises(name: str) -> None:
    model = registry.make("model", name, (3, 16, 20), NUM_CLASSES)
    images = torch.rand(4, 3, 16, 20)
    assert model.features(images).shape == (4, model.num_features)
    assert model(images).shape == (4, NUM_CLASSES)
    assert model.num_classes == NUM_CLASSES
    model.train()(torch.rand(model.smallest_batch, 3, 16, 20))


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


def make_material(seed: int, num_tasks: int = 3) -> Material:
    """Return images of which all is known, their rows for training and testing mixed."""
    numbers = np.random.default_rng(0)
    labels = torch.from_numpy(numbers.choice(NUM_CLASSES, 400, p=[0.3, 0.1, 0.2, 0.2, 0.1, 0.1]))
    is_test = torch.arange(400) % 4 == 1
    return Material(
        labels=labels,
        train=(~is_test).nonzero().squeeze(1),
        test=is_test.nonzero().squeeze(1),
        class_groups=tuple(cut_into_tasks([4, 2, 0, 5, 1, 3], num_tasks)),
        times=torch.from_numpy(numbers.integers(0, 90, 400) / 7.0),
        given_tasks=torch.from_numpy(numbers.integers(0, num_tasks, 400)),
        generator=Generator().manual_seed(seed),
    )


@every("stream")
@pytest.mark.parametrize("num_tasks", [1, 3, 4, 6])
def test_stream_brings_training_images_once_and_tests_on_others(name: str, num_tasks: int) -> None:
    material = make_material(0, num_tasks)
    tasks = registry.make("stream", name)(material)
    assert len(tasks) == num_tasks
    train = [row for task in tasks for row in task.train.tolist()]
    test = [row for task in tasks for row in task.test.tolist()]
    assert len(train) == len(set(train)), "no image comes twice"
    assert len(test) == len(set(test)), "no image is tested on in two tasks"
    assert set(train) <= set(material.train.tolist())
    assert set(test) <= set(material.test.tolist())
    for task in tasks:
        assert (task.train.dtype, task.test.dtype) == (torch.int64, torch.int64)
        assert (task.train.device.type, task.test.device.type) == ("cpu", "cpu")
        assert len(task.train) > 0
        assert len(task.test) > 0
        assert 0 < len(set(task.classes)) == len(task.classes)
        assert set(task.classes) <= set(range(NUM_CLASSES))


@every("stream")
def test_stream_is_the_seed_s(name: str) -> None:
    one, same, other = (make_material(seed) for seed in (1, 1, 2))
    streams = [registry.make("stream", name)(material) for material in (one, same, other)]
    orders = [torch.cat([task.train for task in tasks]).tolist() for tasks in streams]
    assert orders[0] == orders[1]
    assert [task.classes for task in streams[0]] == [task.classes for task in streams[1]]
    assert [task.test.tolist() for task in streams[0]] == [task.test.tolist() for task in streams[1]]
    draws = not torch.equal(one.generator.get_state(), Generator().manual_seed(1).get_state())
    assert (orders[0] != orders[2]) == draws, "two seeds differ, unless the kind draws nothing"


@every("stream")
def test_stream_draws_from_its_generator_only(name: str) -> None:
    orders = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        tasks = registry.make("stream", name)(make_material(0))
        assert torch.equal(before, torch.get_rng_state())
        orders.append(torch.cat([task.train for task in tasks]).tolist())
    assert orders[0] == orders[1]


@every("stream")
def test_stream_passes_once(name: str) -> None:
    material = make_material(0)
    pixels = np.arange(400 * 64, dtype=np.uint32).reshape(400, 1, 8, 8).astype(np.uint8)
    names = tuple(str(label) for label in range(NUM_CLASSES))
    store = ImageStore(ImageSet(ArrayImages(pixels), material.labels.numpy(), names), torch.device("cpu"))
    stream = Stream(store, registry.make("stream", name)(material))
    for task in range(len(stream.tasks)):
        batches = list(stream.batches(task, 5))
        assert len(batches) == stream.num_batches(task, 5) == len(stream.tasks[task].train) // 5
        with pytest.raises(EncoreError, match="passes once"):
            next(stream.batches(task, 5))


def test_store_checks_what_a_benchmark_returns() -> None:
    store = ImageStore(registry.make("benchmark", "digits").load(None), torch.device("cpu"))
    assert isinstance(store.read(torch.tensor([0])), Batch)
    assert store.image_shape == (1, 8, 8)
