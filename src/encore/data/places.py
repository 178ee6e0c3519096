"""In which folders data may lie, and which of them holds a copy of a benchmark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import platformdirs

from encore.data.benchmark import Benchmark
from encore.errors import EncoreError

ARCHIVE_ENDING = ".tar.gz"


class AbsentError(EncoreError):
    """Data lies in none of the folders that were looked in."""


class Place(NamedTuple):
    """A folder to look in, and who named it."""

    folder: Path
    named_by: str


class Copy(NamedTuple):
    """A copy of a benchmark's files, complete or not: below a folder, or inside one archive."""

    path: Path
    is_archive: bool


def places(data_dir: Path | None) -> list[Place]:
    """Return the folders to look in, in their order; data is fetched into the first.

    >>> places(Path("pictures"))[0]
    Place(folder=PosixPath('pictures'), named_by='the folder given')
    """
    found = [Place(platformdirs.user_cache_path("encore") / "data", "your cache folder")]
    if from_environment := os.environ.get("ENCORE_DATA"):
        found.insert(0, Place(Path(from_environment), "$ENCORE_DATA"))
    if data_dir is not None:
        found.insert(0, Place(Path(data_dir), "the folder given"))
    return found


def copies(benchmark: Benchmark, folder: Path) -> list[Copy]:
    """Return what lies in a folder, or in its subfolder of the benchmark's name; unpacked files first."""
    bases = [folder, folder / benchmark.name]
    if any(file.name.startswith(f"{folder.name}/") for file in benchmark.files):
        bases.append(folder.parent)  # the folder named is the one that is unpacked
    unpacked = [
        Copy(base, is_archive=False)
        for base in bases
        if any((base / file.name).exists() for file in benchmark.files)
    ]
    archives = [
        Copy(base / download.name, is_archive=True)
        for base in bases
        for download in benchmark.downloads
        if download.name.endswith(ARCHIVE_ENDING) and (base / download.name).exists()
    ]
    return unpacked + archives


def not_found(benchmark: Benchmark, data_dir: Path | None) -> AbsentError:
    """Return the error for data that lies nowhere: where it was looked for, and how to get it."""
    looked_in = " or ".join(
        f"{place.folder} ({place.named_by}{_what_is_wrong(place.folder)})" for place in places(data_dir)
    )
    return AbsentError(f"{benchmark.name} was not found in {looked_in}: {benchmark.steps}")


def _what_is_wrong(folder: Path) -> str:
    if folder.is_dir():
        return ""
    return ", which is no folder" if folder.exists() else ", which does not exist"
