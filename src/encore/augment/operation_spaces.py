"""The two lists of operations RandAugment draws from, and how strong each one is at every magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from encore.interfaces import MAX_MAGNITUDE

Levels = NDArray[np.uint8]
Strengths = tuple[tuple[float, ...], tuple[float, ...]]  # [plus, minus][magnitude]
Matrix = tuple[float, float, float, float, float, float]  # (x, y) comes from (a x + b y + c, d x + e y + f)


class Family(Enum):
    """The arithmetic of an operation, which it may share with others."""

    IDENTITY = auto()
    MOVE = auto()  # every pixel is fetched from elsewhere in the image
    CUTOUT = auto()  # a square is painted over
    CURVE = auto()  # new levels that depend on nothing but the old
    EQUALIZE = auto()  # new levels from the channel's histogram
    STRETCH = auto()  # new levels from the channel's extremes
    BRIGHTNESS = auto()  # blended with black
    CONTRAST = auto()  # blended with the image's mean grey
    COLOR = auto()  # blended with the grey image
    SHARPNESS = auto()  # blended with the smoothed image


BLENDS = frozenset({Family.BRIGHTNESS, Family.CONTRAST, Family.COLOR, Family.SHARPNESS})


def _same_levels(levels: Levels, strength: float) -> Levels:
    return levels


def _same_place(strength: float, height: int, width: int) -> Matrix:
    return 1.0, 0.0, 0.0, 0.0, 1.0, 0.0


@dataclass(frozen=True)
class Operation:
    """An operation by name: its family, and its strength with either sign at every magnitude."""

    name: str
    family: Family
    strengths: Strengths
    curve: Callable[[Levels, float], Levels] = _same_levels  # old levels, strength -> new levels
    matrix: Callable[[float, int, int], Matrix] = _same_place  # strength, height, width -> sources


def _unsigned(strength: Callable[[int], float]) -> Strengths:
    return (tuple(strength(magnitude) for magnitude in range(MAX_MAGNITUDE + 1)),) * 2


def _signed(strength: Callable[[int], float]) -> Strengths:
    plus, _ = _unsigned(strength)
    return plus, tuple(-value for value in plus)


def _between(lowest: float, highest: float) -> Callable[[int], float]:
    return lambda magnitude: lowest + magnitude / MAX_MAGNITUDE * (highest - lowest)


def _around_one(widest: float) -> Strengths:
    plus, minus = _signed(_between(0.0, widest))
    return tuple(1.0 + value for value in plus), tuple(1.0 + value for value in minus)


_NO_STRENGTH = _unsigned(lambda magnitude: 0.0)


def _invert(levels: Levels, strength: float) -> Levels:
    return ~levels


def _all_bits(condition: NDArray[np.bool_]) -> Levels:
    return np.negative(condition.view(np.uint8))  # 255 where it holds: much faster than np.where


def _solarize(levels: Levels, threshold: float) -> Levels:
    return levels ^ _all_bits(levels >= math.ceil(threshold))


def _solarize_add(levels: Levels, addition: float) -> Levels:
    added = levels + np.uint8(addition)
    return _solarize(added | _all_bits(added < levels), 128)


def _posterize(levels: Levels, bits: float) -> Levels:
    return levels & np.uint8(256 - (1 << (8 - int(bits))))


def _rotate(degrees: float, height: int, width: int) -> Matrix:
    # Pillow rounds to 15 decimals before it goes to fixed point.
    angle = -math.radians(degrees % 360.0)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y


def _shear_x(slope: float, height: int, width: int) -> Matrix:
    return 1.0, slope, 0.0, 0.0, 1.0, 0.0


def _shear_y(slope: float, height: int, width: int) -> Matrix:
    return 1.0, 0.0, 0.0, slope, 1.0, 0.0


def _translate_x(pixels: float, height: int, width: int) -> Matrix:
    return 1.0, 0.0, pixels, 0.0, 1.0, 0.0


def _translate_y(pixels: float, height: int, width: int) -> Matrix:
    return 1.0, 0.0, 0.0, 0.0, 1.0, pixels


def _translate_x_by_width(parts: float, height: int, width: int) -> Matrix:
    return _translate_x(int(parts * width / 331), height, width)


def _translate_y_by_height(parts: float, height: int, width: int) -> Matrix:
    return _translate_y(int(parts * height / 331), height, width)


_IN_BOTH_SPACES = (
    Operation("AutoContrast", Family.STRETCH, _NO_STRENGTH),
    Operation("Equalize", Family.EQUALIZE, _NO_STRENGTH),
    Operation("Rotate", Family.MOVE, _signed(_between(0.0, 30.0)), matrix=_rotate),
    Operation("ShearX", Family.MOVE, _signed(_between(0.0, 0.3)), matrix=_shear_x),
    Operation("ShearY", Family.MOVE, _signed(_between(0.0, 0.3)), matrix=_shear_y),
)

# The published RandAugment for small images. Its translations reach 150 / 331 of the side at magnitude 30.
PAPER = (
    Operation("Identity", Family.IDENTITY, _NO_STRENGTH),
    *_IN_BOTH_SPACES,
    Operation("TranslateX", Family.MOVE, _signed(lambda m: 5.0 * m), matrix=_translate_x_by_width),
    Operation("TranslateY", Family.MOVE, _signed(lambda m: 5.0 * m), matrix=_translate_y_by_height),
    Operation("Posterize", Family.CURVE, _unsigned(lambda m: 8 - round(m / 7.5)), curve=_posterize),
    Operation("Solarize", Family.CURVE, _unsigned(lambda m: 255 - 8.5 * m), curve=_solarize),
    Operation("Brightness", Family.BRIGHTNESS, _around_one(0.9)),
    Operation("Contrast", Family.CONTRAST, _around_one(0.9)),
    Operation("Color", Family.COLOR, _around_one(0.9)),
    Operation("Sharpness", Family.SHARPNESS, _around_one(0.9)),
)

# What the paper's published code draws from: no Identity, and translations in pixels whatever the size.
AUTHORS = (
    *_IN_BOTH_SPACES,
    Operation("TranslateXabs", Family.MOVE, _signed(_between(0.0, 100.0)), matrix=_translate_x),
    Operation("TranslateYabs", Family.MOVE, _signed(_between(0.0, 100.0)), matrix=_translate_y),
    Operation("CutoutAbs", Family.CUTOUT, _unsigned(_between(0.0, 40.0))),
    Operation("Invert", Family.CURVE, _NO_STRENGTH, curve=_invert),
    Operation("Posterize", Family.CURVE, _unsigned(lambda m: max(1, int(m / 30 * 4))), curve=_posterize),
    Operation("Solarize", Family.CURVE, _unsigned(_between(0.0, 256.0)), curve=_solarize),
    Operation("SolarizeAdd", Family.CURVE, _unsigned(_between(0.0, 110.0)), curve=_solarize_add),
    Operation("Brightness", Family.BRIGHTNESS, _unsigned(_between(0.1, 1.9))),
    Operation("Contrast", Family.CONTRAST, _unsigned(_between(0.1, 1.9))),
    Operation("Color", Family.COLOR, _unsigned(_between(0.1, 1.9))),
    Operation("Sharpness", Family.SHARPNESS, _unsigned(_between(0.1, 1.9))),
)

SPACES: dict[str, tuple[Operation, ...]] = {"paper": PAPER, "authors": AUTHORS}
