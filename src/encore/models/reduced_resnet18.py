"""The small residual network of online continual learning: ResNet-18 with a third of its width."""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from encore.execution import encode
from encore.interfaces import Model
from encore.models._residual import check_sizes, make_stages, takes_own_kernels

POOLING_SIDE = 4


class ReducedResNet18(Model):
    """ResNet-18 for small images: no max-pooling, base width 20, and pooling that is not global.

    A 3x3 convolution, four stages of two basic blocks with widths w, 2w, 4w, 8w, of which all but the
    first halve the image, average pooling in windows of 4x4, and a linear head over all classes. A map
    smaller than the window is pooled whole. So the number of features grows with the image:

        image         last map     pooled     features
        28 x 28        4 x 4       1 x 1           160
        32 x 32        4 x 4       1 x 1           160
        84 x 84       11 x 11      2 x 2           640
        128 x 128     16 x 16      4 x 4          2560

    >>> model = ReducedResNet18(image_shape=(3, 32, 32), num_classes=100)
    >>> model.num_features, sum(parameter.numel() for parameter in model.parameters())
    (160, 1109240)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        width: Annotated[int, "Channels of the first stage."] = 20,
    ) -> None:
        super().__init__()
        check_sizes(image_shape, num_classes, width)
        num_channels, *sides = image_shape
        map_sides = [-(-side // 8) for side in sides]  # three halvings, each rounded up
        self.window = [min(POOLING_SIDE, side) for side in map_sides]
        num_windows = (map_sides[0] // self.window[0]) * (map_sides[1] // self.window[1])
        self.num_features = 8 * width * num_windows
        # In training, batch normalisation needs more than one value of each channel.
        self.smallest_batch = 2 if map_sides == [1, 1] else 1

        self.stem = nn.Conv2d(num_channels, width, kernel_size=3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stages = make_stages(width)
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes)

    def features(self, images: Tensor) -> Tensor:
        """Encode float images [N, C, H, W] as [N, num_features]."""
        return encode(_features, self, images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of float images [N, C, H, W] as [N, num_classes]."""
        logits: Tensor = self.head(self.features(images))
        return logits


def _features(model: ReducedResNet18, images: Tensor) -> Tensor:
    if takes_own_kernels(images, model.stem, model.stem_norm):
        from encore.kernels import residual  # which needs Triton

        maps = residual.stem(images, model.stem, model.stem_norm)
    else:
        maps = F.relu(model.stem_norm(model.stem(images)), inplace=True)
    return F.avg_pool2d(model.stages(maps), model.window).flatten(start_dim=1)
