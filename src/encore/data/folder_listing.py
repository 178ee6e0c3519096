"""Pictures in folders that a person has arranged: which there are, of which classes, what is passed over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encore.data.pictures import ENDINGS
from encore.errors import EncoreError

MOST_SHOWN = 3  # names in a sentence

# Folders, and words in a list, that say what pictures are for.
PARTS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
}

ARRANGEMENT = "put the pictures of each class into a folder of their own, or name them in a list, images.csv"


@dataclass
class Catalogue:
    """What is known of each picture, and what was passed over.

    >>> Catalogue(["cat/1.png", "dog/1.png"], ["cat", "dog"]).class_names
    ['cat', 'dog']
    """

    names: list[str]  # of the files, relative to the folder, `/` between parts
    labels: list[str]  # the name of each one's class
    is_test: list[bool] | None = None
    times: list[float] | None = None
    tasks: list[int] | None = None
    layout: str = ""
    list_file: Path | None = None
    passed_over: list[str] = field(default_factory=list)  # in words

    @property
    def class_names(self) -> list[str]:
        """The classes, in natural order."""
        return sorted(set(self.labels), key=natural)


@dataclass
class Tree:
    """All that lies below a folder.

    >>> Tree(pictures=["cat/1.png", "logo.png"]).pictures
    ['cat/1.png', 'logo.png']
    """

    pictures: list[str] = field(default_factory=list)  # by their endings
    folders: list[str] = field(default_factory=list)  # right below it
    num_hidden: int = 0  # files and folders whose names begin with a dot
    num_others: int = 0

    def passed_over(self) -> list[str]:
        """Say what is neither a picture nor a folder."""
        return [
            *count_of(self.num_hidden, "hidden file or folder", "hidden files or folders"),
            *count_of(self.num_others, "file that is no picture", "files that are no pictures"),
        ]


def natural(name: str) -> Any:
    """Return what sorts names as people do: numbers by their size, small and capital letters alike.

    >>> sorted(["img10", "Img9", "img1"], key=natural)
    ['img1', 'Img9', 'img10']
    """
    parts = re.split("([0-9]+)", name.casefold())
    numbers = {place: part.lstrip("0") for place, part in enumerate(parts) if place % 2}
    keys = [(len(numbers.get(place, "")), numbers.get(place, part)) for place, part in enumerate(parts)]
    return keys, name


def shown(name: str) -> str:
    """Return a name as it can be printed, on one line.

    >>> shown("Größe [1].png"), shown("two" + chr(9) + "parts.png").isprintable()
    ('Größe [1].png', True)
    """
    return name if name.isprintable() else ascii(name)


def shown_all(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    listed = ", ".join(shown(name) for name in names[:MOST_SHOWN])
    return listed + (f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else "")


def count_of(number: int, one: str, several: str) -> list[str]:
    """Return so many things in words, or nothing where there are none."""
    return [f"{number:,} {one if number == 1 else several}"] if number else []


def walk(folder: Path) -> Tree:
    """Return all that lies below a folder; links are followed, but not back to where they lie."""
    tree = Tree()
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset({_identity(folder)}))]
    while waiting:
        name, above = waiting.pop()
        for entry in _entries(folder / name):
            inner = f"{name}/{entry.name}" if name else entry.name
            if entry.name.startswith("."):
                tree.num_hidden += 1
            elif entry.is_dir():
                if not name:
                    tree.folders.append(inner)
                if (identity := _identity(folder / inner)) not in above:
                    waiting.append((inner, above | {identity}))
            elif os.path.splitext(entry.name)[1].lower() in ENDINGS and entry.is_file():  # noqa: PTH122 - so many
                tree.pictures.append(inner)
            else:
                tree.num_others += 1
    tree.pictures.sort()
    return tree


def read_folders(folder: Path) -> Catalogue:
    """Return the pictures of a folder for each class, or of such folders in `train` and `test`."""
    tree = walk(folder)
    if not tree.pictures:
        raise EncoreError(
            f"{folder} holds no pictures (files ending in {', '.join(sorted(ENDINGS))}): {ARRANGEMENT}"
        )
    parts = {PARTS.get(name.lower()) for name in tree.folders}
    if "train" in parts and parts & {"test", "validation"}:
        return _read_parts(folder, tree)
    found = Catalogue([], [], layout="a folder for each class", passed_over=tree.passed_over())
    for name in tree.pictures:
        label, _, inner = name.partition("/")
        if inner:
            found.names.append(name)
            found.labels.append(label)
    if not found.names:
        raise EncoreError(f"{folder} holds pictures but no folders of classes: {ARRANGEMENT}")
    found.passed_over += _rest(tree, len(tree.pictures) - len(found.names))
    return found


def _read_parts(folder: Path, tree: Tree) -> Catalogue:
    """Return the pictures below `train/CLASS` and `test/CLASS`, or `val/CLASS` where there is no `test`."""
    by_part: dict[str, list[str]] = {"train": [], "test": [], "validation": []}
    for name in tree.pictures:
        top, *inner = name.split("/")
        if len(inner) > 1 and top.lower() in PARTS:
            by_part[PARTS[top.lower()]].append(name)
    train, tested = by_part["train"], by_part["test"] or by_part["validation"]
    for part, names in (("train", train), ("test", tested)):
        if not names:
            raise EncoreError(
                f"{folder} has folders for training and for testing, but no picture to {part} lies in a "
                f"folder of its class, as {part}/CLASS/picture.png"
            )
    found = Catalogue(
        names=train + tested,
        labels=[name.split("/")[1] for name in train + tested],
        is_test=[False] * len(train) + [True] * len(tested),
        layout="a folder for training and one for testing, in each a folder for each class",
        passed_over=tree.passed_over(),
    )
    if tested is not by_part["validation"]:
        found.passed_over += count_validation(len(by_part["validation"]))
    found.passed_over += _rest(tree, len(tree.pictures) - sum(map(len, by_part.values())))
    return found


def count_validation(number: int) -> list[str]:
    """Say how many pictures are for validation, where others are for testing."""
    return count_of(number, "picture for validation", "pictures for validation")


def _rest(tree: Tree, num_stray: int) -> list[str]:
    """Say how many pictures lie in no folder of a class, and which folders hold none."""
    filled = {name.partition("/")[0] for name in tree.pictures}
    empty = sorted((name for name in tree.folders if name not in filled), key=natural)
    return [
        *count_of(num_stray, "picture in no folder of a class", "pictures in no folder of a class"),
        *(
            f"{words} ({shown_all(empty)})"
            for words in count_of(len(empty), "folder without pictures", "folders without pictures")
        ),
    ]


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed: {error.strerror or error}") from error


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = folder.stat()
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed: {error.strerror or error}") from error
    return status.st_dev, status.st_ino
