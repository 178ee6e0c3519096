"""Answer with the class whose remembered examples look most alike."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from encore.device import images_at_a_time
from encore.interfaces import Model
from encore.memory import Memory
from encore.pixels import as_floats


class NearestClassMean:
    """The class with the nearest prototype: the mean of its exemplars' features, all of unit length.

    Prototype of class c: mu_c = normalise(mean over its slots of normalise(features(image))), from raw
    images. Score: minus the squared distance between mu_c and the image's normalised features. A class
    without an exemplar in memory cannot be predicted.
    """

    needs_memory = True

    def __init__(self) -> None:
        self._prototypes: Tensor  # [num_classes, F]
        self._known: Tensor  # bool [num_classes]

    def fit(self, model: Model, memory: Memory) -> None:
        """Encode all filled slots, and average them by class."""
        images, labels = memory.filled()
        size = images_at_a_time(labels.device, images.shape[1:])
        chunks = (chunk.to(labels.device) for chunk in images.split(size))
        features = torch.cat([_encode(model, as_floats(chunk)) for chunk in chunks])
        num_classes = model.num_classes
        sums = features.new_zeros(num_classes, model.num_features).index_add_(0, labels, features)
        self._known = torch.zeros(num_classes, dtype=torch.bool, device=labels.device)
        self._known[labels] = True
        self._prototypes = F.normalize(sums, dim=1)  # a mean has the direction of the sum

    def scores(self, model: Model, images: Tensor) -> Tensor:
        """Return minus the squared distances [N, num_classes]; minus infinity without an exemplar."""
        nearness = _encode(model, images) @ self._prototypes.T  # |a - b|^2 = 2 - 2 a.b for unit vectors
        return (2 * nearness - 2).masked_fill(~self._known, -torch.inf)


def _encode(model: Model, images: Tensor) -> Tensor:
    return F.normalize(model.features(images), dim=1)
