"""Proposition 1: the risk that experience replay minimises, and how it changes along a stream.

While it learns task T, experience replay with a reservoir follows in expectation the gradient of

    R_t = sum of losses over D_T + beta_t * lambda * sum of losses over D_M0,
    lambda = |D_T| / |D_M0|,    beta_t = 1 / (1 + 2 N_cur / N_past),

where D_T is the task, D_M0 what the memory holds at its start, and N_cur and N_past count the examples
of this task and of all earlier ones that the memory has been offered so far. The expectation is over the
draws of the reservoir, the draw of the memory batch and the order in which the task arrives; it holds for
every D_M0 that is given, whether the memory is full or not, as long as lambda counts the examples it
really holds.

The paper leaves three things loose. Its N_cur includes the batch being learnt, which the memory has not
seen yet: here, and for the equality, it does not. The weights must be independent of the order, so the
gradient is unbiased at fixed weights but not given the past of the same run, whose weights have seen
other examples of the task. And the loss of an example must not depend on the rest of its batch, which
batch normalisation in training violates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from encore.errors import EncoreError


class TaskRisk(NamedTuple):
    """How one task of a stream weighs against the memory, in the letters of Proposition 1."""

    task: int  # T, from 1
    size: int  # |D_T|
    num_past: int  # N_past, examples of all earlier tasks
    num_remembered: int  # |D_M0|, examples the memory holds when the task starts
    nominal_ratio: float  # |D_T| over the size of the memory, full or not: the lambda the paper reports
    ratio: float | None  # lambda = |D_T| / |D_M0|; None for the first task, which finds no memory
    beta_at_start: float  # 1 if there is a past, else 0
    beta_at_end: float  # the smallest, once the memory was offered the whole task
    weight_at_start: float  # beta * lambda; 0 if there is no past
    weight_at_end: float
    current_share_at_end: float  # expected share of the memory that the task takes in the end


def task_to_memory_ratio(task_size: int, memory_examples: int) -> float:
    """Return lambda = |D_T| / |D_M0|, the size of a task over the number of examples in memory.

    >>> task_to_memory_ratio(task_size=2500, memory_examples=2000)
    1.25
    """
    _check_at_least(1, task_size=task_size, memory_examples=memory_examples)
    return task_size / memory_examples


def beta(num_current: int, num_past: int) -> float:
    """Return beta_t = 1 / (1 + 2 N_cur / N_past), and 0 where there is no past.

    >>> beta(num_current=0, num_past=2500), beta(num_current=2500, num_past=5000)
    (1.0, 0.5)
    """
    _check_at_least(0, num_current=num_current, num_past=num_past)
    return num_past / (num_past + 2 * num_current) if num_past else 0.0


def memory_weight(num_current: int, num_past: int, task_size: int, memory_size: int) -> float:
    """Return beta_t * lambda, the weight of each loss in memory, with what the memory really holds.

    It is 0 where there is no past.

    >>> memory_weight(num_current=0, num_past=5000, task_size=2500, memory_size=2000)
    1.25
    """
    _check_at_least(1, task_size=task_size, memory_size=memory_size)
    _check_within_task(num_current, task_size)
    weight = beta(num_current, num_past)
    return weight * task_to_memory_ratio(task_size, min(memory_size, num_past)) if num_past else 0.0


def gradient_factor(num_current: int, num_past: int, task_size: int) -> float:
    """Return how many times the gradient of R_t the expected gradient of experience replay is.

    (N_past + 2 N_cur) / ((N_past + N_cur) |D_T|), and 1 / |D_T| while the memory is empty.

    >>> gradient_factor(num_current=5, num_past=10, task_size=10)
    0.13333333333333333
    """
    _check_at_least(1, task_size=task_size)
    _check_at_least(0, num_past=num_past)
    _check_within_task(num_current, task_size)
    num_seen = num_past + num_current
    return (1 + num_current / num_seen) / task_size if num_seen else 1 / task_size


def describe_stream(task_sizes: Sequence[int], memory_size: int) -> list[TaskRisk]:
    """Describe the risk of every task of a stream, of any sizes, learnt with a reservoir memory.

    >>> for risk in describe_stream([1000, 3000, 1000], memory_size=2000):
    ...     print(risk.task, risk.num_remembered, risk.ratio, risk.beta_at_end, risk.weight_at_end)
    1 0 None 0.0 0.0
    2 1000 3.0 0.14285714285714285 0.42857142857142855
    3 2000 0.5 0.6666666666666666 0.3333333333333333
    """
    _check_at_least(1, memory_size=memory_size)
    if not task_sizes or min(task_sizes) < 1:
        raise EncoreError(f"task_sizes must be at least one number, each at least 1, got {list(task_sizes)}")
    past = accumulate(task_sizes, initial=0)
    return [
        _describe_task(task, size, num_past, memory_size)
        for task, (size, num_past) in enumerate(zip(task_sizes, past, strict=False), start=1)
    ]


def _describe_task(task: int, size: int, num_past: int, memory_size: int) -> TaskRisk:
    num_remembered = min(memory_size, num_past)
    return TaskRisk(
        task=task,
        size=size,
        num_past=num_past,
        num_remembered=num_remembered,
        nominal_ratio=task_to_memory_ratio(size, memory_size),
        ratio=task_to_memory_ratio(size, num_remembered) if num_past else None,
        beta_at_start=beta(0, num_past),
        beta_at_end=beta(size, num_past),
        weight_at_start=memory_weight(0, num_past, size, memory_size),
        weight_at_end=memory_weight(size, num_past, size, memory_size),
        current_share_at_end=size / (num_past + size),
    )


def _check_at_least(lowest: int, **counts: int) -> None:
    for name, count in counts.items():
        if count < lowest:
            raise EncoreError(f"{name} must be at least {lowest}, got {count}")


def _check_within_task(num_current: int, task_size: int) -> None:
    if not 0 <= num_current <= task_size:
        raise EncoreError(
            f"num_current must be from 0 to the {task_size} examples of the task, got {num_current}"
        )
