"""What objectives measure alike: accuracies and cross-entropies, which are reported and minimised."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from encore.interfaces import Joint, Model


class Measure(NamedTuple):
    """How some examples fare, as 0-d tensors; NaN if there are none."""

    accuracy: Tensor
    loss: Tensor  # the mean cross-entropy, to be differentiated


class Pair(NamedTuple):
    """One thing of the remembered examples, and the same of the incoming ones."""

    remembered: Tensor
    incoming: Tensor


def measure(logits: Tensor, labels: Tensor) -> Measure:
    """Compare logits [N, num_classes] with labels [N]."""
    right = (logits.detach().argmax(dim=1) == labels).float()
    return Measure(right.mean(), F.cross_entropy(logits, labels))


def parts_of(rows: Tensor, num_remembered: int) -> Pair:
    """Part rows [R + B, ...] into those of the remembered and of the incoming examples."""
    return Pair(rows[:num_remembered], rows[num_remembered:])


def separate_logits(model: Model, joint: Joint) -> Pair:
    """Return the logits of a forward pass over the incoming, and then of one over the remembered examples.

    Each pass has its own batch statistics. A part too small for batch normalisation goes with the other.
    """
    num_remembered, num_incoming = joint.num_remembered, len(joint.labels) - joint.num_remembered
    if num_remembered == 0 or min(num_remembered, num_incoming) < model.smallest_batch:
        return parts_of(model(joint.images), num_remembered)
    remembered, incoming = parts_of(joint.images, num_remembered)
    logits_of_incoming = model(incoming)
    return Pair(model(remembered), logits_of_incoming)
