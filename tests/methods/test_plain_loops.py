"""Each method, without augmentation, takes the steps of a loop that is written down plainly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.helpers import make_batch, make_learner
from tests.reference.plain_methods import PLAIN, Projecting, play
from torch import nn

from encore.interfaces import Batch, Plan
from encore.learner import Learner


def make_tasks(num_tasks: int = 3, num_batches: int = 3) -> list[list[Batch]]:
    """Return tasks of two classes each, in batches of several sizes."""
    tasks = []
    for task in range(num_tasks):
        batches = []
        for number in range(num_batches):
            images, labels = make_batch(7 + number % 3, seed=10 * task + number)
            batches.append(Batch(images, 2 * task + labels % 2))
        tasks.append(batches)
    return tasks


def in_double_precision(learner: Learner) -> None:
    """Let no difference arise that batch normalisation of so few values makes grow from step to step."""
    learner.model.double()
    learner.objective.double()
    for network in (learner.model, *learner.objective.children()):
        network.register_forward_pre_hook(lambda _, images: (images[0].double(),))


def teach(learner: Learner, tasks: list[list[Batch]]) -> None:
    for task in tasks:
        for images, labels in task:
            learner.observe(images, labels)
        learner.end_task()


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("name", PLAIN)
def test_without_augmentation_it_is_the_plain_loop(name: str, repeats: int) -> None:
    options = {"objective.memory_share": 0.3} if name == "er_rw" else {}
    parts: dict[str, Any] = {"model.width": 2, **options}
    small_steps: dict[str, Any] = {"learning_rate": 0.02, "memory_batch_size": 8}
    learner = make_learner(method=name, plan=Plan(repeats=repeats), parts=parts, **small_steps)
    in_double_precision(learner)
    plain = PLAIN[name](copy.deepcopy(learner.model), learner.config.learning_rate)
    tasks = make_tasks()
    teach(learner, tasks)
    play(plain, learner, tasks, repeats)
    assert learner.num_steps == repeats * 9
    for ours, theirs in zip(learner.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    for mine, other in zip(learner.model.buffers(), plain.model.buffers(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)
    if isinstance(plain, Projecting):
        assert plain.num_projected > 0  # else nothing was compared


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for (name, ours), theirs in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_half_each_at_twice_the_rate_is_experience_replay_bit_for_bit() -> None:
    plain = make_learner(plan=Plan(repeats=2, num_ops=1))
    reweighted = make_learner(method="er-rw", plan=Plan(repeats=2, num_ops=1))
    assert reweighted.config.learning_rate == 2 * plain.config.learning_rate == 0.2
    for learner in (plain, reweighted):
        teach(learner, make_tasks())
    assert_same_weights(plain.model, reweighted.model)


def test_nothing_retrieved_is_finetuning_whatever_is_remembered() -> None:
    plan = Plan(repeats=2, num_ops=1)
    finetuned = make_learner(method="finetune", plan=plan)
    learner = make_learner(method="er", plan=plan, parts={"retrieval": "nothing", "model.width": 2})
    for each in (finetuned, learner):
        teach(each, make_tasks())
    assert_same_weights(finetuned.model, learner.model)
    assert finetuned.num_images_trained == learner.num_images_trained
    assert learner.memory.num_filled == 12
    assert learner.predict(make_batch(5).images).shape == (5,)  # by nearest class mean


@pytest.mark.parametrize("name", ["lwf", "agem"])
def test_first_task_is_finetuning(name: str) -> None:
    learner, finetuned = make_learner(method=name), make_learner(method="finetune")
    for images, labels in make_tasks()[0]:
        learner.observe(images, labels)
        finetuned.observe(images, labels)
    assert_same_weights(learner.model, finetuned.model)
    assert learner.num_images_trained == finetuned.num_images_trained


def test_projection_may_begin_at_once() -> None:
    options = {"objective.from_start": True, "model.width": 2}
    begun, waiting = make_learner(method="agem", parts=options), make_learner(method="agem")
    for images, labels in make_tasks()[0]:  # and no task ends
        begun.observe(images, labels)
        waiting.observe(images, labels)
    assert begun.num_images_trained > waiting.num_images_trained
    assert not torch.equal(begun.model.head.weight, waiting.model.head.weight)


def test_no_room_is_set_aside_where_nothing_is_kept() -> None:
    learner = make_learner(method="finetune", memory_size=2**31 - 1)
    learner.observe(*make_batch(5))
    assert len(learner.memory.images) == 2
    assert (learner.memory.num_seen, learner.memory.num_filled) == (5, 0)
