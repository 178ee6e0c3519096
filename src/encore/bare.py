"""Repeated augmented rehearsal as one writes it without a library: what Encore's speed is compared with.

It is a plain and competent loop: an nn.Module in PyTorch's default layout, RandAugment by Pillow for one
image after the other, cross-entropy, SGD, and a reservoir of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor, nn

Picture = Image.Image
BLACK = 0
MOST = 30  # magnitude


def _enhance(kind: Callable[[Picture], ImageEnhance._Enhance]) -> Callable[[Picture, float], Picture]:
    return lambda picture, strength: kind(picture).enhance(1 + 0.9 * strength)


def _move(*, shear: bool, across: bool) -> Callable[[Picture, float], Picture]:
    def move(picture: Picture, strength: float) -> Picture:
        amount = 0.3 * strength if shear else int(150 / 331 * picture.width * strength)
        place = (1 if across else 3) if shear else (2 if across else 5)
        matrix = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        matrix[place] = amount
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix, fillcolor=BLACK)

    return move


# An operation by a strength from -1 to 1; those without direction use its size.
OPERATIONS: list[Callable[[Picture, float], Picture]] = [
    lambda picture, strength: picture,
    _move(shear=True, across=True),
    _move(shear=True, across=False),
    _move(shear=False, across=True),
    _move(shear=False, across=False),
    lambda picture, strength: picture.rotate(30 * strength, fillcolor=BLACK),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Sharpness),
    lambda picture, strength: ImageOps.posterize(picture, 8 - round(4 * abs(strength))),
    lambda picture, strength: ImageOps.solarize(picture, 255 - int(255 * abs(strength))),
    lambda picture, strength: ImageOps.autocontrast(picture),
    lambda picture, strength: ImageOps.equalize(picture),
]


def augment_image(image: Tensor, num_ops: int, magnitude: int) -> Tensor:
    """Return a uint8 image [C, H, W] after so many random operations, as floats from 0 to 1."""
    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
    for _ in range(num_ops):
        picture = random.choice(OPERATIONS)(picture, random.choice((-1, 1)) * magnitude / MOST)
    augmented = torch.from_numpy(np.array(picture)).float().div_(255)
    return augmented.unsqueeze(0) if augmented.dim() == 2 else augmented.permute(2, 0, 1)


class BareLoop:
    """Experience replay with repeats and augmentation, in some forty lines of PyTorch."""

    def __init__(
        self,
        model: nn.Module,
        memory_size: int,
        memory_batch_size: int = 10,
        learning_rate: float = 0.1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate)
        self.memory_size, self.memory_batch_size, self.device = memory_size, memory_batch_size, device
        self.images: list[Tensor] = []
        self.labels: list[int] = []
        self.num_seen = 0

    def observe(self, images: Tensor, labels: Tensor, repeats: int, num_ops: int, magnitude: int) -> None:
        """Rehearse uint8 images [B, C, H, W] with labels [B] so often, and remember them."""
        for _ in range(repeats):
            self.step(images, labels, num_ops, magnitude)
        for image, label in zip(images, labels.tolist(), strict=True):
            self.num_seen += 1
            if len(self.images) < self.memory_size:
                self.images.append(image)
                self.labels.append(label)
            elif (slot := random.randrange(self.num_seen)) < self.memory_size:
                self.images[slot], self.labels[slot] = image, label

    def step(self, images: Tensor, labels: Tensor, num_ops: int, magnitude: int) -> None:
        """Take one step of SGD."""
        chosen = random.sample(range(len(self.images)), min(self.memory_batch_size, len(self.images)))
        joint = [self.images[slot] for slot in chosen] + list(images)
        if num_ops:
            inputs = torch.stack([augment_image(image, num_ops, magnitude) for image in joint])
        else:
            inputs = torch.stack(joint).float().div_(255)
        logits = self.model(inputs.to(self.device))
        labels, num_remembered = labels.to(self.device), len(chosen)
        loss = F.cross_entropy(logits[num_remembered:], labels)
        if chosen:
            remembered = torch.tensor([self.labels[slot] for slot in chosen], device=self.device)
            loss = loss + F.cross_entropy(logits[:num_remembered], remembered)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
