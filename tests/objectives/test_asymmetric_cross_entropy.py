from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.helpers import NUM_CLASSES, SHAPE, NoHostSynchronisation, make_batch, make_learner
from tests.objectives.plain import Scaled, as_images, assert_gradients_are_of
from torch import Generator, Tensor

from encore.interfaces import Batch, Joint, Model, Outputs
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.objectives.asymmetric_cross_entropy import AsymmetricCrossEntropy
from encore.objectives.cross_entropy import CrossEntropy


def make_model() -> ReducedResNet18:
    torch.manual_seed(0)
    return ReducedResNet18(SHAPE, NUM_CLASSES, width=2).double()


def make_joint(labels: list[int], num_remembered: int) -> Joint:
    generator = Generator().manual_seed(1)
    images = torch.rand(len(labels), *SHAPE, generator=generator, dtype=torch.float64)
    return Joint(images, torch.tensor(labels), num_remembered)


def run(objective: AsymmetricCrossEntropy, model: Model, joint: Joint) -> Outputs:
    return objective.backward(model, joint, Generator())


def forward(model: Model, joint: Joint, together: bool) -> list[list[float]]:
    if together:
        return model(joint.images).tolist()  # type: ignore[no-any-return]
    remembered, incoming = joint.images[: joint.num_remembered], joint.images[joint.num_remembered :]
    return model(remembered).tolist() + model(incoming).tolist()  # type: ignore[no-any-return]


def plain_loss(logits: list[float], label: int, competing: set[int]) -> float:
    return math.log(sum(math.exp(logits[other]) for other in competing)) - logits[label]


def test_by_hand() -> None:
    """With logits log 1, log 2, log 3, probabilities are shares of what competes."""
    model, row = Scaled(num_classes=3), [math.log(1), math.log(2), math.log(3)]
    objective = AsymmetricCrossEntropy()
    objective.prepare(model)
    outputs = run(objective, model, Joint(as_images([row] * 3), torch.tensor([1, 0, 0]), 1))
    assert outputs.memory_loss.item() == pytest.approx(math.log(3 / 2))  # class 2 has not come yet
    assert outputs.incoming_loss.item() == pytest.approx(0)  # class 0 has nobody to compete with
    outputs = run(objective, model, Joint(as_images([row] * 3), torch.tensor([1, 2, 0]), 1))
    assert outputs.memory_loss.item() == pytest.approx(math.log(6 / 2))
    assert outputs.incoming_loss.item() == pytest.approx((math.log(4 / 3) + math.log(4 / 1)) / 2)
    assert (outputs.memory_accuracy.item(), outputs.incoming_accuracy.item()) == (0.0, 0.5)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("unseen", [False, True])
def test_loss_and_gradient_are_the_formula_s(unseen: bool, together: bool) -> None:
    model = make_model()
    objective = AsymmetricCrossEntropy(0.3, 0.7, unseen=unseen, together=together)
    objective.prepare(model)
    run(objective, copy.deepcopy(model), make_joint([4, 0, 0], num_remembered=0))  # 0 and 4 have come before
    joint = make_joint([0, 4, 0, 2, 5, 5, 2], num_remembered=3)
    with NoHostSynchronisation():
        outputs = run(objective, model, joint)

    never = {1, 3} if unseen else set()
    competing = [{0, 2, 4, 5} | never] * 3 + [{2, 5} | never] * 4

    def loss() -> float:
        rows = zip(forward(model, joint, together), joint.labels.tolist(), competing, strict=True)
        losses = [plain_loss(*row) for row in rows]
        assert len(losses) == 7
        expected.update(memory=sum(losses[:3]) / 3, incoming=sum(losses[3:]) / 4)
        return 0.3 * expected["memory"] + 0.7 * expected["incoming"]

    expected: dict[str, float] = {}
    loss()
    assert outputs.memory_loss.item() == pytest.approx(expected["memory"])
    assert outputs.incoming_loss.item() == pytest.approx(expected["incoming"])
    assert_gradients_are_of(loss, model.parameters())


def test_incoming_examples_leave_the_logits_of_other_classes_alone() -> None:
    model, objective = make_model(), AsymmetricCrossEntropy(memory_weight=0.0)
    objective.prepare(model)
    run(objective, model, make_joint([0, 1, 4, 4, 2], num_remembered=3))
    gradient = model.head.bias.grad
    assert gradient is not None
    assert (gradient != 0).tolist() == [False, False, True, False, True, False]


def test_plain_form_is_cross_entropy_when_every_class_is_in_the_batch() -> None:
    joint = make_joint([3, 3, 1, 0, 1, 2, 3, 4, 5], num_remembered=3)
    model = make_model()
    twin = copy.deepcopy(model)
    objective = AsymmetricCrossEntropy(together=True)
    objective.prepare(model)
    outputs = run(objective, model, joint)
    expected = CrossEntropy().backward(twin, joint, Generator())
    for ours, theirs in zip(outputs[:4], expected[:4], strict=True):
        assert torch.equal(ours, theirs)
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        assert torch.equal(parameter.grad, other.grad)


@pytest.mark.parametrize(
    ("num_remembered", "num_incoming", "together", "passes"),
    [(3, 2, False, 2), (3, 2, True, 1), (0, 5, False, 1), (4, 1, False, 1), (1, 4, False, 1)],
)
def test_remembered_and_incoming_are_normalised_apart_if_there_are_enough(
    num_remembered: int, num_incoming: int, together: bool, passes: int
) -> None:
    model, objective = make_model(), AsymmetricCrossEntropy(together=together)
    objective.prepare(model)
    assert model.smallest_batch == 2
    joint = make_joint([0] * (num_remembered + num_incoming), num_remembered)
    run(objective, model, joint)
    assert model.stem_norm.num_batches_tracked is not None
    assert model.stem_norm.num_batches_tracked.item() == passes


def test_first_batch_of_one_class_changes_nothing() -> None:
    model, objective = make_model(), AsymmetricCrossEntropy()
    objective.prepare(model)
    outputs = run(objective, model, make_joint([2, 2, 2], num_remembered=0))
    assert outputs.memory_loss.isnan()
    assert outputs.memory_accuracy.isnan()
    assert outputs.incoming_loss.item() == 0
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_classes_are_remembered_as_seen_also_when_they_were_not_trained_on() -> None:
    """The first image of 8x8, alone, is remembered only; its class must compete when it is rehearsed."""
    learner = make_learner(method="er_ace")
    learner.observe(make_batch(1).images, torch.tensor([5]))
    objective = learner.objective
    assert isinstance(objective, AsymmetricCrossEntropy)
    assert not objective.seen.any()
    for number, labels in enumerate([[1, 1], [3, 1]]):
        feedback = learner.observe(*Batch(make_batch(2, seed=number).images, torch.tensor(labels)))
        assert feedback.values.isfinite().all()
    assert set(objective.seen.nonzero().flatten().tolist()) == {1, 3, 5}
    seen: Tensor = learner.state_dict()["parts"]["objective"]["seen"]
    assert torch.equal(seen, objective.seen)
