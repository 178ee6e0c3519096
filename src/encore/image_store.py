"""A benchmark's images where runs take them from: on the training device, or decoded just ahead of use.

Read by every run and changed by none.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encore.data.image_set import ArrayImages, BrokenImagesError, ImageSet, Rows
from encore.errors import EncoreError
from encore.interfaces import Batch

CHUNK = 512  # images read at a time where all are
MOST_READERS = 16  # threads
MOST_AHEAD = 256  # images that are decoded before they are asked for
LARGEST_SHARE = 0.25  # of the device's free memory, up to which decoded images stay on it


class ImageStore:
    """All images of a data set, by row, with their labels.

    Images in memory move to the device once. Others are decoded once and stay there if that takes no more
    than a quarter of its free memory; else they are read batch by batch, a little ahead. Images that turn
    out broken are left out of their batches, up to the number that was said to be tolerable.

    >>> from encore.datasets.digits import Digits
    >>> store = ImageStore(Digits().load(None), torch.device("cpu"))
    >>> store.num_classes, store.image_shape, store.read(torch.tensor([0, 1])).labels
    (10, (1, 8, 8), tensor([0, 1]))
    """

    def __init__(self, image_set: ImageSet, device: torch.device, skip_broken: int = 0) -> None:
        self.image_set = image_set
        self.device = device
        self.skip_broken = skip_broken
        self.skipped: dict[int, str] = {}  # by row: what was wrong with the image
        self._lock = threading.Lock()
        self._labels = torch.from_numpy(image_set.labels.astype(np.int64, copy=False))
        self._labels_on_device = self._labels.to(device)
        self._resident = self._make_resident()

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, in the order of their numbers."""
        return self.image_set.class_names

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.image_set.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.image_set.images.shape

    @property
    def is_resident(self) -> bool:
        """Whether all images lie on the device."""
        return self._resident is not None

    def read(self, rows: Tensor) -> Batch:
        """Return the examples in the rows [B], but for broken ones, on the device."""
        if self._resident is None:
            return self._move(*self._decode(rows.numpy()))
        rows = self._leave_out_skipped(rows).to(self.device)
        return Batch(self._resident[rows], self._labels_on_device[rows])

    def batches(self, rows: Tensor, size: int) -> Iterator[Batch]:
        """Return the examples in the rows [N], so many at a time, and read a little ahead."""
        if self._resident is None and not self.image_set.images.reads_at_once:
            for decoded, images in self._decode_ahead([part.numpy() for part in rows.split(size)]):
                yield self._move(decoded, images)
        elif self._resident is None or self.skipped:
            for part in rows.split(size):
                yield self.read(part)
        else:
            for part in rows.to(self.device).split(size):  # one copy to the device for all of them
                yield Batch(self._resident[part], self._labels_on_device[part])

    def _make_resident(self) -> Tensor | None:
        images = self.image_set.images
        if isinstance(images, ArrayImages):
            return torch.from_numpy(images.array).to(self.device)
        num_bytes = len(images) * int(np.prod(images.shape))
        maps_memory = images.reads_at_once and self.device.type == "cpu"
        if maps_memory or num_bytes > LARGEST_SHARE * _free_memory(self.device):
            return None
        resident = torch.zeros((len(images), *images.shape), dtype=torch.uint8, device=self.device)
        for rows, pixels in self._decode_ahead(
            np.array_split(np.arange(len(images)), -(-len(images) // CHUNK))
        ):
            resident[torch.from_numpy(rows).to(self.device)] = torch.from_numpy(pixels).to(self.device)
        return resident

    def _decode_ahead(self, parts: list[Rows]) -> Iterator[tuple[Rows, NDArray[np.uint8]]]:
        """Decode the parts in their order, some of them while earlier ones are being used."""
        readers = num_readers()
        num_ahead = max(2, min(2 * readers, MOST_AHEAD // max(1, len(parts[0])))) if parts else 0
        waiting: deque[Future[tuple[Rows, NDArray[np.uint8]]]] = deque()
        pool = ThreadPoolExecutor(readers, thread_name_prefix="encore-reader")
        try:
            for part in parts:
                waiting.append(pool.submit(self._decode, part))
                if len(waiting) > num_ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _decode(self, rows: Rows) -> tuple[Rows, NDArray[np.uint8]]:
        """Return the rows that can be read, with their images."""
        rows = self._leave_out_skipped(torch.from_numpy(rows)).numpy()
        while True:
            try:
                return rows, self.image_set.images.read(rows)
            except BrokenImagesError as error:
                self._skip(error)
                rows = rows[~np.isin(rows, list(error.reasons))]

    def _skip(self, error: BrokenImagesError) -> None:
        with self._lock:
            self.skipped.update(error.reasons)
            if len(self.skipped) > self.skip_broken:
                raise EncoreError(_too_many(list(self.skipped.values()), self.skip_broken)) from error

    def _leave_out_skipped(self, rows: Tensor) -> Tensor:
        if not self.skipped:
            return rows
        with self._lock:
            skipped = torch.tensor(list(self.skipped))
        return rows[~torch.isin(rows, skipped)]

    def _move(self, rows: Rows, images: NDArray[np.uint8]) -> Batch:
        on_host = torch.from_numpy(np.ascontiguousarray(images))
        if self.device.type == "cuda":
            on_host = on_host.pin_memory()
        return Batch(
            on_host.to(self.device, non_blocking=True),
            self._labels_on_device[torch.from_numpy(rows).to(self.device)],
        )


def num_readers() -> int:
    """Return how many threads decode images: one for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_READERS)


def _too_many(reasons: list[str], tolerated: int) -> str:
    listed = "; ".join(reasons)
    if tolerated == 0:
        return f"{listed}: mend or remove it, or allow N such images to be left out with --skip-broken N"
    return f"{len(reasons)} images are broken, and --skip-broken allows {tolerated}: {listed}"


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    with suppress(OSError):  # where the system does not say, all that the machine has counts as free
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
