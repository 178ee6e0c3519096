"""Files of the idx format, gzipped or not: a magic number, the sizes, and then the values."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from encore.data.benchmark import DataFile
from encore.data.verified import Content, read_exactly
from encore.errors import EncoreError

UNSIGNED_BYTES = 0x08  # the code of the only type of value that is read
GZIP_ENDING = ".gz"


def variants(folder: Path, file: DataFile) -> tuple[Path, Path]:
    """Return where a file may lie in a folder: as it is, or gzipped.

    >>> [path.name for path in variants(Path("data"), DataFile("t10k-labels-idx1-ubyte", 10_008, ""))]
    ['t10k-labels-idx1-ubyte', 't10k-labels-idx1-ubyte.gz']
    """
    return folder / file.name, folder / f"{file.name}{GZIP_ENDING}"


def lying_in(folder: Path, files: Iterable[DataFile]) -> tuple[Path, ...]:
    """Return where the first variant of each file lies, of those that lie in the folder."""
    found = (next((path for path in variants(folder, file) if path.exists()), None) for file in files)
    return tuple(path for path in found if path)


def read_variant(folder: Path, file: DataFile) -> Content | EncoreError:
    """Return the unpacked bytes of the first variant that is right, else what is wrong with the first one.

    The checksum is that of the unpacked bytes, so that it does not matter who packed them. No more is
    unpacked than the file should hold.
    """
    found = [_read(path, file) for path in variants(folder, file) if path.exists()]
    right = [content for content in found if isinstance(content, Content)]
    missing = EncoreError(f"{folder / file.name} is missing, and so is {file.name}{GZIP_ENDING}")
    return (right or found or [missing])[0]


def parse_idx(content: Content, sizes: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the values [*sizes], or refuse a file that does not hold just that many bytes."""
    header = struct.pack(f">HBB{len(sizes)}I", 0, UNSIGNED_BYTES, len(sizes), *sizes)
    found = bytes(content.data[: len(header)])
    if found != header:
        raise EncoreError(
            f"{content.origin} must be an idx file of {_by(sizes)} unsigned bytes, which begins with "
            f"{header.hex(' ', 4)}, and begins with {found.hex(' ', 4) or 'nothing'}"
        )
    values = np.frombuffer(content.data, dtype=np.uint8)[len(header) :]
    if len(values) != math.prod(sizes):
        raise EncoreError(
            f"{content.origin} must hold {_by(sizes)} bytes after its header, and holds {len(values):,}"
        )
    return values.reshape(sizes)


def _read(path: Path, file: DataFile) -> Content | EncoreError:
    if not path.is_file():
        return EncoreError(f"{path} is no file")
    try:
        with gzip.open(path) if path.suffix == GZIP_ENDING else path.open("rb", buffering=0) as stream:
            return read_exactly(cast(BinaryIO, stream), file, str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        return EncoreError(f"{path} is truncated or no gzip file ({error})")
    except OSError as error:
        return EncoreError(f"{path} cannot be read ({error.strerror or error})")


def _by(sizes: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)
