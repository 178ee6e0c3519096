from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from tests.helpers import assert_same_state, make_batch, make_learner
from tests.objectives.test_cross_entropy import make_joint, make_model
from torch import Generator, Tensor, nn

from encore.errors import EncoreError
from encore.interfaces import Model
from encore.objectives.learning_without_forgetting import LearningWithoutForgetting


def make_objective(model: Model, num_tasks: int = 0, **options: Any) -> LearningWithoutForgetting:
    """Return an objective after some tasks, with a teacher that differs from the model."""
    objective = LearningWithoutForgetting(**options)
    objective.prepare(model)
    former = copy.deepcopy(model)
    generator = Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in former.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.1
            )
    for _ in range(num_tasks):
        objective.end_task(former)
    return objective


def softmax(row: list[float], temperature: float) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def gradients_of(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


class Spy(nn.Module):
    """Hands out logits that are known, whatever the images are."""

    smallest_batch = 1

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.logits


@pytest.mark.parametrize("temperature", [2.0, 5.0])
@pytest.mark.parametrize("num_tasks", [0, 1, 3])
def test_gradient_is_of_the_weighted_sum_by_hand(num_tasks: int, temperature: float) -> None:
    student = [[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]]
    teacher = [[0.2, 0.1, -1.0], [2.0, 2.5, -0.5]]
    labels = [2, 0]
    # The gradient of a cross-entropy by the logits is softmax minus target; T^2 / T is left of the factors.
    new = 1 / (num_tasks + 1)
    expected = []
    for row, wanted, label in zip(student, teacher, labels, strict=True):
        found, soft, target = softmax(row, 1.0), softmax(row, temperature), softmax(wanted, temperature)
        expected.append(
            [
                (new * (found[c] - (c == label)) + (1 - new) * temperature * (soft[c] - target[c])) / 2
                for c in range(3)
            ]
        )
    objective = LearningWithoutForgetting(temperature=temperature)
    model: Any = Spy(torch.tensor(student, dtype=torch.float64))
    objective.prepare(model)
    for _ in range(num_tasks):
        objective.end_task(Spy(torch.tensor(teacher, dtype=torch.float64)))  # type: ignore[arg-type]
    joint = make_joint(0, 2)._replace(labels=torch.tensor(labels))
    outputs = objective.backward(model, joint, Generator())
    torch.testing.assert_close(model.logits.grad, torch.tensor(expected, dtype=torch.float64))
    by_hand = [-math.log(softmax(row, 1.0)[label]) for row, label in zip(student, labels, strict=True)]
    assert outputs.incoming_loss.item() == pytest.approx(sum(by_hand) / 2)
    assert outputs.incoming_accuracy.item() == 0.0
    assert outputs.memory_loss.isnan()


def test_before_the_first_task_has_ended_it_is_cross_entropy_bit_for_bit() -> None:
    model, joint = make_model(), make_joint(0, 5)
    plain = copy.deepcopy(model)
    make_objective(model).backward(model, joint, Generator())
    nn.functional.cross_entropy(plain(joint.images), joint.labels).backward()
    for ours, theirs in zip(gradients_of(model), gradients_of(plain), strict=True):
        assert torch.equal(ours, theirs)


def test_remembered_examples_count_as_in_experience_replay() -> None:
    model, joint = make_model(), make_joint(3, 5)
    plain = copy.deepcopy(model)
    outputs = make_objective(model).backward(model, joint, Generator())
    logits = plain(joint.images)
    losses = nn.functional.cross_entropy(logits, joint.labels, reduction="none")
    (losses[:3].mean() + losses[3:].mean()).backward()
    for ours, theirs in zip(gradients_of(model), gradients_of(plain), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert outputs.memory_loss.item() == pytest.approx(losses[:3].mean().item())


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_teacher_s_own_statistics_stay_and_matter_only_if_asked_for(statistics: str) -> None:
    model, joint = make_model(), make_joint(0, 5)
    found = []
    for mean in (0.0, 0.3):
        twin = copy.deepcopy(model)
        objective = make_objective(twin, num_tasks=1, teacher_statistics=statistics)
        objective.teacher.get_buffer("stem_norm.running_mean").fill_(mean)
        before = copy.deepcopy(objective.state_dict())
        objective.backward(twin, joint, Generator())
        assert_same_state(objective.state_dict(), before)
        found.append(gradients_of(twin)[0])
    assert torch.equal(*found) == (statistics == "batch")


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_teacher_sees_as_its_statistics_say(statistics: str) -> None:
    model, joint = make_model(), make_joint(0, 5)
    objective = make_objective(model, num_tasks=1, teacher_statistics=statistics)
    copied = copy.deepcopy(model).train(statistics == "batch")
    copied.load_state_dict(objective.teacher.state_dict())
    assert torch.equal(objective.teacher(joint.images), copied(joint.images))


def test_teacher_is_replaced_in_place_and_not_learnt() -> None:
    learner = make_learner(method="lwf")
    assert isinstance(learner.objective, LearningWithoutForgetting)
    places = {name: value.data_ptr() for name, value in learner.objective.state_dict().items()}
    for number in range(2):
        learner.observe(*make_batch(5, seed=number))
        learner.end_task()
        assert_same_state(learner.objective.teacher.state_dict(), learner.model.state_dict())
    learner.observe(*make_batch(5, seed=9))
    with pytest.raises(AssertionError):
        assert_same_state(learner.objective.teacher.state_dict(), learner.model.state_dict())
    assert places == {name: value.data_ptr() for name, value in learner.objective.state_dict().items()}
    assert learner.objective.num_tasks.item() == 2
    assert {id(weight) for weight in learner.optimizer.weights} == {
        id(parameter) for parameter in learner.model.parameters()
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be a number above 0, got 0.0"),
        ({"teacher_statistics": "batches"}, "no teacher_statistics 'batches'; did you mean 'batch'?"),
    ],
)
def test_wrong_options_get_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        LearningWithoutForgetting(**options)
