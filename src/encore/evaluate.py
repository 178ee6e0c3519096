"""One row of the accuracy matrix: how well each task seen so far is still known."""

from __future__ import annotations

import torch

from encore.learner import Learner
from encore.stream import Stream


def evaluate(learner: Learner, stream: Stream, num_seen: int) -> list[float]:
    """Return the test accuracy on each task; 0 for those not seen yet, whose classes nobody can know.

    Nothing is learnt: the network, its batch-norm statistics and all generators stay as they are.
    """
    accuracies = []
    for task in range(num_seen):
        test = stream.test_examples(task)
        right = learner.predict(test.images) == test.labels
        accuracies.append(float(right.to(torch.float64).mean()))
    return accuracies + [0.0] * (len(stream.tasks) - num_seen)
