"""What accuracy costs in steps of SGD, in a file: a point for each group of runs, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from encore.errors import EncoreError
from encore.metrics import mean_and_deviation
from encore.stream_chart import printable

WIDTH, HEIGHT = 560, 340  # of the plot
LEFT, TOP, RIGHT, BOTTOM = 64, 64, 170, 56
LOWEST_LABEL = 14  # pixels from one name to the next
LINE, POINT, OTHER = "#2c5f8a", "#0b2a66", "#b3261e"
STEPS_OF_TEN = (1, 2, 5)


class Point(NamedTuple):
    """A group of runs: the mean of its steps, and mean and deviation of its accuracy in %."""

    steps: float
    accuracy: float
    deviation: float


def point_of(records: Sequence[Mapping[str, Any]]) -> Point:
    """Return the point of the records of a group."""
    accuracy = mean_and_deviation([100 * record["metrics"]["average_accuracy"] for record in records])
    return Point(mean_and_deviation([record["sgd_steps"] for record in records]).mean, *accuracy)


def draw_compute_picture(
    points: Mapping[str, Point], joined: Sequence[str], title: str, subtitles: Sequence[str] = ()
) -> str:
    """Return an SVG document: steps from left to right on a logarithmic scale, accuracy upwards.

    Args:
        points: each with its name.
        joined: names of those that a line joins, such as the fixed numbers of repeats.
        title: what stands above.
        subtitles: lines below the title.

    """
    if not points:
        raise EncoreError("there is nothing to draw: no group of runs is finished")
    lowest, highest = (pick(math.log10(point.steps) for point in points.values()) for pick in (min, max))
    margin = max(0.06 * (highest - lowest), 0.05)
    lowest, highest = lowest - margin, highest + margin
    bottom = math.floor(min(point.accuracy - point.deviation for point in points.values()) - 0.5)
    top = math.ceil(max(point.accuracy + point.deviation for point in points.values()) + 0.5)

    def across(steps: float) -> float:
        return WIDTH * (math.log10(steps) - lowest) / (highest - lowest)

    def down(accuracy: float) -> float:
        return HEIGHT * (top - accuracy) / (top - bottom)

    above = TOP + 17 * len(subtitles)
    full_width, full_height = LEFT + WIDTH + RIGHT, above + HEIGHT + BOTTOM
    places = {name: (across(point.steps), down(point.accuracy)) for name, point in points.items()}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width}" height="{full_height}" '
        f'viewBox="0 0 {full_width} {full_height}" role="img" font-family="Helvetica, Arial, sans-serif" '
        'font-size="12" fill="#222">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect width="{full_width}" height="{full_height}" fill="#fff"/>',
        _text(LEFT, 26, title, 'font-size="17" font-weight="bold"'),
        *(_text(LEFT, 47 + 17 * line, words, 'fill="#555"') for line, words in enumerate(subtitles)),
        f'<g transform="translate({LEFT} {above})">',
        *_scales(lowest, highest, bottom, top),
        *_line([places[name] for name in joined if name in places]),
        *_points(points, places, joined, HEIGHT / (top - bottom)),
        *_labels(places, joined),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _scales(lowest: float, highest: float, bottom: int, top: int) -> Iterator[str]:
    """Yield the border, and lines with what they stand for."""
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#222"/>'
    for power in range(math.floor(lowest), math.ceil(highest) + 1):
        for digit in STEPS_OF_TEN:
            steps = digit * 10.0**power
            if lowest <= math.log10(steps) <= highest:
                place = WIDTH * (math.log10(steps) - lowest) / (highest - lowest)
                yield f'<path d="M{place:.1f} 0V{HEIGHT}" stroke="#e4e4e4"/>'
                yield _text(place, HEIGHT + 18, f"{steps:,.0f}", 'text-anchor="middle"')
    step = next(size for size in (1, 2, 5, 10, 20, 50) if (top - bottom) / size <= 8)
    for accuracy in range(-(-bottom // step) * step, top + 1, step):
        place = HEIGHT * (top - accuracy) / (top - bottom)
        yield f'<path d="M0 {place:.1f}H{WIDTH}" stroke="#e4e4e4"/>'
        yield _text(-8, place + 4, str(accuracy), 'text-anchor="end"')
    yield _text(WIDTH / 2, HEIGHT + 40, "SGD steps", 'text-anchor="middle" fill="#555"')
    style = f'text-anchor="middle" fill="#555" transform="rotate(-90 -44 {HEIGHT / 2})"'
    yield _text(-44, HEIGHT / 2, "accuracy at the end, %", style)


def _line(places: Sequence[tuple[float, float]]) -> Iterator[str]:
    if len(places) > 1:
        corners = " ".join(f"{left:.1f},{top:.1f}" for left, top in sorted(places))
        yield f'<polyline class="joined" points="{corners}" fill="none" stroke="{LINE}" stroke-width="1.6"/>'


def _points(
    points: Mapping[str, Point],
    places: Mapping[str, tuple[float, float]],
    joined: Sequence[str],
    pixels: float,
) -> Iterator[str]:
    """Yield a disc for each point, with a bar as long as its deviation each way."""
    for name, (left, top) in places.items():
        colour, reach = POINT if name in joined else OTHER, pixels * points[name].deviation
        yield f'<path d="M{left:.1f} {top - reach:.1f}V{top + reach:.1f}" stroke="{colour}"/>'
        yield f'<circle class="group" cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{colour}"/>'


def _labels(places: Mapping[str, tuple[float, float]], joined: Sequence[str]) -> Iterator[str]:
    """Yield the names right of the plot, in the order of the points, each with a thin line to its own."""
    ordered = sorted(places, key=lambda name: places[name][1])
    begin = min(places[ordered[0]][1], HEIGHT - LOWEST_LABEL * (len(ordered) - 1))
    free = begin - LOWEST_LABEL
    for number, name in enumerate(ordered):
        left, top = places[name]
        latest = HEIGHT - LOWEST_LABEL * (len(ordered) - 1 - number)  # so that those below find room
        free = min(max(top, free + LOWEST_LABEL), max(latest, free + LOWEST_LABEL))
        colour = POINT if name in joined else OTHER
        yield f'<path d="M{left + 5:.1f} {top:.1f}L{WIDTH + 8} {free:.1f}" stroke="#bbb" stroke-width="0.6"/>'
        yield _text(WIDTH + 12, free + 4, name, f'fill="{colour}"')


def _text(left: float, top: float, words: str, style: str = "") -> str:
    return (
        f'<text x="{left:.1f}" y="{top:.1f}"{" " if style else ""}{style}>{escape(printable(words))}</text>'
    )
