"""What `encore data fetch` does: bring a benchmark's files, or find that they are there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from encore.data.benchmark import Benchmark, DataFile
from encore.data.transfer import MirrorError, Report, address, receive
from encore.data.verified import find_contents_in, first_problem, md5_of
from encore.errors import EncoreError
from encore.files import locked, put_in_place


@dataclass(frozen=True)
class Fetched:
    """What came of fetching a benchmark.

    >>> Fetched(Path("data/cifar100"), num_bytes=0, sentences=("cifar100 is there",)).num_bytes
    0
    """

    path: Path | None  # where the data lies; None: in an installed package
    num_bytes: int  # how much was fetched, by this or by an earlier attempt that it continued
    sentences: tuple[str, ...]  # what to tell the user


def mirrors_for(benchmark: Benchmark, given: Sequence[str]) -> tuple[str, ...]:
    """Return where to fetch from: the mirrors given, then those in $ENCORE_MIRRORS, then the source."""
    named = os.environ.get("ENCORE_MIRRORS", "").split(",")
    return (*given, *(mirror.strip() for mirror in named if mirror.strip()), benchmark.source)


def fetch(benchmark: Benchmark, folder: Path, mirrors: Sequence[str], report: Report) -> Fetched:
    """Bring a benchmark's downloads into `folder`, trying the mirrors in their order.

    What is there and right is not fetched again. What is there and wrong stays until what was fetched
    is verified, and is then replaced at once. A fetch that broke off goes on where it stopped.
    """
    if benchmark.embedded:
        sentence = f"{benchmark.name} needs no fetching: it comes with {benchmark.source}"
        return Fetched(None, 0, (sentence,))
    if not benchmark.downloads:
        return _find_gathered(benchmark, folder)
    addresses = [[address(mirror, file) for mirror in mirrors] for file in benchmark.downloads]
    present, _ = _look(benchmark, folder)
    if present:
        return present
    try:
        with _locked(benchmark, folder):
            present, problem = _look(benchmark, folder)  # another process may just have fetched it
            if present:
                return present
            fetched = [
                _fetch_file(benchmark, folder, file, urls, report)
                for file, urls in zip(benchmark.downloads, addresses, strict=True)
            ]
    except OSError as error:
        raise EncoreError(
            f"{benchmark.name} cannot be stored in {folder} ({error.strerror or error}): what was fetched "
            "so far is kept, and fetching goes on from there"
        ) from error
    sentences = [sentence for _, sentence in fetched]
    num_bytes = sum(count for count, _ in fetched)
    return Fetched(folder / benchmark.name, num_bytes, (*([problem] if problem else []), *sentences))


def _find_gathered(benchmark: Benchmark, folder: Path) -> Fetched:
    """Say where the files lie that nobody may pass on, or how to get them."""
    try:
        path = benchmark.locate(folder).path
    except EncoreError as error:
        raise EncoreError(f"{benchmark.name} cannot be fetched: {benchmark.steps}") from error
    return Fetched(path, 0, (f"{benchmark.name} is already in {path}: there is nothing to fetch",))


def _look(benchmark: Benchmark, folder: Path) -> tuple[Fetched | None, str]:
    """Return what to answer where everything is there and right, else what is wrong with what is there."""
    found = find_contents_in(benchmark, folder)
    if found is None:
        return None, ""
    copy, contents = found
    if problem := first_problem(contents):
        return None, problem
    sentence = f"{benchmark.name} is already in {copy.path}, verified: nothing was downloaded"
    return Fetched(copy.path, 0, (sentence,)), ""


def _fetch_file(
    benchmark: Benchmark, folder: Path, file: DataFile, urls: Sequence[str], report: Report
) -> tuple[int, str]:
    """Return how many bytes were fetched, and the sentence that says so."""
    usual = folder / benchmark.name / file.name
    target = next((path for path in (folder / file.name, usual) if path.exists()), usual)
    if target.is_file() and md5_of(target) == file.md5:
        return 0, f"{target} is there already, verified"
    part = target.with_name(f"{target.name}.part")
    failures = []
    for url in urls:
        try:
            receive(url, file, part, report)
        except MirrorError as error:
            failures.append(f"{url} {error}")
            continue
        put_in_place(part, target)
        return file.num_bytes, f"{target} was fetched from {url}, verified"
    raise EncoreError(f"{file.name} could not be fetched: {'; '.join(failures) or 'no mirror was named'}")


@contextmanager
def _locked(benchmark: Benchmark, folder: Path) -> Iterator[None]:
    # The file stays: to remove it would let a third process lock a new one while a second holds the old.
    lock = folder / benchmark.name / ".lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, f"another process is fetching {benchmark.name} into {folder}: wait until it is done"):
        yield
