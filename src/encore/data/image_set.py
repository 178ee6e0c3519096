"""A data set as a file of `datasets/` returns it: images by row, what they show, which are for testing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from encore.errors import EncoreError

Rows = NDArray[np.int64]


class Images(Protocol):
    """Images by their row: an array, a file mapped into memory, or files that are decoded when asked for."""

    reads_at_once: bool  # False: reading takes work that is worth doing ahead, in other threads

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""

    def __len__(self) -> int: ...

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the images in the rows as uint8 [len(rows), C, H, W]; raise `BrokenImagesError`.

        Several threads may read at the same time.
        """


class BrokenImagesError(EncoreError):
    """Some of the images asked for cannot be read; the others can."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = dict(reasons)  # by row: which file, and what is wrong with it


class ArrayImages:
    """Images in memory.

    >>> images = ArrayImages(np.zeros((5, 3, 32, 32), dtype=np.uint8))
    >>> len(images), images.shape, images.read(np.array([4, 0])).shape
    (5, (3, 32, 32), (2, 3, 32, 32))
    """

    reads_at_once = True

    def __init__(self, array: NDArray[np.uint8]) -> None:
        if array.dtype != np.uint8 or array.ndim != 4:
            raise EncoreError(f"images must be uint8 [N, C, H, W], got {array.dtype} {list(array.shape)}")
        self.array = array

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""
        channels, height, width = self.array.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return len(self.array)

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the images in the rows."""
        return self.array[rows]


class LabelledImages(NamedTuple):
    """A part of a data set, decoded."""

    images: NDArray[np.uint8]  # [N, C, H, W]
    labels: NDArray[np.int64]  # [N]


@dataclass(frozen=True)
class ImageSet:
    """All images of a data set, with all that is known of them.

    >>> images = ArrayImages(np.zeros((3, 1, 8, 8), dtype=np.uint8))
    >>> pool = ImageSet(images, np.array([0, 1, 1]), ("cat", "dog"), is_test=np.array([False, False, True]))
    >>> pool.test.labels
    array([1])
    """

    images: Images
    labels: NDArray[np.int64]  # [N], numbers of classes
    class_names: tuple[str, ...]
    is_test: NDArray[np.bool_] | None = None  # [N]; None: no split is official, one is made for each run
    official_tasks: tuple[tuple[int, ...], ...] | None = None  # the classes of each task as its makers say
    times: NDArray[np.float64] | None = None  # [N], when each was taken, in any unit
    given_tasks: NDArray[np.int64] | None = None  # [N], to which task each belongs, where the data say so
    crop: int | None = None  # side of the square that is learnt from, cut at random; tested is the middle

    def __post_init__(self) -> None:
        num_images, num_classes = len(self.images), len(self.class_names)
        for name, column in (
            ("labels", self.labels),
            ("is_test", self.is_test),
            ("times", self.times),
            ("given_tasks", self.given_tasks),
        ):
            if column is not None and column.shape != (num_images,):
                raise EncoreError(f"{num_images} images need {num_images} {name}, got {list(column.shape)}")
        if num_images == 0:
            raise EncoreError("a data set must hold at least one image")
        if self.crop is not None and not 1 <= self.crop <= min(self.images.shape[1:]):
            raise EncoreError(f"a crop of {self.crop} pixels cannot be cut out of images {self.images.shape}")
        if self.labels.min() < 0 or self.labels.max() >= num_classes:
            raise EncoreError(
                f"labels must be from 0 to {num_classes - 1}, got {self.labels.min()} to {self.labels.max()}"
            )

    @classmethod
    def from_parts(
        cls, train: LabelledImages, test: LabelledImages, class_names: tuple[str, ...]
    ) -> ImageSet:
        """Return the set that two parts in memory make, the training images first."""
        if train.images.shape[1:] != test.images.shape[1:]:
            raise EncoreError("training and test images must have the same shape")
        is_test = np.arange(len(train.labels) + len(test.labels)) >= len(train.labels)
        pixels = np.concatenate([train.images, test.images])
        labels = np.concatenate([train.labels, test.labels])
        return cls(ArrayImages(pixels), labels, class_names, is_test)

    @property
    def train(self) -> LabelledImages:
        """All training examples, decoded, where the split is official."""
        return self._part(tested=False)

    @property
    def test(self) -> LabelledImages:
        """All test examples, decoded, where the split is official."""
        return self._part(tested=True)

    def _part(self, tested: bool) -> LabelledImages:
        if self.is_test is None:
            raise EncoreError("this data set has no official split into training and test images")
        rows = np.flatnonzero(self.is_test == tested)
        return LabelledImages(self.images.read(rows), self.labels[rows])
