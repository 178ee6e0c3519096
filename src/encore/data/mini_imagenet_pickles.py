"""Mini-ImageNet as three pickles whose pixels stay in their files, mapped into memory."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encore.data.image_set import ImageSet, Rows
from encore.data.mini_imagenet_layout import PARTS, Expected, Part, check_numbers, join_classes
from encore.data.safe_pickle import read_pickle
from encore.errors import EncoreError


class Pickles:
    """The files that code for few-shot learning passes on.

    Each is a dictionary: under `image_data` an array of bytes [N, 84, 84, 3], under `class_dict` for each
    class the numbers of its rows. Classes count in the order of their first rows. A file is mapped, not
    read: what is looked at is the few bytes before and after the pixels.

    >>> Pickles(Path("data"), Expected({"train": 64, "val": 16, "test": 20}, 600, (3, 84, 84))).words
    'three pickles'
    """

    words = "three pickles"

    def __init__(self, folder: Path, expected: Expected) -> None:
        self.folder = folder
        self.expected = expected

    def origins(self) -> Mapping[str, Path]:
        """Return the name and place of each part."""
        return {part: self.folder / f"mini-imagenet-cache-{part}.pkl" for part in PARTS}

    def list_files(self) -> tuple[Path, ...]:
        """Return the pickles that are there."""
        return tuple(path for path in self.origins().values() if path.exists())

    def read(self, part: str) -> Part:
        """Read the rows of each class of a pickle."""
        path = self.origins()[part]
        content = _map(path)
        channels, height, width = self.expected.image_shape
        held = _with_text_keys(read_pickle(memoryview(content), str(path)))
        pixels, listed = held.get("image_data"), _with_text_keys(held.get("class_dict"))
        if (
            not isinstance(pixels, np.ndarray)
            or pixels.dtype != np.uint8
            or pixels.shape[1:] != (height, width, channels)
            or not listed
            or not all(isinstance(name, str) and isinstance(rows, list) for name, rows in listed.items())
        ):
            raise EncoreError(
                f"{path} must hold image_data, bytes [N, {height}, {width}, {channels}], and class_dict, "
                "a list of rows for each class"
            )
        found = Part(path, listed, Pixels(path, content, pixels))
        check_numbers(found, self.expected.classes[part], self.expected.per_class)
        named = [row for rows in found.classes.values() for row in rows]
        if not all(type(row) is int for row in named) or sorted(named) != list(range(len(pixels))):
            raise EncoreError(
                f"{path} must name each row from 0 to {len(pixels) - 1} once in class_dict, and does not"
            )
        in_order = dict(sorted(found.classes.items(), key=lambda item: min(item[1])))
        return found._replace(classes=in_order)

    def join(self, parts: Sequence[Part]) -> ImageSet:
        """Put the rows of the pickles one after the other."""
        names = join_classes(parts)
        labels = np.empty(sum(part.num_images for part in parts), dtype=np.int64)
        start, label = 0, 0
        for part in parts:
            for rows in part.classes.values():
                labels[start + np.array(rows)] = label
                label += 1
            start += part.num_images
        return ImageSet(PickledImages([part.pixels for part in parts]), labels, names)


class Pixels(NamedTuple):
    """The pixels in one file."""

    path: Path
    content: mmap.mmap
    values: NDArray[np.uint8]  # [N, H, W, C], whose memory is the file


class PickledImages:
    """Images in files that are mapped into memory, and take room only while the system has some to spare.

    Their rows are numbered through; in the files channels come last, here they come first.
    """

    reads_at_once = True

    def __init__(self, parts: Sequence[Pixels]) -> None:
        self._parts = parts
        self._sizes = [len(part.content) for part in parts]
        self._ends = np.cumsum([len(part.values) for part in parts])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""
        height, width, channels = self._parts[0].values.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the images in the rows as uint8 [len(rows), C, H, W]."""
        pixels = np.empty((len(rows), *self.shape), dtype=np.uint8)
        owners = np.searchsorted(self._ends, rows, side="right")
        for number, (part, size, end) in enumerate(zip(self._parts, self._sizes, self._ends, strict=True)):
            if part.content.size() != size:  # to look behind a file's end would end the process
                raise EncoreError(f"{part.path} was changed while it was being read: start again")
            owned = owners == number
            pixels[owned] = part.values[rows[owned] - end].transpose(0, 3, 1, 2)  # counted from the end
        return pixels


def _map(path: Path) -> mmap.mmap:
    if not path.is_file():
        raise EncoreError(f"{path} is missing")
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise EncoreError(f"{path} is empty") from None
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error


def _with_text_keys(value: object) -> dict[Any, Any]:
    """Return a dictionary with texts as keys, as Python 2's come as bytes; for all else an empty one."""
    held = value if isinstance(value, dict) else {}
    return {key.decode("latin-1") if isinstance(key, bytes) else key: held[key] for key in held}
