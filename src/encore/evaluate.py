"""One row of the accuracy matrix: how well each task seen so far is still known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from encore.interfaces import Batch
from encore.learner import Learner
from encore.stream import Stream


def evaluate(learner: Learner, stream: Stream, num_seen: int) -> list[float]:
    """Return the test accuracy on each task; 0 for those not seen yet, whose classes nobody can know.

    Nothing is learnt: the network, its batch-norm statistics and all generators stay as they are.
    """
    right, tested = torch.zeros(2, num_seen, dtype=torch.float64, device=learner.device)
    for tasks, batch in _gather(stream, num_seen, learner.images_at_a_time):
        is_right = learner.predict(batch.images) == batch.labels
        right.index_add_(0, tasks, is_right.to(right.dtype))
        tested.index_add_(0, tasks, torch.ones_like(tasks, dtype=tested.dtype))
    accuracies: list[float] = (right / tested).tolist()
    return accuracies + [0.0] * (len(stream.tasks) - num_seen)


def _gather(stream: Stream, num_seen: int, enough: int) -> Iterator[tuple[Tensor, Batch]]:
    """Yield test images with their tasks, small tasks together, so that a pass has enough to do."""
    waiting: list[tuple[Tensor, Batch]] = []
    for task in range(num_seen):
        for batch in stream.test_batches(task):
            waiting.append((torch.full_like(batch.labels, task), batch))
            if sum(len(tasks) for tasks, _ in waiting) >= enough:
                yield _join(waiting)
                waiting = []
    if waiting:
        yield _join(waiting)


def _join(parts: Sequence[tuple[Tensor, Batch]]) -> tuple[Tensor, Batch]:
    tasks, batches = zip(*parts, strict=True)
    images, labels = zip(*batches, strict=True)
    return torch.cat(tasks), Batch(torch.cat(images), torch.cat(labels))
