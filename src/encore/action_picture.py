"""The actions of runs in a file: K, augmentations and memory accuracy along the stream, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import numpy as np

from encore.action_chart import find_lowest
from encore.action_shares import (
    Numbers,
    Parts,
    Shares,
    divide,
    list_augmentations,
    measure,
    name_augmentation,
)
from encore.actions import Recorded
from encore.stream_chart import printable
from encore.stream_picture import NARROWEST, NUM_LEVELS, colour, round_step

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 74, 176, 90, 58
GAP = 46  # between two panels, with the heading of the lower one
REPEATS, AUGMENTATIONS, ACCURACY = 190, 120, 150  # heights of the panels
NARROWEST_PART = 4  # pixels
PALE, DARK = (253, 231, 203), (142, 58, 6)  # of the weakest and of the strongest augmentation
NONE = "#e8e8e8"
MOST_EQUAL = 6  # times as likely as if all were alike, from which on a K has the darkest colour
SYMBOLS = {"repeats": "K", "augmentations": "P, Q"}
LINE, TARGET, CURVE = "#0b2a66", "#b3261e", "#2c7a4b"


def draw_action_picture(runs: Sequence[Recorded], title: str, subtitles: Sequence[str]) -> str:
    """Return an SVG document: three panels, one above the other, with time from left to right."""
    augmentations = list_augmentations(runs)
    parts = divide(runs, WIDTH, NARROWEST_PART)
    shares = measure(runs, parts.of_batches, augmentations)
    width = sum(parts.widths)
    tops = [TOP + 17 * len(subtitles)]
    for height in (REPEATS, AUGMENTATIONS):
        tops.append(tops[-1] + height + GAP)
    full_width, full_height = LEFT + width + RIGHT, tops[-1] + ACCURACY + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width}" height="{full_height}" '
        f'viewBox="0 0 {full_width} {full_height}" role="img" font-family="Helvetica, Arial, sans-serif" '
        'font-size="12" fill="#222">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect width="{full_width}" height="{full_height}" fill="#fff"/>',
        _text(LEFT, 28, title, 'font-size="17" font-weight="bold"'),
        *(_text(LEFT, 49 + 17 * number, words, 'fill="#555"') for number, words in enumerate(subtitles)),
        f'<g transform="translate({LEFT} {tops[0]})">',
        *_repeats(parts, shares, runs[0]),
        *_frame(parts, REPEATS, "repeats K", is_first=True),
        "</g>",
        f'<g transform="translate({LEFT} {tops[1]})">',
        *_augmentations(parts, shares, augmentations),
        *_frame(parts, AUGMENTATIONS, "augmentation: P operations of magnitude Q"),
        "</g>",
        f'<g transform="translate({LEFT} {tops[2]})">',
        *_accuracy(parts, shares, runs[0]),
        *_frame(parts, ACCURACY, "memory accuracy in the last iteration"),
        *_time(runs, parts),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _frame(parts: Parts, height: int, heading: str, is_first: bool = False) -> Iterator[str]:
    """Yield lines between tasks, the border and the heading; above the first panel the tasks' numbers."""
    width = sum(parts.widths)
    begin, last = 0, -NARROWEST
    for number, of_task in enumerate(parts.widths):
        if number:
            yield f'<path class="boundary" d="M{begin} 0V{height}" stroke="#888" stroke-width="0.7"/>'
        middle = begin + of_task // 2
        if is_first and middle - last >= NARROWEST:
            yield _text(middle, -7, str(number * parts.step + 1), 'text-anchor="middle" fill="#555"')
            last = middle
        begin += of_task
    yield f'<rect width="{width}" height="{height}" fill="none" stroke="#222"/>'
    if is_first:
        yield _text(-8, -7, "task", 'text-anchor="end" fill="#555"')
        yield _text(0, -24, heading, 'font-weight="bold"')
    else:
        yield _text(0, -9, heading, 'font-weight="bold"')


def _repeats(parts: Parts, shares: Shares, run: Recorded) -> Iterator[str]:
    """Yield how likely each K was, as a map, and the mean of those chosen as a line."""
    most = len(shares.chances)
    highest = min(float(shares.chances.max()), MOST_EQUAL / most)
    levels = np.round(np.minimum(shares.chances / highest, 1.0) * NUM_LEVELS).astype(int)
    tops = np.linspace(REPEATS, 0, most + 1)
    for level in range(1, NUM_LEVELS + 1):
        shapes = []
        for row, column in np.argwhere(levels == level):
            begin, end = parts.edges[column]
            top, height = tops[row + 1], tops[row] - tops[row + 1]
            shapes.append(f"M{begin} {top:.1f}h{end - begin}v{height:.1f}h{begin - end}z")
        if shapes:
            path = f'<path class="chosen" fill="{colour(level)}" fill-opacity="0.55" d="{"".join(shapes)}"/>'
            yield path
    heights = REPEATS * (1 - (shares.repeats - 0.5) / most)  # the middle of a row is its K
    yield from _line(parts, heights, 'class="mean" stroke="#fff" stroke-width="4.5" stroke-opacity="0.8"')
    yield from _line(parts, heights, f'class="mean" stroke="{LINE}" stroke-width="2.2"')
    for number in range(1, most + 1):
        if number == 1 or number % round_step(most, most=5) == 0:
            yield _text(
                -8, f"{REPEATS * (1 - (number - 0.5) / most) + 4:.1f}", str(number), 'text-anchor="end"'
            )
    left = sum(parts.widths) + 22
    yield f'<path d="M{left} 8h22" stroke="{LINE}" stroke-width="2.2"/>'
    yield _text(left + 30, 12, "mean")
    size = 14
    for level in range(1, NUM_LEVELS + 1, 3):
        place = left + (level - 1) // 3 * size
        style = f'fill="{colour(level)}" fill-opacity="0.55"'
        yield f'<rect x="{place}" y="26" width="{size}" height="14" {style}/>'
    yield _text(left, 56, ("less … more likely" if run.arms else "less … more often"), 'fill="#555"')


def _augmentations(parts: Parts, shares: Shares, augmentations: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the share of each augmentation, one upon the other, the weakest at the bottom."""
    colours = _colours(augmentations)
    edges = np.vstack([np.zeros(len(parts.edges)), np.cumsum(shares.augmentations, axis=0)])
    heights = AUGMENTATIONS * (1 - edges)
    for number, fill in enumerate(colours):
        shapes = []
        for part, (begin, end) in enumerate(parts.edges):
            bottom, top = heights[number, part], heights[number + 1, part]
            if bottom - top > 0.05:
                shapes.append(f"M{begin} {bottom:.1f}H{end}V{top:.1f}H{begin}z")
        if shapes:
            yield (f'<path class="share" fill="{fill}" shape-rendering="crispEdges" d="{"".join(shapes)}"/>')
    for share in (0.0, 0.5, 1.0):
        yield _text(-8, round(AUGMENTATIONS * (1 - share)) + 4, f"{100 * share:.0f} %", 'text-anchor="end"')
    left = sum(parts.widths) + 22
    for row, number in enumerate(reversed(range(len(augmentations)))):
        top = 4 + 19 * row
        yield f'<rect x="{left}" y="{top}" width="14" height="14" fill="{colours[number]}"/>'
        yield _text(left + 22, top + 11, name_augmentation(augmentations[number]))


def _accuracy(parts: Parts, shares: Shares, run: Recorded) -> Iterator[str]:
    """Yield the mean memory accuracy, the range of its middle half, and the targets."""
    lowest = find_lowest(np.concatenate([shares.accuracy, shares.quartiles[0]]), run)

    def place(value: float | Numbers) -> float | Numbers:
        return ACCURACY * (1 - (value - lowest) / (1 - lowest))

    shapes = []
    for part, (begin, end) in enumerate(parts.edges):
        low, high = shares.quartiles[:, part]
        if not np.isnan(low):
            shapes.append(f"M{begin} {place(low):.1f}H{end}V{place(high):.1f}H{begin}z")
    yield f'<path class="quartiles" fill="{CURVE}" fill-opacity="0.18" d="{"".join(shapes)}"/>'
    yield from _targets(run, sum(parts.widths), lowest)
    heights = np.asarray(place(shares.accuracy))
    yield from _line(parts, heights, f'class="mean" stroke="{CURVE}" stroke-width="2.2"')
    step = 0.1 if lowest >= 0.5 else 0.2
    for value in np.arange(1.0, lowest - 0.01, -step):
        yield _text(-8, f"{place(float(value)) + 4:.1f}", f"{100 * value:.0f} %", 'text-anchor="end"')
    left = sum(parts.widths) - 172
    yield f'<path d="M{left} -13h22" stroke="{CURVE}" stroke-width="2.2"/>'
    yield _text(left + 28, -9, "mean")
    yield f'<rect x="{left + 76}" y="-19" width="22" height="12" fill="{CURVE}" fill-opacity="0.18"/>'
    yield _text(left + 104, -9, "middle half")


def _targets(run: Recorded, width: int, lowest: float) -> Iterator[str]:
    """Yield a line for each accuracy that is aimed at, and for a band its borders."""
    names: dict[float, list[str]] = {}
    for name, (low, high) in run.targets.items():
        for value in {low, high}:
            names.setdefault(value, []).append(SYMBOLS.get(name, name) if low < high else "target")
    for value, of_value in sorted(names.items()):
        height = ACCURACY * (1 - (value - lowest) / (1 - lowest))
        yield (
            f'<path class="target" d="M0 {height:.1f}H{width}" stroke="{TARGET}" stroke-width="1.3" '
            'stroke-dasharray="6 4"/>'
        )
        label = f"{100 * value:g} % {' and '.join(dict.fromkeys(of_value))}"
        yield _text(width + 8, f"{height + 4:.1f}", label, f'fill="{TARGET}"')


def _line(parts: Parts, heights: Numbers, style: str) -> Iterator[str]:
    """Yield a line through the middles of the parts, from where a task begins to where it ends."""
    for home in range(len(parts.widths)):
        known = [part for part, of_part in enumerate(parts.homes) if of_part == home]
        known = [part for part in known if not np.isnan(heights[part])]
        if known:
            first, last = parts.edges[known[0]][0], parts.edges[known[-1]][1]
            places = [first, *(sum(parts.edges[part]) / 2 for part in known), last]
            tops = heights[[known[0], *known, known[-1]]]
            points = " ".join(f"{place:g},{top:.1f}" for place, top in zip(places, tops, strict=True))
            yield f'<polyline fill="none" stroke-linejoin="round" {style} points="{points}"/>'


def _time(runs: Sequence[Recorded], parts: Parts) -> Iterator[str]:
    """Yield the axis of time."""
    groups = np.concatenate([run.tasks // parts.step for run in runs])
    ends = np.cumsum([0, *np.bincount(groups, minlength=len(parts.widths)) / len(runs)])
    edges = np.cumsum([0, *parts.widths])
    for batches in range(0, int(ends[-1]) + 1, round_step(int(ends[-1]), most=6)):
        place = round(float(np.interp(batches, ends, edges)))
        yield f'<path d="M{place} {ACCURACY}v5" stroke="#222"/>'
        yield _text(place, ACCURACY + 19, f"{batches:,}", 'text-anchor="middle"')
    yield _text(int(edges[-1]) // 2, ACCURACY + 41, "incoming batches", 'text-anchor="middle" fill="#555"')


def _colours(augmentations: Sequence[tuple[int, int]]) -> list[str]:
    strong = [pair for pair in augmentations if pair[0]]
    found = []
    for pair in augmentations:
        place = strong.index(pair) / max(1, len(strong) - 1) if pair in strong else 0.0
        mixed = (round(one + place * (other - one)) for one, other in zip(PALE, DARK, strict=True))
        found.append("#" + "".join(f"{value:02x}" for value in mixed) if pair in strong else NONE)
    return found


def _text(left: float, top: float | str, words: str, style: str = "") -> str:
    return f'<text x="{left}" y="{top}"{" " if style else ""}{style}>{escape(printable(words))}</text>'
