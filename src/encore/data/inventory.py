"""What `encore data list` and `encore data check` know: which data is there, and whether it is right."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from encore.data.benchmark import Benchmark, FileCheck
from encore.data.image_set import ImageSet
from encore.data.opening import Choice, find_prepared, is_prepared, look, means_gone, verify
from encore.data.places import places
from encore.data.prepared import in_words
from encore.data.reading import Reader
from encore.errors import EncoreError

CHUNK = 16  # images decoded at a time

Report = Callable[[str, int, int], None]  # what is being done, images done, images in all


@dataclass(frozen=True)
class Listing:
    """What `encore data list` says of a benchmark.

    >>> from encore.datasets.digits import Digits
    >>> describe_benchmarks([Digits()], None)[0].is_here
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
    named_by: str  # who named the folder in which it lies; empty where it is none that was named
    problem: str  # why it is not there, or which file is missing; empty where all is there
    prepared: tuple[Path, ...]  # files that were prepared from it

    @property
    def is_here(self) -> bool:
        """Whether all files are there; what is in them is not looked at."""
        return not self.problem


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
    """What `encore data check` found; without images where a file is wrong.

    >>> Check(files=(), parts=()).is_right
    True
    """

    files: tuple[FileCheck, ...]
    parts: tuple[PartCheck, ...]
    broken: tuple[str, ...] = ()  # images that cannot be read, and why
    prepared: FileCheck | None = None
    image_set: ImageSet | None = field(default=None, compare=False)

    @property
    def is_right(self) -> bool:
        """Whether nothing at all is wrong."""
        found = [*self.files, *([self.prepared] if self.prepared else [])]
        return not self.broken and not any(file.problem for file in found)


def describe_benchmarks(benchmarks: Iterable[Benchmark], data_dir: Path | None) -> list[Listing]:
    """Say of each benchmark what it is, where from, and whether its files are there."""
    return [_describe(benchmark, data_dir) for benchmark in benchmarks]


def check(choice: Choice, report: Report = lambda what, done, total: None) -> Check:
    """Verify every file of a benchmark anew, count its images of each class, and decode them all."""
    benchmark, data_dir = choice.benchmark, choice.data_dir
    files: tuple[FileCheck, ...] = ()
    images: ImageSet | None = None
    try:
        files = benchmark.check_files(data_dir)
        if not any(file.problem for file in files):
            images = benchmark.load(data_dir)
    except EncoreError as error:
        if not is_prepared(choice):
            raise
        is_gone = means_gone(error, choice)
        said = FileCheck("files", "gone: runs use what was prepared") if is_gone else None
        files = (*files, said or FileCheck("files", "", str(error)))
    broken = _decode_all(images, report) if images is not None else ()
    prepared = None
    if is_prepared(choice):
        prepared, prepared_images = _check_prepared(choice, report)
        images = images or prepared_images
    return Check(files, _count(images) if images is not None else (), broken, prepared, images)


def _describe(benchmark: Benchmark, data_dir: Path | None) -> Listing:
    path, problem = _package_state(benchmark) if benchmark.embedded else _disk_state(benchmark, data_dir)
    within = (place.named_by for place in places(data_dir) if path and path.is_relative_to(place.folder))
    return Listing(
        name=benchmark.name,
        summary=(inspect.getdoc(benchmark) or "").partition("\n")[0],
        source=benchmark.source,
        terms=benchmark.terms,
        steps=benchmark.steps,
        size=benchmark.size,
        embedded=benchmark.embedded,
        path=path,
        named_by=next(within, ""),
        problem=problem,
        prepared=tuple(find_prepared(benchmark.name)),
    )


def _package_state(benchmark: Benchmark) -> tuple[None, str]:
    try:
        benchmark.load(None)
    except EncoreError as error:
        return None, str(error)
    return None, ""


def _disk_state(benchmark: Benchmark, data_dir: Path | None) -> tuple[Path | None, str]:
    try:
        located = benchmark.locate(data_dir)
    except EncoreError as error:
        return None, str(error)
    missing = (f"{file} is missing" for file in located.files if not file.exists())
    return located.path, next(missing, "")


def _decode_all(images: ImageSet, report: Report) -> tuple[str, ...]:
    """Return which images cannot be read, and why, where reading is more than copying."""
    total = len(images.images)
    if images.images.reads_at_once:
        return ()
    reader = Reader(images.images, skip_broken=total)
    parts = [np.arange(row, min(row + CHUNK, total)) for row in range(0, total, CHUNK)]
    for part, _ in zip(parts, reader.read_ahead(parts), strict=True):
        report("decoding", int(part[-1]) + 1, total)
    return tuple(reader.skipped[row] for row in sorted(reader.skipped))


def _check_prepared(choice: Choice, report: Report) -> tuple[FileCheck, ImageSet | None]:
    name = str(choice.path)
    try:
        found = look(choice)
        if found.prepared is None:
            verdict = f"out of date ({found.problem}): the next run prepares it again"
            return FileCheck(name, verdict), None
        verify(found.prepared, lambda done, total: report("comparing", done, total))
    except EncoreError as error:
        return FileCheck(name, "", str(error)), None
    verdict = f"{in_words(found.prepared.num_bytes)}, every checksum right"
    if found.prepared.broken:
        number = len(found.prepared.broken)
        verdict += f", without {number:,} broken image{'' if number == 1 else 's'}"
    return FileCheck(name, verdict), found.prepared.image_set


def _count(images: ImageSet) -> tuple[PartCheck, ...]:
    if images.is_test is None:
        parts = {"all": np.ones(len(images.labels), dtype=np.bool_)}
    else:
        parts = {"train": ~images.is_test, "test": images.is_test}
    num_classes = len(images.class_names)
    return tuple(
        PartCheck(name, tuple(np.bincount(images.labels[rows], minlength=num_classes).tolist()))
        for name, rows in parts.items()
    )
