"""What the ways have in common in which mini-ImageNet lies on disks: parts that hold classes of images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from encore.data.image_set import ImageSet
from encore.errors import EncoreError

PARTS = (
    "train",
    "val",
    "test",
)  # of the few-shot learning for which the classes were chosen; here only names
LONGEST_SHOWN = 60


class Expected(NamedTuple):
    """How many classes and images there must be.

    >>> Expected({"train": 64, "val": 16, "test": 20}, 600, (3, 84, 84)).num_classes
    100
    """

    classes: Mapping[str, int]  # by part
    per_class: int
    image_shape: tuple[int, int, int]

    @property
    def num_classes(self) -> int:
        """How many classes all parts have together."""
        return sum(self.classes.values())


class Part(NamedTuple):
    """What one pickle, list or folder holds."""

    origin: Path
    classes: Mapping[str, Sequence[Any]]  # the images of each class, by row or by file name
    pixels: Any = None  # where they are in the pickle

    @property
    def num_images(self) -> int:
        """How many images all its classes have."""
        return sum(map(len, self.classes.values()))


class Layout(Protocol):
    """A way in which the images lie in a folder."""

    @property
    def words(self) -> str:
        """What it is called."""

    def origins(self) -> Mapping[str, Path]:
        """Return the name and place of each part."""

    def read(self, part: str) -> Part:
        """Read what a part holds, but no image; refuse what is not as expected."""

    def join(self, parts: Sequence[Part]) -> ImageSet:
        """Make one set of all parts, whose classes come in their order; refuse what contradicts."""

    def list_files(self) -> tuple[Path, ...]:
        """Return every file that is read, complete or not."""


def check_numbers(part: Part, num_classes: int, per_class: int) -> Part:
    """Return a part that has so many classes with so many images each, or say which number is wrong."""
    wrong = [
        f"{len(images):,} images of class {shown(name)} where {per_class:,} are expected"
        for name, images in part.classes.items()
        if len(images) != per_class
    ]
    if len(part.classes) != num_classes:
        wrong.insert(0, f"{len(part.classes):,} classes where {num_classes:,} are expected")
    if wrong:
        others = f" (and {len(wrong) - 1} more numbers are wrong)" if len(wrong) > 1 else ""
        raise EncoreError(f"{part.origin} has {wrong[0]}{others}")
    return part


def join_classes(parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the names of all classes in their order, or refuse one that two parts have."""
    owners: dict[str, Path] = {}
    for part in parts:
        for name in part.classes:
            if name in owners:
                raise EncoreError(
                    f"class {shown(name)} is in {owners[name]} and in {part.origin}: it must be in one"
                )
            owners[name] = part.origin
    return tuple(owners)


def names_in(folder: Path, *, of_folders: bool) -> list[str]:
    """Return the names of the files or of the folders right in a folder, sorted; none if it is none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and (entry.is_dir() if of_folders else entry.is_file())
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed ({error.strerror or error})") from error


def shown(name: str) -> str:
    """Return a name from a file as it can be printed in a sentence.

    >>> shown("n01532829"), shown("bell" + chr(7))[:5]
    ('n01532829', "'bell")
    """
    short = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
    return short if short.isprintable() else ascii(short)
