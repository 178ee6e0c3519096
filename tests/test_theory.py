"""Proposition 1 against hand computation, and against reservoirs enumerated and simulated here.

The reservoirs of this file are written in plain Python, one example at a time. The enumeration is exact:
it follows every order of the task and every draw with its probability as a fraction.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from encore.errors import EncoreError
from encore.theory import (
    TaskRisk,
    beta,
    describe_stream,
    gradient_factor,
    memory_weight,
    task_to_memory_ratio,
)

Beta = Callable[[int, int], float]
Slots = tuple[int, ...]
Chances = dict[Slots, Fraction]


# The numbers themselves.


@pytest.mark.parametrize(
    ("task_sizes", "ratio"),
    [
        pytest.param([2500] * 20, 1.25, id="cifar100"),
        pytest.param([5000] * 10, 2.5, id="mini_imagenet"),
        pytest.param([24000] + [12000] * 8, 6.0, id="core50"),
        pytest.param([2250] * 5, 1.125, id="clrs25"),
    ],
)
def test_ratios_are_those_of_the_paper(task_sizes: list[int], ratio: float) -> None:
    risks = describe_stream(task_sizes, memory_size=2000)
    assert [risk.task for risk in risks] == list(range(1, len(task_sizes) + 1))
    assert risks[0].ratio is None
    assert risks[0].nominal_ratio == task_sizes[0] / 2000
    for risk in risks[1:]:
        assert risk.num_remembered == 2000
        assert risk.ratio == risk.nominal_ratio == ratio
        assert risk.weight_at_start == ratio


def test_a_stream_of_unequal_tasks_by_hand() -> None:
    by_hand = [
        TaskRisk(1, 4, 0, 0, 0.5, None, 0.0, 0.0, 0.0, 0.0, 1.0),
        TaskRisk(2, 6, 4, 4, 0.75, 1.5, 1.0, 0.25, 1.5, 0.375, 0.6),
        TaskRisk(3, 2, 10, 8, 0.25, 0.25, 1.0, 5 / 7, 0.25, 5 / 28, 1 / 6),
    ]
    for risk, expected in zip(describe_stream([4, 6, 2], memory_size=8), by_hand, strict=True):
        assert risk == pytest.approx(expected)


def test_a_memory_not_yet_full_counts_what_it_holds() -> None:
    second = describe_stream([2500] * 20, memory_size=5000)[1]
    assert (second.nominal_ratio, second.ratio) == (0.5, 1.0)


@pytest.mark.parametrize("task", range(2, 21))
def test_the_smallest_beta_of_balanced_tasks(task: int) -> None:
    """Note 3 of the proposition: (T - 1) / (T + 1)."""
    risk = describe_stream([2500] * task, memory_size=2000)[-1]
    assert risk.beta_at_end == pytest.approx((task - 1) / (task + 1))


@given(num_current=st.integers(0, 10**6), num_past=st.integers(1, 10**6))
def test_beta_by_its_formula(num_current: int, num_past: int) -> None:
    exact = 1 / (1 + 2 * Fraction(num_current, num_past))
    assert beta(num_current, num_past) == pytest.approx(float(exact), rel=1e-14)
    assert 0 < beta(num_current, num_past) <= 1
    assert beta(0, num_past) == 1


@given(num_current=st.integers(0, 10**4), more=st.integers(1, 10**4), num_past=st.integers(1, 10**4))
def test_beta_falls_within_a_task_and_rises_with_the_past(num_current: int, more: int, num_past: int) -> None:
    """Notes 2 and 4 of the proposition."""
    assert beta(num_current + more, num_past) < beta(num_current, num_past)
    assert beta(num_current + 1, num_past + more) > beta(num_current + 1, num_past)
    assert beta(num_current, num_past * 10**12) == pytest.approx(1)


@given(
    sizes=st.lists(st.integers(1, 10**4), min_size=1, max_size=6),
    memory_size=st.integers(1, 10**4),
    part=st.fractions(0, 1),
)
def test_weights_balance(sizes: list[int], memory_size: int, part: Fraction) -> None:
    """The weights of all losses times the factor add up to the two batches of a step, each a mean."""
    for risk in describe_stream(sizes, memory_size)[1:]:
        num_current = int(part * risk.size)
        weight = memory_weight(num_current, risk.num_past, risk.size, memory_size)
        factor = gradient_factor(num_current, risk.num_past, risk.size)
        assert factor * (risk.size + weight * risk.num_remembered) == pytest.approx(2)
        assert risk.weight_at_end <= weight <= risk.weight_at_start


def test_without_a_past_there_is_no_memory_term() -> None:
    assert beta(0, 0) == beta(7, 0) == 0
    assert memory_weight(num_current=3, num_past=0, task_size=10, memory_size=5) == 0
    assert gradient_factor(num_current=0, num_past=0, task_size=10) == pytest.approx(1 / 10)
    assert gradient_factor(num_current=4, num_past=0, task_size=10) == pytest.approx(2 / 10)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: task_to_memory_ratio(0, 5), "task_size must be at least 1, got 0"),
        (lambda: task_to_memory_ratio(5, 0), "memory_examples must be at least 1, got 0"),
        (lambda: beta(-1, 5), "num_current must be at least 0, got -1"),
        (lambda: beta(5, -1), "num_past must be at least 0, got -1"),
        (
            lambda: memory_weight(6, 5, 5, 5),
            "num_current must be from 0 to the 5 examples of the task, got 6",
        ),
        (lambda: memory_weight(0, 5, 5, 0), "memory_size must be at least 1, got 0"),
        (lambda: gradient_factor(-1, 5, 5), "num_current must be from 0 to the 5 examples of the task"),
        (lambda: gradient_factor(0, -5, 5), "num_past must be at least 0, got -5"),
        (lambda: gradient_factor(0, 5, 0), "task_size must be at least 1, got 0"),
        (lambda: describe_stream([], 5), r"each at least 1, got \[\]"),
        (lambda: describe_stream([3, 0], 5), r"each at least 1, got \[3, 0\]"),
        (lambda: describe_stream([3], 0), "memory_size must be at least 1, got 0"),
    ],
)
def test_impossible_counts_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        call()


# The proposition, exactly. Examples are numbered: the past from 0, the current task after it.

TASK_SIZE = 4


def offered(chances: Chances, example: int, num_seen: int, capacity: int) -> Chances:
    """Offer one example to every possible memory: textbook reservoir sampling."""
    after: Chances = {}
    for slots, chance in chances.items():
        if len(slots) < capacity:
            outcomes = [((*slots, example), chance)]
        else:
            drawn = chance / (num_seen + 1)
            outcomes = [((*slots[:i], example, *slots[i + 1 :]), drawn) for i in range(capacity)]
            outcomes.append((slots, chance - capacity * drawn))
        for outcome, share in outcomes:
            after[outcome] = after.get(outcome, Fraction(0)) + share
    return after


def expected_coefficients(
    order: Slots, initial: Slots, num_past: int, num_current: int, capacity: int, batch_size: int
) -> list[Fraction]:
    """Return the expected coefficient of each example's gradient in the step after `num_current` examples.

    The expectation is over the reservoir and the memory batch; the order of the task and what the memory
    held at its start are given.
    """
    chances: Chances = {initial: Fraction(1)}
    for position, example in enumerate(order[:num_current]):
        chances = offered(chances, example, num_past + position, capacity)
    coefficients = [Fraction(0)] * (num_past + len(order))
    for slots, chance in chances.items():
        for example in slots:
            coefficients[example] += chance / len(slots)  # a uniform memory batch: each slot alike
    for example in order[num_current : num_current + batch_size]:
        coefficients[example] += Fraction(1, batch_size)
    return coefficients


def over_all_orders(
    initial: Slots, num_past: int, num_current: int, capacity: int, batch_size: int
) -> list[float]:
    orders = list(permutations(range(num_past, num_past + TASK_SIZE)))
    rows = [
        expected_coefficients(order, initial, num_past, num_current, capacity, batch_size) for order in orders
    ]
    return [float(sum(column) / len(orders)) for column in zip(*rows, strict=True)]


def stated_coefficients(
    initial: Slots, num_past: int, num_current: int, ratio: float, beta_t: float
) -> list[float]:
    """Return the coefficients in the gradient of a risk, times the only factor they can agree with.

    A step is the sum of two means, so that its coefficients add up to two.
    """
    weight = beta_t * ratio
    factor = 2 / (TASK_SIZE + weight * len(initial))
    past = [weight * factor if example in initial else 0.0 for example in range(num_past)]
    return past + [factor] * TASK_SIZE


SETTINGS = [
    (num_past, capacity, batch_size, num_current)
    for num_past, capacity in [(3, 2), (5, 5), (1, 1), (3, 5), (3, 9)]  # the last two: filling up, never full
    for batch_size in (1, 2)
    for num_current in range(0, TASK_SIZE, batch_size)
]


@pytest.mark.parametrize(("num_past", "capacity", "batch_size", "num_current"), SETTINGS)
def test_expected_step_is_the_gradient_of_the_risk(
    num_past: int, capacity: int, batch_size: int, num_current: int
) -> None:
    """For every memory that the task may find, over all orders of the task and all draws."""
    weight = memory_weight(num_current, num_past, TASK_SIZE, capacity)
    factor = gradient_factor(num_current, num_past, TASK_SIZE)
    for initial in combinations(range(num_past), min(capacity, num_past)):
        past = [weight * factor if example in initial else 0.0 for example in range(num_past)]
        coefficients = over_all_orders(initial, num_past, num_current, capacity, batch_size)
        assert coefficients == pytest.approx(past + [factor] * TASK_SIZE, rel=1e-12)


def without_the_two(num_current: int, num_past: int) -> float:
    return num_past / (num_past + num_current)


def with_the_batch_being_learnt(num_current: int, num_past: int) -> float:
    """Count the examples as the paper writes it, up to and with the current batch, here of two."""
    return beta(num_current + 2, num_past)


@pytest.mark.parametrize(
    ("ratio", "formula", "holds"),
    [
        pytest.param(TASK_SIZE / 3, beta, True, id="as_it_is"),
        pytest.param(TASK_SIZE / 3, without_the_two, False, id="without_the_two"),
        pytest.param(TASK_SIZE / 3, with_the_batch_being_learnt, False, id="with_the_batch_being_learnt"),
        pytest.param(TASK_SIZE / 5, beta, False, id="ratio_to_the_size_of_a_memory_not_full"),
    ],
)
def test_no_other_weight_will_do(ratio: float, formula: Beta, holds: bool) -> None:
    num_past, capacity, num_current, initial = 3, 5, 2, (0, 1, 2)
    stated = stated_coefficients(initial, num_past, num_current, ratio, formula(num_current, num_past))
    expected = over_all_orders(initial, num_past, num_current, capacity, batch_size=2)
    assert (stated == pytest.approx(expected, rel=1e-12)) is holds


def test_the_order_of_the_task_must_be_random() -> None:
    """Given the order, the step knows nothing of what is still to come: it is not unbiased."""
    coefficients = expected_coefficients(
        (2, 3, 4, 5), (0, 1), num_past=2, num_current=1, capacity=2, batch_size=1
    )
    third = Fraction(1, 3)
    assert coefficients == [third, third, third, 1, 0, 0]
    assert over_all_orders((0, 1), 2, 1, 2, 1) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3])


# The proposition, simulated with a model: a whole stream, and gradients of drawn batches.

NUM_PAST, CURRENT, CAPACITY, BATCH_SIZE, NUM_RUNS = 12, 8, 5, 2, 20_000
Gradients = NDArray[np.float64]


def simulate_run(draws: random.Random) -> list[tuple[list[int], list[int]]]:
    """Return the memory batch and the incoming batch of each step of the current task."""
    memory: list[int] = []
    num_seen = 0

    def remember(example: int) -> None:
        nonlocal num_seen
        num_seen += 1
        if len(memory) < CAPACITY:
            memory.append(example)
        elif (slot := draws.randrange(num_seen)) < CAPACITY:
            memory[slot] = example

    for example in range(NUM_PAST):
        remember(example)
    order = draws.sample(range(NUM_PAST, NUM_PAST + CURRENT), CURRENT)
    steps = []
    for start in range(0, CURRENT, BATCH_SIZE):
        incoming = order[start : start + BATCH_SIZE]
        steps.append((draws.sample(memory, BATCH_SIZE), incoming))
        for example in incoming:
            remember(example)
    return steps


class SoftmaxRegression:
    """Random weights, and a past and a current task from different distributions."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.weights = normal(4, 3).requires_grad_()
        self.inputs = torch.cat([normal(NUM_PAST, 4) - 1, normal(CURRENT, 4) + 1])
        self.labels = torch.tensor([0, 1] * (NUM_PAST // 2) + [2, 1] * (CURRENT // 2))

    def gradient(self, coefficients: Tensor) -> Gradients:
        """Return the gradient of the sum of all losses with these coefficients."""
        losses = F.cross_entropy(self.inputs @ self.weights, self.labels, reduction="none")
        (gradient,) = torch.autograd.grad(coefficients @ losses, self.weights)
        return np.asarray(gradient.flatten().numpy(), dtype=np.float64)


@pytest.fixture(scope="module")
def model() -> SoftmaxRegression:
    return SoftmaxRegression()


@pytest.fixture(scope="module")
def drawn_gradients(model: SoftmaxRegression) -> Gradients:
    """Return the gradient of every step of every run, [NUM_RUNS, steps, weights]."""
    draws = random.Random(0)
    runs = np.array([simulate_run(draws) for _ in range(NUM_RUNS)])  # [runs, steps, two batches, size]
    one_example_each = torch.eye(NUM_PAST + CURRENT, dtype=torch.float64)
    of_example = np.stack([model.gradient(row) for row in one_example_each])
    return np.asarray(of_example[runs].mean(axis=3).sum(axis=2))


def largest_z(model: SoftmaxRegression, drawn: Gradients, step: int, formula: Beta) -> float:
    """Return the largest deviation from the gradient of the risk, in standard errors, over the weights.

    What the memory holds at the start is random, too: its sum of losses is, on average, its share of the
    sum over all the past.
    """
    num_current = step * BATCH_SIZE
    weight = formula(num_current, NUM_PAST) * task_to_memory_ratio(CURRENT, CAPACITY)
    coefficients = torch.ones(NUM_PAST + CURRENT, dtype=torch.float64)
    coefficients[:NUM_PAST] = weight * CAPACITY / NUM_PAST
    stated = model.gradient(coefficients)
    stated *= 2 / (CURRENT + weight * CAPACITY)
    mean, error = drawn[:, step].mean(axis=0), drawn[:, step].std(axis=0, ddof=1) / NUM_RUNS**0.5
    return float((np.abs(mean - stated) / error).max())


@pytest.mark.parametrize("step", range(CURRENT // BATCH_SIZE))
def test_drawn_steps_average_to_the_gradient_of_the_risk(
    model: SoftmaxRegression, drawn_gradients: Gradients, step: int
) -> None:
    """Twelve weights, four steps: by chance, one of 48 deviates by 4.5 once in three thousand seeds."""
    assert largest_z(model, drawn_gradients, step, beta) < 4.5


@pytest.mark.parametrize("formula", [without_the_two, with_the_batch_being_learnt])
@pytest.mark.parametrize("step", range(1, CURRENT // BATCH_SIZE))
def test_drawn_steps_tell_a_wrong_weight(
    model: SoftmaxRegression, drawn_gradients: Gradients, step: int, formula: Beta
) -> None:
    assert largest_z(model, drawn_gradients, step, formula) > 9
