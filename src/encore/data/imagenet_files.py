"""How ImageNet-1k lies on a disk: which pictures there are, and what they show."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from encore.data.pictures import ENDINGS
from encore.errors import EncoreError

LAYOUTS = ("", "ILSVRC/Data/CLS-LOC")  # where `train` and `val` lie: as most unpack them, and as Kaggle does
WNID = re.compile(r"n\d{8}")  # a class, by its number in WordNet
NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})\.jpe?g", re.IGNORECASE)

# Where a list of the validation pictures' classes may lie, and how it may be called.
LIST_FOLDERS = ("", "ILSVRC2012_devkit_t12/data", "devkit/data")
SOLUTION = "LOC_val_solution.csv"
WNID_LISTS = ("imagenet_2012_validation_synset_labels.txt", "synset_labels.txt", "val_labels.txt")
GROUND_TRUTH, META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"


class Pictures(NamedTuple):
    """The pictures of a part, in an order that does not change."""

    names: list[str]  # relative to the folder, `/` between parts
    labels: list[int]  # numbers of classes
    said_by: str  # what tells their classes


def find_layout(folder: Path) -> str | None:
    """Return below which part of a folder `train` or `val` lie; None: nowhere."""
    for layout in LAYOUTS:
        for part in ("train", "val"):
            place = folder / layout / part
            names = (entry.name for entry in _entries(place)) if place.is_dir() else ()
            if any(WNID.fullmatch(name) or NUMBERED.fullmatch(name) for name in names):
                return layout
    return None


def list_classes(train: Path) -> list[str]:
    """Return the classes that have a folder, sorted."""
    return sorted(entry.name for entry in _entries(train) if WNID.fullmatch(entry.name) and entry.is_dir())


def list_by_folders(folder: Path, part: Path, numbers: Mapping[str, int]) -> Pictures:
    """Return the pictures of a part that lie in a folder for each class."""
    found = Pictures([], [], "folders")
    above = part.relative_to(folder)
    for wnid in list_classes(part):
        if wnid not in numbers:
            raise EncoreError(f"{part / wnid} is a class that has no folder among those to train on")
        names = sorted(_picture_names(part / wnid))
        found.names.extend(f"{above}/{wnid}/{name}" for name in names)
        found.labels.extend([numbers[wnid]] * len(names))
    return found


def list_validation(folder: Path, val: Path, numbers: Mapping[str, int]) -> Pictures:
    """Return the validation pictures in the order of their own names, wherever they lie.

    Args:
        folder: in which ImageNet lies.
        val: the folder in it that holds the pictures, or a folder of them for each class.
        numbers: of the classes, by their WordNet numbers.

    """
    by_folders = list_by_folders(folder, val, numbers)
    flat = sorted(_picture_names(val))
    if flat and by_folders.names:
        raise EncoreError(
            f"{val} holds folders of classes, and {flat[0]} beside them: sort all pictures or none"
        )
    if not flat:
        pairs = zip(by_folders.names, by_folders.labels, strict=True)
        by_name = sorted(pairs, key=lambda pair: pair[0].rpartition("/")[2])
        return Pictures([name for name, _ in by_name], [label for _, label in by_name], by_folders.said_by)
    path, wnids = _read_any_list(folder, val)
    labels = []
    for name in flat:
        numbered = NUMBERED.fullmatch(name)
        wnid = wnids.get(int(numbered[1]), "") if numbered else ""
        if wnid not in numbers:
            what = f"{wnid[:20]!r}, which has no folder among those to train on" if wnid else "nothing"
            raise EncoreError(f"{path} says of {val / name} that it shows {what}")
        labels.append(numbers[wnid])
    above = val.relative_to(folder)
    return Pictures([f"{above}/{name}" for name in flat], labels, path.name)


def label_files(folder: Path) -> Iterator[Path]:
    """Return the lists of validation classes that there are, the one that is read first."""
    for inner in (*LIST_FOLDERS, *(str(Path(layout, "val")) for layout in LAYOUTS)):
        for name in (SOLUTION, *WNID_LISTS, GROUND_TRUTH):
            if (folder / inner / name).is_file():
                yield folder / inner / name


def _read_any_list(folder: Path, val: Path) -> tuple[Path, dict[int, str]]:
    """Return a list's path, and what it says: a class for the number of each picture."""
    for path in label_files(folder):
        if path.name == SOLUTION:
            return path, _read_solution(path)
        if path.name in WNID_LISTS:
            return path, dict(enumerate((line.strip() for line in _read_lines(path)), start=1))
        return path, _read_ground_truth(path)
    raise EncoreError(
        f"nothing says what the pictures in {val} show: sort them into a folder for each class, or put the "
        f"folder {Path(LIST_FOLDERS[1]).parent} of the development kit, {SOLUTION} or {WNID_LISTS[0]} into "
        f"{folder}"
    )


def _read_solution(path: Path) -> dict[int, str]:
    """Read lines such as `ILSVRC2012_val_00048981,n03995372 85 1 499 272`, boxes after the class."""
    wnids = {}
    for line, row in enumerate(csv.reader(_read_lines(path)), start=1):
        numbered = NUMBERED.fullmatch(f"{row[0]}.JPEG") if row else None
        if numbered and len(row) > 1 and row[1].split():
            wnids[int(numbered[1])] = row[1].split()[0]
        elif line > 1 and row:
            raise EncoreError(
                f"{path}, line {line} must name a picture and its class, got {','.join(row)[:60]!r}"
            )
    return wnids


def _read_ground_truth(path: Path) -> dict[int, str]:
    """Read the development kit's list: in line n the number, in the kit's own count, of picture n's class."""
    wnids = _read_meta(path.with_name(META))
    found = {}
    for line, text in enumerate(_read_lines(path), start=1):
        number = int(text) if re.fullmatch(r"\s*\d{1,6}\s*", text) else 0
        if number not in wnids:
            raise EncoreError(
                f"{path}, line {line} must hold the number of a class in {META}, got {text[:40]!r}"
            )
        found[line] = wnids[number]
    return found


def _read_meta(path: Path) -> dict[int, str]:
    """Return the classes by the development kit's numbers."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise EncoreError(
            f'reading {path} needs scipy: pip install "scipy>=1.11", or sort the validation pictures into a '
            f"folder for each class, or put {WNID_LISTS[0]} beside them"
        ) from None
    if not path.is_file():
        raise EncoreError(f"{path} is missing: it says which class each number in {GROUND_TRUTH} means")
    try:
        synsets = loadmat(path, squeeze_me=True, variable_names=["synsets"])["synsets"]
        return {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
    except Exception as error:  # it raises whatever a damaged file makes it stumble over
        raise EncoreError(
            f"{path} is damaged or not the development kit's ({type(error).__name__}: {error}): "
            "unpack it again"
        ) from error


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise EncoreError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise EncoreError(f"{path} is not text: get it again") from None


def _picture_names(folder: Path) -> Iterator[str]:
    for entry in _entries(folder):
        hidden = entry.name.startswith(".")
        if not hidden and os.path.splitext(entry.name)[1].lower() in ENDINGS and entry.is_file():  # noqa: PTH122
            yield entry.name


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed: {error.strerror or error}") from error
