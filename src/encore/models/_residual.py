"""What the residual networks have in common: basic blocks in four stages."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from encore import own_kernels
from encore.errors import EncoreError

FEW_CHANNELS = 16  # as many as the largest registers of a CPU hold
MOST_CHANNELS = 256  # that our own kernels take; wider convolutions are better left to cuDNN


class _Pointwise(nn.Conv2d):
    """A 1x1 convolution whose stride, where there are few channels, is taken before it: the same numbers.

    Else oneDNN, which computes it on CPUs, may write beyond its workspace in the backward pass, and the
    process crashes, hangs or goes on with wrong gradients (its issue 6035).
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return [N, num_out, H / stride, W / stride] for maps [N, num_in, H, W]."""
        if self.in_channels >= FEW_CHANNELS:
            return super().forward(maps)
        down, right = self.stride
        return F.conv2d(maps[:, :, ::down, ::right], self.weight)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the identity, or 1x1 where the shape changes."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_in, num_out, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(num_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or num_in != num_out:
            self.shortcut = nn.Sequential(
                _Pointwise(num_in, num_out, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(num_out),
            )

    def forward(self, maps: Tensor) -> Tensor:
        """Return [N, num_out, H / stride, W / stride] for maps [N, num_in, H, W]."""
        if takes_own_kernels(maps, self.conv2, self.norm2):
            from encore.kernels import residual  # which needs Triton

            return residual.basic_block(maps, self._layers())
        # In place only on what a normalisation returned: its backward pass does not read its output.
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = self.norm2(self.conv2(out))
        out += self.shortcut(maps)
        return F.relu(out, inplace=True)

    def _layers(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        """Return every convolution with its normalisation, that of the shortcut last."""
        layers = [(self.conv1, self.norm1), (self.conv2, self.norm2)]
        if isinstance(self.shortcut, nn.Sequential):
            layers.append((self.shortcut[0], self.shortcut[1]))  # type: ignore[arg-type]
        return layers


def takes_own_kernels(maps: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> bool:
    """Whether a convolution and its normalisation are left to kernels that do both (see own_kernels.py)."""
    return (
        own_kernels.in_use(maps, adds_up=True)
        and maps.dtype == torch.float32
        and norm.training
        and norm.running_mean is not None
        and max(convolution.in_channels, convolution.out_channels) <= MOST_CHANNELS
    )


def make_stages(width: int) -> nn.Sequential:
    """Return four stages of two blocks with widths w, 2w, 4w, 8w; all but the first halve the map."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    return nn.Sequential(
        *(
            nn.Sequential(
                BasicBlock(num_in, num_out, stride=1 if num_in == num_out else 2),
                BasicBlock(num_out, num_out, stride=1),
            )
            for num_in, num_out in pairwise(widths)
        )
    )


def check_sizes(image_shape: tuple[int, int, int], num_classes: int, width: int) -> None:
    """Refuse sizes of which no network can be made."""
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise EncoreError(
            f"image_shape must be (channels, height, width), each at least 1, got {image_shape}"
        )
    if num_classes < 1:
        raise EncoreError(f"num_classes must be at least 1, got {num_classes}")
    if width < 1:
        raise EncoreError(f"width must be at least 1, got {width}")
