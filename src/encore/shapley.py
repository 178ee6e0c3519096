"""What each of some labelled points is worth to a nearest-neighbour classifier: KNN-Shapley values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from encore.interfaces import Batch, Model
from encore.memory import Memory
from encore.normalisation import running_statistics
from encore.pixels import as_floats

UNIT = 1 << 40  # values are whole multiples of its inverse: sums have the same bits in every order
CHUNK = 1024  # images encoded at a time
NOT_EVALUATED, NO_CANDIDATE = -1, -2  # labels that equal no other


class Points(NamedTuple):
    """Labelled features; of rows that are not there, nothing else counts."""

    features: Tensor  # float32 [N, F]
    labels: Tensor  # int64 [N]
    are_there: Tensor  # bool [N]

    def rows(self, chosen: slice) -> Points:
        """Return some of the rows."""
        return Points(self.features[chosen], self.labels[chosen], self.are_there[chosen])


def shapley_values(evaluation: Points, candidates: Points, neighbours: int) -> Tensor:
    """Return the value of each candidate for each evaluation point, float64 [E, N]; 0 where one is not there.

    The utility of a set of candidates is the share 1 / k of its k nearest that have the evaluation point's
    label y, and the Shapley value is what a candidate adds to it, averaged over all orders of coming. With
    n candidates in order of distance, and 1[y_(n + 1) = y] taken as 0,

        s_(j) = s_(j + 1) + (1[y_(j) = y] - 1[y_(j + 1) = y]) / max(j, k),   s_(n + 1) = 0,

    where 1 / max(j, k) is min(k, j) / (k j). For n >= k it begins with 1[y_(n) = y] / n.
    """
    distances = torch.cdist(
        evaluation.features, candidates.features, compute_mode="donot_use_mm_for_euclid_dist"
    )
    distances.masked_fill_(~candidates.are_there, torch.inf)
    farthest_first = distances.argsort(dim=1, descending=True, stable=True)
    label = evaluation.labels.masked_fill(~evaluation.are_there, NOT_EVALUATED)
    labels = candidates.labels.masked_fill(~candidates.are_there, NO_CANDIDATE)
    matches = (labels[farthest_first] == label.unsqueeze(1)).long()
    # Those that are not there lie farthest and match nothing, so that the first step is from 0 to n.
    steps = matches.clone()
    steps[:, 1:] -= matches[:, :-1]
    rank = torch.arange(len(labels), 0, -1, device=labels.device)
    steps *= UNIT // rank.clamp_(min=neighbours)
    values = torch.empty_like(steps).scatter_(1, farthest_first, steps.cumsum(dim=1))
    return values.double() / UNIT


@torch.no_grad()
def look_up(model: Model, memory: Memory, first: Tensor, incoming: Batch, last: Tensor) -> Points:
    """Encode the examples in some slots, then the incoming ones, then those in others, in one forward pass.

    Features are the encoder's for raw images, by running statistics, and not normalised. The scratch slot
    stands for a row that is not there.
    """
    slots = torch.cat([first, last])
    are_there = slots != memory.scratch
    remembered = memory.read(slots.clamp(max=memory.capacity - 1))  # scratch is never read
    middle = len(first)

    def join(values: Tensor, incoming_values: Tensor) -> Tensor:
        return torch.cat([values[:middle], incoming_values, values[middle:]])

    images = join(remembered.images, incoming.images)
    with running_statistics(model):
        encoded = [model.features(as_floats(chunk)) for chunk in images.split(CHUNK)]
    return Points(
        torch.cat(encoded),
        join(remembered.labels, incoming.labels),
        join(are_there, torch.ones_like(incoming.labels, dtype=torch.bool)),
    )
