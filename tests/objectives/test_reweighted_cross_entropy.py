from __future__ import annotations

from typing import Any

import pytest

from encore.errors import EncoreError
from encore.objectives.reweighted_cross_entropy import ReweightedCrossEntropy


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_one_number_sets_both_weights(share: float) -> None:
    objective = ReweightedCrossEntropy(share)
    assert objective.memory_weight == share
    assert objective.incoming_weight == 1 - share


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), "half"])
def test_what_is_no_share_is_refused(wrong: Any) -> None:
    with pytest.raises(EncoreError, match="memory_share must be a number from 0 to 1, got"):
        ReweightedCrossEntropy(wrong)
