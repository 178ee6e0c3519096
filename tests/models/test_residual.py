from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from encore.models._residual import BasicBlock

# Sizes and numbers of threads at which strided 1x1 convolutions were seen to end the process.
PROGRAM = """
import torch
from encore.models._residual import BasicBlock
for side, threads in ((16, 2), (64, 1), (96, 1)):
    torch.set_num_threads(threads)
    block = BasicBlock(2, 4, stride=2).to(memory_format=torch.channels_last)
    for _ in range(20):
        maps = torch.rand(20, 2, side, side).to(memory_format=torch.channels_last)
        block(maps).sum().backward()
"""


def test_few_channels_do_not_end_the_process() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True).returncode == 0


@pytest.mark.parametrize("num_in", [2, 15, 16])
def test_shortcut_is_a_strided_convolution(num_in: int) -> None:
    torch.manual_seed(0)
    pointwise = BasicBlock(num_in, 2 * num_in, stride=2).shortcut[0]  # type: ignore[index]
    plain = torch.nn.Conv2d(num_in, 2 * num_in, kernel_size=1, stride=2, bias=False).double()
    plain.load_state_dict(pointwise.state_dict())
    maps = torch.rand(3, num_in, 9, 8)
    ours, theirs = maps.clone().requires_grad_(), maps.double().requires_grad_()
    weights = torch.rand(3, 2 * num_in, 5, 4)
    (pointwise(ours) * weights).sum().backward()
    (plain(theirs) * weights).sum().backward()
    for one, other in ((ours, theirs), (pointwise.weight, plain.weight)):
        torch.testing.assert_close(one.grad, other.grad, check_dtype=False)
