"""Files that are whole or not there, and directories that one process at a time works on."""

from __future__ import annotations

import fcntl
import json
import os
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
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
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
            unfinished.unlink(missing_ok=True)


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
