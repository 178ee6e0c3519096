"""The objective of reweighted experience replay."""

from __future__ import annotations

from typing import Annotated

from encore.objectives.cross_entropy import CrossEntropy
from encore.values import share


class ReweightedCrossEntropy(CrossEntropy):
    """Cross-entropies as in experience replay, but memory and incoming share a weight of one between them.

    memory_share * mean over R + (1 - memory_share) * mean over B. Half each, at twice the learning rate, are
    the very steps of experience replay.
    """

    def __init__(
        self,
        memory_share: Annotated[float, "Weight of the remembered examples' mean loss, 0 to 1 (alpha)."] = 0.5,
    ) -> None:
        memory_share = share("memory_share", memory_share)
        super().__init__(memory_weight=memory_share, incoming_weight=1 - memory_share)
