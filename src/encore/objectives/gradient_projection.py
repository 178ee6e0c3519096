"""The objective of averaged gradient episodic memory (A-GEM)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Generator, Tensor, nn

from encore.interfaces import Joint, Model, Objective, Outputs
from encore.objectives._measures import measure, parts_of, separate_logits

Parts = tuple[Tensor, ...]  # one vector, in the shapes of the network's parameters


class GradientProjection(Objective):
    """The incoming examples' gradient, without the part of it that would undo remembered examples.

    With g the gradient of the incoming and r that of the remembered examples' mean cross-entropy, from a
    forward pass each: g if <g, r> is not negative, else g - <g, r> / <r, r> * r. Of all gradients that do
    not point against r this is the nearest to g. Nothing is projected, nor rehearsed, during the first task.
    """

    def __init__(
        self,
        from_start: Annotated[
            bool, "Project as soon as anything is remembered, for streams without the ends of tasks."
        ] = False,
    ) -> None:
        super().__init__()
        self.rehearses = from_start

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the projected gradient on the model."""
        split = separate_logits(model, joint), parts_of(joint.labels, joint.num_remembered)
        remembered, incoming = map(measure, *split)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradients = _gradients(incoming.loss, parameters)
        if joint.num_remembered:
            gradients = project(gradients, _gradients(remembered.loss, parameters))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return Outputs(remembered.accuracy, incoming.accuracy, remembered.loss, incoming.loss)

    def end_task(self, model: Model) -> None:
        """From now on there is a past to protect."""
        self.rehearses = True

    def get_extra_state(self) -> bool:
        """Return whether there is a past to protect, which is known on the host, as it decides shapes."""
        return self.rehearses

    def set_extra_state(self, state: bool) -> None:
        """Take it back."""
        self.rehearses = state


def project(gradients: Parts, references: Parts) -> Parts:
    """Return the nearest to the gradients whose dot product with the references is not negative.

    Both are one vector each, in parts of the same shapes. g - min(<g, r>, 0) / <r, r> * r.

    >>> project((torch.tensor([1.0, -3.0]),), (torch.tensor([0.0, 2.0]),))
    (tensor([1., 0.]),)
    """
    square = _dot(references, references)
    conflict = _dot(gradients, references).clamp(max=0) / square.clamp(min=torch.finfo(square.dtype).tiny)
    return torch._foreach_sub(gradients, torch._foreach_mul(references, conflict))


def _gradients(loss: Tensor, parameters: list[nn.Parameter]) -> Parts:
    # The graph is kept, as the other loss may come from the same forward pass.
    return torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)


def _dot(one: Parts, other: Parts) -> Tensor:
    """Return the dot product of two vectors in parts, in a few kernels however many parts there are."""
    products = torch._foreach_mul(one, other)
    # Whatever order the entries lie in: to put them into another would be a copy of each part.
    return torch.cat([product.as_strided((product.numel(),), (1,)) for product in products]).sum()
