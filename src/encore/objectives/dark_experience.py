"""The objective of dark experience replay, DER and DER++."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Generator

from encore.interfaces import Joint, Model, Objective, Outputs
from encore.objectives._measures import measure, parts_of, separate_logits
from encore.values import not_negative_number


class DarkExperience(Objective):
    """Cross-entropy on the incoming; remembered examples are held to the logits that were stored with them.

    mean CE over B + logit_weight * mean over R and classes of (logit - stored logit)^2
    + label_weight * mean CE over R, with a forward pass for B and one for R. Stored beside an incoming
    example are the logits it had in its last iteration: as augmented there, before that iteration's step. An
    example that was only remembered, because it came first and alone, has logits of zero.
    """

    def __init__(
        self,
        logit_weight: Annotated[float, "Weight of the distance to the stored logits (alpha)."] = 0.3,
        label_weight: Annotated[
            float, "Weight of the remembered examples' cross-entropy (beta); above 0 it is DER++."
        ] = 0.0,
    ) -> None:
        super().__init__()
        self.logit_weight = not_negative_number("logit_weight", logit_weight)
        self.label_weight = not_negative_number("label_weight", label_weight)

    def stored_shapes(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """Return that of the logits [num_classes]."""
        return {"logits": (model.num_classes,)}

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradient of the weighted sum on the model."""
        logits = separate_logits(model, joint)
        remembered, incoming = map(measure, logits, parts_of(joint.labels, joint.num_remembered))
        total = incoming.loss
        if joint.num_remembered:
            distance = (logits.remembered - joint.stored["logits"]).square().mean()
            total = total + self.logit_weight * distance
            if self.label_weight:
                total = total + self.label_weight * remembered.loss
        torch.autograd.backward(total)
        return Outputs(
            remembered.accuracy,
            incoming.accuracy,
            remembered.loss,
            incoming.loss,
            {"logits": logits.incoming.detach().float()},
        )
