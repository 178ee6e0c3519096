"""A data set decoded once: one file, which later runs map into memory.

The file has the layout of safetensors: eight bytes that say how long the header is, the header, which is
JSON, and the tensors. The images come first, at a multiple of 4096 bytes, then what is known of each; last a
SHA-256 of everything but the images, each of which has a CRC-32 of its own. The header is written last, so
that a file without its end is none.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encore.data.image_set import Images, ImageSet
from encore.data.mapped import DamagedError, MappedImages, checksums_of
from encore.data.reading import Reader
from encore.errors import EncoreError
from encore.version import VERSION

FORMAT = "1"  # of the file; raised when this Encore could not read, or would not make, an older one's
COLUMNS: Mapping[str, type[np.generic]] = {  # the fields of an image set that are arrays
    "labels": np.int64,
    "is_test": np.bool_,
    "times": np.float64,
    "given_tasks": np.int64,
}
ALIGNMENT = 4096
CHUNK = 16  # images read at a time: few, so that there is work for many threads
MOST_HEADER = 100_000_000  # bytes, the limit of safetensors
DIGEST = 32  # bytes of a SHA-256
ROOM = 200  # bytes that a header may grow by once it is known which images are broken

Report = Callable[[int, int], None]  # images done, images in all

_DTYPES = {"uint8": "U8", "bool": "BOOL", "uint32": "U32", "int64": "I64", "float64": "F64"}
_NUMPY_DTYPES = {name: np.dtype(dtype) for dtype, name in _DTYPES.items()}


class OtherFormatError(EncoreError):
    """A prepared file was written by an Encore that lays it out otherwise."""


class NotStoredError(EncoreError):
    """A prepared file cannot be stored."""


class Origin(NamedTuple):
    """What a file was prepared from."""

    benchmark: str
    options: Mapping[str, Any]
    data_dir: str | None  # the folder that the user named, resolved
    path: str  # where the files lay
    fingerprint: str  # of their names, sizes and times
    encore: str  # the version that prepared it


@dataclass(frozen=True)
class Prepared:
    """A prepared file, opened."""

    path: Path
    num_bytes: int
    origin: Origin
    image_set: ImageSet
    broken: Mapping[int, str]  # by row: why an image could not be read


def write_prepared(
    path: Path,
    image_set: ImageSet,
    origin: Origin,
    skip_broken: int = 0,
    report: Report = lambda done, total: None,
) -> None:
    """Read every image of a set and write the file, holding few of them at a time."""
    images = image_set.images
    num_image_bytes = len(images) * int(np.prod(images.shape))
    columns = _columns(image_set)
    layout = {
        "images": ("U8", [len(images), *images.shape]),
        "padding": ("U8", [-num_image_bytes % 8]),  # so that all after it is aligned
        **{name: (_DTYPES[str(column.dtype)], [len(images)]) for name, column in columns.items()},
        "broken": ("U8", [0]),
        "sha256": ("U8", [DIGEST]),
    }
    metadata = _describe(image_set, origin)
    start = -(-(len(_header(layout, metadata)) + ROOM) // ALIGNMENT) * ALIGNMENT
    needed = start + num_image_bytes + sum(column.nbytes for column in columns.values())
    if _free(path) < needed:
        raise NotStoredError(_no_room(path, needed))
    try:
        with path.open("wb") as file:
            file.seek(start)
            broken = _write_images(file, images, skip_broken, columns["checksums"], report)
            layout["broken"] = ("U8", [len(broken)])
            header = _header(layout, metadata, num_bytes=start)
            tail = bytes(-num_image_bytes % 8) + b"".join(map(np.ndarray.tobytes, columns.values())) + broken
            file.write(tail + hashlib.sha256(header + tail).digest())
            file.seek(0)
            file.write(header)
    except OSError as error:
        raise NotStoredError(f"{error.strerror or error}: {_no_room(path, needed)}") from error


def read_prepared(path: Path, remedy: str) -> Prepared:
    """Open a prepared file; nothing but the images is read, and those when they are asked for.

    Args:
        path: the file.
        remedy: what to do if it turns out damaged, in words that follow a colon.

    """

    def damaged(how: str) -> DamagedError:
        return DamagedError(f"{path} is {how}: {remedy}")

    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise damaged(f"not readable ({error.strerror or error})") from error
    except ValueError as error:  # it is empty
        raise damaged("truncated") from error
    try:
        return _interpret(path, mapped, damaged)
    except (DamagedError, OtherFormatError):
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise damaged("damaged or not a prepared file") from error


def in_words(num_bytes: int) -> str:
    """Return a size as people say it.

    >>> in_words(184_320_000), in_words(2_134_000_000), in_words(900)
    ('184 MB', '2.1 GB', '1 kB')
    """
    if num_bytes >= 1e9:
        return f"{num_bytes / 1e9:.1f} GB"
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.0f} kB"


def _interpret(path: Path, mapped: mmap.mmap, damaged: Callable[[str], DamagedError]) -> Prepared:
    start = 8 + int.from_bytes(mapped[:8], "little")
    if not 8 < start <= min(len(mapped), MOST_HEADER):
        raise damaged("truncated or not a prepared file")
    described = json.loads(mapped[8:start])
    metadata = described.pop("__metadata__")
    if metadata["format"] != FORMAT:
        raise OtherFormatError(f"{path} has another format than the one Encore {VERSION} writes")
    _, end_of_images = described["images"]["data_offsets"]
    _, end = described["sha256"]["data_offsets"]
    if start + end != len(mapped):
        raise damaged("truncated" if len(mapped) < start + end else "longer than it should be")
    digest = hashlib.sha256(mapped[:start])
    digest.update(mapped[start + end_of_images : -DIGEST])
    if digest.digest() != mapped[-DIGEST:]:
        raise damaged("damaged (its header does not match its checksum)")

    def view(name: str) -> NDArray[Any]:
        entry = described[name]
        begin, end = entry["data_offsets"]
        dtype = _NUMPY_DTYPES[entry["dtype"]]
        flat = np.frombuffer(mapped, dtype, (end - begin) // dtype.itemsize, start + begin)
        return flat.reshape(entry["shape"])

    values = {name: _as_tuple(json.loads(text)) for name, text in metadata.items() if name != "format"}
    origin = Origin(**{name: values.pop(name) for name in Origin._fields})
    broken = {int(row): reason for row, reason in json.loads(bytes(view("broken"))).items()}
    images = MappedImages(mapped, view("images"), view("checksums"), broken, damaged)
    values |= {name: view(name).copy() for name in COLUMNS if name in described}
    return Prepared(path, len(mapped), origin, ImageSet(images, **values), broken)


def _write_images(
    file: BinaryIO, images: Images, skip_broken: int, checksums: NDArray[np.uint32], report: Report
) -> bytes:
    """Write all images and note their checksums; return as JSON which were broken, and why."""
    reader = Reader(images, skip_broken)
    parts = [np.arange(row, min(row + CHUNK, len(images))) for row in range(0, len(images), CHUNK)]
    for part, (rows, pixels) in zip(parts, reader.read_ahead(parts), strict=True):
        chunk = np.zeros((len(part), *images.shape), dtype=np.uint8)  # black where an image is broken
        chunk[rows - part[0]] = pixels
        checksums[part] = checksums_of(chunk)
        file.write(chunk.data)
        report(int(part[-1]) + 1, len(images))
    return json.dumps({str(row): reader.skipped[row] for row in sorted(reader.skipped)}).encode()


def _columns(image_set: ImageSet) -> dict[str, NDArray[Any]]:
    """Return what there is of each image, the widest first, so that each column lies aligned."""
    columns = {
        name: np.ascontiguousarray(column, dtype)
        for name, dtype in COLUMNS.items()
        if (column := getattr(image_set, name)) is not None
    }
    columns["checksums"] = np.zeros(len(image_set.images), dtype=np.uint32)
    return dict(sorted(columns.items(), key=lambda named: -named[1].itemsize))


def _describe(image_set: ImageSet, origin: Origin) -> dict[str, str]:
    """Return all that is no array."""
    rest = [field.name for field in fields(image_set) if field.name not in ("images", *COLUMNS)]
    described = origin._asdict() | {name: getattr(image_set, name) for name in rest}
    return {"format": FORMAT} | {name: json.dumps(value) for name, value in described.items()}


def _header(
    layout: Mapping[str, tuple[str, list[int]]], metadata: Mapping[str, str], num_bytes: int = 0
) -> bytes:
    """Return the header with its length before it, filled up with spaces to so many bytes."""
    described: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in layout.items():
        begin, end = end, end + int(np.prod(shape)) * _NUMPY_DTYPES[dtype].itemsize
        described[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(described).encode().ljust(num_bytes - 8)
    return len(text).to_bytes(8, "little") + text


def _as_tuple(value: Any) -> Any:
    """Return what JSON made a list as the tuple that it was."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _free(path: Path) -> int:
    return shutil.disk_usage(path.parent).free


def _no_room(path: Path, needed: int) -> str:
    return (
        f"{in_words(needed)} are needed in {path.parent}, and {in_words(_free(path))} are free; "
        "make room, or name a roomier folder with $ENCORE_DATA"
    )
