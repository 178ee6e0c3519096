"""What `encore data list` and `encore data check` know: which data is there, and whether it is right."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encore.data.benchmark import Benchmark, FileCheck
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
    steps: str
    size: str
    embedded: bool
    path: Path | None  # where it lies; None: nowhere, or in a package
    verified: bool
    problem: str  # empty where it is verified


@dataclass(frozen=True)
class PartCheck:
    """How many images of each class a part holds.

    >>> PartCheck("test", (100, 100)).images_per_class
    (100, 100)
    """

    part: str  # "train" or "test", or "all" where the split is made for each run
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
    files = benchmark.check_files(data_dir)
    if any(file.problem for file in files):
        return Check(files, ())
    images = benchmark.load(data_dir)
    if images.is_test is None:
        parts = {"all": np.ones(len(images.labels), dtype=np.bool_)}
    else:
        parts = {"train": ~images.is_test, "test": images.is_test}
    counts = [
        PartCheck(name, tuple(np.bincount(images.labels[rows], minlength=len(images.class_names)).tolist()))
        for name, rows in parts.items()
    ]
    return Check(files, tuple(counts))


def _describe(benchmark: Benchmark, data_dir: Path | None) -> Listing:
    path, problem = _package_state(benchmark) if benchmark.embedded else _disk_state(benchmark, data_dir)
    return Listing(
        name=benchmark.name,
        summary=(inspect.getdoc(benchmark) or "").partition("\n")[0],
        source=benchmark.source,
        terms=benchmark.terms,
        steps=benchmark.steps,
        size=benchmark.size,
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
        path = benchmark.locate(data_dir).path
    except EncoreError as error:
        return None, str(error)
    problems = (file.problem for file in benchmark.check_files(data_dir))
    return path, next(filter(None, problems), "")
