"""ResNet-18 against a forward pass written out from its state, and known sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from encore.errors import EncoreError
from encore.models.resnet18 import ResNet18


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def seeded(image_shape: tuple[int, int, int]) -> ResNet18:
    """Return a small network whose normalisations, too, are away from their initial values."""
    torch.manual_seed(0)
    model = ResNet18(image_shape, 5, width=4).double()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if ("norm" in name or "shortcut.1" in name) and value.is_floating_point():
                value.uniform_(0.5, 1.5)
    return model


def written_out(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """Return the logits that the state gives without training."""

    def norm(name: str, maps: Tensor) -> Tensor:
        weight, bias, mean, variance = (
            state[f"{name}.{part}"].view(-1, 1, 1)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (maps - mean) / (variance + 1e-5).sqrt() * weight + bias

    maps = norm("stem_norm", F.conv2d(images, state["stem.weight"], stride=2, padding=3)).relu()
    # The largest of each 3x3 window, every second one: what is outside counts as less than anything.
    windows = F.pad(maps, (1, 1, 1, 1), value=-torch.inf).unfold(2, 3, 2).unfold(3, 3, 2)
    maps = windows.amax((-2, -1))
    for stage in range(4):
        for block in range(2):
            name = f"stages.{stage}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = maps
            if stride == 2:
                narrow = F.conv2d(maps, state[f"{name}.shortcut.0.weight"], stride=2)
                shortcut = norm(f"{name}.shortcut.1", narrow)
            out = F.conv2d(maps, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = norm(f"{name}.norm1", out).relu()
            out = norm(f"{name}.norm2", F.conv2d(out, state[f"{name}.conv2.weight"], padding=1))
            maps = (out + shortcut).relu()
    return maps.mean((-2, -1)) @ state["head.weight"].T + state["head.bias"]


def test_sizes_are_the_well_known_ones() -> None:
    model = ResNet18((3, 224, 224), 1000)
    assert num_parameters(model) == 11_689_512
    assert num_parameters(model.head) == 512 * 1000 + 1000
    assert model.num_features == 512
    # Those of the convolutions, by hand: the stem, and in each stage two or three of 3x3 and 1x1.
    stages = [4 * 9 * 64**2] + [9 * w * (w // 2) + 3 * 9 * w**2 + w * (w // 2) for w in (128, 256, 512)]
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert sum(num_parameters(module) for module in convolutions) == 49 * 3 * 64 + sum(stages)
    assert all(module.bias is None for module in convolutions)


@pytest.mark.parametrize("image_shape", [(3, 224, 224), (3, 16, 20), (1, 33, 70), (3, 1, 1)])
def test_agrees_with_the_forward_written_out(image_shape: tuple[int, int, int]) -> None:
    model = seeded(image_shape).eval()
    images = torch.rand(2, *image_shape, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(images), written_out(model.state_dict(), images))


@pytest.mark.parametrize(
    ("image_shape", "smallest_batch"),
    [((1, 1, 1), 2), ((3, 32, 32), 2), ((3, 33, 32), 1), ((3, 32, 33), 1), ((3, 64, 64), 1)],
)
def test_smallest_batch_is_the_smallest_that_trains(
    image_shape: tuple[int, int, int], smallest_batch: int
) -> None:
    model = ResNet18(image_shape, 3, width=2).train()
    assert model.smallest_batch == smallest_batch
    model(torch.rand(smallest_batch, *image_shape)).sum().backward()
    if smallest_batch > 1:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            model(torch.rand(smallest_batch - 1, *image_shape))


@pytest.mark.parametrize(
    ("image_shape", "num_classes", "width", "sentence"),
    [
        ((3, 0, 32), 10, 64, "image_shape must be"),
        ((3, 32, 32), 0, 64, "num_classes must be at least 1, got 0"),
        ((3, 32, 32), 10, 0, "width must be at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused(
    image_shape: tuple[int, int, int], num_classes: int, width: int, sentence: str
) -> None:
    with pytest.raises(EncoreError, match=sentence):
        ResNet18(image_shape, num_classes, width)
