"""A network whose logits are chosen, and gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from encore.interfaces import Model


class Scaled(Model):
    """A network whose features and logits are its images' pixels, times a number that is learnt."""

    def __init__(self, num_classes: int, scale: float = 1.0) -> None:
        super().__init__()
        self.num_features = self.num_classes = num_classes
        self.smallest_batch = 1
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float64))

    def features(self, images: Tensor) -> Tensor:
        return images.flatten(start_dim=1) * self.scale

    def forward(self, images: Tensor) -> Tensor:
        return self.features(images)


def as_images(logits: list[list[float]]) -> Tensor:
    """Return images of which `Scaled` makes these logits."""
    return torch.tensor(logits, dtype=torch.float64)[:, None, None, :]


@torch.no_grad()
def assert_gradients_are_of(loss: Callable[[], float], parameters: Iterable[nn.Parameter]) -> None:
    """Compare the gradients that lie on parameters with central differences, in three directions."""
    learnt, generator, step = list(parameters), torch.Generator().manual_seed(0), 1e-6
    before = [parameter.clone() for parameter in learnt]
    for _ in range(3):
        directions = [
            torch.randn(parameter.shape, generator=generator, dtype=torch.float64) for parameter in learnt
        ]
        slope, ends = 0.0, []
        for parameter, direction in zip(learnt, directions, strict=True):
            slope += 0.0 if parameter.grad is None else (parameter.grad * direction).sum().item()
        for sign in (1, -1):
            for parameter, old, direction in zip(learnt, before, directions, strict=True):
                parameter.copy_(old + sign * step * direction)
            ends.append(loss())
        torch.testing.assert_close(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-6)
    for parameter, old in zip(learnt, before, strict=True):
        parameter.copy_(old)
