"""The picture of a stream in a file: a heat map as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from encore.stream import Task
from encore.stream_chart import percent, printable
from encore.stream_frequencies import Frequencies, join, measure, share_out

PALE, MIDDLE, DARK = (217, 234, 247), (74, 144, 201), (8, 36, 92)  # of the least share to the largest
NUM_LEVELS = 12
MOST_ROWS = 150
WIDTH, HEIGHT = 720, 380  # of the map, about: rows have whole pixels, so that they meet without seams
LEFT, TOP, RIGHT, BOTTOM = 130, 64, 130, 56
TALLEST, LOWEST_NAMED = 26, 11  # pixels of a row, and below which rows are numbered instead of named
MOST_LETTERS = 18
SCALE = 180  # pixels of the explanation of the colours
NARROWEST_SHARE = 4  # pixels
NARROWEST = 22  # pixels from the number of a task to the next


def draw_picture(
    tasks: Sequence[Task],
    labels: NDArray[np.int64],
    class_names: Sequence[str],
    title: str,
    subtitles: Sequence[str],
) -> str:
    """Return an SVG document: classes from top to bottom, time from left to right, darker where more come."""
    shown, step = join(tasks, WIDTH)
    sizes = [len(task.train) for task in shown]
    widths = share_out(sizes, WIDTH)
    frequencies = measure(shown, labels, MOST_ROWS, widths, NARROWEST_SHARE)
    cell_height = min(TALLEST, max(2, HEIGHT // len(frequencies.rows)))
    width, height = sum(widths), len(frequencies.rows) * cell_height
    top = TOP + 17 * len(subtitles)
    full_width, full_height = LEFT + width + RIGHT, top + max(height + BOTTOM, SCALE + 52)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width}" height="{full_height}" '
        f'viewBox="0 0 {full_width} {full_height}" role="img" font-family="Helvetica, Arial, sans-serif" '
        'font-size="12" fill="#222">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect width="{full_width}" height="{full_height}" fill="#fff"/>',
        _text(LEFT, 26, title, 'font-size="17" font-weight="bold"'),
        *(_text(LEFT, 47 + 17 * line, words, 'fill="#555"') for line, words in enumerate(subtitles)),
        f'<g transform="translate({LEFT} {top})">',
        f'<g class="map" transform="scale(1 {cell_height})" shape-rendering="crispEdges">',
        *_cells(frequencies),
        "</g>",
        *_tasks(widths, step, height),
        f'<rect width="{width}" height="{height}" fill="none" stroke="#222"/>',
        *_names(frequencies, class_names, cell_height),
        *_time(sizes, widths, height),
        *_scale(frequencies.highest, width),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _cells(frequencies: Frequencies) -> Iterator[str]:
    """Yield a path for each level: all cells of a colour, those side by side as one."""
    levels = np.ceil(frequencies.strengths * NUM_LEVELS).astype(int)
    for level in range(1, NUM_LEVELS + 1):
        shapes = []
        for row, of_row in enumerate(levels == level):
            edges = np.flatnonzero(np.diff(of_row, prepend=False, append=False)).tolist()
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                shapes.append(f"M{begin} {row}h{end - begin}v1h{begin - end}z")
        if shapes:
            yield f'<path fill="{colour(level)}" d="{"".join(shapes)}"/>'


def colour(level: int) -> str:
    """Return the colour of a level, from 1 to NUM_LEVELS."""
    place = 2 * (level - 1) / (NUM_LEVELS - 1)
    begin, end = (PALE, MIDDLE) if place <= 1 else (MIDDLE, DARK)
    share = place if place <= 1 else place - 1
    return "#" + "".join(
        f"{round(one + share * (other - one)):02x}" for one, other in zip(begin, end, strict=True)
    )


def _tasks(widths: Sequence[int], step: int, height: int) -> Iterator[str]:
    """Yield lines between tasks, and above each task its number where there is room."""
    yield _text(-8, -8, "task", 'text-anchor="end" fill="#555"')
    begin, last = 0, -NARROWEST
    for number, width in enumerate(widths):
        if number:
            yield f'<path class="boundary" d="M{begin} -5V{height}" stroke="#999" stroke-width="0.7"/>'
        middle = begin + width // 2
        if middle - last >= NARROWEST:
            yield _text(middle, -8, str(number * step + 1), 'text-anchor="middle" fill="#555"')
            last = middle
        begin += width


def _names(frequencies: Frequencies, class_names: Sequence[str], cell_height: int) -> Iterator[str]:
    """Yield what stands left of the rows: names, or where they find no room the places in the order."""
    num_rows = len(frequencies.rows)
    if cell_height >= LOWEST_NAMED:
        for row, classes in enumerate(frequencies.rows):
            name = printable(class_names[classes[0]])
            name = name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…"
            style = f'text-anchor="end" font-size="{min(12, cell_height)}"'
            yield _text(-8, round((row + 0.5) * cell_height + 4), name, style)
        return
    places = np.cumsum([0, *(len(classes) for classes in frequencies.rows)]).tolist()
    step = round_step(places[-1], most=6)
    for row in range(num_rows):
        shown = [
            place for place in range(places[row], places[row + 1]) if (place + 1) % step == 0 or not place
        ]
        if shown:
            yield _text(-8, round((row + 0.5) * cell_height + 4), str(shown[0] + 1), 'text-anchor="end"')
    middle = num_rows * cell_height // 2
    style = f'text-anchor="middle" fill="#555" transform="rotate(-90 -48 {middle})"'
    yield _text(-48, middle, "classes in order of appearance", style)


def _time(sizes: Sequence[int], widths: Sequence[int], height: int) -> Iterator[str]:
    """Yield the axis of time."""
    ends, edges = np.cumsum([0, *sizes]), np.cumsum([0, *widths])
    for images in range(0, sum(sizes) + 1, round_step(sum(sizes), most=6)):
        place = round(float(np.interp(images, ends, edges)))
        yield f'<path d="M{place} {height}v5" stroke="#222"/>'
        yield _text(place, height + 19, f"{images:,}", 'text-anchor="middle"')
    yield _text(sum(widths) // 2, height + 40, "images seen", 'text-anchor="middle" fill="#555"')


def _scale(highest: float, width: int) -> Iterator[str]:
    """Yield the explanation of the colours."""
    left, size = width + 26, SCALE // NUM_LEVELS
    for level in range(1, NUM_LEVELS + 1):
        top = (NUM_LEVELS - level) * size
        yield f'<rect x="{left}" y="{top}" width="14" height="{size}" fill="{colour(level)}"/>'
    for share, words in ((1.0, f"{percent(highest)} or more"), (0.5, percent(highest / 2)), (0.0, "0 %")):
        yield _text(left + 20, round((1 - share) * NUM_LEVELS * size) + (10 if share else 4), words)
    bottom = NUM_LEVELS * size
    yield _text(left, bottom + 26, "of the images", 'fill="#555"')
    yield _text(left, bottom + 42, "of that time", 'fill="#555"')


def round_step(total: int, most: int) -> int:
    """Return 1, 2 or 5 times a power of ten, of which the total has no more than so many."""
    step = 1
    while total / step > most:
        digits = str(step)
        step = step * 5 // 2 if digits[0] == "2" else step * 2
    return step


def _text(left: float, top: float, words: str, style: str = "") -> str:
    return f'<text x="{left}" y="{top}"{" " if style else ""}{style}>{escape(printable(words))}</text>'
