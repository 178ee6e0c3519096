"""Keep what is worth most to a nearest-neighbour classifier over the memory."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from encore.interfaces import RetentionContext
from encore.shapley import look_up, shapley_values
from encore.slots import MOST_PER_CLASS, draw_from_classes
from encore.values import number_between, whole_number


class _Drawn(NamedTuple):
    """What chance decides of an update; the scratch slot stands for nothing."""

    evaluation: Tensor  # slots, int64
    candidates: Tensor  # slots, int64; none of the above
    threshold: Tensor  # float32 [], of the share of the memory below which a class is rare


class Aser:
    """Incoming examples of a large Shapley value replace remembered ones of a small one, one for one.

    Candidates are remembered examples drawn at random, n_smp_cls for each class in the mean, and the whole
    incoming batch. Their KNN-Shapley values are summed over examples drawn from each class in memory, which
    are no candidates, and over those incoming examples whose class has a small share of the memory: below a
    number drawn from 0 to 1 / num_classes. Of all candidates those of the largest values stay, as many as
    are remembered ones; where values are equal, what is remembered stays.

    Until the memory is full, examples are kept in order; of the batch that fills it, as many as fit.
    """

    def __init__(
        self,
        neighbours: Annotated[int, "Nearest neighbours that classify (k)."] = 3,
        samples_per_class: Annotated[
            float, "To evaluate, so many of each class, rounded down; candidates, times all (n_smp_cls)."
        ] = 1.5,
    ) -> None:
        self.neighbours = whole_number("neighbours", neighbours, lowest=1)
        self.samples_per_class = number_between("samples_per_class", samples_per_class, 1, MOST_PER_CLASS)

    def __call__(self, context: RetentionContext) -> Tensor:
        """Return slots [B]."""
        memory, num_incoming = context.memory, len(context.incoming.labels)
        if not memory.is_full:
            order = torch.arange(num_incoming, device=memory.labels.device)
            return (memory.num_filled_on_device + order).clamp_(max=memory.scratch)
        drawn = self.draw(context)
        values = self.evaluate(context, drawn)
        num_remembered = len(drawn.candidates)
        return exchange(drawn.candidates, values[:num_remembered], values[num_remembered:], memory.scratch)

    def draw(self, context: RetentionContext) -> _Drawn:
        """Draw from the memory, which is full."""
        memory, num_classes = context.memory, context.model.num_classes
        generator, device = context.generator, memory.labels.device
        evaluation = draw_from_classes(memory, num_classes, int(self.samples_per_class), generator)
        keys = torch.rand(memory.capacity + 1, generator=generator, device=device)
        keys.index_fill_(0, evaluation, -1.0)
        num_candidates = min(int(self.samples_per_class * num_classes), memory.capacity)
        largest = keys[: memory.capacity].topk(num_candidates)
        candidates = largest.indices.masked_fill_(largest.values < 0, memory.scratch)
        threshold = torch.rand((), generator=generator, device=device) / num_classes
        return _Drawn(evaluation, candidates, threshold)

    def evaluate(self, context: RetentionContext, drawn: _Drawn) -> Tensor:
        """Return the summed values of the remembered candidates, then of the incoming ones, float64."""
        memory, incoming = context.memory, context.incoming
        remembered = memory.labels[: memory.capacity]
        counts = torch.zeros(context.model.num_classes, device=remembered.device)
        counts.index_add_(0, remembered, torch.ones_like(remembered, dtype=counts.dtype))
        are_rare = counts[incoming.labels] / memory.capacity < drawn.threshold
        points = look_up(context.model, memory, drawn.candidates, incoming, drawn.evaluation)
        num_remembered, num_candidates = len(drawn.candidates), len(drawn.candidates) + len(incoming.labels)
        evaluation = points.rows(slice(num_remembered, None))
        evaluate = torch.cat([are_rare, points.are_there[num_candidates:]])
        candidates = points.rows(slice(num_candidates))
        return shapley_values(evaluation._replace(are_there=evaluate), candidates, self.neighbours).sum(dim=0)


def exchange(slots: Tensor, remembered: Tensor, incoming: Tensor, scratch: int) -> Tensor:
    """Return for each incoming example the slot it takes over, or scratch, [B].

    The largest of the incoming values is set against the smallest of the remembered, the second against the
    second, and so on. As one falls and the other rises, those who win are just the incoming ones among the
    largest of all, and those who lose the remembered ones that are not. Among equals the first stay.
    """
    num_pairs = min(len(remembered), len(incoming))
    best, example = incoming.sort(descending=True, stable=True)
    remembered = remembered.masked_fill(slots == scratch, torch.inf)
    worst, candidate = (
        ordered.flip(0)[:num_pairs] for ordered in remembered.sort(descending=True, stable=True)
    )
    taken = slots[candidate].masked_fill_(best[:num_pairs] <= worst, scratch)
    return torch.full_like(incoming, scratch, dtype=torch.int64).index_copy_(0, example[:num_pairs], taken)
