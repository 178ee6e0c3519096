"""The kernels of residual networks against the modules they stand for, in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.helpers import assert_same_state
from torch import Tensor, nn

pytest.importorskip("triton", reason="needs Triton, which comes with torch's builds for CUDA")

from encore.kernels import residual
from encore.models._residual import BasicBlock
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.normalisation import batch_statistics
from encore.own_kernels import in_use, use_own_kernels

# The interpreter looks at parameters as at numbers.
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take products in single precision, not in TF32, whose fraction has ten bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def unsettle(module: nn.Module) -> nn.Module:
    """Give normalisations other numbers than the usual ones and zeros."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias)
            nn.init.normal_(part.get_buffer("running_mean"))
    return module.to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def assert_near(ours: Tensor | None, theirs: Tensor | None, name: str, tolerance: float = TOLERANCE) -> None:
    assert ours is not None
    assert theirs is not None
    error = (ours.double() - theirs.double()).norm() / theirs.double().norm().clamp(min=1e-6)
    assert float(error) < tolerance, (name, float(error))


def compare(module: nn.Module, with_kernels: Callable[[Tensor], Tensor], images: Tensor) -> None:
    """Compare what comes out, every gradient, and the running statistics."""
    plain = copy.deepcopy(module).double()
    own = images.to(DEVICE, memory_format=torch.channels_last).requires_grad_()
    theirs = own.detach().double().requires_grad_()
    out, expected = with_kernels(own), plain(theirs)
    assert_near(out, expected, "out")
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    out.backward(weights)
    expected.backward(weights.double())
    assert_near(own.grad, theirs.grad, "images")
    for (name, parameter), same in zip(module.named_parameters(), plain.parameters(), strict=True):
        assert_near(parameter.grad, same.grad, name)
        assert parameter.grad is not None
        assert parameter.grad.stride() == parameter.stride(), "else the optimiser takes a slow path"
    for (name, buffer), other in zip(module.named_buffers(), plain.buffers(), strict=True):
        assert_near(buffer, other, name)


@pytest.mark.parametrize(
    ("num_in", "num_out", "stride", "shape"),
    [
        (5, 5, 1, (3, 6, 6)),
        (6, 12, 2, (3, 6, 6)),
        (3, 4, 2, (2, 5, 7)),  # sides that do not halve
        (34, 68, 2, (2, 3, 3)),  # more channels than a program computes, or reads at a time
        (4, 4, 1, (9, 4, 4)),  # rows that do not fill the last program
    ],
)
def test_block_is_the_module_s(num_in: int, num_out: int, stride: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    block = unsettle(BasicBlock(num_in, num_out, stride)).train()
    images = torch.randn(shape[0], num_in, *shape[1:])
    compare(block, lambda maps: residual.basic_block(maps, block._layers()), images)  # type: ignore[operator]


@pytest.mark.parametrize("num_channels", [1, 3])
def test_stem_is_the_modules(num_channels: int) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(num_channels, 20, kernel_size=3, padding=1, bias=False)
    norm = nn.BatchNorm2d(20)
    stem = unsettle(nn.Sequential(convolution, norm, nn.ReLU()))
    compare(stem, lambda maps: residual.stem(maps, convolution, norm), torch.rand(2, num_channels, 7, 5))


def test_whole_network_takes_the_step_of_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = unsettle(ReducedResNet18((3, 8, 8), num_classes=5, width=2)).train()
    plain, images = copy.deepcopy(network).double(), torch.rand(3, 3, 8, 8, device=DEVICE)
    plain(images.double()).square().sum().backward()
    calls = spy_on(monkeypatch, "stem", "basic_block")
    monkeypatch.setattr("encore.models._residual.own_kernels.in_use", lambda where, adds_up: True)
    network(images).square().sum().backward()
    assert calls == ["stem", *["basic_block"] * 8]
    for (name, parameter), other in zip(network.named_parameters(), plain.parameters(), strict=True):
        assert_near(parameter.grad, other.grad, name, tolerance=100 * TOLERANCE)


def test_running_statistics_stay_where_they_are_not_tracked() -> None:
    torch.manual_seed(0)
    block = unsettle(BasicBlock(2, 4, stride=2)).train()
    images = torch.randn(3, 2, 4, 4)
    expected, before = block(images.to(DEVICE)), copy.deepcopy(block.state_dict())
    block.load_state_dict(before)
    with batch_statistics(block):  # type: ignore[arg-type]
        out = residual.basic_block(images.to(DEVICE), block._layers())  # type: ignore[operator]
    assert_near(out, expected, "out")
    assert_same_state(block.state_dict(), before)


def spy_on(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Note which of these functions are called."""
    calls: list[str] = []
    for name in names:
        function = getattr(residual, name)

        def noted(*given: Any, name: str = name, function: Callable[..., Any] = function) -> Any:
            calls.append(name)
            return function(*given)

        monkeypatch.setattr(residual, name, noted)
    return calls


def test_they_are_used_where_they_are_wanted_and_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        is_cuda = True

    where: Tensor = OnGpu()  # type: ignore[assignment]
    assert not in_use(where, adds_up=False), "not unless an engine wants them"
    with use_own_kernels():
        assert in_use(where, adds_up=True)
        assert not in_use(torch.zeros(1), adds_up=False), "not on a CPU"
        with use_own_kernels(False):
            assert not in_use(where, adds_up=False)
        torch.use_deterministic_algorithms(True)
        try:
            assert in_use(where, adds_up=False)
            assert not in_use(where, adds_up=True), "sums of no fixed order"
        finally:
            torch.use_deterministic_algorithms(False)
        monkeypatch.setattr("encore.own_kernels.has_triton", lambda: False)
        assert not in_use(where, adds_up=False)
