"""The metrics against hand computation, plain Python from the definitions, and published results."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encore.errors import EncoreError
from encore.metrics import AccuracyMatrix, Metrics, mean_and_deviation, metrics_of

BY_HAND = [[0.7, 0.0, 0.0], [0.8, 0.9, 0.0], [0.4, 0.6, 0.5]]


@st.composite
def matrices(draw: st.DrawFn) -> list[list[float]]:
    num_tasks = draw(st.integers(1, 7))
    fraction = st.floats(0.0, 1.0)
    return [
        [draw(fraction) if column <= row else 0.0 for column in range(num_tasks)] for row in range(num_tasks)
    ]


def from_the_definitions(a: list[list[float]]) -> Metrics:
    last = len(a) - 1
    forgetting = transfer = 0.0
    for i in range(last):
        forgetting += (max(a[row][i] for row in range(last)) - a[last][i]) / last
        transfer += (a[last][i] - a[i][i]) / last
    return Metrics(
        average_accuracy=sum(a[last]) / len(a),
        forgetting=forgetting,
        backward_transfer=transfer,
        plasticity=sum(a[i][i] for i in range(len(a))) / len(a),
        stability=last / len(a) * transfer,
    )


def test_by_hand() -> None:
    metrics = metrics_of(BY_HAND)
    assert metrics.average_accuracy == pytest.approx((0.4 + 0.6 + 0.5) / 3)
    assert metrics.forgetting == pytest.approx(((0.8 - 0.4) + (0.9 - 0.6)) / 2)
    assert metrics.backward_transfer == pytest.approx(((0.4 - 0.7) + (0.6 - 0.9)) / 2)
    assert metrics.plasticity == pytest.approx((0.7 + 0.9 + 0.5) / 3)
    assert metrics.stability == pytest.approx(2 / 3 * -0.3)
    assert all(type(value) is float for value in metrics)


def test_forgetting_is_negative_where_the_end_is_the_best_moment() -> None:
    metrics = metrics_of([[0.5, 0.0], [0.75, 0.5]])
    assert metrics.forgetting == -0.25
    assert metrics.backward_transfer == 0.25


def test_a_single_task_forgets_nothing() -> None:
    assert metrics_of([[0.625]]) == Metrics(0.625, 0.0, 0.0, 0.625, 0.0)


@given(matrices())
def test_agrees_with_the_definitions(matrix: list[list[float]]) -> None:
    assert metrics_of(matrix) == pytest.approx(from_the_definitions(matrix), abs=1e-12)


@given(matrices())
def test_accuracy_is_plasticity_plus_stability(matrix: list[list[float]]) -> None:
    metrics = metrics_of(matrix)
    assert metrics.average_accuracy == pytest.approx(metrics.plasticity + metrics.stability, abs=1e-12)


@given(matrices())
def test_forgetting_bounds_accuracy_from_below(matrix: list[list[float]]) -> None:
    metrics = metrics_of(matrix)
    share_of_past_tasks = (len(matrix) - 1) / len(matrix)
    assert metrics.average_accuracy >= metrics.plasticity - share_of_past_tasks * metrics.forgetting - 1e-12


PUBLISHED_ON_CIFAR100 = {  # accuracy, forgetting, stability, plasticity of each seed, cut to three digits
    "er": [(0.182, 0.201, -0.189, 0.371), (0.196, 0.249, -0.237, 0.434), (0.192, 0.221, -0.207, 0.399)],
    "er_rar": [(0.277, 0.399, -0.379, 0.657), (0.271, 0.408, -0.387, 0.658), (0.272, 0.408, -0.388, 0.660)],
    "mir": [(0.172, 0.217, -0.200, 0.372), (0.192, 0.279, -0.265, 0.457), (0.188, 0.264, -0.251, 0.440)],
    "scr_rar": [(0.370, 0.273, -0.259, 0.629), (0.381, 0.269, -0.256, 0.637), (0.364, 0.297, -0.282, 0.646)],
}


@pytest.mark.parametrize("method", PUBLISHED_ON_CIFAR100)
def test_a_run_with_the_published_plasticity_and_stability_has_the_published_accuracy(method: str) -> None:
    """A stream of 20 tasks that are all learnt alike and all lose alike, as the published run on average."""
    num_tasks, rounding = 20, 0.002  # the digits are cut, not rounded, and two numbers are added
    for accuracy, forgetting, stability, plasticity in PUBLISHED_ON_CIFAR100[method]:
        matrix = np.tril(np.full((num_tasks, num_tasks), plasticity))
        matrix[-1, :-1] += stability * num_tasks / (num_tasks - 1)
        metrics = metrics_of(matrix)
        assert metrics.stability == pytest.approx(stability)
        assert metrics.average_accuracy == pytest.approx(accuracy, abs=rounding)
        # A task that is at its best right after training forgets -B_T, and any other forgets more.
        assert metrics.forgetting <= forgetting + rounding


@pytest.mark.parametrize(
    ("method", "mean", "deviation"), [("er", 19.04, 0.61), ("mir", 18.43, 0.88), ("scr_rar", 37.19, 0.70)]
)
def test_the_published_deviation_is_that_of_the_population(
    method: str, mean: float, deviation: float
) -> None:
    accuracies = [100 * line[0] + 0.05 for line in PUBLISHED_ON_CIFAR100[method]]
    summary = mean_and_deviation(accuracies)
    assert summary.mean == pytest.approx(mean, abs=0.05)
    assert summary.deviation == pytest.approx(deviation, abs=0.05)
    assert statistics.stdev(accuracies) != pytest.approx(deviation, abs=0.05)


def test_mean_and_deviation_by_hand() -> None:
    summary = mean_and_deviation([1.0, 2.0, 6.0])
    assert summary.mean == 3.0
    assert summary.deviation == pytest.approx(math.sqrt(14 / 3))
    assert mean_and_deviation([0.5]) == (0.5, 0.0)
    assert type(summary.mean) is float
    assert type(summary.deviation) is float


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_a_mean_needs_finite_numbers(values: list[float]) -> None:
    with pytest.raises(EncoreError, match="at least one finite number"):
        mean_and_deviation(values)


def test_lists_arrays_and_tensors_are_the_same() -> None:
    matrix = [[0.5, 0.0], [0.25, 0.75]]
    expected = metrics_of(matrix)
    assert metrics_of(np.array(matrix)) == expected
    assert metrics_of(np.array(matrix, dtype=np.float32)) == expected
    assert metrics_of(torch.tensor(matrix)) == expected
    assert metrics_of(torch.tensor(matrix, dtype=torch.bfloat16, requires_grad=True)) == expected


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ([[0.5, 0.0]], "must be square, one row and one column per task, got 1 x 2"),
        ([], r"must have rows and columns, one of each per task, got shape \(0,\)"),
        ([[]], r"must have rows and columns, one of each per task, got shape \(1, 0\)"),
        ([0.5, 0.5], r"must have rows and columns, one of each per task, got shape \(2,\)"),
        ([[0.5], [0.5, 0.5]], "must hold numbers, in rows of the same length"),
        ([["high", 0.0], [0.5, 0.5]], "must hold numbers, in rows of the same length"),
        ([[0.5, 0.0], [math.nan, 0.5]], "fractions from 0 to 1, got nan in row 1, column 0"),
        ([[0.5, math.inf], [0.5, 0.5]], "fractions from 0 to 1, got inf in row 0, column 1"),
        ([[37.1]], "fractions from 0 to 1, got 37.1 in row 0, column 0"),
        (torch.tensor([[-0.5]]), "fractions from 0 to 1, got -0.5 in row 0, column 0"),
    ],
)
def test_what_is_no_accuracy_matrix_is_refused(matrix: AccuracyMatrix, sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        metrics_of(matrix)
