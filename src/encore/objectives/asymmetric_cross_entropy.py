"""The objective of ER-ACE."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from encore.interfaces import Joint, Model, Objective, Outputs
from encore.objectives._passes import pass_apart
from encore.values import not_negative_number


class AsymmetricCrossEntropy(Objective):
    """Cross-entropy in which incoming examples compete only with the classes of their own batch.

    memory_weight * mean over R of CE(z, y; seen) + incoming_weight * mean over B of CE(z, y; batch), where

        CE(z, y; classes) = -log( exp(z_y) / sum over c in classes of exp(z_c) )

    `batch` are the classes among the incoming examples, `seen` those and all that came before. So an incoming
    example cannot push down the logits of old classes, and a remembered one those of classes to come.
    Remembered and incoming rows go through the network apart, each with batch normalisation of its own.
    """

    seen: Tensor  # bool [num_classes]

    def __init__(
        self,
        memory_weight: Annotated[float, "Weight of the remembered examples' mean loss."] = 1.0,
        incoming_weight: Annotated[float, "Weight of the incoming examples' mean loss."] = 1.0,
        unseen: Annotated[bool, "Let classes that never came compete, too, in both losses."] = False,
        together: Annotated[bool, "One forward pass for remembered and incoming, as ER has it."] = False,
    ) -> None:
        super().__init__()
        self.memory_weight = not_negative_number("memory_weight", memory_weight)
        self.incoming_weight = not_negative_number("incoming_weight", incoming_weight)
        self.unseen = unseen
        self.together = together

    def prepare(self, model: Model) -> None:
        """Begin with no class seen."""
        self.register_buffer("seen", torch.zeros(model.num_classes, dtype=torch.bool))

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradient of the weighted sum on the model."""
        num_remembered, num_rows = joint.num_remembered, len(joint.labels)
        if self.together:
            logits = model(joint.images)
        else:
            logits = pass_apart(model, joint.images, num_remembered, model.smallest_batch)
        in_batch = self._meet(joint)
        competing = torch.cat(
            [
                self._with_unseen(self.seen).expand(num_remembered, -1),
                self._with_unseen(in_batch).expand(num_rows - num_remembered, -1),
            ]
        )
        losses = F.cross_entropy(logits.masked_fill(~competing, -torch.inf), joint.labels, reduction="none")
        right = (logits.detach().argmax(dim=1) == joint.labels).float()
        remembered, incoming = slice(None, num_remembered), slice(num_remembered, None)
        memory_loss, incoming_loss = losses[remembered].mean(), losses[incoming].mean()
        total = self.incoming_weight * incoming_loss
        if num_remembered:
            total = total + self.memory_weight * memory_loss
        torch.autograd.backward(total)
        return Outputs(right[remembered].mean(), right[incoming].mean(), memory_loss, incoming_loss)

    def _meet(self, joint: Joint) -> Tensor:
        """Take notice of the rows' classes, and return which are among the incoming, bool [num_classes]."""
        classes = torch.arange(len(self.seen), device=self.seen.device)
        is_of = joint.labels.unsqueeze(1) == classes  # [R + B, num_classes]
        self.seen |= is_of.any(dim=0)
        return is_of[joint.num_remembered :].any(dim=0)

    def _with_unseen(self, classes: Tensor) -> Tensor:
        return classes | ~self.seen if self.unseen else classes
