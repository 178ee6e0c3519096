"""Mini-ImageNet as picture files of any size: all in one folder with lists, or a folder for each class."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from encore.data.image_set import ImageSet
from encore.data.mini_imagenet_layout import (
    PARTS,
    Expected,
    Part,
    check_numbers,
    join_classes,
    names_in,
    shown,
)
from encore.data.pictures import ENDINGS, PictureFiles
from encore.errors import EncoreError

COLUMNS = ["filename", "label"]
MOST_LIST_BYTES = 1 << 26  # the lists that go round have under 2 MB

_WORDNET_ID = re.compile(r"n[0-9]{8}")

# In which of the lists a class is that is not in `train`, for folders of classes without lists.
_OF_OTHER_PARTS = {
    "val": (
        "n01855672 n02091244 n02114548 n02138441 n02174001 n02950826 n02971356 n02981792 n03075370 "
        "n03417042 n03535780 n03584254 n03770439 n03773504 n03980874 n09256479"
    ),
    "test": (
        "n01930112 n01981276 n02099601 n02110063 n02110341 n02116738 n02129165 n02219486 n02443484 "
        "n02871525 n03127925 n03146219 n03272010 n03544143 n03775546 n04146614 n04149813 n04418357 "
        "n04522168 n07613480"
    ),
}
_PART_NUMBERS = {name: PARTS.index(part) for part, names in _OF_OTHER_PARTS.items() for name in names.split()}


class ListedPictures:
    """A folder `images` of pictures, and `train.csv`, `val.csv` and `test.csv` with their classes.

    Classes count in the order in which the lists name them, the images of a class in that of their names.
    """

    words = "the folder images with train.csv, val.csv and test.csv"

    def __init__(self, folder: Path, expected: Expected) -> None:
        self.folder = folder
        self.expected = expected
        self.images = folder / "images"

    def origins(self) -> Mapping[str, Path]:
        """Return the name and place of each list."""
        return {part: self.folder / f"{part}.csv" for part in PARTS}

    def list_files(self) -> tuple[Path, ...]:
        """Return the lists and pictures that are there."""
        lists = [path for path in self.origins().values() if path.exists()]
        return (*lists, *(self.images / name for name in names_in(self.images, of_folders=False)))

    def read(self, part: str) -> Part:
        """Read a list."""
        path = self.origins()[part]
        classes: dict[str, list[str]] = {}
        for line, name, label in _read_list(path):
            if name != Path(name).name or "\\" in name or name == "..":
                raise EncoreError(
                    f"{path}, line {line} must name a file right in {self.images}, and names {shown(name)}"
                )
            classes.setdefault(label, []).append(name)
        in_order = {label: sorted(names) for label, names in classes.items()}
        return check_numbers(Part(path, in_order), self.expected.classes[part], self.expected.per_class)

    def join(self, parts: Sequence[Part]) -> ImageSet:
        """Put the pictures of all lists one after the other."""
        there = set(names_in(self.images, of_folders=False))
        owners: dict[str, Path] = {}
        for part in parts:
            missing = [name for names in part.classes.values() for name in names if name not in there]
            if missing:
                others = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
                raise EncoreError(f"{part.origin} names {shown(missing[0])}{others}, not in {self.images}")
            for names in part.classes.values():
                for name in names:
                    if name in owners:
                        again = f"again in {part.origin}" if owners[name] != part.origin else "twice"
                        raise EncoreError(f"{owners[name]} names {shown(name)}, {again}")
                    owners[name] = part.origin
        return _make_set(self.images, parts, self.expected)


class ClassFolders:
    """A folder of pictures for each class, called by its number in WordNet, right here or in three parts.

    The parts are `train`, `val` and `test`. Classes count in the order of their names, part by part;
    without parts those come last that are known from `val` and `test`, so that the order is the same.
    """

    def __init__(self, folder: Path, expected: Expected) -> None:
        self.folder = folder
        self.expected = expected
        self.is_parted = not _class_names(folder)

    @property
    def words(self) -> str:
        """What it is called."""
        return "a folder for each class" + (" in train, val and test" if self.is_parted else "")

    def origins(self) -> Mapping[str, Path]:
        """Return the name and place of each part, one where there are no parts."""
        return {part: self.folder / part for part in PARTS} if self.is_parted else {"": self.folder}

    def list_files(self) -> tuple[Path, ...]:
        """Return all pictures."""
        return tuple(
            folder / name / picture
            for folder in self.origins().values()
            for name in _class_names(folder)
            for picture in _pictures_in(folder / name)
        )

    def read(self, part: str) -> Part:
        """List the pictures of a part."""
        folder = self.origins()[part]
        if not folder.is_dir():
            raise EncoreError(f"{folder} is missing")
        names = _class_names(folder)
        if not self.is_parted:
            names.sort(key=lambda name: (_PART_NUMBERS.get(name, 0), name))
        below = folder.relative_to(self.folder)
        classes = {
            name: [(below / name / picture).as_posix() for picture in _pictures_in(folder / name)]
            for name in names
        }
        num_classes = self.expected.classes[part] if self.is_parted else self.expected.num_classes
        return check_numbers(Part(folder, classes), num_classes, self.expected.per_class)

    def join(self, parts: Sequence[Part]) -> ImageSet:
        """Put the pictures of all parts one after the other."""
        return _make_set(self.folder, parts, self.expected)


def find_pictures(folder: Path, expected: Expected) -> ListedPictures | ClassFolders | None:
    """Return how pictures lie in a folder; None where there are none, or those of ImageNet as a whole."""
    listed = ListedPictures(folder, expected)
    if listed.images.is_dir() and any(path.exists() for path in listed.origins().values()):
        return listed
    in_folders = ClassFolders(folder, expected)
    num_classes = sum(len(_class_names(origin)) for origin in in_folders.origins().values())
    return in_folders if 0 < num_classes <= expected.num_classes else None


def _make_set(folder: Path, parts: Sequence[Part], expected: Expected) -> ImageSet:
    class_names = join_classes(parts)
    by_class = [names for part in parts for names in part.classes.values()]
    labels = np.repeat(np.arange(len(by_class)), [len(names) for names in by_class])
    files = [name for names in by_class for name in names]
    return ImageSet(PictureFiles(folder, files, expected.image_shape, "stretch"), labels, class_names)


def _read_list(path: Path) -> list[tuple[int, str, str]]:
    """Return the line, the file and the label of each row of a list."""
    if not path.is_file():
        raise EncoreError(f"{path} is missing")
    try:
        if path.stat().st_size > MOST_LIST_BYTES:
            raise EncoreError(f"{path} is too large for a list of pictures")
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.reader(file, skipinitialspace=True, strict=True)
            header = next(table, [])
            if header != COLUMNS:
                found = ", ".join(shown(column) for column in header[:5]) or "nothing"
                raise EncoreError(f"{path} must begin with {','.join(COLUMNS)}, and begins with {found}")
            rows = []
            for row in table:
                if len(row) != len(COLUMNS) or not all(row):
                    raise EncoreError(f"{path}, line {table.line_num} must have a file name and a label")
                rows.append((table.line_num, row[0], row[1]))
            return rows
    except (csv.Error, UnicodeDecodeError) as error:
        raise EncoreError(f"{path} cannot be read as a table ({error})") from None
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error


def _class_names(folder: Path) -> list[str]:
    return [name for name in names_in(folder, of_folders=True) if _WORDNET_ID.fullmatch(name)]


def _pictures_in(folder: Path) -> list[str]:
    return [name for name in names_in(folder, of_folders=False) if Path(name).suffix.lower() in ENDINGS]
