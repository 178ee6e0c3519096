"""The reduced ResNet-18 against a forward pass written out from its state, and known sizes."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from encore.errors import EncoreError
from encore.models.reduced_resnet18 import ReducedResNet18


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def seeded(image_shape: tuple[int, int, int], num_classes: int = 5, width: int = 4) -> ReducedResNet18:
    """Return a small network whose normalisations, too, are away from their initial values."""
    torch.manual_seed(0)
    model = ReducedResNet18(image_shape, num_classes, width).double()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                assert module.running_var is not None
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
                module.running_mean.uniform_(-0.5, 0.5)
                module.running_var.uniform_(0.5, 1.5)
    return model


def written_out(state: dict[str, Tensor], images: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """Return features and logits; in training, the running statistics in `state` move as well."""

    def conv(name: str, maps: Tensor, stride: int, padding: int) -> Tensor:
        return F.conv2d(maps, state[f"{name}.weight"], stride=stride, padding=padding)

    def norm(name: str, maps: Tensor) -> Tensor:
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        if training:
            count = maps.numel() // maps.shape[1]
            batch_mean, batch_variance = maps.mean((0, 2, 3)), maps.var((0, 2, 3), correction=0)
            mean.mul_(0.9).add_(0.1 * batch_mean)
            variance.mul_(0.9).add_(0.1 * batch_variance * count / (count - 1))
            mean, variance = batch_mean, batch_variance
        column = (-1, 1, 1)
        normal = (maps - mean.view(column)) / (variance.view(column) + 1e-5).sqrt()
        return normal * state[f"{name}.weight"].view(column) + state[f"{name}.bias"].view(column)

    maps = norm("stem_norm", conv("stem", images, 1, 1)).relu()
    for stage in range(4):
        for block in range(2):
            name = f"stages.{stage}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = maps
            if stride == 2:
                shortcut = norm(f"{name}.shortcut.1", conv(f"{name}.shortcut.0", maps, 2, 0))
            maps = norm(f"{name}.norm1", conv(f"{name}.conv1", maps, stride, 1)).relu()
            maps = (norm(f"{name}.norm2", conv(f"{name}.conv2", maps, 1, 1)) + shortcut).relu()
    height, width = (min(4, side) for side in maps.shape[2:])
    windows = maps.unfold(2, height, height).unfold(3, width, width)
    features = windows.mean((-2, -1)).flatten(1)
    return features, features @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize(
    ("side", "num_classes", "num_features", "total"),
    [
        (32, 100, 160, 1_109_240),
        (84, 100, 640, 1_157_240),
        (128, 50, 2560, 1_221_190),
        (128, 25, 2560, 1_157_165),
    ],
)
def test_sizes_are_the_published_ones(side: int, num_classes: int, num_features: int, total: int) -> None:
    model = ReducedResNet18((3, side, side), num_classes)
    assert model.num_features == num_features
    assert num_parameters(model) == total
    assert num_parameters(model) - num_parameters(model.head) == 1_093_140


def test_width_64_is_the_full_resnet18() -> None:
    model = ReducedResNet18((3, 32, 32), 10, width=64)
    assert model.num_features == 512
    # The well-known 11,173,962 of the ResNet-18 for CIFAR-10, whose stem is the same.
    assert num_parameters(model) == 11_173_962


@pytest.mark.parametrize(
    "image_shape", [(3, 32, 32), (3, 84, 84), (1, 8, 8), (1, 16, 16), (1, 28, 28), (2, 9, 40), (3, 72, 17)]
)
@pytest.mark.parametrize("training", [True, False])
def test_agrees_with_the_forward_written_out(image_shape: tuple[int, int, int], training: bool) -> None:
    model = seeded(image_shape).train(training)
    images = torch.rand(3, *image_shape, dtype=torch.float64)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    features, logits = written_out(state, images, training)
    assert features.shape == (3, model.num_features)

    torch.testing.assert_close(model(images), logits)
    after = model.state_dict()
    statistics = [name for name in state if "running" in name]
    assert len(statistics) == 40
    for name in statistics:
        torch.testing.assert_close(after[name], state[name])
    torch.testing.assert_close(model.features(images), features)


def test_gradients_agree_with_the_forward_written_out() -> None:
    """In-place operations must not spoil what the backward pass reads."""
    model = seeded((3, 16, 24)).train()
    images = torch.rand(4, 3, 16, 24, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3])
    state = {name: value.clone() for name, value in model.state_dict().items()}
    names = [name for name, _ in model.named_parameters()]
    for name in names:
        state[name].requires_grad_()
    logits = written_out(state, images, training=True)[1]
    expected = torch.autograd.grad(F.cross_entropy(logits, labels), [state[name] for name in names])
    gradients = torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
    torch.testing.assert_close(gradients, expected)


def test_statistics_move_in_training_only() -> None:
    model = ReducedResNet18((3, 32, 32), 10, width=4)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 20
    assert all((norm.momentum, norm.eps, norm.affine) == (0.1, 1e-5, True) for norm in norms)

    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()(torch.rand(4, 3, 32, 32))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.train()(torch.rand(4, 3, 32, 32))
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "running" in name or "num_batches" in name}


def test_initial_values_are_those_of_pytorch() -> None:
    """Uniform with a bound of one over the square root of the inputs, and normalisations that do nothing."""
    torch.manual_seed(3)
    model = ReducedResNet18((3, 84, 84), 100)
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(module.weight[0].numel())
            assert 0.97 * bound < module.weight.abs().max().item() <= bound, name
            # Of n uniform draws, the deviation is known to a relative error of about sqrt(0.2 / n).
            tolerance = 5 * math.sqrt(0.2 / module.weight.numel())
            assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=tolerance), name
        elif isinstance(module, nn.BatchNorm2d):
            assert module.weight.eq(1).all(), name
            assert module.bias.eq(0).all(), name
    assert model.head.bias.abs().max() <= 1 / math.sqrt(640)


def test_only_the_head_has_a_bias_and_it_answers_for_all_classes() -> None:
    model = ReducedResNet18((1, 28, 28), 7, width=4)
    assert model.head.bias.shape == (7,)
    assert all(module.bias is None for module in model.modules() if isinstance(module, nn.Conv2d))
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 7)


@pytest.mark.parametrize(
    ("image_shape", "smallest_batch", "num_features"),
    [
        ((1, 1, 1), 2, 32),
        ((1, 8, 8), 2, 32),
        ((1, 8, 9), 1, 32),
        ((1, 9, 8), 1, 32),
        ((1, 16, 16), 1, 32),
        ((1, 28, 28), 1, 32),
        ((1, 32, 64), 1, 64),
    ],
)
def test_smallest_batch_is_the_smallest_that_trains(
    image_shape: tuple[int, int, int], smallest_batch: int, num_features: int
) -> None:
    model = ReducedResNet18(image_shape, 3, width=4).train()
    assert model.num_features == num_features
    assert model.smallest_batch == smallest_batch
    model(torch.rand(smallest_batch, *image_shape)).sum().backward()
    if smallest_batch > 1:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            model(torch.rand(smallest_batch - 1, *image_shape))
    assert model.eval()(torch.rand(1, *image_shape)).shape == (1, 3)


def test_is_one_graph() -> None:
    """No step depends on the values of a tensor, so the whole network can be captured."""
    model = ReducedResNet18((3, 32, 32), 10, width=4).eval()
    images = torch.rand(2, 3, 32, 32)
    program = torch.export.export(model, (images,))
    torch.testing.assert_close(program.module()(images), model(images))


@pytest.mark.parametrize(
    ("image_shape", "num_classes", "width", "sentence"),
    [
        ((0, 32, 32), 10, 20, r"image_shape must be .* each at least 1, got \(0, 32, 32\)"),
        ((3, 0, 32), 10, 20, r"image_shape must be .* each at least 1, got \(3, 0, 32\)"),
        ((3, 32, -1), 10, 20, r"image_shape must be .* each at least 1, got \(3, 32, -1\)"),
        ((3, 32, 32), 0, 20, "num_classes must be at least 1, got 0"),
        ((3, 32, 32), 10, 0, "width must be at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused(
    image_shape: tuple[int, int, int], num_classes: int, width: int, sentence: str
) -> None:
    with pytest.raises(EncoreError, match=sentence):
        ReducedResNet18(image_shape, num_classes, width)
