"""One row of the accuracy matrix: how well each task seen so far is still known."""

from __future__ import annotations

import torch
from torch import Tensor

from encore.learner import Learner
from encore.stream import Stream


def evaluate(learner: Learner, stream: Stream, num_seen: int) -> list[float]:
    """Return the test accuracy on each task; 0 for those not seen yet, whose classes nobody can know.

    Nothing is learnt: the network, its batch-norm statistics and all generators stay as they are.
    """
    accuracies = [_accuracy(learner, stream, task) for task in range(num_seen)]
    return accuracies + [0.0] * (len(stream.tasks) - num_seen)


def _accuracy(learner: Learner, stream: Stream, task: int) -> float:
    right: list[Tensor] = [learner.predict(images) == labels for images, labels in stream.test_batches(task)]
    return float(torch.cat(right).to(torch.float64).mean())
