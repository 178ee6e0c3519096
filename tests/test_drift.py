"""The drift test: on simulated numbers whose changes are known."""

from __future__ import annotations

import json
import math
import random
from statistics import median

import pytest

from encore.drift import PageHinkley
from encore.errors import EncoreError


def losses(numbers: random.Random, length: int, period: int) -> list[float]:
    """Return what a learner shows: at each change log(1 + loss) jumps, then it is learnt."""
    return [
        0.3 + 1.5 * math.exp(-(number % period) / 20) + numbers.gauss(0.0, 0.15) for number in range(length)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_changes_are_noticed_within_a_few_batches(seed: int) -> None:
    test, period = PageHinkley(), 100
    reported = [
        number
        for number, value in enumerate(losses(random.Random(seed), 1000, period))
        if test.is_change(value)
    ]
    for change in range(period, 1000, period):
        assert any(change <= number < change + 4 for number in reported), f"the one at {change}"
    assert len(reported) <= 9 + 2, "and hardly anything else"


@pytest.mark.parametrize(("threshold", "fewest", "most"), [(5.0, 0, 5), (2.0, 100, 1000)])
def test_false_alarms_are_rare_where_nothing_changes(threshold: float, fewest: int, most: int) -> None:
    """Of 30,000 values hardly any; with a low threshold there are some, so that this could be seen."""
    num_false = 0
    for seed in range(30):
        numbers, test = random.Random(seed), PageHinkley(threshold)
        num_false += sum(test.is_change(numbers.gauss(5.0, 2.0)) for _ in range(1000))
    assert fewest <= num_false <= most


def test_smaller_threshold_is_quicker_and_less_sure() -> None:
    false_alarms, delays = [], []
    for threshold in (2.0, 8.0):
        num_false, late = 0, []
        for seed in range(20):
            numbers, test = random.Random(seed), PageHinkley(threshold)
            num_false += sum(test.is_change(numbers.gauss(0.0, 1.0)) for _ in range(300))
            late.append(next(number for number in range(500) if test.is_change(numbers.gauss(5.0, 1.0))))
        false_alarms.append(num_false)
        delays.append(median(late))
    assert false_alarms[0] > 2 * false_alarms[1]
    assert delays[0] < delays[1], "most often; after a false alarm it has to warm up first"


def test_sum_is_page_s_by_hand() -> None:
    """Eight values to warm up, then by hand: mean 1, deviation 1, so that z is the value less 1."""
    test = PageHinkley(threshold=4.0, slack=0.75)
    for value in [0.0, 2.0] * 4:
        assert not test.is_change(value)
    state = test.state_dict()
    assert state["mean"] == pytest.approx(1.0)
    assert state["variance"] == pytest.approx(1.0)
    assert not test.is_change(3.0)  # z = 2
    assert test.state_dict()["sum"] == pytest.approx(2.0 - 0.75)
    expected_mean = 1.0 + 2.0 / 9
    assert test.state_dict()["mean"] == pytest.approx(expected_mean)
    deviation = math.sqrt(8 / 9 * (1.0 + 4.0 / 9))
    assert test.state_dict()["variance"] == pytest.approx(deviation**2)
    assert not test.is_change(1.0)
    z = (1.0 - expected_mean) / deviation
    assert test.state_dict()["sum"] == pytest.approx(1.25 + z - 0.75)


def test_one_value_is_enough_if_it_is_far_off() -> None:
    """Mean 1 and deviation 1, as above: six deviations are the threshold and the slack."""
    for value, is_change in ((6.9, False), (7.1, True)):
        test = PageHinkley(threshold=5.0, slack=1.0)
        for earlier in [0.0, 2.0] * 4:
            test.is_change(earlier)
        assert test.is_change(value) == is_change


def test_what_falls_is_no_change() -> None:
    numbers, test = random.Random(0), PageHinkley()
    assert not any(test.is_change(10.0 - number / 20 + numbers.gauss(0.0, 0.3)) for number in range(200))


def test_what_is_not_finite_or_never_moves_is_passed_by() -> None:
    test = PageHinkley()
    for _ in range(50):
        assert not test.is_change(1.0)
        assert not test.is_change(math.nan)
        assert not test.is_change(math.inf)
    assert test.state_dict() == {"count": 50, "mean": 1.0, "variance": 0.0, "sum": 0.0}


def test_goes_on_from_its_state() -> None:
    values = losses(random.Random(4), 400, 60)
    whole, first, second = PageHinkley(), PageHinkley(), PageHinkley()
    expected = [whole.is_change(value) for value in values][150:]
    for value in values[:150]:
        first.is_change(value)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [second.is_change(value) for value in values[150:]] == expected
    assert any(expected)


@pytest.mark.parametrize(("threshold", "slack"), [(0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (4.0, -0.1)])
def test_bad_numbers_are_refused(threshold: float, slack: float) -> None:
    with pytest.raises(EncoreError, match=r"controller\.(threshold|slack) must be a number"):
        PageHinkley(threshold, slack)
