from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.helpers import NUM_CLASSES, make_batch, make_learner, make_stream
from tests.objectives.test_cross_entropy import make_joint, make_model
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Plan
from encore.objectives.dark_experience import DarkExperience


@pytest.mark.parametrize("label_weight", [0.0, 0.5])
def test_gradient_is_of_the_sum_of_its_terms(label_weight: float) -> None:
    model, joint = make_model(), make_joint(num_remembered=3, num_incoming=5)
    stored = torch.randn(3, NUM_CLASSES, generator=Generator().manual_seed(2))
    plain = copy.deepcopy(model)
    objective = DarkExperience(logit_weight=0.3, label_weight=label_weight)
    outputs = objective.backward(model, joint._replace(stored={"logits": stored}), Generator())

    incoming, remembered = plain(joint.images[3:]), plain(joint.images[:3])
    squares = [
        (remembered[row, label] - stored[row, label]) ** 2 for row in range(3) for label in range(NUM_CLASSES)
    ]
    loss: Tensor = F.cross_entropy(incoming, joint.labels[3:]) + 0.3 * sum(squares) / (3 * NUM_CLASSES)
    loss = loss + label_weight * F.cross_entropy(remembered, joint.labels[:3])
    loss.backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert outputs.memory_loss.item() == pytest.approx(F.cross_entropy(remembered, joint.labels[:3]).item())
    torch.testing.assert_close(outputs.stored["logits"], incoming.detach().float())


def test_empty_memory_leaves_the_incoming_term() -> None:
    model, joint = make_model(), make_joint(num_remembered=0, num_incoming=5)
    plain = copy.deepcopy(model)
    outputs = DarkExperience(label_weight=9.0).backward(model, joint, Generator())
    F.cross_entropy(plain(joint.images), joint.labels).backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert outputs.memory_loss.isnan()


def test_logits_are_those_of_the_last_iteration_as_augmented_and_before_its_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = make_learner(method="der", plan=Plan(repeats=3, num_ops=2), memory_size=50)
    for batch in make_stream(4):
        learner.observe(*batch)
    expected: list[Tensor] = []
    backward = learner.objective.backward

    def spy(model: Any, joint: Any, generator: Any) -> Any:
        expected.append(copy.deepcopy(model)(joint.images[joint.num_remembered :]).detach())
        return backward(model, joint, generator)

    monkeypatch.setattr(learner.objective, "backward", spy)
    images, labels = make_batch(4, seed=70)
    learner.observe(images, labels)
    kept = learner.memory.read(torch.arange(16, 20))
    assert torch.equal(kept.images, images)
    torch.testing.assert_close(kept.stored["logits"], expected[-1])
    assert len(expected) == 3
    assert not torch.allclose(expected[-1], expected[0])


def test_logits_follow_their_example_into_its_slot_and_out_again() -> None:
    learner = make_learner(method="der", plan=Plan(), memory_size=5, memory_batch_size=5)
    for number, batch in enumerate(make_stream(12)):
        # From here on the logits of each example say which one it is.
        images = batch.images.clone()
        images[:, 0, 0, 0] = torch.arange(4) + 4 * number
        learner.observe(images, batch.labels)
        slots = torch.arange(learner.memory.num_filled)
        stored = learner.memory.read(slots).stored["logits"]
        for slot in slots.tolist():
            marked = int(learner.memory.images[slot, 0, 0, 0])
            if marked >= 4 * number:
                learner.memory.get_buffer("stored_logits")[slot] = float(marked)
            else:
                assert (stored[slot] == float(marked)).all()


@pytest.mark.parametrize("option", ["logit_weight", "label_weight"])
def test_wrong_weight_is_refused(option: str) -> None:
    with pytest.raises(EncoreError, match=f"{option} must be a number of at least 0, got -1"):
        DarkExperience(**{option: -1})
