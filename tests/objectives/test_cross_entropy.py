from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.helpers import NUM_CLASSES, SHAPE
from torch import Generator

from encore.interfaces import Joint
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.objectives.cross_entropy import CrossEntropy


def make_joint(num_remembered: int, num_incoming: int) -> Joint:
    generator = torch.Generator().manual_seed(1)
    size = num_remembered + num_incoming
    images = torch.rand(size, *SHAPE, generator=generator, dtype=torch.float64)
    return Joint(images, torch.randint(0, NUM_CLASSES, (size,), generator=generator), num_remembered)


def make_model() -> ReducedResNet18:
    torch.manual_seed(0)
    return ReducedResNet18(SHAPE, NUM_CLASSES, width=2).double()


def negative_log_probability(logits: list[float], label: int) -> float:
    return math.log(sum(math.exp(logit) for logit in logits)) - logits[label]


@pytest.mark.parametrize(("memory_weight", "incoming_weight"), [(1.0, 1.0), (0.3, 0.7)])
def test_gradient_is_of_the_weighted_sum_of_two_means(memory_weight: float, incoming_weight: float) -> None:
    model, joint = make_model(), make_joint(num_remembered=3, num_incoming=5)
    plain = copy.deepcopy(model)
    outputs = CrossEntropy(memory_weight, incoming_weight).backward(model, joint, Generator())

    logits = plain(joint.images)
    log_probabilities = logits - logits.exp().sum(dim=1, keepdim=True).log()
    losses = -log_probabilities[torch.arange(8), joint.labels]
    weights = torch.tensor([memory_weight / 3] * 3 + [incoming_weight / 5] * 5)
    (losses * weights).sum().backward()

    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)
    by_hand = [
        negative_log_probability(row, label)
        for row, label in zip(logits.tolist(), joint.labels.tolist(), strict=True)
    ]
    assert outputs.memory_loss.item() == pytest.approx(sum(by_hand[:3]) / 3)
    assert outputs.incoming_loss.item() == pytest.approx(sum(by_hand[3:]) / 5)
    right = [max(range(6), key=row.__getitem__) for row in logits.tolist()]
    hits = [guess == label for guess, label in zip(right, joint.labels.tolist(), strict=True)]
    assert outputs.memory_accuracy.item() == pytest.approx(sum(hits[:3]) / 3)
    assert outputs.incoming_accuracy.item() == pytest.approx(sum(hits[3:]) / 5)


def test_remembered_and_incoming_share_batch_normalisation() -> None:
    model, joint = make_model(), make_joint(num_remembered=3, num_incoming=5)
    CrossEntropy().backward(model, joint, Generator())
    expected = 0.1 * make_model().stem(joint.images).mean(dim=(0, 2, 3))  # momentum 0.1, from 0
    torch.testing.assert_close(model.stem_norm.running_mean, expected)
    assert model.stem_norm.num_batches_tracked is not None
    assert model.stem_norm.num_batches_tracked.item() == 1


def test_empty_memory_leaves_the_incoming_term() -> None:
    model, joint = make_model(), make_joint(num_remembered=0, num_incoming=5)
    outputs = CrossEntropy(memory_weight=9.0).backward(model, joint, Generator())
    assert outputs.memory_loss.isnan()
    assert outputs.memory_accuracy.isnan()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
