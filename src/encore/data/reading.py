"""Reading images of a set: a little ahead of their use, in threads, and past a few broken ones."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encore.data.image_set import BrokenImagesError, Images, Rows
from encore.errors import EncoreError

MOST_READERS = 16  # threads
MOST_AHEAD = 2**28  # bytes that are decoded before they are asked for
MOST_LISTED = 20  # broken images in a sentence


class Found(NamedTuple):
    """What came of reading some rows."""

    rows: Rows  # that can be read
    pixels: NDArray[np.uint8]  # of these
    broken: dict[int, str]  # by row: why the others cannot be read


class Reader:
    """Images by row, but for broken ones, up to the number that was said to be tolerable.

    >>> from encore.data.image_set import ArrayImages
    >>> reader = Reader(ArrayImages(np.zeros((5, 1, 8, 8), dtype=np.uint8)))
    >>> [pixels.shape for _, pixels in reader.read_ahead([np.arange(3), np.array([4])])]
    [(3, 1, 8, 8), (1, 1, 8, 8)]
    """

    def __init__(self, images: Images, skip_broken: int = 0) -> None:
        self.images = images
        self.skip_broken = skip_broken
        self.skipped: dict[int, str] = {}  # by row: what was wrong with the image

    def read(self, rows: Rows) -> tuple[Rows, NDArray[np.uint8]]:
        """Return the rows that can be read, with their images."""
        return self._accept(_read(self.images, self.leave_out_skipped(rows)))

    def read_ahead(self, parts: Sequence[Rows]) -> Iterator[tuple[Rows, NDArray[np.uint8]]]:
        """Read the parts in their order, some of them while earlier ones are being used."""
        readers = num_readers()
        part_bytes = max(map(len, parts), default=1) * int(np.prod(self.images.shape))
        num_ahead = max(2, min(2 * readers, MOST_AHEAD // max(1, part_bytes)))
        waiting: deque[Future[Found]] = deque()
        pool = ThreadPoolExecutor(readers, thread_name_prefix="encore-reader")
        try:
            for part in parts:
                waiting.append(pool.submit(_read, self.images, self.leave_out_skipped(part)))
                if len(waiting) > num_ahead:
                    yield self._accept(waiting.popleft().result())
            while waiting:
                yield self._accept(waiting.popleft().result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def leave_out_skipped(self, rows: Rows) -> Rows:
        """Return the rows but for those that turned out broken."""
        return rows[~np.isin(rows, list(self.skipped))] if self.skipped else rows

    def _accept(self, found: Found) -> tuple[Rows, NDArray[np.uint8]]:
        """Note what is broken, part after part, so that no thread's haste decides where too much is."""
        self.skipped |= found.broken
        if len(self.skipped) > self.skip_broken:
            raise EncoreError(_too_many(list(self.skipped.values()), self.skip_broken))
        return found.rows, found.pixels


def _read(images: Images, rows: Rows) -> Found:
    broken: dict[int, str] = {}
    while True:
        try:
            return Found(rows, images.read(rows), broken)
        except BrokenImagesError as error:
            broken |= error.reasons
            rows = rows[~np.isin(rows, list(error.reasons))]


def num_readers() -> int:
    """Return how many threads decode images: one for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_READERS)


def _too_many(reasons: list[str], tolerated: int) -> str:
    listed = "; ".join(reasons[:MOST_LISTED])
    if len(reasons) > MOST_LISTED:
        listed += f"; and {len(reasons) - MOST_LISTED} more"
    if tolerated == 0:
        them = "it" if len(reasons) == 1 else "them"
        return f"{listed}: mend or remove {them}, or allow N such images to be left out with --skip-broken N"
    return f"{len(reasons)} images are broken, and --skip-broken allows {tolerated}: {listed}"
