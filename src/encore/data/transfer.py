"""Bringing one file from one mirror: resumed where it broke off, and right or not there at all."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from encore.data.benchmark import DataFile
from encore.data.verified import md5_of
from encore.errors import EncoreError
from encore.version import VERSION

Report = Callable[[int, int], None]  # bytes there so far, bytes in all

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 18
BUSY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
LASTING_FAULTS = (
    FileNotFoundError,
    IsADirectoryError,
    PermissionError,
    socket.gaierror,
    ssl.SSLCertVerificationError,
)


class MirrorError(Exception):
    """A mirror does not give the file: why, in words that follow its address."""


def address(mirror: str, file: DataFile) -> str:
    """Return where a mirror has a file: a mirror is a folder, or the address of the file itself.

    >>> address("https://example.org/data", DataFile("a.tar.gz", 1, ""))
    'https://example.org/data/a.tar.gz'
    """
    try:
        parts = urlsplit(mirror)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https", "file"}:
        raise EncoreError(f"a mirror must be an http, https or file address, got {mirror!r}")
    return mirror if parts.path.endswith(f"/{file.name}") else f"{mirror.rstrip('/')}/{file.name}"


def receive(url: str, file: DataFile, part: Path, report: Report) -> None:
    """Complete the bytes in `part` from a mirror, and check them; raise `MirrorError` if that fails.

    `part` is kept when the mirror fails half way, and removed when it is complete but wrong. Where its
    first bytes came from elsewhere, the mirror gets a second chance to send all of them.
    """
    begun_elsewhere = _size(part) > 0
    _Transfer(url, file, part, report).complete()
    found = md5_of(part)
    if found != file.md5 and begun_elsewhere:
        part.unlink()
        _Transfer(url, file, part, report).complete()
        found = md5_of(part)
    if found != file.md5:
        part.unlink()
        raise MirrorError(f"sends something else (its md5 is {found}, not {file.md5})")


class _BrokenOffError(Exception):
    """The transfer stopped for a reason that may be gone at the next attempt."""


class _Transfer:
    def __init__(self, url: str, file: DataFile, part: Path, report: Report) -> None:
        self.url = url
        self.file = file
        self.part = part
        self.report = report
        self.validator: str | None = None  # names the version that was being sent when it broke off
        self.resumable = True

    def complete(self) -> None:
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
            try:
                return self.attempt()
            except _BrokenOffError as broken_off:
                reason = str(broken_off)
        raise MirrorError(f"{reason}, {ATTEMPTS} times")

    def attempt(self) -> None:
        there = _size(self.part)
        if there == self.file.num_bytes:
            return
        offset = there if self.resumable and there < self.file.num_bytes else 0
        with self.open(offset) as response:
            if response.status == http.client.PARTIAL_CONTENT:
                self.check_range(response, offset)
            else:
                offset = 0
                self.check_size(response.headers.get("Content-Length"))
            self.validator = _validator(response)
            with self.part.open("r+b" if offset else "wb") as stream:
                stream.seek(offset)
                while offset < self.file.num_bytes:
                    self.report(offset, self.file.num_bytes)
                    chunk = self.next_chunk(response, self.file.num_bytes - offset)
                    stream.write(chunk)
                    offset += len(chunk)
        self.report(offset, self.file.num_bytes)

    def open(self, offset: int) -> Any:
        request = urllib.request.Request(self.url, headers={"User-Agent": f"encore/{VERSION}"})
        if offset:
            request.add_header("Range", f"bytes={offset}-")
            if self.validator:
                request.add_header("If-Range", self.validator)
        try:
            return _opener().open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.resumable = False
            elif error.code not in BUSY_STATUSES:
                raise MirrorError(f"answers {error.code} {error.reason}") from error
            raise _BrokenOffError(f"answers {error.code} {error.reason}") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, LASTING_FAULTS):
                raise MirrorError(_in_words(error.reason)) from error
            raise _BrokenOffError(_in_words(error.reason)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _BrokenOffError(_in_words(error)) from error

    def check_range(self, response: Any, offset: int) -> None:
        answer = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer)
        if match is None or int(match[1]) != offset:
            self.resumable = False
            raise _BrokenOffError(f"sends {answer!r} when asked for the bytes from {offset} on")
        if match[2] != "*":
            self.check_size(match[2])

    def check_size(self, stated: str | None) -> None:
        if stated is not None and stated != str(self.file.num_bytes):
            raise MirrorError(f"has a file of {stated} bytes, not {self.file.num_bytes}")

    def next_chunk(self, response: Any, wanted: int) -> bytes:
        try:
            chunk: bytes = response.read1(min(CHUNK, wanted))
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenOffError(_in_words(error)) from error
        if not chunk:
            raise _BrokenOffError("breaks off early")
        return chunk


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener that knows http, https and file addresses, and no others even when redirected."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.FileHandler,
    ):
        opener.add_handler(handler())
    return opener


def _validator(response: Any) -> str | None:
    etag: str | None = response.headers.get("ETag")
    if etag and not etag.startswith("W/"):  # a weak one does not vouch for the same bytes
        return etag
    last_modified: str | None = response.headers.get("Last-Modified")
    return last_modified


def _in_words(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"sends nothing for {TIMEOUT_SECONDS:g} seconds"
    return f"cannot be read ({(isinstance(error, OSError) and error.strerror) or error})"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
