"""What can be worked out about the operations before an image is seen.

The tables hold what Pillow computes in floating point. Left to compute for an image are whole numbers, and
one difference of doubles: the same on the host, on an accelerator and in a compiled graph.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encore.augment.operation_spaces import BLENDS, SPACES, Family, Levels, Operation
from encore.interfaces import MAX_MAGNITUDE

FIXED_POINT_BITS = 16  # of a source coordinate, as in Pillow
CENTRE_BITS = 31  # of a drawn fraction of the height or the width
LUMA = (19595, 38470, 7471)  # the shares of red, green and blue in the grey, in units of 2 ** -16
CUTOUT_COLOR = {3: (125, 123, 114), 1: (123,)}  # by number of channels: 123 is the grey of the colour
ALL_LEVELS: Levels = np.arange(256, dtype=np.uint8)


class Choice(NamedTuple):
    """What an image may draw: an operation, with plus or with minus."""

    operation: Operation
    strengths: tuple[float, ...]  # [magnitude]


class LevelTables(NamedTuple):
    """The tables of all operations of a space, one after the other, and where each one starts.

    The first is the identity. A curve has 256 entries: the new levels. A blend has 256 x 256: the new levels
    for every level of the other image.
    """

    levels: Levels  # [size]
    starts: NDArray[np.int64]  # [magnitude, choice]; 0 for an operation without a table


def choices(space: str) -> tuple[Choice, ...]:
    """List what an image may draw: 2 i is operation i with plus, 2 i + 1 the same with minus."""
    return tuple(Choice(operation, signed) for operation in SPACES[space] for signed in operation.strengths)


def blend_table(factor: float) -> Levels:
    """Return [other, level]: other + factor (level - other) in single precision, cut to 0..255."""
    level = ALL_LEVELS.astype(np.float32)
    other = level[:, np.newaxis]
    blended = other + np.float32(factor) * (level - other)
    return np.clip(blended, 0, 255).astype(np.uint8)


@cache
def level_tables(space: str) -> LevelTables:
    """Lay out the tables of a space; what several choices share is there once."""
    tables = [ALL_LEVELS]
    start_of = {ALL_LEVELS.tobytes(): 0}
    starts = np.zeros((MAX_MAGNITUDE + 1, 2 * len(SPACES[space])), dtype=np.int64)
    size = ALL_LEVELS.size
    for column, (operation, strengths) in enumerate(choices(space)):
        for magnitude, strength in enumerate(strengths):
            if operation.family in BLENDS:
                table = blend_table(strength).ravel()
            else:
                table = operation.curve(ALL_LEVELS, strength)
            key = table.tobytes()
            if key not in start_of:
                start_of[key] = size
                tables.append(table)
                size += table.size
            starts[magnitude, column] = start_of[key]
    return LevelTables(np.concatenate(tables), starts)


@cache
def scaled_levels() -> NDArray[np.float64]:
    """Return [extent, level]: level x (255 / extent), which spreads an extent of levels over all 256."""
    scaled = np.zeros((256, 256))
    scaled[1:] = ALL_LEVELS * (255.0 / np.arange(1, 256))[:, np.newaxis]
    return scaled


def source_matrix(operation: Operation, strength: float, height: int, width: int) -> tuple[int, ...]:
    """Return a, b, c, d, e, f: pixel (x, y) is fetched from (a x + b y + c, d x + e y + f).

    They are in units of 2 ** -16 pixels, and c and f hold the way from the pixel's corner to its middle.
    """
    a, b, c, d, e, f = operation.matrix(strength, height, width)
    from_middle = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return tuple(math.floor(value * (1 << FIXED_POINT_BITS) + 0.5) for value in from_middle)


def cutout_square(operation: Operation, strength: float) -> tuple[int, int]:
    """Return half the square's side, in units of 2 ** -31 pixels, and the pixels it covers each way."""
    if operation.family is not Family.CUTOUT:
        return 0, 0
    return round(strength / 2 * (1 << CENTRE_BITS)), int(strength) + 1
