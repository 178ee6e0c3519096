"""Rehearse what the incoming batch would make the network forget."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from encore.interfaces import Batch, Model, RetrievalContext
from encore.normalisation import as_in_training
from encore.pixels import as_floats
from encore.retrieval.uniform import Uniform
from encore.side_stream import SideStream
from encore.slots import random_keys
from encore.values import whole_number


class Mir:
    """Of some candidates, those whose loss a step on the incoming batch alone would raise most.

    Maximally interfered retrieval. C candidates are drawn uniformly and without replacement; with
    g = grad mean_B CE(f_theta(x), y) and theta' = theta - eta g, the score of a candidate is
    CE(f_theta'(x), y) - CE(f_theta(x), y), and the largest scores win. Images are not augmented.

    Batch normalisation works as in training: the incoming batch by its own statistics, as in the step that
    is foreseen, and the candidates by theirs, both before and after, so that a difference in loss comes of
    the weights. Running statistics would lag behind theta' and are neither used nor moved. Only where a
    batch is a single image without variance do they stand in.

    While fewer than C slots are filled, all of them are candidates, and some stand in the batch more than
    once. With as many candidates as are rehearsed there is nothing to choose, and it is uniform retrieval.
    """

    def __init__(
        self,
        candidates: Annotated[int, "Examples to choose from, at least as many as are rehearsed (C)."] = 50,
    ) -> None:
        self.candidates = whole_number("candidates", candidates, lowest=1)
        self._uniform = Uniform()
        self._side_stream = SideStream()

    def __call__(self, context: RetrievalContext) -> Tensor:
        """Return slots [size], the one of the largest score first."""
        memory, size = context.memory, context.size
        num_candidates = min(max(self.candidates, size), memory.capacity)
        if num_candidates == size or size == 0:
            return self._uniform(context)
        keys = random_keys(memory, context.generator)
        slots = keys.topk(num_candidates).indices  # filled ones first, as the keys of others are negative
        if memory.is_full:
            return slots[self._score(context, slots).topk(size).indices]
        place = torch.arange(num_candidates, device=slots.device)
        num_filled = memory.num_filled_on_device
        slots = slots[place % num_filled]  # blank images must not enter the statistics of the batch
        scores = self._score(context, slots).masked_fill_(place >= num_filled, -torch.inf)
        return slots[scores.topk(size).indices]

    def _score(self, context: RetrievalContext, slots: Tensor) -> Tensor:
        images, labels, _ = context.memory.read(slots)
        candidates = Batch(images, labels)
        return interference(
            context.model, context.incoming, candidates, context.learning_rate, self._side_stream
        )


def interference(
    model: Model, incoming: Batch, candidates: Batch, learning_rate: float, side_stream: SideStream
) -> Tensor:
    """Return by how much one SGD step on the incoming batch would raise each candidate's loss, [C].

    Nothing of it remains in the model: neither in weights and gradients nor in running statistics.
    """
    images, labels = as_floats(candidates.images), candidates.labels
    with as_in_training(model, len(labels)), torch.no_grad(), side_stream.begin(images.device):
        before = F.cross_entropy(model(images), labels, reduction="none")
    learnt = {name: value for name, value in model.named_parameters() if value.requires_grad}
    weights: list[Tensor] = list(learnt.values())
    with as_in_training(model, len(incoming.labels)), torch.enable_grad():
        loss = F.cross_entropy(model(as_floats(incoming.images)), incoming.labels)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    with as_in_training(model, len(labels)), torch.no_grad():
        stepped = torch._foreach_add(weights, gradients, alpha=-learning_rate)
        logits = functional_call(model, dict(zip(learnt, stepped, strict=True)), (images,))
        after = F.cross_entropy(logits, labels, reduction="none")
        side_stream.wait()
        return after - before
