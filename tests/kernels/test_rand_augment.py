"""The kernels of RandAugment against the operations on tensors: the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs Triton, which comes with torch's builds for CUDA")

from encore.augment.rand_augment import Draws, RandAugment

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def on_device(draws: Draws) -> Draws:
    return Draws(draws.choices.to(DEVICE), draws.centres.to(DEVICE))


@pytest.mark.parametrize("shape", [(6, 3, 32, 32), (6, 1, 8, 8), (4, 3, 9, 14)])
@pytest.mark.parametrize(("num_ops", "magnitude"), [(1, 14), (3, 5)])
@pytest.mark.parametrize("space", ["paper", "authors"])
def test_kernels_give_the_same_bits(
    space: str, num_ops: int, magnitude: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(magnitude)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    images[0] = 77  # of one level, which has nothing to stretch
    images[1] = images[1] // 4 + 30
    rand_augment = RandAugment(space)
    draws = rand_augment.draw(shape[0], num_ops, generator)
    expected = rand_augment.apply(images, draws, magnitude)
    assert_kernels_give(expected, rand_augment, images, draws, magnitude, monkeypatch)


@pytest.mark.parametrize("space", ["paper", "authors"])
def test_kernels_do_every_operation(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rand_augment = RandAugment(space)
    num_choices = 2 * len(rand_augment.operations)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (num_choices, 3, 12, 10), dtype=torch.uint8, generator=generator)
    centres = rand_augment.draw(num_choices, 1, generator).centres
    draws = Draws(torch.arange(num_choices).unsqueeze(0), centres)
    expected = rand_augment.apply(images, draws, 11)
    assert_kernels_give(expected, rand_augment, images, draws, 11, monkeypatch)


def assert_kernels_give(
    expected: Tensor,
    rand_augment: RandAugment,
    images: Tensor,
    draws: Draws,
    magnitude: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from encore.kernels import rand_augment as kernels

    calls, augment = [], kernels.augment

    def noted(*given: Any) -> Tensor:
        calls.append("augment")
        return augment(*given)

    monkeypatch.setattr("encore.augment.rand_augment.own_kernels.in_use", lambda where, adds_up: True)
    monkeypatch.setattr(kernels, "augment", noted)
    ours = rand_augment.apply(images.to(DEVICE), on_device(draws), magnitude, fixed_shapes=True)
    assert len(calls) == len(draws.choices)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(ours.cpu(), expected)
