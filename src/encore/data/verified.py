"""Reading a benchmark's files whole, in one pass that checks them; nothing wrong is ever handed on."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from encore.data.benchmark import Benchmark, DataFile
from encore.data.places import Copy, copies, not_found, places
from encore.errors import EncoreError

CHUNK = 1 << 20
ARCHIVE_SLACK = 1 << 20  # headers, padding and small extra files that an archive may hold besides the files


class Content(NamedTuple):
    """The verified bytes of a file, and where they come from in words for an error."""

    data: bytearray
    origin: str


Contents = dict[str, Content | EncoreError]  # for each file name its bytes, or what is wrong with it


def read_verified(benchmark: Benchmark, data_dir: Path | None) -> dict[str, Content]:
    """Return the bytes of all files of a benchmark by their names, or say in one sentence what is wrong.

    The first place where anything is found decides; within it the first right copy is taken, so that a
    fetched archive heals an altered folder beside it.
    """
    _, contents = find_contents(benchmark, data_dir)
    if problem := first_problem(contents):
        fetch = f", or run `encore data fetch {benchmark.name}` with the same data folder"
        raise EncoreError(
            f"{problem}: put the published file in its place{fetch if benchmark.downloads else ''}"
        )
    return {name: content for name, content in contents.items() if isinstance(content, Content)}


def find_contents(benchmark: Benchmark, data_dir: Path | None) -> tuple[Copy, Contents]:
    """Return the copy that counts with what was read of it: the first right one, else the first."""
    for place in places(data_dir):
        if (found := find_contents_in(benchmark, place.folder)) is not None:
            return found
    raise not_found(benchmark, data_dir)


def find_contents_in(benchmark: Benchmark, folder: Path) -> tuple[Copy, Contents] | None:
    """Do the same in one folder; None where nothing lies there."""
    first: tuple[Copy, Contents] | None = None
    for copy in copies(benchmark, folder):
        contents = read_copy(benchmark, copy)
        if not first_problem(contents):
            return copy, contents
        first = first or (copy, contents)
    return first


def first_problem(contents: Contents) -> str:
    """Return what is wrong with the first file that is not as its makers published it, or nothing."""
    return next((str(content) for content in contents.values() if isinstance(content, EncoreError)), "")


def read_copy(benchmark: Benchmark, copy: Copy) -> Contents:
    """Read all files of one copy."""
    if copy.is_archive:
        return _read_archive(benchmark, copy.path)
    return {file.name: _read_file(benchmark, file, copy.path / file.name) for file in benchmark.files}


def md5_of(path: Path) -> str:
    """Return the md5 of a file on disk."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, _md5).hexdigest()


def _read_file(benchmark: Benchmark, file: DataFile, path: Path) -> Content | EncoreError:
    if not path.is_file():
        return EncoreError(f"{path} is missing, and {benchmark.name} needs it")
    try:
        with path.open("rb", buffering=0) as stream:
            return read_exactly(cast(BinaryIO, stream), file, str(path))
    except OSError as error:
        return EncoreError(f"{path} cannot be read ({error.strerror or error})")


def _read_archive(benchmark: Benchmark, path: Path) -> Contents:
    """Read the expected regular files of a tar.gz in passing; no other member is looked at or extracted."""
    awaited = {file.name: file for file in benchmark.files}
    contents: Contents = {}
    failure = ""
    limit = sum(file.num_bytes for file in benchmark.files) + ARCHIVE_SLACK
    try:
        with (
            _Limited(path, limit) as unzipped,
            tarfile.open(fileobj=unzipped, mode="r|", bufsize=CHUNK) as archive,
        ):
            while len(contents) < len(awaited) and (member := archive.next()) is not None:
                file = awaited.get(member.name)
                stream = archive.extractfile(member) if file and member.isreg() else None
                if file and stream and file.name not in contents:
                    origin = f"{file.name} in {path}"
                    contents[file.name] = read_exactly(cast(BinaryIO, stream), file, origin)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        failure = f"{path} is truncated or not a tar.gz archive ({error})"
    for name in awaited.keys() - contents.keys():
        contents[name] = EncoreError(failure or f"{name} is missing in {path}")
    return {name: contents[name] for name in awaited}


def read_exactly(stream: BinaryIO, file: DataFile, origin: str) -> Content | EncoreError:
    """Return a file's bytes if they are the published ones; never read many more than it should have."""
    data = bytearray(file.num_bytes)
    view = memoryview(data)
    digest = _md5()
    filled = 0
    while filled < file.num_bytes:
        count = cast(io.BufferedIOBase, stream).readinto(view[filled : filled + CHUNK])
        if not count:
            return EncoreError(f"{origin} is truncated ({filled:,} of {file.num_bytes:,} bytes)")
        digest.update(view[filled : filled + count])
        filled += count
    if stream.read(1):
        return EncoreError(f"{origin} is altered (longer than the {file.num_bytes:,} bytes it should have)")
    if digest.hexdigest() != file.md5:
        return EncoreError(f"{origin} is altered (its md5 is {digest.hexdigest()}, not {file.md5})")
    return Content(data, origin)


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)


class _Limited(gzip.GzipFile):
    """A gzip file that ends in an error after so many bytes: a small archive may unpack to a huge one."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path, "rb")
        self.left = limit

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.left -= len(found)
        if self.left < 0:
            raise tarfile.TarError("it unpacks to more than it should hold")
        return found
