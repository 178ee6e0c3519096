from __future__ import annotations

from collections import Counter

import pytest

from encore.errors import EncoreError
from encore.interfaces import Plan
from encore.tuning.grid import draw_trials, make_grid, name_plan


def test_paper_s_grid_has_twenty_numbers_of_iterations_and_five_augmentations() -> None:
    grid = make_grid()
    assert len(grid) == len(set(grid)) == 100
    assert {plan.repeats for plan in grid} == set(range(1, 21))
    pairs = {(plan.num_ops, plan.magnitude) for plan in grid}
    assert pairs == {(1, 5), (1, 14), (2, 14), (3, 14), (4, 14)}


def test_given_values_are_combined() -> None:
    grid = make_grid([5, 1], [2, 1], [14, 5])
    assert grid == tuple(Plan(k, p, q) for k in (1, 5) for p in (1, 2) for q in (5, 14))
    assert make_grid([3]) == tuple(Plan(3, *pair) for pair in ((1, 5), (1, 14), (2, 14), (3, 14), (4, 14)))
    assert make_grid([3], num_ops=[2]) == (Plan(3, 2, 5), Plan(3, 2, 14))
    assert make_grid([3], magnitudes=[9]) == tuple(Plan(3, p, 9) for p in (1, 2, 3, 4))


def test_what_is_the_same_is_tried_once() -> None:
    grid = make_grid([1, 2, 2], [0, 1], [5, 14, 14])
    assert [name_plan(plan) for plan in grid] == [
        "K1-P0", "K1-P1-Q5", "K1-P1-Q14", "K2-P0", "K2-P1-Q5", "K2-P1-Q14"
    ]  # fmt: skip


def test_names_tell_all_plans_apart() -> None:
    grid = make_grid(range(1, 30), range(5), range(31))
    assert len({name_plan(plan) for plan in grid}) == len(grid) == 29 * (1 + 4 * 31)


@pytest.mark.parametrize("empty", [([],), ([1], []), ([1], [1], [])])
def test_grid_with_nothing_left_is_refused(empty: tuple[list[int], ...]) -> None:
    with pytest.raises(EncoreError, match="the grid is empty: give at least one value each of K, P and Q"):
        make_grid(*empty)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [(([0],), "repeats .K."), (([1], [5]), "num_ops"), (([1], [1], [31]), "magnitude")],
)
def test_values_out_of_bounds_are_refused(values: tuple[list[int], ...], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        make_grid(*values)


def test_trials_are_different_plans_of_the_grid_and_the_seed_s() -> None:
    grid = make_grid()
    drawn = draw_trials(grid, 12, seed=3)
    assert len(set(drawn)) == 12
    assert set(drawn) <= set(grid)
    assert drawn == draw_trials(grid, 12, seed=3) != draw_trials(grid, 12, seed=4)
    assert draw_trials(grid, 500, seed=3) == grid
    with pytest.raises(EncoreError, match="--trials"):
        draw_trials(grid, 0, seed=3)


def test_every_plan_is_drawn_about_as_often() -> None:
    grid = make_grid([1, 2], [1], [5, 14])
    counts = Counter(plan for seed in range(400) for plan in draw_trials(grid, 1, seed))
    # Each is drawn 100 times on average, with a deviation of 9.
    assert all(65 < counts[plan] < 135 for plan in grid)
