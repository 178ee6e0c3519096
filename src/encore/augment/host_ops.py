"""The operations on one image on the host, in NumPy, where a call costs a fraction of a tensor's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from encore.augment.operation_spaces import Family, Levels, Operation
from encore.augment.tables import (
    ALL_LEVELS,
    CENTRE_BITS,
    CUTOUT_COLOR,
    FIXED_POINT_BITS,
    LUMA,
    choices,
    cutout_square,
    level_tables,
    scaled_levels,
    source_matrix,
)

Centre = Sequence[int]  # y and x, fractions of the height and the width in units of 2 ** -31
HostOperation = Callable[[Levels, Centre], Levels]  # an image [C, H, W], a drawn centre -> the new image

_SAME_LEVELS = ALL_LEVELS.tobytes()
_ONE_PIXEL = 1 << FIXED_POINT_BITS
_LUMA = np.array(LUMA, dtype=np.uint32)[:, np.newaxis]
_FIRST_BINS = 256 * np.arange(3)[:, np.newaxis]  # of the histograms of three channels in a row


def host_operations(space: str, height: int, width: int, magnitude: int) -> list[HostOperation]:
    """Return what each choice of a space does to an image of one size."""
    tables = level_tables(space)
    return [
        _host_operation(operation, strengths[magnitude], tables.levels[start:], height, width)
        for (operation, strengths), start in zip(choices(space), tables.starts[magnitude], strict=True)
    ]


def _host_operation(
    operation: Operation, strength: float, tables: Levels, height: int, width: int
) -> HostOperation:
    blend = tables[: 256 * 256]
    match operation.family:
        case Family.IDENTITY:
            return _keep
        case Family.MOVE:
            return _move(source_matrix(operation, strength, height, width), height, width)
        case Family.CUTOUT:
            return partial(_cut_out, *cutout_square(operation, strength))
        case Family.CURVE:
            return partial(_bend, operation.curve, strength)
        case Family.EQUALIZE:
            return _equalize
        case Family.STRETCH:
            return _stretch
        case Family.BRIGHTNESS:
            return partial(_look_up, blend[:256].tobytes())
        case Family.CONTRAST:
            return partial(_contrast, blend.tobytes())
        case Family.COLOR:
            return partial(_color, blend)
        case Family.SHARPNESS:
            return partial(_sharpen, blend)


def _keep(image: Levels, centre: Centre) -> Levels:
    return image


def _move(matrix: tuple[int, ...], height: int, width: int) -> HostOperation:
    a, b, c, d, e, f = matrix
    if (a, b, d, e) == (_ONE_PIXEL, 0, 0, _ONE_PIXEL):
        rows, columns = _overlap(height, f >> FIXED_POINT_BITS), _overlap(width, c >> FIXED_POINT_BITS)
        return partial(_shift, (slice(None), rows[0], columns[0]), (slice(None), rows[1], columns[1]))
    ys, xs = np.ogrid[:height, :width]
    x = a * xs + b * ys + c >> FIXED_POINT_BITS
    y = d * xs + e * ys + f >> FIXED_POINT_BITS
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return partial(_fetch_pixels, ((y * width + x) * inside).ravel(), inside.ravel().view(np.uint8))


def _overlap(length: int, offset: int) -> tuple[slice, slice]:
    """Return the pixels of a line whose source, so far ahead, is in the line too, and their sources."""
    num_covered = max(0, length - abs(offset))
    first, source = max(0, -offset), max(0, offset)
    return slice(first, first + num_covered), slice(source, source + num_covered)


def _shift(covered: tuple[slice, ...], source: tuple[slice, ...], image: Levels, centre: Centre) -> Levels:
    moved = np.zeros_like(image)
    moved[covered] = image[source]
    return moved


def _fetch_pixels(source: NDArray[np.int64], inside: Levels, image: Levels, centre: Centre) -> Levels:
    moved = image.reshape(len(image), -1).take(source, axis=1)
    moved *= inside
    return moved.reshape(image.shape)


def _cut_out(half_side: int, num_pixels: int, image: Levels, centre: Centre) -> Levels:
    height, width = image.shape[1:]
    top = max(0, centre[0] * height - half_side) >> CENTRE_BITS
    left = max(0, centre[1] * width - half_side) >> CENTRE_BITS
    painted = image.copy()
    for channel, level in zip(painted, CUTOUT_COLOR[len(image)], strict=True):
        channel[top : top + num_pixels, left : left + num_pixels] = level
    return painted


def _bend(curve: Callable[[Levels, float], Levels], strength: float, image: Levels, centre: Centre) -> Levels:
    return curve(image, strength)


def _look_up(table: bytes, image: Levels, centre: Centre) -> Levels:
    return np.frombuffer(image.tobytes().translate(table), dtype=np.uint8).reshape(image.shape)


def _look_up_channels(tables: list[bytes], image: Levels) -> Levels:
    channels = [channel.tobytes().translate(table) for channel, table in zip(image, tables, strict=True)]
    return np.frombuffer(b"".join(channels), dtype=np.uint8).reshape(image.shape)


def _equalize(image: Levels, centre: Centre) -> Levels:
    planes = image.reshape(len(image), -1)
    bins = (planes + _FIRST_BINS[: len(planes)]).ravel()
    histograms = np.bincount(bins, minlength=256 * len(planes)).reshape(-1, 256)
    darker = histograms.cumsum(1) - histograms
    tables = []
    for num_darker, brightest in zip(darker, planes.max(1).tolist(), strict=True):
        step = int(num_darker[brightest]) // 255
        if step == 0:
            tables.append(_SAME_LEVELS)
        else:
            num_darker += step // 2
            num_darker //= step
            tables.append(np.minimum(num_darker, 255).astype(np.uint8).tobytes())
    return _look_up_channels(tables, image)


def _stretch(image: Levels, centre: Centre) -> Levels:
    planes = image.reshape(len(image), -1)
    extremes = zip(planes.min(1).tolist(), planes.max(1).tolist(), strict=True)
    return _look_up_channels([_stretch_table(lowest, highest) for lowest, highest in extremes], image)


@lru_cache(maxsize=8192)
def _stretch_table(lowest: int, highest: int) -> bytes:
    if lowest == highest:
        return _SAME_LEVELS
    scaled = scaled_levels()[highest - lowest]
    # Levels outside the extremes get numbers that no pixel asks for.
    table: Levels = (scaled - scaled[lowest]).astype(np.int32).astype(np.uint8)
    return table.tobytes()


def _grey(image: Levels) -> NDArray[np.uint32]:
    if len(image) == 1:
        return image.reshape(image.shape[1:]).astype(np.uint32)
    shares: NDArray[np.uint32] = image.reshape(3, -1) * _LUMA
    luma: NDArray[np.uint32] = (shares[0] + shares[1] + shares[2] + (1 << 15)) >> 16
    return luma.reshape(image.shape[1:])


def _contrast(blend: bytes, image: Levels, centre: Centre) -> Levels:
    grey = _grey(image)
    mean = (int(grey.sum()) + grey.size // 2) // grey.size
    return _look_up(blend[256 * mean : 256 * mean + 256], image, centre)


def _color(blend: Levels, image: Levels, centre: Centre) -> Levels:
    return blend.take(_grey(image) << 8 | image)


def _sharpen(blend: Levels, image: Levels, centre: Centre) -> Levels:
    height, width = image.shape[1:]
    if height < 3 or width < 3:
        return image
    # The whole image is averaged as one long line: what that spoils at the borders is not used.
    levels = image.astype(np.uint16).ravel()
    across = levels[:-2] + levels[1:-1]
    across += levels[2:]
    averages = levels * 4
    inner = averages[width + 1 : -width - 1]
    inner += across[: -2 * width]
    inner += across[width:-width]
    inner += across[2 * width :]
    inner += 6
    inner //= 13
    smooth = levels.reshape(image.shape)
    smooth[:, 1:-1, 1:-1] = averages.reshape(image.shape)[:, 1:-1, 1:-1]
    smooth <<= 8
    smooth |= image
    return blend.take(smooth)
