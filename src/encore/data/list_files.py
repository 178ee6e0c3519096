"""Lists of pictures as plain text: on each line a path, a tab and the number of a class."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from encore.data.folder_listing import shown_all
from encore.errors import EncoreError

MOST_BYTES = 1 << 26  # of a list
LONGEST_SHOWN = 60


class PictureList(NamedTuple):
    """What a list names."""

    path: Path
    names: list[str]  # relative, `/` between parts
    labels: list[int]  # of each


def read_list(path: Path, num_classes: int) -> PictureList:
    r"""Return what a list names; every line counts from the first on, but for blank ones.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "test.txt"
    >>> _ = path.write_text("port/port 1.tif\t17\n")
    >>> read_list(path, num_classes=25)[1:]
    (['port/port 1.tif'], [17])
    """
    names, labels = [], []
    for number, line in enumerate(_read_lines(path), start=1):
        if not line.strip():
            continue
        name, _, label = line.rpartition("\t")
        if not name or not re.fullmatch(r"[0-9]{1,9}", label.strip()):
            header = ": the list must have no header" if number == 1 else ""
            raise EncoreError(
                f"{path}, line {number} must be a path, a tab and a number from 0 to {num_classes - 1}, got "
                f"{line[:LONGEST_SHOWN]!r}{header}"
            )
        if int(label) >= num_classes:
            raise EncoreError(f"{path}, line {number}: {label.strip()} is not from 0 to {num_classes - 1}")
        names.append(_checked(name, path, number))
        labels.append(int(label))
    if not names:
        raise EncoreError(f"{path} is empty")
    return PictureList(path, names, labels)


def find_pictures(top: Path, names: Sequence[str]) -> list[str]:
    """Return the names as the files below a folder have them, whose endings may be in capital letters."""
    listings: dict[str, dict[str, str]] = {}
    found, missing = [], []
    for name in names:
        folder, slash, file_name = name.rpartition("/")
        if folder not in listings:
            listings[folder] = _list_folder(top / folder)
        listing = listings[folder]
        there = listing.get(file_name) or listing.get(_with_small_ending(file_name))
        if there is None:
            missing.append(name)
        else:
            found.append(f"{folder}{slash}{there}")
    if missing:
        raise EncoreError(f"{top} lacks {len(missing):,} of {len(names):,} pictures: {shown_all(missing)}")
    return found


def _read_lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise EncoreError(f"{path} is too large for a list of pictures")
        content = path.read_bytes()
    except FileNotFoundError:
        raise EncoreError(f"{path} is missing") from None
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        return content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise EncoreError(f"{path}, line {line} is not UTF-8") from None


def _checked(name: str, path: Path, number: int) -> str:
    relative = PurePosixPath(name.replace("\\", "/"))  # Windows writes the other stroke
    parts = relative.parts
    if not parts or relative.is_absolute() or ".." in parts or ":" in parts[0]:
        raise EncoreError(f"{path}, line {number}: {name[:LONGEST_SHOWN]!r} leads out of the folder")
    return str(relative)


def _list_folder(folder: Path) -> dict[str, str]:
    """Return the names in a folder, by themselves and with their endings in small letters."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: a name that no file can have
        return {}
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed ({error.strerror or error})") from error
    return {_with_small_ending(name): name for name in names} | {name: name for name in names}


def _with_small_ending(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return f"{stem}{dot}{ending.lower()}"
