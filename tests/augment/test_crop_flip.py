"""Crops and mirror images against Pillow, and what is drawn for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from tests.augment.test_rand_augment import LIMITS, chi_square, noise, seeded
from tests.helpers import NoHostSynchronisation, make_batch, make_learner
from torch import Tensor

from encore.augment.crop_flip import PADDING, CropFlip, Crops
from encore.errors import EncoreError
from encore.interfaces import Plan


def with_pillow(image: Tensor, steps: list[tuple[int, int, int]]) -> Tensor:
    """Crop and mirror one image [C, H, W] by (down, right, mirrored), once for each step."""
    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    for down, right, mirrored in steps:
        left, top = PADDING + right, PADDING + down
        padded = ImageOps.expand(picture, border=PADDING, fill=0)
        picture = padded.crop((left, top, left + picture.width, top + picture.height))
        if mirrored:
            picture = ImageOps.mirror(picture)
    result = torch.from_numpy(np.array(picture))
    return result.permute(2, 0, 1) if result.dim() == 3 else result.unsqueeze(0)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 20, 33), (3, 3, 2), (1, 1, 1)])
def test_every_window_is_pillows(shape: tuple[int, ...]) -> None:
    windows = list(itertools.product(range(-PADDING, PADDING + 1), range(-PADDING, PADDING + 1), (0, 1)))
    image = noise(*shape)
    images = image.expand(len(windows), *shape)
    drawn = torch.tensor(windows)
    augmented = CropFlip().apply(images, Crops(drawn[None, :, :2], drawn[None, :, 2]))
    expected = torch.stack([with_pillow(image, [window]) for window in windows])
    assert torch.equal(augmented, expected / 255)


@pytest.mark.parametrize("num_ops", [1, 2, 4])
def test_chains_are_pillows_and_a_call_is_a_draw_and_its_application(num_ops: int) -> None:
    images = noise(40, 3, 32, 32)
    before = images.clone()
    augmented = CropFlip()(images, num_ops, 14, seeded(3))
    crops = CropFlip().draw(40, num_ops, seeded(3))
    steps = torch.cat([crops.shifts, crops.mirrored.unsqueeze(2)], dim=2).transpose(0, 1).tolist()
    expected = [with_pillow(image, drawn) for image, drawn in zip(images, steps, strict=True)]
    assert torch.equal(augmented, torch.stack(expected) / 255)
    assert augmented.dtype == torch.float32
    assert torch.equal(images, before)


def test_windows_and_mirroring_are_uniform_and_independent() -> None:
    crops = CropFlip().draw(20_000, 1, seeded(6))
    assert crops.shifts.unique().tolist() == list(range(-PADDING, PADDING + 1))
    down, right = (crops.shifts[0] + PADDING).unbind(1)
    mirrored = crops.mirrored[0]
    counts = torch.bincount(18 * down + 2 * right + mirrored, minlength=162)
    assert chi_square(counts) < 222.0  # exceeded with probability .001, for 162 classes
    for numbers in (down, right):
        assert chi_square(torch.bincount(numbers)) < LIMITS[14]
    assert abs(int(mirrored.sum()) - 10_000) < 3.3 * (20_000 / 4) ** 0.5


def test_magnitude_plays_no_part_and_no_operations_change_nothing() -> None:
    images = noise(20, 3, 32, 32)
    weak, strong = (CropFlip()(images, 2, magnitude, seeded(4)) for magnitude in (0, torch.tensor(30)))
    assert torch.equal(weak, strong)
    generator = seeded()
    state = generator.get_state()
    assert torch.equal(CropFlip()(images, 0, 14, generator), images.float() / 255)
    assert torch.equal(generator.get_state(), state)


def test_nothing_waits_for_a_value() -> None:
    with NoHostSynchronisation():
        CropFlip()(noise(20, 3, 32, 32), 3, torch.tensor(14), seeded())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_cuda_gives_the_same_without_waiting() -> None:
    images, crops = noise(50, 3, 32, 32), CropFlip().draw(50, 3, seeded(17))
    there, on_device = images.cuda(), Crops(crops.shifts.cuda(), crops.mirrored.cuda())
    torch.cuda.set_sync_debug_mode("error")
    try:
        augmented = CropFlip().apply(there, on_device)
        CropFlip()(there, 3, 14, torch.Generator("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal((augmented.cpu() * 255).round(), CropFlip().apply(images, crops) * 255)


@pytest.mark.parametrize("wrong", [torch.zeros(2, 3, 8, 8), noise(3, 8, 8)])
def test_mistakes_are_named_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(EncoreError, match=r"must be uint8 \[N, C, H, W\]"):
        CropFlip()(wrong, 1, 14, seeded())


def test_any_method_may_be_augmented_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(operation_space="crop_flip", plan=Plan(repeats=2, num_ops=1))
    shown: list[Tensor] = []
    backward = learner.objective.backward

    def spy(model: Any, joint: Any, generator: Any) -> Any:
        shown.append(joint.images.clone())
        return backward(model, joint, generator)

    monkeypatch.setattr(learner.objective, "backward", spy)
    images, labels = make_batch(4)
    learner.observe(images, labels)
    expected = CropFlip()(images, 1, 14, type(learner.draws)(0).generator("augmentation"))
    assert torch.equal(shown[0], expected)
    assert not torch.equal(shown[0], shown[1])
