"""CORe50's pixels in one file: an array in NumPy's archive, or bare, as the makers' loader leaves them."""

from __future__ import annotations

import os
import re
import struct
import threading
import zipfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encore.data.core50_zip import PACKINGS, RAW_DEFLATE, find_content, open_directory
from encore.data.folder_listing import shown
from encore.data.image_set import Rows
from encore.errors import EncoreError

ARRAY = "x.npy"  # what the array is called in the archive
CHUNK = 1 << 18  # bytes of the archive that are unpacked at a time
LONGEST_HEADER = 1 << 16
HEADER = re.compile(  # of NumPy's file; Python 2 may have written long integers
    r"\{'descr': '\|u1', 'fortran_order': False, 'shape': \("
    r"(\d{1,9})L?, (\d{1,9})L?, (\d{1,9})L?, (\d{1,9})L?\), \}\s*",
    re.ASCII,
)
WINDOW = 2048  # images that are kept once unpacked: about 100 MB


class PixelFile:
    """Images [H, W, C] that lie one after the other in a file, each read where it lies.

    They are read rather than mapped: a file that is cut short meanwhile is then a sentence, not a crash.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.bin"
    >>> _ = path.write_bytes(bytes(12) + bytes(range(12)))
    >>> PixelFile(path, 0, np.array([0, 1]), (3, 2, 2)).read(np.array([1]))[0, 0].tolist()
    [[0, 3], [6, 9]]
    """

    reads_at_once = True

    def __init__(self, path: Path, start: int, places: Rows, shape: tuple[int, int, int]) -> None:
        """Describe the images.

        Args:
            path: the file.
            start: where in it the first image begins.
            places: of each row, which image of the file it is.
            shape: channels, height and width of each.

        """
        self.path = path
        self.start = start
        self.places = places
        self.shape = shape

    def __len__(self) -> int:
        return len(self.places)

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the images in the rows as uint8 [len(rows), C, H, W]."""
        channels, height, width = self.shape
        pixels = np.empty((len(rows), height, width, channels), dtype=np.uint8)
        try:
            with self.path.open("rb", buffering=0) as file:  # one for each thread that reads
                for image, place in zip(pixels, self.places[rows].tolist(), strict=True):
                    if (
                        os.preadv(file.fileno(), [image.data], self.start + place * image.nbytes)
                        != image.nbytes
                    ):
                        raise EncoreError(f"{self.path} is truncated: image {place} is not whole")
        except OSError as error:
            raise EncoreError(f"{self.path} cannot be read ({error.strerror or error})") from error
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


class DeflatedPixels:
    """Images [H, W, C] in a file that was packed as a whole, unpacked in passing.

    The rows of one call must ascend. Calls may come in any order, and from several threads; but what lies
    more than some 2,000 images back is reached only by beginning anew, and jumps ahead take their time.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.npz"
    >>> np.savez_compressed(path, x=np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3))
    >>> open_archive(path, np.array([0, 1]), 2, (3, 2, 2)).read(np.array([1]))[0, 0].tolist()
    [[12, 15], [18, 21]]
    """

    reads_at_once = False

    def __init__(
        self, path: Path, entry: zipfile.ZipInfo, start: int, places: Rows, shape: tuple[int, int, int]
    ) -> None:
        """Describe the images.

        Args:
            path: the archive.
            entry: of the array, in the archive's directory.
            start: where in the unpacked array the first image begins.
            places: of each row, which image of the array it is.
            shape: channels, height and width of each.

        """
        self.path = path
        self.places = places
        self.shape = shape
        self._entry = entry
        self._start = start
        self._lock = threading.Lock()
        self._stream: _Inflater | None = None
        channels, height, width = shape
        num_kept = min(WINDOW, int(places.max()) + 1)
        self._kept = np.empty((num_kept, height, width, channels), dtype=np.uint8)  # image i at i % num_kept

    def __len__(self) -> int:
        return len(self.places)

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the images in the rows, which must ascend, as uint8 [len(rows), C, H, W]."""
        places = self.places[rows]
        if np.any(np.diff(places) < 0):
            raise EncoreError(
                f"{self.path} is compressed as a whole, so that its images can only be read in their order: "
                "decode it once with `encore data prepare core50`, or put core50_128x128.zip beside it"
            )
        pixels = np.empty((len(rows), *self._kept.shape[1:]), dtype=np.uint8)
        with self._lock:
            for image, place in zip(pixels, places.tolist(), strict=True):
                image[:] = self._unpack_up_to(place)
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))

    def _unpack_up_to(self, place: int) -> NDArray[np.uint8]:
        num_kept = len(self._kept)
        if self._stream is None or place < self._stream.num_images - num_kept:
            self._stream = _Inflater(self.path, self._entry, self._start)
        while self._stream.num_images <= place:
            try:
                self._stream.next_image(self._kept[self._stream.num_images % num_kept])
            except EncoreError:
                self._stream = None  # it may stand in the midst of an image
                raise
        image: NDArray[np.uint8] = self._kept[place % num_kept]
        return image


class _Inflater:
    """One pass over a packed array, from its beginning."""

    def __init__(self, path: Path, entry: zipfile.ZipInfo, start: int) -> None:
        self.num_images = 0  # unpacked so far
        self._path = path
        self._entry = entry
        self._inflate = zlib.decompressobj(RAW_DEFLATE)
        self._unused = b""
        self._checksum = 0
        self._num_left = entry.file_size  # bytes of the array
        try:
            with path.open("rb", buffering=0) as file:
                self._position = _content(path, file, entry)
        except OSError as error:
            raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error
        self._fill(memoryview(bytearray(start)))

    def next_image(self, image: NDArray[np.uint8]) -> None:
        """Unpack one image into the place given."""
        self._fill(image.data.cast("B"))
        self.num_images += 1

    def _fill(self, target: memoryview) -> None:
        """Unpack as many bytes as the target has."""
        filled = 0
        try:
            with self._path.open("rb", buffering=0) as file:
                while filled < len(target):
                    packed = self._unused or os.pread(file.fileno(), CHUNK, self._position)
                    self._position += 0 if self._unused else len(packed)
                    unpacked = self._inflate.decompress(packed, len(target) - filled)
                    self._unused = self._inflate.unconsumed_tail
                    if not unpacked and (not packed or self._inflate.eof):
                        raise EncoreError(f"{self._path} is truncated: image {self.num_images} is not whole")
                    target[filled : filled + len(unpacked)] = unpacked
                    filled += len(unpacked)
        except OSError as error:
            raise EncoreError(f"{self._path} cannot be read ({error.strerror or error})") from error
        except zlib.error as error:
            raise EncoreError(f"{self._path} is damaged at image {self.num_images} ({error})") from error
        self._checksum = zlib.crc32(target, self._checksum)
        self._num_left -= filled
        if self._num_left == 0 and self._checksum != self._entry.CRC:
            raise EncoreError(f"{self._path} is damaged: its checksum is not the one it should have")


class _Layout(NamedTuple):
    entry: zipfile.ZipInfo
    start: int  # where in the array's file the first image begins


def open_pixels(path: Path, places: Rows, num_images: int, shape: tuple[int, int, int]) -> PixelFile:
    """Return the images in a file of bare pixels, such as the makers' loader leaves beside the archive."""
    expected = num_images * int(np.prod(shape))
    try:
        size = path.stat().st_size
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error
    if size != expected:
        raise EncoreError(f"{path} has {size:,} bytes, and {num_images:,} images have {expected:,}")
    return PixelFile(path, 0, places, shape)


def open_archive(
    path: Path, places: Rows, num_images: int, shape: tuple[int, int, int]
) -> PixelFile | DeflatedPixels:
    """Return the images in an archive as NumPy writes it, whether packed or only stored."""
    entry, start = _find_array(path, num_images, shape)
    if entry.compress_type == zipfile.ZIP_DEFLATED:
        return DeflatedPixels(path, entry, start, places, shape)
    with path.open("rb", buffering=0) as file:
        return PixelFile(path, _content(path, file, entry) + start, places, shape)


def _find_array(path: Path, num_images: int, shape: tuple[int, int, int]) -> _Layout:
    entries = [entry for entry in open_directory(path) if entry.filename == ARRAY]
    if len(entries) != 1:
        raise EncoreError(f"{path} must hold one array called {ARRAY}, and holds {len(entries)}")
    if entries[0].compress_type not in PACKINGS:
        raise EncoreError(f"{ARRAY} in {path} is packed unusually: NumPy's savez or savez_compressed is read")
    channels, height, width = shape
    expected = [num_images, height, width, channels]
    try:
        with zipfile.ZipFile(path) as archive, archive.open(ARRAY) as stream:
            header, start = _read_header(stream)
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise EncoreError(f"{ARRAY} in {path} cannot be read ({error})") from error
    match = HEADER.fullmatch(header)
    if match is None or [int(size) for size in match.groups()] != expected:
        raise EncoreError(
            f"{ARRAY} in {path} must be an array of uint8 {expected}, and says {shown(header.strip()[:90])}"
        )
    if entries[0].file_size != start + int(np.prod(expected)):
        raise EncoreError(f"{ARRAY} in {path} is truncated: {entries[0].file_size:,} bytes")
    return _Layout(entries[0], start)


def _read_header(stream: IO[bytes]) -> tuple[str, int]:
    """Return what a file of NumPy's says of its array, and how many bytes it takes to say it."""
    beginning = stream.read(8)
    layout = struct.Struct("<H" if beginning[6:7] == b"\x01" else "<I")
    length = stream.read(layout.size)
    if beginning[:6] != b"\x93NUMPY" or len(length) != layout.size:
        raise ValueError("it is no file of NumPy's")
    (num_bytes,) = layout.unpack(length)
    header = stream.read(min(num_bytes, LONGEST_HEADER)).decode("latin-1")
    return header, len(beginning) + len(length) + num_bytes


def _content(path: Path, file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    content = find_content(file.fileno(), entry.header_offset)
    if content is None:
        raise EncoreError(f"{path} is damaged: {entry.filename} is not where it says")
    return content
