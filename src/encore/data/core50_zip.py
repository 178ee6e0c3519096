"""Pictures in a zip archive, decoded when they are read; nothing is ever unpacked to disk."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encore.data.folder_listing import shown_all
from encore.data.image_set import BrokenImagesError, Rows
from encore.data.pictures import BrokenPictureError, decode
from encore.errors import EncoreError

MOST_BYTES = 1 << 20  # of a picture, packed or not: one of 128x128 has at most some 50,000
ENCRYPTED = 1  # of an entry's flags
LOCAL_HEADER = struct.Struct("<4s22xHH")  # its signature, and how long the name and the rest after it are
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
RAW_DEFLATE = -zlib.MAX_WBITS
LARGEST_FILE = 1 << 62


class ZippedPictures:
    """Pictures of one size in an archive, by their names.

    >>> import tempfile
    >>> from PIL import Image
    >>> path, picture = Path(tempfile.mkdtemp()) / "two.zip", io.BytesIO()
    >>> Image.new("RGB", (8, 8), (255, 0, 0)).save(picture, "PNG")
    >>> with zipfile.ZipFile(path, "w") as archive:
    ...     archive.writestr("all/red.png", picture.getvalue())
    >>> ZippedPictures(path, "all", ["red.png"], (3, 8, 8)).read(np.array([0]))[0, :, 4, 4].tolist()
    [255, 0, 0]
    """

    reads_at_once = False

    def __init__(self, path: Path, top: str, names: Sequence[str], shape: tuple[int, int, int]) -> None:
        """Find the entries.

        Args:
            path: the archive.
            top: the folder in it below which the pictures lie; they may lie without it as well.
            names: of the pictures, below that folder.
            shape: channels, height and width of each.

        """
        self.path = path
        self.names = names
        self.shape = shape
        self._entries = _find_entries(path, top, names)  # where, packed size, size, CRC-32, how it is packed

    def __len__(self) -> int:
        return len(self.names)

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the pictures in the rows as uint8 [len(rows), C, H, W]."""
        pixels = np.empty((len(rows), *self.shape), dtype=np.uint8)
        reasons = {}
        try:
            with self.path.open("rb", buffering=0) as file:  # one for each thread that reads
                for number, row in enumerate(rows.tolist()):
                    try:
                        picture = io.BytesIO(_unpack(file.fileno(), *self._entries[row].tolist()))
                        pixels[number] = decode(picture, self.shape, "exact")
                    except BrokenPictureError as error:
                        reasons[row] = f"{self.names[row]} in {self.path} {error}"
        except OSError as error:
            raise EncoreError(f"{self.path} cannot be read ({error.strerror or error})") from error
        if reasons:
            raise BrokenImagesError(reasons)
        return pixels


def open_directory(path: Path) -> list[zipfile.ZipInfo]:
    """Return what an archive says of its entries."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, struct.error) as error:
        raise EncoreError(f"{path} is truncated or no zip archive ({error}): get it again") from error


def find_content(descriptor: int, header: int) -> int | None:
    """Return where an entry's content begins in the file; None where no entry begins at the place given."""
    if not 0 <= header < LARGEST_FILE:
        return None
    found = os.pread(descriptor, LOCAL_HEADER.size, header)
    if len(found) < LOCAL_HEADER.size or found[:4] != b"PK\x03\x04":
        return None
    _, *lengths = LOCAL_HEADER.unpack(found)
    return int(header + LOCAL_HEADER.size + sum(lengths))


def _find_entries(path: Path, top: str, names: Sequence[str]) -> NDArray[np.int64]:
    rows = {name: row for row, name in enumerate(names)}
    entries = np.full((len(names), 5), -1, dtype=np.int64)
    for entry in open_directory(path):
        parts = entry.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:
            raise EncoreError(f"{path} is refused: its entry {entry.filename[:80]!r} leads out of it")
        row = rows.get("/".join(parts[1:] if parts[0] == top else parts))
        if row is None:
            continue
        if entries[row, 0] >= 0:
            raise EncoreError(f"{path} is refused: it holds {names[row]} twice")
        if max(entry.file_size, entry.compress_size) > MOST_BYTES:
            raise EncoreError(f"{path} is refused: {names[row]} in it is too large for a small picture")
        if entry.compress_type not in PACKINGS or entry.flag_bits & ENCRYPTED:
            raise EncoreError(f"{path} is refused: {names[row]} in it is encrypted, or packed unusually")
        entries[row] = (
            min(entry.header_offset, LARGEST_FILE),
            entry.compress_size,
            entry.file_size,
            entry.CRC,
            entry.compress_type,
        )
    missing = [names[row] for row in np.flatnonzero(entries[:, 0] < 0).tolist()]
    if missing:
        raise EncoreError(f"{path} lacks {len(missing):,} of {len(names):,} pictures: {shown_all(missing)}")
    return entries


def _unpack(descriptor: int, header: int, packed_size: int, size: int, checksum: int, packing: int) -> bytes:
    """Return an entry's content; no more is unpacked than the archive says it has."""
    start = find_content(descriptor, header)
    if start is None:
        raise BrokenPictureError("is not where the archive says")
    content = os.pread(descriptor, packed_size, start)
    if packing == zipfile.ZIP_DEFLATED:
        try:
            content = zlib.decompressobj(RAW_DEFLATE).decompress(content, size + 1)
        except zlib.error as error:
            raise BrokenPictureError(f"is damaged ({error})") from error
    if len(content) != size or zlib.crc32(content) != checksum:
        raise BrokenPictureError("is damaged (its checksum is not the one the archive says)")
    return content
