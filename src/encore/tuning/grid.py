"""Which settings of K, P and Q are tried."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from encore.errors import EncoreError
from encore.interfaces import Plan
from encore.randomness import Randomness
from encore.values import whole_number

REPEATS = tuple(range(1, 21))
AUGMENTATIONS = ((1, 5), (1, 14), (2, 14), (3, 14), (4, 14))  # P and Q
NUM_OPS = (1, 2, 3, 4)
MAGNITUDES = (5, 14)


def make_grid(
    repeats: Sequence[int] | None = None,
    num_ops: Sequence[int] | None = None,
    magnitudes: Sequence[int] | None = None,
) -> tuple[Plan, ...]:
    """Return the plans to try, each once, the cheapest first: by K, then P, then Q.

    Without arguments they are the paper's 100: 1 to 20 iterations with each of five augmentations. Where
    values of P or Q are given, every P goes with every Q, and what is not given has the paper's values.
    Without operations (P = 0) the magnitude means nothing: such plans are the same, and are tried once.

    >>> len(make_grid()), len(make_grid([1, 2, 5, 10, 20], [0, 1, 2, 3], [5, 14]))
    (100, 35)
    >>> make_grid([2], [0, 1], [5])
    (Plan(repeats=2, num_ops=0, magnitude=5), Plan(repeats=2, num_ops=1, magnitude=5))
    """
    pairs: Sequence[tuple[int, int]] = AUGMENTATIONS
    if num_ops is not None or magnitudes is not None:
        first = NUM_OPS if num_ops is None else num_ops
        second = MAGNITUDES if magnitudes is None else magnitudes
        pairs = [(ops, magnitude) for ops in first for magnitude in second]
    plans = [Plan(number, *pair) for number in (REPEATS if repeats is None else repeats) for pair in pairs]
    return check_grid(plans)


def check_grid(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return the plans in order, each once, or refuse a grid with nothing in it."""
    if not plans:
        raise EncoreError("the grid is empty: give at least one value each of K, P and Q")
    different: dict[tuple[int, int, int], Plan] = {}
    for plan in sorted(plans, key=lambda plan: (plan.repeats, plan.num_ops, plan.magnitude)):
        different.setdefault((plan.repeats, plan.num_ops, plan.magnitude if plan.num_ops else 0), plan)
    return tuple(different.values())


def draw_trials(grid: Sequence[Plan], number: int, seed: int) -> tuple[Plan, ...]:
    """Return so many plans of a grid, drawn without replacement, or the whole of a smaller one.

    >>> len(draw_trials(make_grid(), 12, seed=0)), len(draw_trials(make_grid([1]), 12, seed=0))
    (12, 5)
    """
    number = whole_number("the number of settings to try (--trials)", number, lowest=1)
    order = torch.randperm(len(grid), generator=Randomness(seed).host_generator("trials"))
    return check_grid([grid[place] for place in order[:number].tolist()])


def name_plan(plan: Plan) -> str:
    """Return a short name for a plan, which is also that of its directory.

    >>> name_plan(Plan(10, 1, 14)), name_plan(Plan(5, 0, 14))
    ('K10-P1-Q14', 'K5-P0')
    """
    augmentation = f"P{plan.num_ops}-Q{plan.magnitude}" if plan.num_ops else "P0"
    return f"K{plan.repeats}-{augmentation}"
