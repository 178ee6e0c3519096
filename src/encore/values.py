"""Checking single values that a caller chose."""

from __future__ import annotations

import math
import operator
from typing import Any

from encore.errors import EncoreError

MOST = 2**31 - 1  # where nothing else bounds a count


def whole_number(name: str, value: Any, lowest: int, highest: int = MOST) -> int:
    """Return a whole number of any kind, NumPy's too, as an int, or refuse what is none or out of bounds.

    >>> whole_number("the batch size", 10, lowest=1)
    10
    >>> whole_number("repeats (K)", 2.5, lowest=1, highest=100)
    Traceback (most recent call last):
        ...
    encore.errors.EncoreError: repeats (K) must be a whole number from 1 to 100, got 2.5
    """
    bounds = f"from {lowest} to {highest}"
    if highest == MOST:
        bounds = f"of at least {lowest}" + (" and below 2**31" if _exceeds(value, MOST) else "")
    refusal = EncoreError(f"{name} must be a whole number {bounds}, got {value!r}")
    if isinstance(value, bool):
        raise refusal
    try:
        number = operator.index(value)
    except TypeError:
        raise refusal from None
    if not lowest <= number <= highest:
        raise refusal
    return number


def positive_number(name: str, value: Any) -> float:
    """Return a finite number above zero as a float."""
    return _number(name, value, "above 0", lambda number: number > 0)


def not_negative_number(name: str, value: Any) -> float:
    """Return a finite number of at least zero as a float."""
    return _number(name, value, "of at least 0", lambda number: number >= 0)


def number_between(name: str, value: Any, lowest: float, highest: float) -> float:
    """Return a number of at least and at most so much as a float."""
    return _number(name, value, f"from {lowest} to {highest}", lambda number: lowest <= number <= highest)


def share(name: str, value: Any) -> float:
    """Return a number from 0 to 1 as a float."""
    return _number(name, value, "from 0 to 1", lambda number: 0 <= number <= 1)


def _exceeds(value: Any, highest: int) -> bool:
    return isinstance(value, int) and value > highest


def _number(name: str, value: Any, bounds: str, is_within: Any) -> float:
    refusal = EncoreError(f"{name} must be a number {bounds}, got {value!r}")
    if isinstance(value, bool | str | bytes):
        raise refusal
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise refusal from None
    if not (math.isfinite(number) and is_within(number)):
        raise refusal
    return number
