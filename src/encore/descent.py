"""Plain gradient descent, the paper's only optimiser."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class GradientDescent:
    """Moves each weight w with gradient g by -rate * (g + decay * w).

    To make the one of torch.optim takes as long as to import all of torch, as it imports PyTorch's compiler.

    >>> weight = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> descent = GradientDescent([weight], rate=0.1, decay=0.0)
    >>> weight.sum().backward()
    >>> descent.step()
    >>> weight
    tensor([0.9000, 1.9000], requires_grad=True)
    """

    def __init__(self, weights: Iterable[Tensor], rate: float, decay: float) -> None:
        self.weights = [weight for weight in weights if weight.requires_grad]
        self.rate, self.decay = rate, decay

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights that have a gradient, on a GPU with few kernels."""
        moved = [weight for weight in self.weights if weight.grad is not None]
        gradients = [weight.grad for weight in moved if weight.grad is not None]
        if not moved:
            return
        if self.decay:
            gradients = list(torch._foreach_add(gradients, moved, alpha=self.decay))
        torch._foreach_add_(moved, gradients, alpha=-self.rate)
