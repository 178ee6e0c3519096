"""The loop that Encore is compared with does the same work: its operations, its gradient, its reservoir."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from tests.helpers import make_batch

from encore.bare import OPERATIONS, BareLoop, augment_image
from encore.models.reduced_resnet18 import ReducedResNet18

SHAPE = (3, 16, 16)


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_operation_changes_a_picture_and_keeps_its_size(number: int) -> None:
    pixels = np.random.default_rng(0).integers(40, 200, (16, 16, 3), dtype=np.uint8)
    pixels[:8] //= 2
    changed = OPERATIONS[number](Image.fromarray(pixels), 14 / 30)
    assert changed.size == (16, 16)
    assert changed.mode == "RGB"
    assert (np.array(changed) == pixels).all() == (number == 0)  # the first is the identity


@pytest.mark.parametrize("channels", [1, 3])
def test_image_without_operations_is_only_scaled(channels: int) -> None:
    image = make_batch(1, shape=(channels, 16, 16)).images[0]
    assert torch.equal(augment_image(image, 0, 14), image / 255)
    random.seed(0)
    assert augment_image(image, 2, 14).shape == image.shape


def test_step_is_sgd_on_the_sum_of_two_means() -> None:
    torch.manual_seed(0)
    model, twin = (ReducedResNet18(SHAPE, 6, width=2) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    loop = BareLoop(model, memory_size=4, memory_batch_size=4, learning_rate=0.01)
    first, second = (make_batch(4, seed=seed, shape=SHAPE) for seed in (1, 2))
    loop.images, loop.labels = list(first.images), first.labels.tolist()
    random.seed(0)
    loop.step(*second, num_ops=0, magnitude=14)
    random.seed(0)
    chosen = random.sample(range(4), 4)
    logits = twin(torch.cat([first.images[chosen], second.images]) / 255)
    loss = F.cross_entropy(logits[:4], first.labels[chosen]) + F.cross_entropy(logits[4:], second.labels)
    loss.backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours, theirs - 0.01 * theirs.grad)


def test_reservoir_keeps_each_image_with_the_same_chance() -> None:
    random.seed(0)
    counts = torch.zeros(20)
    images = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1)
    loop = BareLoop(ReducedResNet18((1, 8, 8), 2, width=1), memory_size=5)
    for _ in range(2000):
        loop.images, loop.labels, loop.num_seen = [], [], 0
        loop.observe(images, torch.arange(20), repeats=0, num_ops=0, magnitude=0)
        assert loop.labels == [int(image) for image in loop.images]
        counts[loop.labels] += 1
    expected = 2000 * 5 / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-square with 19 degrees: p = 0.0007
