"""Where a run's images come from: from a file that was prepared, if it is right, else from the files.

A prepared file lies in the folder `prepared` of $ENCORE_DATA, else of the user's cache folder. It is not put
beside the files, as these may be somebody's pictures, or on a disk that nobody may write to.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from encore.data.benchmark import Benchmark, Located
from encore.data.image_set import ImageSet
from encore.data.mapped import DamagedError
from encore.data.places import AbsentError, places
from encore.data.prepared import (
    NotStoredError,
    Origin,
    OtherFormatError,
    Prepared,
    Report,
    read_prepared,
    write_prepared,
)
from encore.errors import EncoreError
from encore.files import bytes_held, leftovers, locked, remove, written_atomically
from encore.version import VERSION

ENDING = ".safetensors"
CHUNK = 512  # images whose checksums are compared between two reports


@dataclass(frozen=True)
class Choice:
    """A benchmark, the options it was made with, and the folder that was named to hold its files.

    >>> from encore.datasets.digits import Digits
    >>> Choice(Digits(), data_dir=Path("my pictures")).command("prepare")
    "encore data prepare digits --data-dir 'my pictures'"
    """

    benchmark: Benchmark
    options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: Path | None = None

    @property
    def key(self) -> tuple[str, dict[str, Any], str | None]:
        """What a prepared file is kept under."""
        folder = None if self.data_dir is None else os.path.realpath(self.data_dir)
        return self.benchmark.name, dict(self.options), folder

    @property
    def path(self) -> Path:
        """Where the prepared file lies, or would lie."""
        digest = hashlib.sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()
        return prepared_folder() / f"{self.benchmark.name}-{digest[:8]}{ENDING}"

    @property
    def unusual_options(self) -> dict[str, Any]:
        """The options that are not what they are by themselves."""
        usual = inspect.signature(type(self.benchmark)).parameters
        return {name: value for name, value in self.options.items() if value != usual[name].default}

    def command(self, verb: str) -> str:
        """Return the command line that does something with it."""
        words = ["encore", "data", verb, self.benchmark.name]
        for option, value in self.unusual_options.items():
            words.append(f"--benchmark.{option.replace('_', '-')}={value}")
        if self.data_dir is not None:
            words += ["--data-dir", str(self.data_dir)]
        return " ".join(map(quote, words))


class Look(NamedTuple):
    """What a look at a prepared file showed."""

    prepared: Prepared | None  # None: it cannot be used
    problem: str  # why it cannot, in words that follow a name; empty where there is none
    source: Path | None  # where the files lie; None: nowhere


class Outcome(NamedTuple):
    """What came of preparing."""

    prepared: Prepared
    is_new: bool  # False: it was there, and right


def open_images(choice: Choice, skip_broken: int, tell: Callable[[str], None]) -> ImageSet:
    """Return a benchmark's images for a run, decoded already if it has been prepared.

    What was prepared from files that have changed since is prepared again, and a damaged file is refused.

    Args:
        choice: the benchmark.
        skip_broken: how many broken images are tolerated if it must be prepared again.
        tell: what to tell the user with.

    """
    if not is_prepared(choice):
        return choice.benchmark.load(choice.data_dir)
    found = look(choice)
    if found.prepared is not None:
        return found.prepared.image_set
    if found.source is None:
        return choice.benchmark.load(choice.data_dir)  # which says where it looked
    tell(f"{choice.benchmark.name} is prepared again, as {found.problem}")
    try:
        return prepare(choice, skip_broken).prepared.image_set
    except NotStoredError as error:
        tell(f"{choice.benchmark.name} is decoded as it is needed: {error}")
        return choice.benchmark.load(choice.data_dir)


def prepare(choice: Choice, skip_broken: int = 0, report: Report = lambda done, total: None) -> Outcome:
    """Decode all images into one file, unless it is there and every bit of it is right."""
    benchmark, path = choice.benchmark, choice.path
    with _working_on(choice):
        for leftover in leftovers(path.parent, path.name):
            remove(leftover)
        if (found := _find_right(choice, skip_broken, report)) is not None:
            return Outcome(found, is_new=False)
        located = benchmark.locate(choice.data_dir)
        before = fingerprint(located)
        origin = Origin(*choice.key, path=str(located.path), fingerprint=before, encore=VERSION)
        with written_atomically(path) as unfinished:
            images = benchmark.load(choice.data_dir)
            write_prepared(unfinished, images, origin, skip_broken, report)
            if fingerprint(benchmark.locate(choice.data_dir)) != before:
                raise EncoreError(
                    f"files in {located.path} changed while they were being prepared: prepare "
                    f"{benchmark.name} when nothing writes there"
                )
        return Outcome(read_prepared(path, _remedy(choice)), is_new=True)


def look(choice: Choice) -> Look:
    """Compare a prepared file with the files as they are now; raise `DamagedError` if it is damaged."""
    try:
        located = choice.benchmark.locate(choice.data_dir)
    except EncoreError as error:
        if not means_gone(error, choice):
            raise
        located = None
    source = located.path if located else None
    try:
        found = read_prepared(choice.path, _remedy(choice))
    except OtherFormatError as error:
        return Look(None, str(error), source)
    if found.origin[:3] != choice.key:
        return Look(None, f"{choice.path} was prepared with other options", source)
    if located is None:
        return Look(found, "", None)
    if found.origin.encore != VERSION:
        return Look(None, f"{choice.path} was written by Encore {found.origin.encore}", source)
    if found.origin.fingerprint != fingerprint(located):
        return Look(None, f"files in {located.path} have changed since", source)
    return Look(found, "", source)


def verify(prepared: Prepared, report: Report = lambda done, total: None) -> None:
    """Compare all images of a prepared file with their checksums; raise `DamagedError` at a wrong one."""
    images = prepared.image_set.images
    readable = np.setdiff1d(np.arange(len(images)), list(prepared.broken))
    for rows in np.split(readable, range(CHUNK, len(readable), CHUNK)):
        images.read(rows)
        report(int(rows[-1]) + 1 if len(rows) else 0, len(images))


def forget(name: str) -> dict[Path, int]:
    """Delete all that was prepared from a benchmark, or half prepared by a process that was killed.

    Returns how many bytes each deleted file had.
    """
    half = leftovers(prepared_folder(), _pattern(name))
    begun = {path.with_name(path.name[1:].partition(ENDING)[0] + ENDING) for path in half}
    deleted = {}
    for path in sorted({*find_prepared(name), *begun}):
        with locked(_lock(path), f"another process is writing {path}: wait until it is done"):
            for file in filter(Path.exists, (path, *leftovers(path.parent, path.name))):
                deleted[file] = bytes_held(file)
                remove(file)
    return deleted


def find_prepared(name: str) -> list[Path]:
    """Return the prepared files of a benchmark."""
    return sorted(prepared_folder().glob(_pattern(name)))


def is_prepared(choice: Choice) -> bool:
    """Whether there is a prepared file, right or not."""
    return not choice.benchmark.embedded and choice.path.is_file()


def means_gone(error: EncoreError, choice: Choice) -> bool:
    """Whether a benchmark's files cannot be found because they are not there at all."""
    return isinstance(error, AbsentError) or (choice.data_dir is not None and not choice.data_dir.exists())


def prepared_folder() -> Path:
    """Return where prepared files lie."""
    return places(None)[0].folder / "prepared"


def fingerprint(located: Located) -> str:
    """Return what changes if a file is added, removed, renamed, or altered in place.

    It is made of names below the folder, sizes and times of the last change; nothing is read.
    """
    digest = hashlib.sha256()
    above = f"{located.path}{os.sep}"
    for file in map(str, located.files):
        name = file.removeprefix(above)
        try:
            status = os.stat(file)  # noqa: PTH116 - there may be 100,000
            state = f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            state = "missing"
        digest.update(os.fsencode(f"{name}\0{state}\0"))
    return digest.hexdigest()


def _find_right(choice: Choice, skip_broken: int, report: Report) -> Prepared | None:
    """Return the prepared file if nothing is wrong with it and it lacks no more images than it may."""
    if not choice.path.is_file():
        return None
    try:
        found = look(choice).prepared
        if found is not None:
            verify(found, report)
    except DamagedError:
        return None
    return found if found is not None and len(found.broken) <= skip_broken else None


@contextmanager
def _working_on(choice: Choice) -> Iterator[None]:
    name, folder = choice.benchmark.name, choice.path.parent
    refusal = f"another process is preparing {name}: wait until it is done"
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(_lock(choice.path), refusal))
        except OSError as error:
            raise NotStoredError(
                f"nothing can be written to {folder} ({error.strerror or error}): name the files' folder "
                "with --data-dir, and one that may be written to with $ENCORE_DATA"
            ) from error
        except EncoreError as error:
            raise NotStoredError(str(error)) from error
        yield


def _pattern(name: str) -> str:
    return f"{name}-{'[0-9a-f]' * 8}{ENDING}"


def _lock(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _remedy(choice: Choice) -> str:
    return f"make it anew with `{choice.command('prepare')}`"
