"""The objective of experience replay."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Generator

from encore.interfaces import Joint, Model, Objective, Outputs
from encore.values import not_negative_number


class CrossEntropy(Objective):
    """The mean cross-entropy of the remembered plus that of the incoming examples, each with a weight.

    memory_weight * mean over R + incoming_weight * mean over B, from one joint forward pass, so that
    batch normalisation sees both together. While the memory is empty only the second term is there.
    """

    def __init__(
        self,
        memory_weight: Annotated[float, "Weight of the remembered examples' mean loss (r_m)."] = 1.0,
        incoming_weight: Annotated[float, "Weight of the incoming examples' mean loss (r_i)."] = 1.0,
    ) -> None:
        super().__init__()
        self.memory_weight = not_negative_number("memory_weight", memory_weight)
        self.incoming_weight = not_negative_number("incoming_weight", incoming_weight)

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradient of the weighted sum on the model."""
        logits = model(joint.images)
        losses = F.cross_entropy(logits, joint.labels, reduction="none")
        right = (logits.detach().argmax(dim=1) == joint.labels).float()
        remembered, incoming = slice(None, joint.num_remembered), slice(joint.num_remembered, None)
        memory_loss, incoming_loss = losses[remembered].mean(), losses[incoming].mean()
        total = self.incoming_weight * incoming_loss
        if joint.num_remembered:
            total = total + self.memory_weight * memory_loss
        torch.autograd.backward(total)
        return Outputs(right[remembered].mean(), right[incoming].mean(), memory_loss, incoming_loss)
