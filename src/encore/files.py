"""Files that are whole or not there, and directories that one process at a time works on."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from encore.errors import EncoreError


@contextmanager
def written_atomically(path: Path) -> Iterator[Path]:
    """Give a place to write to, whose content then appears at the path at once or not at all.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with written_atomically(place) as unfinished:
    ...     _ = unfinished.write_text("whole")
    >>> place.read_text()
    'whole'
    """
    if not path.parent.is_dir():
        raise EncoreError(f"{path} could not be written: there is no folder {path.parent}; create it first")
    # A folder of its own, because safetensors, too, writes beside the place it is given before it renames.
    workshop = path.with_name(f".{path.name}.{os.getpid()}.part")
    unfinished = workshop / path.name
    try:
        for leftover in leftovers(path.parent, glob.escape(path.name)):
            if leftover == workshop or not _is_at_work(leftover):
                remove(leftover)
        workshop.mkdir()
        unfinished.touch()
        mode = unfinished.stat().st_mode  # as the user's other files; safetensors makes files private
        yield unfinished
        unfinished.chmod(mode)
        put_in_place(unfinished, path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise EncoreError(
            f"{path} could not be written: {reason}; make room or choose another place"
        ) from error
    finally:
        with suppress(OSError):
            remove(workshop)


def leftovers(folder: Path, pattern: str = "*") -> list[Path]:
    """Return what is being written in a folder, or was when a process was killed, of files named so."""
    return list(folder.glob(f".{pattern}.*.part"))


def remove(leftover: Path) -> None:
    """Remove a file, or a folder of what was half written; nothing where there is nothing."""
    with suppress(FileNotFoundError):  # another process may be clearing, too
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def bytes_held(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    if path.is_dir():
        return sum(held.stat().st_size for held in path.iterdir())
    return path.stat().st_size


def put_in_place(finished: Path, path: Path) -> None:
    """Rename a file so that after a power cut either it or what was there before is there, whole."""
    _flush(finished, os.O_RDWR)
    finished.replace(path)
    _flush(path.parent, os.O_RDONLY)


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON, atomically."""
    with written_atomically(path) as unfinished:
        unfinished.write_text(_readable(value) + "\n", encoding="utf-8")


@contextmanager
def locked(lock: Path, refusal: str) -> Iterator[None]:
    """Hold a lock that the system releases with the process, however it ends; refuse if another holds it."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EncoreError(refusal) from error
        yield


def _is_at_work(leftover: Path) -> bool:
    """Whether the process whose number a leftover bears is alive."""
    try:
        os.kill(int(leftover.name.split(".")[-2]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _readable(value: Any, margin: str = "") -> str:
    """Return JSON with a line for each entry of a dictionary or of a list that holds others."""
    inner = margin + "  "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{json.dumps(str(key))}: {_readable(held, inner)}" for key, held in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    if isinstance(value, list | tuple) and any(isinstance(held, list | tuple | dict) for held in value):
        lines = [inner + _readable(held, inner) for held in value]
        return "[\n" + ",\n".join(lines) + f"\n{margin}]"
    return json.dumps(value)


def _flush(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
