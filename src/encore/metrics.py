"""What an accuracy matrix says: how much was learnt, how much was kept, how much was forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from encore.errors import EncoreError

AccuracyMatrix = Sequence[Sequence[float]] | NDArray[np.floating] | Tensor


class Metrics(NamedTuple):
    """The five numbers of a run; average_accuracy = plasticity + stability."""

    average_accuracy: float  # A_T: over all tasks, at the end
    forgetting: float  # F_T: what was lost since the best earlier moment; negative if nothing was
    backward_transfer: float  # B_T: what later tasks added to earlier ones; mostly negative
    plasticity: float  # accuracy on each task just after training on it
    stability: float  # (T - 1) / T * B_T


class MeanAndDeviation(NamedTuple):
    """A mean over runs and the population standard deviation, as the paper's tables have them."""

    mean: float
    deviation: float


def metrics_of(matrix: AccuracyMatrix) -> Metrics:
    """Compute the paper's metrics of a finished run.

    `matrix` [T, T] holds fractions from 0 to 1: a(i, j), in row i and column j, is the accuracy on the
    test set of task j after training on task i, and 0 where j > i. In the paper's letters,

        A_T        = mean over j of a(T, j)
        F_T        = mean over i < T of (max over l < T of a(l, i)) - a(T, i)
        B_T        = mean over i < T of a(T, i) - a(i, i)
        plasticity = mean over i of a(i, i)
        stability  = (T - 1) / T * B_T

    The last row is not in the maximum of F_T, so forgetting is negative where the end is the best
    moment. With a single task nothing can be forgotten: F_T and B_T are 0.

    In this run the first task falls from 0.8 to 0.4 and the second, at its best after task 2, from 0.9
    to 0.6: F_T = (0.4 + 0.3) / 2. The first was at its best after task 2, too:

    >>> metrics = metrics_of([[0.7, 0.0, 0.0], [0.8, 0.9, 0.0], [0.4, 0.6, 0.5]])
    >>> for name, value in metrics._asdict().items():
    ...     print(f"{name:17} {value:6.3f}")
    average_accuracy   0.500
    forgetting         0.350
    backward_transfer -0.300
    plasticity         0.700
    stability         -0.200
    """
    accuracy = _checked(_as_array(matrix))
    num_tasks = len(accuracy)
    at_the_end, just_learnt = accuracy[-1], accuracy.diagonal()
    forgetting = backward_transfer = 0.0
    if num_tasks > 1:
        best_before_the_end = accuracy[:-1, :-1].max(axis=0)
        forgetting = float((best_before_the_end - at_the_end[:-1]).mean())
        backward_transfer = float((at_the_end - just_learnt)[:-1].mean())
    return Metrics(
        average_accuracy=float(at_the_end.mean()),
        forgetting=forgetting,
        backward_transfer=backward_transfer,
        plasticity=float(just_learnt.mean()),
        stability=(num_tasks - 1) / num_tasks * backward_transfer,
    )


def mean_and_deviation(values: Sequence[float]) -> MeanAndDeviation:
    """Summarise one number of several runs; the deviation divides by the number of runs, not one less.

    >>> mean_and_deviation([0.25, 0.75])
    MeanAndDeviation(mean=0.5, deviation=0.25)
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0 or not np.isfinite(numbers).all():
        raise EncoreError(f"a mean over runs needs a list of at least one finite number, got {values!r}")
    return MeanAndDeviation(mean=float(numbers.mean()), deviation=float(numbers.std(ddof=0)))


def _as_array(matrix: AccuracyMatrix) -> NDArray[np.float64]:
    if isinstance(matrix, Tensor):
        return _as_array(matrix.detach().double().cpu().numpy())
    try:
        accuracy = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise EncoreError("an accuracy matrix must hold numbers, in rows of the same length") from None
    if accuracy.ndim != 2 or accuracy.size == 0:
        raise EncoreError(
            f"an accuracy matrix must have rows and columns, one of each per task, got shape {accuracy.shape}"
        )
    return accuracy


def _checked(accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    num_rows, num_columns = accuracy.shape
    if num_rows != num_columns:
        raise EncoreError(
            "an accuracy matrix must be square, one row and one column per task, "
            f"got {num_rows} x {num_columns}"
        )
    wrong = np.argwhere(~((accuracy >= 0) & (accuracy <= 1)))
    if len(wrong):
        row, column = wrong[0]
        raise EncoreError(
            f"accuracies must be fractions from 0 to 1, got {accuracy[row, column]} "
            f"in row {row}, column {column}"
        )
    return accuracy
