"""What `encore data list` and `encore data check` know: which data is there, and whether it is right."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encore.data.benchmark import Benchmark
from encore.data.verified import find_contents, first_problem
from encore.errors import EncoreError


@dataclass(frozen=True)
class Listing:
    """One row of `encore data list`.

    >>> from encore.datasets.digits import Digits
    >>> describe_benchmarks([Digits()], None)[0].verified
    True
    """

    name: str
    summary: str
    source: str
    terms: str
    num_bytes: int  # of the files that are read; 0 where a package carries them
    num_bytes_to_fetch: int
    embedded: bool
    path: Path | None  # where it lies; None: nowhere, or in a package
    verified: bool
    problem: str  # empty where it is verified


@dataclass(frozen=True)
class FileCheck:
    """One file of `encore data check`: its problem, or none.

    >>> FileCheck("cifar-100-python/meta", Path("data"), 1_473, problem="").problem
    ''
    """

    name: str
    path: Path  # the folder or the archive that holds it
    num_bytes: int
    problem: str  # empty where it is right


@dataclass(frozen=True)
class PartCheck:
    """How many images of each class a part holds.

    >>> PartCheck("test", (100, 100)).images_per_class
    (100, 100)
    """

    part: str  # "train" or "test"
    images_per_class: tuple[int, ...]


@dataclass(frozen=True)
class Check:
    """What `encore data check` found; without parts where a file is wrong.

    >>> Check(files=(), parts=()).is_right
    True
    """

    files: tuple[FileCheck, ...]
    parts: tuple[PartCheck, ...]

    @property
    def is_right(self) -> bool:
        """Whether every file is as its makers published it."""
        return not any(file.problem for file in self.files)


def describe_benchmarks(benchmarks: Iterable[Benchmark], data_dir: Path | None) -> list[Listing]:
    """Return a row for each benchmark: what it is, where from, and whether it is there and right."""
    return [_describe(benchmark, data_dir) for benchmark in benchmarks]


def check(benchmark: Benchmark, data_dir: Path | None) -> Check:
    """Verify every file of a benchmark anew, and count its images of each class."""
    files: tuple[FileCheck, ...] = ()
    if not benchmark.embedded:
        files = _check_files(benchmark, data_dir)
    if any(file.problem for file in files):
        return Check(files, ())
    images = benchmark.load(data_dir)
    counts = [
        PartCheck(part, tuple(np.bincount(held.labels, minlength=benchmark.num_classes).tolist()))
        for part, held in (("train", images.train), ("test", images.test))
    ]
    return Check(files, tuple(counts))


def _check_files(benchmark: Benchmark, data_dir: Path | None) -> tuple[FileCheck, ...]:
    copy, contents = find_contents(benchmark, data_dir)
    sizes = {file.name: file.num_bytes for file in benchmark.files}
    return tuple(
        FileCheck(name, copy.path, sizes[name], str(content) if isinstance(content, EncoreError) else "")
        for name, content in contents.items()
    )


def _describe(benchmark: Benchmark, data_dir: Path | None) -> Listing:
    path, problem = _package_state(benchmark) if benchmark.embedded else _disk_state(benchmark, data_dir)
    return Listing(
        name=benchmark.name,
        summary=(inspect.getdoc(benchmark) or "").partition("\n")[0],
        source=benchmark.source,
        terms=benchmark.terms,
        num_bytes=sum(file.num_bytes for file in benchmark.files),
        num_bytes_to_fetch=sum(download.num_bytes for download in benchmark.downloads),
        embedded=benchmark.embedded,
        path=path,
        verified=not problem,
        problem=problem,
    )


def _package_state(benchmark: Benchmark) -> tuple[None, str]:
    try:
        benchmark.load(None)
    except EncoreError as error:
        return None, str(error)
    return None, ""


def _disk_state(benchmark: Benchmark, data_dir: Path | None) -> tuple[Path | None, str]:
    try:
        copy, contents = find_contents(benchmark, data_dir)
    except EncoreError as error:
        return None, str(error)
    return copy.path, first_problem(contents)
