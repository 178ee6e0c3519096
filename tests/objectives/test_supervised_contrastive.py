"""The supervised contrastive loss against its definition, and supervised contrastive replay as a whole."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from tests.helpers import NUM_CLASSES, make_batch, make_learner, make_stream
from torch import Generator, Tensor
from torch.nn import Linear

from encore import registry
from encore.config import usual
from encore.errors import EncoreError
from encore.interfaces import Joint, Plan, RetentionContext, RetrievalContext
from encore.learner import Learner
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.objectives.supervised_contrastive import SupervisedContrastive, contrastive_losses
from encore.pixels import as_floats


def make_embeddings(size: int, dimensions: int = 5) -> Tensor:
    vectors = torch.randn(size, dimensions, dtype=torch.float64, generator=Generator().manual_seed(1))
    return torch.nn.functional.normalize(vectors, dim=1)


def make_joint(num_remembered: int, num_incoming: int, num_classes: int = NUM_CLASSES) -> Joint:
    generator = Generator().manual_seed(1)
    size = num_remembered + num_incoming
    images = torch.rand(size, 3, 8, 8, generator=generator, dtype=torch.float64)
    return Joint(images, torch.randint(0, num_classes, (size,), generator=generator), num_remembered)


def make_parts(**options: Any) -> tuple[ReducedResNet18, SupervisedContrastive]:
    torch.manual_seed(0)
    model = ReducedResNet18((3, 8, 8), NUM_CLASSES, width=2).double()
    objective = SupervisedContrastive(**{"projection_size": 7, **options})
    objective.prepare(model)
    return model, objective.double()


def plain_losses(embeddings: Tensor, labels: list[int], temperature: float) -> list[Tensor]:
    """Return each anchor's loss, by the definition."""
    size, losses = len(labels), []
    for anchor in range(size):
        others = [other for other in range(size) if other != anchor]
        nearness = {other: (embeddings[anchor] * embeddings[other]).sum() / temperature for other in others}
        total = sum(torch.exp(value) for value in nearness.values())
        positives = [other for other in others if labels[other] == labels[anchor]]
        terms = [torch.log(torch.exp(nearness[positive]) / total) for positive in positives]
        losses.append(-sum(terms, torch.zeros(())) / len(positives))
    return losses


def plain_embeddings(
    model: ReducedResNet18, objective: SupervisedContrastive, joint: Joint, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features of both views, and the unit vectors of the first and then the second."""
    first = model.features(joint.images)
    second = model.features(objective.view(joint.images, generator))
    hidden, last = objective.projection[0], objective.projection[2]
    assert isinstance(hidden, Linear)
    assert isinstance(last, Linear)
    embeddings = []
    for features in (first, second):
        projected = (features @ hidden.weight.T + hidden.bias).clamp(min=0) @ last.weight.T + last.bias
        embeddings.append(projected / projected.norm(dim=1, keepdim=True))
    return first, second, torch.cat(embeddings)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 0, 1],  # each once, in two views
        [3, 3, 3, 3, 3, 3],  # one class
        [0, 5, 5, 2, 0, 5, 5, 2],
        [1, 0, 1, 1, 4, 4, 2, 1, 0, 1, 1, 4, 4, 2],
    ],
)
def test_loss_is_the_double_loop_s(labels: list[int], temperature: float) -> None:
    embeddings = make_embeddings(len(labels))
    losses = contrastive_losses(embeddings, torch.tensor(labels), temperature)
    torch.testing.assert_close(losses, torch.stack(plain_losses(embeddings, labels, temperature)))


def test_loss_by_hand() -> None:
    right, up = [1.0, 0.0], [0.0, 1.0]
    embeddings = torch.tensor([right, up, right, up], dtype=torch.float64)
    # An anchor has one positive at similarity 1 / T and two others at 0.
    losses = contrastive_losses(embeddings, torch.tensor([0, 1, 0, 1]), temperature=0.5)
    assert losses.tolist() == pytest.approx([math.log(math.exp(2) + 2) - 2] * 4)
    # Two positives, at 1 and 0, of three others; or none but itself in another view.
    losses = contrastive_losses(embeddings, torch.tensor([0, 0, 1, 0]), temperature=1.0)[[1, 3]]
    assert losses.tolist() == pytest.approx([math.log(math.e + 2) - 0.5] * 2)
    pair = contrastive_losses(embeddings[:2], torch.tensor([4, 4]), temperature=0.07)
    assert pair.tolist() == [0, 0]


def test_loss_has_the_gradient_of_finite_differences() -> None:
    vectors = torch.randn(8, 3, dtype=torch.float64, generator=Generator().manual_seed(2), requires_grad=True)
    labels = torch.tensor([0, 1, 1, 2, 0, 1, 1, 2])

    def loss(free: Tensor) -> Tensor:
        return contrastive_losses(torch.nn.functional.normalize(free, dim=1), labels, 0.2).mean()

    assert torch.autograd.gradcheck(loss, vectors)


def test_loss_does_not_depend_on_what_it_should_not() -> None:
    embeddings, labels = make_embeddings(8), torch.tensor([0, 1, 1, 2, 0, 1, 1, 2])
    losses = contrastive_losses(embeddings, labels, 0.07)
    turned, _ = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=Generator().manual_seed(3)))
    order = torch.tensor([5, 2, 7, 0, 4, 6, 1, 3])
    for other in (
        contrastive_losses(embeddings @ turned, labels, 0.07),  # the space's axes
        contrastive_losses(embeddings, 5 - labels, 0.07),  # the classes' names
        contrastive_losses(embeddings[order], labels[order], 0.07)[order.argsort()],  # the order
    ):
        torch.testing.assert_close(other, losses)


def test_loss_stays_finite_at_the_extremes() -> None:
    labels = torch.tensor([0, 1, 0, 1])
    same = torch.ones(4, 1).requires_grad_()
    losses = contrastive_losses(same, labels, 1e-4)
    assert losses.tolist() == pytest.approx([math.log(3)] * 4)
    opposite = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])  # positives apart, others together
    assert contrastive_losses(opposite, labels, 1e-3).tolist() == pytest.approx([2000.0] * 4)
    losses.sum().backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()


@pytest.mark.parametrize(("num_remembered", "num_incoming"), [(5, 3), (1, 1), (0, 4)])
def test_gradient_is_the_plain_loss_s(num_remembered: int, num_incoming: int) -> None:
    model, objective = make_parts()
    joint = make_joint(num_remembered, num_incoming)
    plain_model, plain = copy.deepcopy((model, objective))
    outputs = objective.backward(model, joint, Generator().manual_seed(4))

    *_, embeddings = plain_embeddings(plain_model, plain, joint, Generator().manual_seed(4))
    losses = plain_losses(embeddings, joint.labels.tolist() * 2, 0.07)
    (sum(losses, torch.zeros(())) / len(losses)).backward()
    for ours, theirs in zip(
        [*model.named_parameters(), *objective.named_parameters()],
        [*plain_model.named_parameters(), *plain.named_parameters()],
        strict=True,
    ):
        assert (ours[1].grad is None) == (theirs[1].grad is None) == ours[0].startswith("head.")
        if theirs[1].grad is not None:
            torch.testing.assert_close(ours[1].grad, theirs[1].grad)

    pairs = torch.stack(losses).detach().view(2, -1).mean(dim=0)
    torch.testing.assert_close(outputs.incoming_loss, pairs[num_remembered:].mean())
    torch.testing.assert_close(outputs.memory_loss, pairs[:num_remembered].mean(), equal_nan=True)
    for part, state in plain_model.state_dict().items():  # the two passes' statistics, one after the other
        torch.testing.assert_close(model.state_dict()[part], state)


def test_each_view_has_batch_statistics_of_its_own() -> None:
    model, objective = make_parts()
    joint = make_joint(3, 5)
    second = objective.view(joint.images, Generator().manual_seed(4))
    first_mean, second_mean = (model.stem(images).mean(dim=(0, 2, 3)) for images in (joint.images, second))
    objective.backward(model, joint, Generator().manual_seed(4))
    torch.testing.assert_close(model.stem_norm.running_mean, 0.9 * 0.1 * first_mean + 0.1 * second_mean)
    assert model.stem_norm.num_batches_tracked is not None
    assert model.stem_norm.num_batches_tracked.item() == 2


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(number**2 for number in vector))
    return [number / length for number in vector]


def plain_accuracies(first: Tensor, second: Tensor, labels: list[int], num_remembered: int) -> list[float]:
    """Return the shares of first views that lie nearest to their class's mean of second views."""
    examples = [unit(vector) for vector in second.tolist()]
    means = {}
    for label in set(labels):
        members = [vector for vector, its_label in zip(examples, labels, strict=True) if its_label == label]
        means[label] = unit([sum(numbers) for numbers in zip(*members, strict=True)])
    right = []
    for vector, label in zip(first.tolist(), labels, strict=True):
        distances = {key: math.dist(unit(vector), mean) for key, mean in means.items()}
        right.append(min(distances, key=distances.__getitem__) == label)
    parts = right[:num_remembered], right[num_remembered:]
    return [sum(part) / len(part) for part in parts]


def test_accuracies_are_those_of_a_nearest_class_mean() -> None:
    model, objective = make_parts()
    joint = make_joint(12, 8, num_classes=4)
    plain_model = copy.deepcopy(model)
    outputs = objective.backward(model, joint, Generator().manual_seed(4))
    first, second, _ = plain_embeddings(plain_model, objective, joint, Generator().manual_seed(4))
    expected = plain_accuracies(first, second, joint.labels.tolist(), num_remembered=12)
    assert [outputs.memory_accuracy.item(), outputs.incoming_accuracy.item()] == pytest.approx(expected)
    assert 0 < sum(expected) < 2


def test_empty_memory_has_no_accuracy_and_no_loss() -> None:
    model, objective = make_parts()
    joint = make_joint(0, 4)
    outputs = objective.backward(model, joint._replace(labels=torch.full((4,), 2)), Generator())
    assert outputs.memory_loss.isnan()
    assert outputs.memory_accuracy.isnan()
    assert outputs.incoming_accuracy.item() == 1  # there is but one class to choose
    assert outputs.incoming_loss.isfinite()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be a number above 0, got 0.0"),
        ({"projection_size": 0}, "projection_size must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError) as refusal:
        SupervisedContrastive(**options)
    assert str(refusal.value) == sentence


def num_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("side", "in_projection", "in_all"),
    [(32, 46_368, 1_155_608), (84, 492_288, 1_601_528), (128, 6_883_968, 7_993_208)],
)
def test_published_numbers_of_parameters(side: int, in_projection: int, in_all: int) -> None:
    model = ReducedResNet18((3, side, side), num_classes=100)
    objective = SupervisedContrastive()
    objective.prepare(model)
    assert num_parameters(objective) == in_projection
    # The published network's unused linear head has 160 inputs whatever the image; ours as many as there are.
    unused = 160 * 100 + 100
    assert num_parameters(model) - num_parameters(model.head) + unused + in_projection == in_all
    if side == 32:
        assert num_parameters(model) + num_parameters(objective) == in_all


def test_method_has_the_paper_s_parts_and_memory_batch() -> None:
    assert registry.recipe("scr").parts() == {
        "retrieval": "uniform",
        "retention": "reservoir",
        "objective": "supervised_contrastive",
        "classifier": "nearest_class_mean",
    }
    assert usual("scr", "memory_batch_size") == 100
    learner = Learner("scr", image_shape=(3, 8, 8), num_classes=NUM_CLASSES, parts={"model.width": 2})
    assert learner.config.memory_batch_size == 100
    assert learner.config.parts["objective"].options == {"temperature": 0.07, "projection_size": 128}


def make_scr(**changes: Any) -> Learner:
    return make_learner(method="scr", **{"plan": Plan(), **changes})


def test_plain_learner_is_supervised_contrastive_replay() -> None:
    learner, plain = make_scr(), make_scr()
    draws, objective = plain.draws, plain.objective
    assert isinstance(objective, SupervisedContrastive)
    for number in range(5):
        incoming = make_batch(4, seed=number)
        feedback = learner.observe(*incoming)

        size = min(4, plain.memory.num_filled)
        found = RetrievalContext(plain.memory, plain.model, incoming, size, draws.generator("retrieval"), 0.1)
        images, labels, _ = plain.memory.read(plain.retrieval(found))
        joint = Joint(
            as_floats(torch.cat([images, incoming.images])), torch.cat([labels, incoming.labels]), size
        )
        *_, embeddings = plain_embeddings(plain.model, objective, joint, draws.generator("objective"))
        losses = plain_losses(embeddings, joint.labels.tolist() * 2, 0.07)
        learnt = [*plain.model.parameters(), *objective.parameters()]
        gradients = torch.autograd.grad(sum(losses, torch.zeros(())) / len(losses), learnt, allow_unused=True)
        for parameter, gradient in zip(learnt, gradients, strict=True):
            if gradient is not None:
                parameter.data -= 0.1 * gradient
        kept = RetentionContext(plain.memory, plain.model, incoming, draws.generator("retention"))
        plain.memory.write(plain.retention(kept), incoming)
        expected = torch.stack(losses).detach().view(2, -1)[:, size:].mean()
        torch.testing.assert_close(feedback.values[3], expected, rtol=1e-4, atol=1e-4)
        for name in ("model", "objective"):
            ours, theirs = getattr(learner, name), getattr(plain, name)
            for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
            theirs.load_state_dict(ours.state_dict())  # as rounding grows from step to step


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_projection_learns_and_the_unused_head_stays(weight_decay: float) -> None:
    learner = make_scr(weight_decay=weight_decay)
    before = copy.deepcopy((learner.model.state_dict(), learner.objective.state_dict()))
    for batch in make_stream(3):
        learner.observe(*batch)
    for name, value in learner.model.named_parameters():
        assert torch.equal(value, before[0][name]) == name.startswith("head.")
    changed = [
        not torch.equal(value, before[1][name]) for name, value in learner.objective.state_dict().items()
    ]
    assert changed == [True] * 4


def test_projection_is_part_of_the_state_and_of_the_seed() -> None:
    learner = make_scr()
    names = {"projection.0.weight", "projection.0.bias", "projection.2.weight", "projection.2.bias"}
    assert set(learner.state_dict()["parts"]["objective"]) == names
    weights = [make_scr(seed=seed).objective.state_dict()["projection.0.weight"] for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_saved_learner_goes_on_with_the_same_bits(tmp_path: Any) -> None:
    whole = make_scr(plan=Plan(repeats=2, num_ops=1), memory_size=5)  # smaller than two batches
    stream = [make_batch(size, seed=number) for number, size in enumerate([1, 4, 7, 3, 4])]
    for batch in stream[:3]:
        whole.observe(*batch)
    whole.save(tmp_path / "scr.encore")
    resumed = Learner.load(tmp_path / "scr.encore", device="cpu")
    for batch in stream[3:]:
        assert torch.equal(whole.observe(*batch).values, resumed.observe(*batch).values)
    images = make_batch(6, seed=9).images
    assert torch.equal(whole.scores(images), resumed.scores(images))


def test_views_of_one_class_seen_once_and_of_one_image_are_learnt() -> None:
    learner = make_scr(image_shape=(3, 16, 16))
    images, labels = make_batch(1, seed=0, shape=(3, 16, 16))
    values = learner.observe(images, labels).read()
    assert values.incoming_loss == 0  # nothing to tell it from
    images, _ = make_batch(4, seed=1, shape=(3, 16, 16))
    learner.observe(images, torch.full((4,), (int(labels) + 1) % NUM_CLASSES))
    assert learner.is_finite
    assert set(learner.predict(images).tolist()) <= {int(labels), (int(labels) + 1) % NUM_CLASSES}


def test_repeats_lower_the_loss() -> None:
    once, often = (make_scr(plan=Plan(repeats=repeats)) for repeats in (1, 15))
    batch = make_batch(8, seed=3)
    assert often.observe(*batch).read().incoming_loss < 0.9 * once.observe(*batch).read().incoming_loss
