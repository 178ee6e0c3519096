"""Rehearse what is worth much to the memory's classes and little, or harm, to the incoming batch."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from encore.errors import unknown_name
from encore.interfaces import RetrievalContext
from encore.retrieval.uniform import Uniform
from encore.shapley import look_up, shapley_values
from encore.slots import MOST_PER_CLASS, draw_from_classes
from encore.values import number_between, whole_number

VARIANTS = ("asvm", "asv", "neg_sv")


class Aser:
    """Examples of the largest adversarial Shapley value, at most a few of each class.

    Candidates are examples drawn from each class in memory. Their KNN-Shapley values s for other examples of
    the memory, the cooperative ones, drawn likewise, and for the incoming batch, the adversarial ones, give

        asvm:   mean_cooperative s - mean_incoming s
        asv:    max_cooperative s - min_incoming s
        neg_sv: - sum_incoming s

    Where the memory has fewer candidates than are to be rehearsed, others drawn uniformly complete them.
    Until the memory is full, all are drawn uniformly.
    """

    def __init__(
        self,
        neighbours: Annotated[int, "Nearest neighbours that classify (k)."] = 3,
        samples_per_class: Annotated[float, "Examples drawn of each class, rounded down (n_smp_cls)."] = 1.5,
        variant: Annotated[str, "How values make a score: asvm, asv or neg_sv."] = "asvm",
    ) -> None:
        self.neighbours = whole_number("neighbours", neighbours, lowest=1)
        self.per_class = int(number_between("samples_per_class", samples_per_class, 1, MOST_PER_CLASS))
        if variant not in VARIANTS:
            raise unknown_name("variant of the adversarial Shapley value", variant, VARIANTS)
        self.variant = variant
        self._uniform = Uniform()

    def __call__(self, context: RetrievalContext) -> Tensor:
        """Return slots [size], the one of the largest score first."""
        memory = context.memory
        if not memory.is_full:
            return self._uniform(context)
        candidates, cooperative = self.draw(context)
        scores = self.score(context, candidates, cooperative)
        keys = torch.rand(memory.capacity + 1, generator=context.generator, device=scores.device).double()
        # Above all that chance gives the others, in the order of the scores.
        keys.index_copy_(0, candidates, scores - scores.min() + 1)
        return keys[: memory.capacity].topk(context.size).indices

    def draw(self, context: RetrievalContext) -> tuple[Tensor, Tensor]:
        """Draw the slots of candidates and of other examples to evaluate them; scratch stands for nothing."""
        num_classes = context.model.num_classes
        rounds = self.per_class if self.variant == "neg_sv" else 2 * self.per_class
        slots = draw_from_classes(context.memory, num_classes, rounds, context.generator)
        return slots[: self.per_class * num_classes], slots[self.per_class * num_classes :]

    def score(self, context: RetrievalContext, candidates: Tensor, cooperative: Tensor) -> Tensor:
        """Return the adversarial Shapley value of each candidate, float64."""
        memory, incoming = context.memory, context.incoming
        points = look_up(context.model, memory, candidates, incoming, cooperative)
        evaluation = points.rows(slice(len(candidates), None))
        values = shapley_values(evaluation, points.rows(slice(len(candidates))), self.neighbours)
        num_incoming = len(incoming.labels)
        against, for_memory = values[:num_incoming], values[num_incoming:]
        if self.variant == "neg_sv":
            return -against.sum(dim=0)
        are_there = evaluation.are_there[num_incoming:]
        if self.variant == "asv":
            largest = for_memory.masked_fill(~are_there.unsqueeze(1), -torch.inf).amax(dim=0)
            return largest.masked_fill_(~are_there.any(), 0.0) - against.amin(dim=0)
        return for_memory.sum(dim=0) / are_there.sum().clamp_(min=1) - against.mean(dim=0)
