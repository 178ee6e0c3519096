from __future__ import annotations

import copy
import math
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
    make_learner,
)
from tests.objectives.plain import Scaled, as_images, assert_gradients_are_of
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Joint, Model, Plan
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.objectives.cross_entropy import CrossEntropy
from encore.objectives.momentum_distillation import MomentumDistillation


def make_model(seed: int = 0) -> ReducedResNet18:
    torch.manual_seed(seed)
    return ReducedResNet18(SHAPE, NUM_CLASSES, width=2).double()


def make_joint(num_remembered: int = 3, raw: Tensor | None = None) -> Joint:
    generator = Generator().manual_seed(1)
    images = torch.rand(7, *SHAPE, generator=generator, dtype=torch.float64)
    return Joint(images, torch.tensor([0, 4, 0, 2, 5, 5, 2]), num_remembered, raw=raw)


def freeze(objective: MomentumDistillation, teacher: Model) -> None:
    """Give an objective a teacher of its own, which follows the student no more."""
    objective.prepare(teacher)
    objective.num_steps.fill_(1e30)


def softmax(logits: list[float], temperature: float) -> list[float]:
    weights = [math.exp(logit / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def divergence(taught: list[float], learnt: list[float], temperature: float) -> float:
    teacher, student = softmax(taught, temperature), softmax(learnt, temperature)
    return temperature**2 * sum(p * math.log(p / q) for p, q in zip(teacher, student, strict=True))


def test_by_hand() -> None:
    """At temperature 2 the teacher says 3/4 to 1/4 and the student, who cannot tell, 1/2 to 1/2."""
    model, objective = Scaled(2, scale=0.0), MomentumDistillation(0.0, 1.0, 3.0, 2.0, teacher_rate=1e-20)
    freeze(objective, Scaled(2, scale=1.0))
    joint = Joint(as_images([[2 * math.log(3), 0.0]]), torch.tensor([0]), 0)
    outputs = objective.backward(model, joint, Generator())
    assert outputs.incoming_loss.item() == pytest.approx(math.log(2))
    # d CE / d scale = -(1 - 1/2) z, and d KL / d scale = -T (3/4 - 1/2) z, for z the pixel.
    z = 2 * math.log(3)
    assert model.scale.grad is not None
    assert model.scale.grad.item() == pytest.approx(-z / 2 - 3 * 2 * z / 4)


@pytest.mark.parametrize("raw_view", ["teacher", "student", "none"])
@pytest.mark.parametrize("augmented", [False, True])
def test_loss_and_gradient_are_the_formula_s(raw_view: str, augmented: bool) -> None:
    model, teacher = make_model(), make_model(seed=1)
    objective = MomentumDistillation(0.3, 0.7, 5.5, 4.0, teacher_rate=1e-20, raw_view=raw_view)
    freeze(objective, teacher)
    joint = make_joint(raw=make_batch(7).images if augmented else None)
    with NoHostSynchronisation():
        outputs = objective.backward(model, joint, Generator())
    raw = joint.images if joint.raw is None else joint.raw.double() / 255

    def losses() -> tuple[list[float], list[float]]:
        learnt, learnt_raw = model(joint.images).tolist(), model(raw).tolist()
        taught, taught_raw = teacher(joint.images).tolist(), teacher(raw).tolist()
        entropies, distilled = [], []
        for row, label in enumerate(joint.labels.tolist()):
            entropies.append(-math.log(softmax(learnt[row], 1.0)[label]))
            pairs = [(taught, learnt)]
            if raw_view != "none":
                pairs.append((taught_raw, learnt) if raw_view == "teacher" else (taught, learnt_raw))
            distilled.append(sum(divergence(t[row], s[row], 4.0) for t, s in pairs) / len(pairs))
        return entropies, distilled

    def loss() -> float:
        entropies, distilled = losses()
        rows = [entropy + 5.5 * value for entropy, value in zip(entropies, distilled, strict=True)]
        return float(0.3 * np.mean(rows[:3]) + 0.7 * np.mean(rows[3:]))

    entropies, _ = losses()
    assert outputs.memory_loss.item() == pytest.approx(np.mean(entropies[:3]))
    assert outputs.incoming_loss.item() == pytest.approx(np.mean(entropies[3:]))
    assert_gradients_are_of(loss, model.parameters())


@pytest.mark.parametrize(
    ("augmented", "raw_view", "passes"), [(0, "student", 1), (1, "student", 2), (1, "teacher", 1)]
)
def test_only_the_student_s_passes_reach_its_statistics(augmented: int, raw_view: str, passes: int) -> None:
    model, objective = make_model(), MomentumDistillation(raw_view=raw_view)
    objective.prepare(model)
    objective.backward(model, make_joint(raw=make_batch(7).images if augmented else None), Generator())
    assert model.stem_norm.num_batches_tracked is not None
    assert model.stem_norm.num_batches_tracked.item() == passes
    assert [name for name, _ in objective.named_buffers()] == ["num_steps"]
    assert all(parameter.grad is None for parameter in objective.parameters())


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_teacher_is_the_running_average_of_the_weights(rate: float) -> None:
    """Weights of step i count (1 - rate)^(steps since), and all of them together one."""
    model, objective = make_model(), MomentumDistillation(teacher_rate=rate)
    objective.prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def flat(model: Model) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])

    def average() -> np.ndarray[Any, np.dtype[np.float64]]:
        shares = [(1 - rate) ** (len(history) - 1 - step) for step in range(len(history))]
        weighted = [share * weights for share, weights in zip(shares, history, strict=True)]
        return sum(weighted[1:], weighted[0]) / sum(shares)

    history = []
    for _ in range(5):
        optimizer.zero_grad()
        history.append(flat(model))
        objective.backward(model, make_joint(), Generator())
        np.testing.assert_allclose(flat(objective.teacher), average(), rtol=1e-6, atol=1e-7)
        optimizer.step()
    history.append(flat(model))  # the answering network counts the last step, too
    answering = objective.answering_model(model)
    np.testing.assert_allclose(flat(answering), (average() + flat(model)) / 2, rtol=1e-6, atol=1e-7)
    assert_same_state(dict(answering.named_buffers()), dict(model.named_buffers()))
    assert not np.allclose(history[0], history[-1])


def test_without_weight_it_is_cross_entropy() -> None:
    model, objective = make_model(), MomentumDistillation(distillation_weight=0.0)
    twin = copy.deepcopy(model)
    objective.prepare(model)
    outputs = objective.backward(model, make_joint(), Generator())
    expected = CrossEntropy().backward(twin, make_joint(), Generator())
    for value, other in zip(outputs[:4], expected[:4], strict=True):
        assert torch.equal(value, other)
    for parameter, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, theirs.grad, rtol=1e-12, atol=1e-14)


def test_empty_memory_leaves_the_incoming_term() -> None:
    model, objective = make_model(), MomentumDistillation(memory_weight=9.0)
    freeze(objective, make_model(seed=1))
    outputs = objective.backward(model, make_joint(num_remembered=0), Generator())
    assert outputs.memory_loss.isnan()
    assert outputs.memory_accuracy.isnan()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("classifier", ["softmax", "nearest_class_mean"])
def test_answers_come_from_the_average_and_change_nothing(classifier: str) -> None:
    learners = [
        make_learner(
            method="mkd",
            plan=Plan(repeats=3, num_ops=1),
            parts={"model.width": 2, "classifier": classifier, "objective.teacher_share": share},
        )
        for share in (0.0, 0.5, 1.0)
    ]
    for learner in learners:
        for number in range(4):
            learner.observe(*make_batch(4, seed=number))
    asked = make_batch(9, seed=7).images
    state = copy.deepcopy(learners[1].state_dict())
    scores = [learner.scores(asked) for learner in learners]
    assert_same_state(learners[1].state_dict(), state)
    assert learners[1].model.training
    assert not torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[1], scores[2])
    student = learners[0]
    with torch.no_grad():
        student.model.eval()
        student.classifier.fit(student.model, student.memory)
        assert torch.equal(student.classifier.scores(student.model, asked / 255), scores[0])


def test_teacher_is_part_of_the_state() -> None:
    learner = make_learner(method="mkd")
    for number in range(3):
        learner.observe(*make_batch(4, seed=number))
    teacher = dict(learner.objective.state_dict())
    names = {f"teacher.{name}" for name, _ in learner.model.named_parameters()}
    assert set(teacher) == names | {"num_steps"}
    other = make_learner(method="mkd", seed=1)
    other.load_state_dict(learner.state_dict())
    assert_same_state(other.objective.state_dict(), teacher)
    assert len(learner.optimizer.weights) == len(list(learner.model.parameters())), (
        "the teacher is not learnt by gradients"
    )


def test_wrong_options_are_refused() -> None:
    with pytest.raises(EncoreError, match=r"teacher_rate must be a number from 0 to 1, got 1\.5"):
        MomentumDistillation(teacher_rate=1.5)
    with pytest.raises(EncoreError, match="teacher_rate must be above 0"):
        MomentumDistillation(teacher_rate=0.0)
    with pytest.raises(EncoreError, match="there is no raw_view 'pupil'"):
        MomentumDistillation(raw_view="pupil")
