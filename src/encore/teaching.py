"""Teaching a learner of one's own a stream, without the files of a run."""

from __future__ import annotations

from encore.errors import EncoreError
from encore.evaluate import evaluate
from encore.interfaces import Plan
from encore.learner import Learner
from encore.stream import Stream, check_batch_size


def teach(
    learner: Learner, stream: Stream, batch_size: int = 10, plan: Plan | None = None
) -> list[list[float]]:
    """Teach a learner all tasks of a stream, and return the accuracy matrix.

    Row i, column j is the accuracy on the test images of task j after task i; 0 where j was not seen yet.
    What is left over of a task, less than a batch, does not come. These are the numbers that `encore run`
    records with the same settings.

    >>> import encore, numpy as np
    >>> images, labels = np.zeros((60, 1, 8, 8), dtype=np.uint8), np.arange(60) % 6
    >>> stream = Stream.from_arrays(images, labels, tasks=3, device="cpu")
    >>> learner = Learner("er", image_shape=(1, 8, 8), num_classes=6, memory_size=12, device="cpu")
    >>> [len(row) for row in teach(learner, stream)]
    [3, 3, 3]

    """
    _check(learner, stream, batch_size)
    accuracy = []
    for task in range(len(stream.tasks)):
        for incoming in stream.batches(task, batch_size):
            if len(incoming.labels) > 0:  # else all its images are broken
                learner.observe(*incoming, plan)
        learner.end_task()
        accuracy.append(evaluate(learner, stream, num_seen=task + 1))
    return accuracy


def _check(learner: Learner, stream: Stream, batch_size: int) -> None:
    """Refuse what does not fit together before the first batch is gone."""
    check_batch_size(stream.tasks, batch_size)
    shape, num_classes = stream.store.image_shape, stream.store.num_classes
    if learner.config.image_shape != shape:
        raise EncoreError(
            f"the stream's images are {shape} and the learner is made for {learner.config.image_shape}: make "
            "it with image_shape=stream.store.image_shape"
        )
    if learner.config.num_classes < num_classes:
        raise EncoreError(
            f"the stream has {num_classes} classes and the learner {learner.config.num_classes}: make it "
            "with num_classes=stream.store.num_classes"
        )
