"""The residual network of ImageNet."""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from encore.execution import encode
from encore.interfaces import Model
from encore.models._residual import check_sizes, make_stages


class ResNet18(Model):
    """ResNet-18 for large images: a stem that reduces them to a quarter, base width 64, global pooling.

    A 7x7 convolution with stride 2, max-pooling 3x3 with stride 2, four stages of two basic blocks each
    with widths w, 2w, 4w, 8w, of which all but the first halve the map, the average over the last map,
    and a linear head over all classes. The last map has 7x7 values for an image of 224x224, and 8w features
    come of an image of any size. Images of up to 32x32 shrink to a single value of each feature.

    >>> model = ResNet18(image_shape=(3, 224, 224), num_classes=1000)
    >>> model.num_features, sum(parameter.numel() for parameter in model.parameters())
    (512, 11689512)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        width: Annotated[int, "Channels of the first stage."] = 64,
    ) -> None:
        super().__init__()
        check_sizes(image_shape, num_classes, width)
        num_channels, *sides = image_shape
        # In training, batch normalisation needs more than one value of each channel.
        self.smallest_batch = 2 if max(sides) <= 32 else 1  # five halvings, each rounded up
        self.num_features = 8 * width
        self.num_classes = num_classes

        self.stem = nn.Conv2d(num_channels, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stages = make_stages(width)
        self.head = nn.Linear(self.num_features, num_classes)

    def features(self, images: Tensor) -> Tensor:
        """Encode float images [N, C, H, W] as [N, num_features]."""
        return encode(_features, self, images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of float images [N, C, H, W] as [N, num_classes]."""
        logits: Tensor = self.head(self.features(images))
        return logits


def _features(model: ResNet18, images: Tensor) -> Tensor:
    maps = F.relu(model.stem_norm(model.stem(images)), inplace=True)
    maps = model.stages(F.max_pool2d(maps, kernel_size=3, stride=2, padding=1))
    return F.adaptive_avg_pool2d(maps, 1).flatten(start_dim=1)
