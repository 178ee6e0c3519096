"""Images in a file that is mapped into memory: read without decoding, and never without being checked."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from encore.data.image_set import BrokenImagesError, Rows
from encore.errors import EncoreError


class DamagedError(EncoreError):
    """A prepared file is not as it was written."""


class MappedImages:
    """Images in a file that is mapped into memory; each is compared with its checksum when it is read.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes([0] * 64 + [7] * 64))
    ...     file.flush()
    ...     mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    >>> pixels = np.frombuffer(mapped, np.uint8).reshape(2, 1, 8, 8)
    >>> images = MappedImages(mapped, pixels, checksums_of(pixels), broken={}, damaged=DamagedError)
    >>> images.read(np.array([1])).max()
    np.uint8(7)
    """

    reads_at_once = True

    def __init__(
        self,
        mapped: mmap.mmap,
        pixels: NDArray[np.uint8],
        checksums: NDArray[np.uint32],
        broken: Mapping[int, str],
        damaged: Callable[[str], DamagedError],
    ) -> None:
        if pixels.dtype != np.uint8 or pixels.ndim != 4:
            raise EncoreError(f"images must be uint8 [N, C, H, W], got {pixels.dtype} {list(pixels.shape)}")
        self._mapped = mapped
        self._pixels = pixels
        self._checksums = checksums
        self._broken = broken
        self._damaged = damaged

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""
        channels, height, width = self._pixels.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return len(self._pixels)

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the images in the rows, or refuse if a bit of them has changed since they were prepared."""
        if self._mapped.size() < len(self._mapped):  # reading past the end would kill the process
            raise self._damaged("truncated")
        if self._broken and (
            reasons := {row: self._broken[row] for row in rows.tolist() if row in self._broken}
        ):
            raise BrokenImagesError(reasons)
        pixels = self._pixels[rows]
        wrong = rows[checksums_of(pixels) != self._checksums[rows]]
        if len(wrong):
            raise self._damaged(f"damaged (image {wrong[0]} does not match its checksum)")
        return pixels


def checksums_of(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each image [N, C, H, W]."""
    return np.fromiter((zlib.crc32(image) for image in pixels), np.uint32, len(pixels))
