"""Gradient descent beside torch.optim's, and what it does not import."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from encore.descent import GradientDescent

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_takes_the_steps_of_torch(decay: float, device: str) -> None:
    torch.manual_seed(0)
    shapes = [(4, 3, 3, 3), (4,), (), (0, 2), (7, 5), (3,)]
    ours = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    ours[0] = ours[0].detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    frozen = torch.ones(2, device=device)
    theirs = [weight.detach().clone().requires_grad_() for weight in ours]
    descent = GradientDescent([*ours, frozen], rate=0.3, decay=decay)
    reference = torch.optim.SGD(theirs, lr=0.3, weight_decay=decay)
    for number in range(3):
        descent.zero_grad()
        reference.zero_grad()
        for weights in (ours, theirs):
            # The last weight is not used, as a layer that a loss does not look at.
            sum(((number + 1.5) * weight.sin()).sum() for weight in weights[:-1]).backward()  # type: ignore[union-attr]
        descent.step()
        reference.step()
        for own, other in zip(ours, theirs, strict=True):
            assert torch.equal(own, other)
    assert ours[-1].grad is None
    assert torch.equal(frozen, torch.ones(2, device=device))


def test_without_any_gradient_nothing_moves() -> None:
    weight = torch.ones(3, requires_grad=True)
    GradientDescent([weight], rate=1.0, decay=0.5).step()
    assert torch.equal(weight, torch.ones(3))


def test_learner_does_without_the_compiler() -> None:
    program = (
        "import sys, torch, encore\n"
        "learner = encore.Learner(image_shape=(3, 8, 8), num_classes=3, memory_size=9, device='cpu',\n"
        "                         plan=encore.Plan(2, 1, 14), parts={'model.width': 2})\n"
        "for _ in range(2):\n"
        "    learner.observe(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 0]))\n"
        "learner.predict(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
