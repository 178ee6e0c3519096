"""A benchmark's images where runs take them from: on the training device, or decoded just ahead of use.

Read by every run and changed by none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encore.data.image_set import ArrayImages, ImageSet, Rows
from encore.data.reading import Reader
from encore.free_memory import fits, free_memory
from encore.interfaces import Batch

CHUNK = 64  # images read at a time where all are: few, so that there is work for many threads
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
        self._reader = Reader(image_set.images, skip_broken)
        self._labels = torch.from_numpy(image_set.labels.astype(np.int64, copy=False))
        self._labels_on_device = self._labels.to(device)
        self._resident = self._make_resident()

    @property
    def skipped(self) -> dict[int, str]:
        """What was wrong with the images that were left out, by row."""
        return self._reader.skipped

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
        """Channels, height and width, as the network takes them."""
        channels, height, width = self.image_set.images.shape
        crop = self.image_set.crop
        return (channels, height, width) if crop is None else (channels, crop, crop)

    @property
    def is_resident(self) -> bool:
        """Whether all images lie on the device."""
        return self._resident is not None

    def read(self, rows: Tensor) -> Batch:
        """Return the examples in the rows [B], but for broken ones, on the device."""
        if self._resident is None:
            return self._move(*self._reader.read(rows.numpy()))
        rows = self._leave_out_skipped(rows).to(self.device)
        return Batch(self._resident[rows], self._labels_on_device[rows])

    def batches(self, rows: Tensor, size: int) -> Iterator[Batch]:
        """Return the examples in the rows [N], so many at a time, and read a little ahead."""
        if self._resident is None and not self.image_set.images.reads_at_once:
            for decoded, images in self._reader.read_ahead([part.numpy() for part in rows.split(size)]):
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
        if maps_memory or not fits(num_bytes, free_memory(self.device), LARGEST_SHARE):
            return None
        resident = torch.zeros((len(images), *images.shape), dtype=torch.uint8, device=self.device)
        for rows, pixels in self._reader.read_ahead(
            np.array_split(np.arange(len(images)), -(-len(images) // CHUNK))
        ):
            resident[torch.from_numpy(rows).to(self.device)] = torch.from_numpy(pixels).to(self.device)
        return resident

    def _leave_out_skipped(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self._reader.leave_out_skipped(rows.numpy())) if self.skipped else rows

    def _move(self, rows: Rows, images: NDArray[np.uint8]) -> Batch:
        on_host = torch.from_numpy(np.ascontiguousarray(images))
        if self.device.type == "cuda":
            on_host = on_host.pin_memory()
        return Batch(
            on_host.to(self.device, non_blocking=True),
            self._labels_on_device[torch.from_numpy(rows).to(self.device)],
        )
