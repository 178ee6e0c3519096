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
from encore.interfaces import Joint, Plan
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.objectives.proxy_contrastive import ProxyContrastive

LABELS = [0, 4, 0, 2, 5, 5, 2]


def make_parts(**options: Any) -> tuple[ReducedResNet18, ProxyContrastive]:
    torch.manual_seed(0)
    model, objective = ReducedResNet18(SHAPE, NUM_CLASSES, width=2).double(), ProxyContrastive(**options)
    objective.prepare(model)
    return model, objective


def make_joint(labels: list[int] = LABELS, num_remembered: int = 3, raw: Tensor | None = None) -> Joint:
    generator = Generator().manual_seed(1)
    images = torch.rand(len(labels), *SHAPE, generator=generator, dtype=torch.float64)
    return Joint(images, torch.tensor(labels), num_remembered, raw=raw)


def plain_losses(
    features: list[list[float]], labels: list[int], proxies: list[list[float]], temperature: float
) -> list[float]:
    """Return the loss of each row, by a loop over pairs of rows."""

    def similarity(one: list[float], other: list[float]) -> float:
        product = sum(a * b for a, b in zip(one, other, strict=True))
        return product / math.hypot(*one) / math.hypot(*other) / temperature

    losses = []
    for row, label in zip(features, labels, strict=True):
        total = sum(math.exp(similarity(row, proxies[other])) for other in labels)
        losses.append(-math.log(math.exp(similarity(row, proxies[label])) / total))
    return losses


def test_by_hand() -> None:
    """Features and proxies along the axes: a cosine is 1 or 0."""
    model, objective = Scaled(num_classes=3), ProxyContrastive(temperature=1.0)
    objective.prepare(model)
    objective.proxies.data = 7 * torch.eye(3, dtype=torch.float64)
    rows = as_images([[2.0, 0.0, 0.0], [5.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    outputs = objective.backward(model, Joint(rows, torch.tensor([0, 0, 1]), 2), Generator())
    e = math.e
    assert outputs.memory_loss.item() == pytest.approx(-math.log(e / (2 * e + 1)))
    assert outputs.incoming_loss.item() == pytest.approx(-math.log(e / (e + 2)))
    assert (outputs.memory_accuracy.item(), outputs.incoming_accuracy.item()) == (1.0, 1.0)


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("together", [False, True])
def test_loss_and_gradient_are_the_formula_s(together: bool, views: int) -> None:
    model, objective = make_parts(temperature=0.5, together=together)
    raw = make_batch(7).images if views == 2 else None
    joint = make_joint(raw=raw)
    with NoHostSynchronisation():
        outputs = objective.backward(model, joint, Generator())

    parts = [[part] for part in joint.images.split([3, 4])]
    labels = [[0, 4, 0], [2, 5, 5, 2]]
    if raw is not None:
        for part, plain in zip(parts, (raw.double() / 255).split([3, 4]), strict=True):
            part.append(plain)
        labels = [part * 2 for part in labels]
    batches = [torch.cat(part) for part in parts]

    def losses() -> list[float]:
        if together:
            features = model.features(torch.cat(batches)).tolist()
        else:
            features = [row for batch in batches for row in model.features(batch).tolist()]
        return plain_losses(features, labels[0] + labels[1], objective.proxies.tolist(), temperature=0.5)

    expected, num_remembered = losses(), 3 * views
    assert outputs.memory_loss.item() == pytest.approx(np.mean(expected[:num_remembered]))
    assert outputs.incoming_loss.item() == pytest.approx(np.mean(expected[num_remembered:]))
    assert_gradients_are_of(lambda: float(np.mean(losses())), [*model.parameters(), objective.proxies])


def test_images_without_augmentation_are_left_out_on_demand() -> None:
    one, other = make_parts(single_view=True), make_parts()
    ours = one[1].backward(one[0], make_joint(raw=make_batch(7).images), Generator())
    theirs = other[1].backward(other[0], make_joint(), Generator())
    for value, expected in zip(ours[:4], theirs[:4], strict=True):
        assert torch.equal(value, expected)


def test_a_view_that_is_a_copy_changes_nothing_but_a_constant() -> None:
    """So the plain form, without augmentation, may do without the second view."""
    raw = make_batch(7).images
    plain = make_joint()._replace(images=(raw / 255).double())
    (one, single), (other, double) = make_parts(), make_parts()
    ours = single.backward(one, plain, Generator())
    theirs = double.backward(other, plain._replace(raw=raw), Generator())
    torch.testing.assert_close(theirs.incoming_loss, ours.incoming_loss + math.log(2))
    for parameter, twin in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, twin.grad)
    torch.testing.assert_close(single.proxies.grad, double.proxies.grad)


def test_only_classes_of_the_batch_compete() -> None:
    model, objective = make_parts()
    objective.backward(model, make_joint(), Generator())
    assert objective.proxies.grad is not None
    moved = objective.proxies.grad.abs().sum(dim=1) > 0
    assert moved.tolist() == [True, False, True, False, True, True]


def test_first_batch_of_one_class_changes_nothing() -> None:
    model, objective = make_parts()
    outputs = objective.backward(model, make_joint([2, 2, 2], num_remembered=0), Generator())
    assert outputs.memory_loss.isnan()
    assert outputs.memory_accuracy.isnan()
    assert outputs.incoming_loss.item() == pytest.approx(math.log(3))
    for parameter in (*(p for p in model.parameters() if p.grad is not None), objective.proxies):
        torch.testing.assert_close(parameter.grad, torch.zeros_like(parameter), rtol=0, atol=1e-12)


def test_answers_come_from_the_proxies() -> None:
    learner = make_learner(method="pcr", plan=Plan(repeats=2, num_ops=1))
    model, objective = learner.model, learner.objective
    assert isinstance(model, ReducedResNet18)
    assert isinstance(objective, ProxyContrastive)
    head, proxies = model.head.weight.clone(), objective.proxies.clone()
    for number in range(4):
        learner.observe(*make_batch(4, seed=number))
    state = copy.deepcopy(learner.state_dict())
    asked = make_batch(9, seed=7).images
    scores = learner.scores(asked)
    assert_same_state(learner.state_dict(), state)
    assert learner.model.training

    with torch.no_grad():
        features = model.eval().features(asked / 255).numpy()
    learnt: Tensor = state["parts"]["objective"]["proxies"]
    directions = learnt.numpy() / np.linalg.norm(learnt.numpy(), axis=1, keepdims=True)
    expected = features / np.linalg.norm(features, axis=1, keepdims=True) @ directions.T / 0.09
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(model.head.weight, head)
    assert not torch.equal(learnt, proxies)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf")])
def test_wrong_temperature_is_refused(wrong: float) -> None:
    with pytest.raises(EncoreError, match="temperature must be a number above 0"):
        ProxyContrastive(temperature=wrong)
