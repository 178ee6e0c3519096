"""Where CORe50's pixels may lie in a folder: as pictures, in archives, or in a file of bare pixels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from encore.data.core50_lists import Catalogue
from encore.data.core50_pixels import DeflatedPixels, open_archive, open_pixels
from encore.data.core50_zip import ZippedPictures
from encore.data.folder_listing import shown_all
from encore.data.image_set import Images, Rows
from encore.data.pictures import PictureFiles
from encore.errors import EncoreError

TOP = "core50_128x128"  # the folder that the makers' archive holds
BARE, ARRAY, ZIP = "core50_imgs.bin", "core50_imgs.npz", f"{TOP}.zip"
FIRST = "s1"  # a folder of pictures


def find_sources(folder: Path) -> list[Path]:
    """Return what there is: files that need no decoding first, then pictures, then archives of them.

    >>> find_sources(Path("nowhere"))
    []
    """
    trees = [top for top in (folder / TOP, folder) if (top / FIRST).is_dir()]
    files = {name: [folder / name] if (folder / name).is_file() else [] for name in (BARE, ARRAY, ZIP)}
    return [*files[BARE], *files[ARRAY], *trees[:1], *files[ZIP]]


def list_source(source: Path) -> list[Path]:
    """Return the files of a source, in an order that does not change."""
    if not source.is_dir():
        return [source]
    return [
        folder / name
        for session in _numbered(source, "s")
        for folder in _numbered(session, "o")
        for name in sorted(_names_in(folder))
    ]


def open_source(source: Path, catalogue: Catalogue, rows: Rows, shape: tuple[int, int, int]) -> Images:
    """Return the images that the rows of the catalogue name, or say in one sentence what is wrong."""
    if source.name == BARE:
        return open_pixels(source, rows, len(catalogue.names), shape)
    if source.name == ARRAY:
        return open_archive(source, rows, len(catalogue.names), shape)
    names = [catalogue.names[row] for row in rows.tolist()]
    if source.name == ZIP:
        return ZippedPictures(source, TOP, names, shape)
    _refuse_missing(source, names)
    return PictureFiles(source, names, shape, "exact")


def open_best(
    sources: Sequence[Path], catalogue: Catalogue, rows: Rows, shape: tuple[int, int, int]
) -> Images:
    """Return the images of the first source that is whole; what can only be read in passing comes last."""
    problems = []
    last_resort: Images | None = None
    for source in sources:
        try:
            images = open_source(source, catalogue, rows, shape)
        except EncoreError as error:
            problems.append(str(error))
            continue
        if not isinstance(images, DeflatedPixels):
            return images
        last_resort = images
    if last_resort is None:
        raise EncoreError("; ".join(problems))
    return last_resort


def _refuse_missing(top: Path, names: Sequence[str]) -> None:
    present: dict[str, set[str]] = {}
    missing = []
    for name in names:
        folder, _, file_name = name.rpartition("/")
        if folder not in present:
            present[folder] = _names_in(top / folder)
        if file_name not in present[folder]:
            missing.append(name)
    if missing:
        raise EncoreError(f"{top} lacks {len(missing):,} of {len(names):,} pictures: {shown_all(missing)}")


def _numbered(folder: Path, letter: str) -> list[Path]:
    names = {name for name in _names_in(folder) if name[:1] == letter and name[1:].isdecimal()}
    return [folder / name for name in sorted(names, key=lambda name: (int(name[1:]), name))]


def _names_in(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed ({error.strerror or error})") from error
