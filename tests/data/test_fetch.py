from __future__ import annotations

import fcntl
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from encore.data import transfer
from encore.data.benchmark import DataFile
from encore.data.fetch import Fetched, fetch, mirrors_for
from encore.data.transfer import address
from encore.errors import EncoreError

if TYPE_CHECKING:
    from tests.data.conftest import Toy


class Server:
    """A mirror on this machine; `behave` is what it does with a request, by default all as it should be."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.etag: str | None = '"first"'
        self.last_modified: str | None = None
        self.behave: Callable[[Handler], None] = send_range
        self.requests: list[dict[str, str]] = []
        self.released = threading.Event()
        owner = self

        class Bound(Handler):
            server_owner = owner

        self.http = QuietServer(("127.0.0.1", 0), Bound)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    server_owner: Server

    def do_GET(self) -> None:
        self.server_owner.requests.append({key.lower(): value for key, value in self.headers.items()})
        self.server_owner.behave(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def start(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if self.server_owner.etag:
            self.send_header("ETag", self.server_owner.etag)
        if self.server_owner.last_modified:
            self.send_header("Last-Modified", self.server_owner.last_modified)
        self.end_headers()

    def asked_from(self) -> int:
        wanted = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        current = (None, self.server_owner.etag, self.server_owner.last_modified)
        return int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and condition in current else 0


def send_range(handler: Handler, num_bytes: int | None = None) -> None:
    """Send what was asked for, or only so many bytes of it."""
    content = handler.server_owner.content
    start = handler.asked_from()
    if start:
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.start(206, Content_Length=len(content) - start, Content_Range=span)
    else:
        handler.start(200, Content_Length=len(content))
    end = None if num_bytes is None else start + num_bytes
    handler.wfile.write(content[start:end])


def send_all(handler: Handler) -> None:
    handler.start(200, Content_Length=len(handler.server_owner.content))
    handler.wfile.write(handler.server_owner.content)


def send_without_length(handler: Handler) -> None:
    handler.start(200)
    handler.wfile.write(handler.server_owner.content)


def send_missing(handler: Handler) -> None:
    handler.start(404, Content_Length=0)


def send_another_range(handler: Handler) -> None:
    content = handler.server_owner.content
    if "Range" in handler.headers:
        handler.start(206, Content_Length=10, Content_Range=f"bytes 0-9/{len(content)}")
        handler.wfile.write(content[:10])
    else:
        send_all(handler)


def send_then_stall(handler: Handler) -> None:
    send_range(handler, 1000)
    handler.wfile.flush()
    handler.server_owner.released.wait(10)


def first(*behaviours: Callable[[Handler], None]) -> Callable[[Handler], None]:
    """Behave in each of these ways in turn, then as one should."""
    left = list(behaviours)
    return lambda handler: (left.pop(0) if left else send_range)(handler)


def part_of(num_bytes: int) -> Callable[[Handler], None]:
    return lambda handler: send_range(handler, num_bytes)


@pytest.fixture
def server(toy: Toy) -> Iterator[Server]:
    server = Server(toy.archive)
    yield server
    server.close()


@pytest.fixture
def second_server(toy: Toy) -> Iterator[Server]:
    server = Server(toy.archive)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PAUSE_SECONDS", 0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data/toy/toy-files.tar.gz"


@pytest.fixture
def part(target: Path) -> Path:
    target.parent.mkdir(parents=True)
    return target.with_name("toy-files.tar.gz.part")


class Progress:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.seen.append((done, total))


def bring(toy: Toy, tmp_path: Path, *mirrors: str) -> Fetched:
    return fetch(toy, tmp_path / "data", mirrors, Progress())


def complaint(toy: Toy, tmp_path: Path, *mirrors: str) -> str:
    with pytest.raises(EncoreError) as caught:
        bring(toy, tmp_path, *mirrors)
    return str(caught.value)


def wrong_bytes(toy: Toy) -> bytes:
    return bytes(len(toy.archive))


# What is fetched.


def test_a_file_is_fetched_and_what_was_done_is_said(
    toy: Toy, server: Server, target: Path, tmp_path: Path
) -> None:
    progress = Progress()
    fetched = fetch(toy, tmp_path / "data", [server.url], progress)
    assert target.read_bytes() == toy.archive
    size = len(toy.archive)
    sentence = f"{target} was fetched from {server.url}/toy-files.tar.gz, verified"
    assert fetched == Fetched(tmp_path / "data/toy", size, (sentence,))
    assert progress.seen[0] == (0, size)
    assert progress.seen[-1] == (size, size)
    assert progress.seen == sorted(progress.seen)
    assert {path.name for path in target.parent.iterdir()} == {".lock", "toy-files.tar.gz"}


@pytest.mark.parametrize("behave", [send_all, send_without_length, first(part_of(1000)), first(part_of(0))])
def test_any_decent_server_will_do(
    toy: Toy, server: Server, behave: Callable[[Handler], None], target: Path, tmp_path: Path
) -> None:
    server.behave = behave
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive


def test_a_file_address_will_do(toy: Toy, target: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/toy-files.tar.gz").write_bytes(toy.archive)
    bring(toy, tmp_path, (tmp_path / "mirror").as_uri())
    assert target.read_bytes() == toy.archive


def test_a_dropped_connection_is_resumed_where_it_broke(
    toy: Toy, server: Server, target: Path, tmp_path: Path
) -> None:
    server.behave = first(part_of(1000), part_of(50_000))
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    asked = [(request.get("range"), request.get("if-range")) for request in server.requests]
    assert asked == [(None, None), ("bytes=1000-", '"first"'), ("bytes=51000-", '"first"')]


@pytest.mark.parametrize(
    ("etag", "last_modified", "condition"),
    [
        ('W/"weak"', "Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ('W/"weak"', None, None),
        (None, None, None),
        ('"strong"', "Mon, 01 Jan 2024 00:00:00 GMT", '"strong"'),
    ],
)
def test_the_condition_of_resuming(
    toy: Toy,
    server: Server,
    target: Path,
    tmp_path: Path,
    etag: str | None,
    last_modified: str | None,
    condition: str | None,
) -> None:
    server.etag, server.last_modified = etag, last_modified
    server.behave = first(part_of(1000))
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert server.requests[1].get("if-range") == condition


def test_a_version_that_changed_meanwhile_is_fetched_from_the_start(
    toy: Toy, server: Server, target: Path, tmp_path: Path
) -> None:
    def send_old_version(handler: Handler) -> None:
        server.content = wrong_bytes(toy)
        send_range(handler, 1000)
        server.content, server.etag = toy.archive, '"second"'

    server.behave = first(send_old_version)
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert len(server.requests) == 2


def test_a_part_of_an_earlier_fetch_is_continued(
    toy: Toy, server: Server, part: Path, target: Path, tmp_path: Path
) -> None:
    part.write_bytes(toy.archive[:7777])
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert [request.get("range") for request in server.requests] == ["bytes=7777-"]


def test_a_complete_part_needs_no_server(toy: Toy, part: Path, target: Path, tmp_path: Path) -> None:
    part.write_bytes(toy.archive)
    bring(toy, tmp_path, "http://127.0.0.1:9")
    assert target.read_bytes() == toy.archive


@pytest.mark.parametrize(
    ("length", "asked"), [(7777, ["bytes=7777-", None]), (None, [None]), (500_000, [None])]
)
def test_a_part_that_is_wrong_is_fetched_anew(
    toy: Toy,
    server: Server,
    part: Path,
    target: Path,
    tmp_path: Path,
    length: int | None,
    asked: list[str | None],
) -> None:
    part.write_bytes(bytes(len(toy.archive) if length is None else length))
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert [request.get("range") for request in server.requests] == asked


def test_a_server_that_resumes_elsewhere_is_asked_for_everything(
    toy: Toy, server: Server, part: Path, target: Path, tmp_path: Path
) -> None:
    part.write_bytes(toy.archive[:7777])
    server.behave = send_another_range
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert [request.get("range") for request in server.requests] == ["bytes=7777-", None]


def test_a_server_that_refuses_the_range_is_asked_for_everything(
    toy: Toy, server: Server, part: Path, target: Path, tmp_path: Path
) -> None:
    part.write_bytes(toy.archive[:7777])
    server.behave = first(lambda handler: handler.start(416, Content_Length=0))
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert [request.get("range") for request in server.requests] == ["bytes=7777-", None]


def test_a_busy_server_is_asked_again(toy: Toy, server: Server, target: Path, tmp_path: Path) -> None:
    server.behave = first(lambda handler: handler.start(503, Content_Length=0))
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive


def test_too_much_is_cut_at_the_expected_size(toy: Toy, server: Server, target: Path, tmp_path: Path) -> None:
    server.content = toy.archive + b"more" * 1000
    server.behave = send_without_length
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive


# What fails, and what is said.


def test_wrong_content_leaves_nothing_behind(toy: Toy, server: Server, target: Path, tmp_path: Path) -> None:
    server.content = wrong_bytes(toy)
    said = complaint(toy, tmp_path, server.url)
    url = f"{server.url}/toy-files.tar.gz"
    assert said.startswith(f"toy-files.tar.gz could not be fetched: {url} sends something else (its md5 is ")
    assert {path.name for path in target.parent.iterdir()} == {".lock"}
    assert len(server.requests) == 1


def test_another_size_is_refused_before_it_is_sent(
    toy: Toy, server: Server, target: Path, tmp_path: Path
) -> None:
    server.content = toy.archive + b"more"
    said = complaint(toy, tmp_path, server.url)
    assert f"has a file of {len(toy.archive) + 4} bytes, not {len(toy.archive)}" in said
    assert not target.with_name("toy-files.tar.gz.part").exists()


def test_another_size_is_refused_when_resuming(toy: Toy, server: Server, part: Path, tmp_path: Path) -> None:
    part.write_bytes(toy.archive[:7777])
    server.content = toy.archive + b"more"
    assert "has a file of" in complaint(toy, tmp_path, server.url)
    assert part.read_bytes() == toy.archive[:7777]


def test_mirrors_are_tried_in_order_and_every_failure_is_said(
    toy: Toy, server: Server, second_server: Server, target: Path, tmp_path: Path
) -> None:
    server.behave = send_missing
    second_server.content = wrong_bytes(toy)
    nowhere = (tmp_path / "nowhere").as_uri()
    said = complaint(toy, tmp_path, server.url, second_server.url, nowhere)
    assert said.startswith("toy-files.tar.gz could not be fetched: ")
    assert [failure.split(" ", 1)[0] for failure in said.partition(": ")[2].split("; ")] == [
        f"{mirror}/toy-files.tar.gz" for mirror in (server.url, second_server.url, nowhere)
    ]
    assert "answers 404 Not Found; " in said
    assert said.endswith("cannot be read (No such file or directory)")
    second_server.content = toy.archive
    bring(toy, tmp_path, server.url, second_server.url)
    assert target.read_bytes() == toy.archive


def test_one_mirror_goes_on_where_another_broke_off(
    toy: Toy, server: Server, second_server: Server, target: Path, tmp_path: Path
) -> None:
    server.behave = first(part_of(1000), *[part_of(0)] * transfer.ATTEMPTS)
    bring(toy, tmp_path, server.url, second_server.url)
    assert target.read_bytes() == toy.archive
    assert second_server.requests[0]["range"] == "bytes=1000-"
    assert "if-range" not in second_server.requests[0]


def test_a_mirror_is_not_blamed_for_what_another_sent(
    toy: Toy, server: Server, second_server: Server, target: Path, tmp_path: Path
) -> None:
    server.content = wrong_bytes(toy)
    server.behave = first(part_of(1000), *[part_of(0)] * transfer.ATTEMPTS)
    bring(toy, tmp_path, server.url, second_server.url)
    assert target.read_bytes() == toy.archive
    assert [request.get("range") for request in second_server.requests] == ["bytes=1000-", None]


def test_a_server_that_always_breaks_off_is_given_up_and_the_part_is_kept(
    toy: Toy, server: Server, target: Path, tmp_path: Path
) -> None:
    server.behave = part_of(1000)
    said = complaint(toy, tmp_path, server.url)
    assert said.endswith(f"toy-files.tar.gz breaks off early, {transfer.ATTEMPTS} times")
    kept = target.with_name("toy-files.tar.gz.part").read_bytes()
    assert kept == toy.archive[: 1000 * transfer.ATTEMPTS]


def test_a_server_that_stalls_is_given_up(
    toy: Toy, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    server.behave = send_then_stall
    assert "sends nothing for 0.2 seconds, 2 times" in complaint(toy, tmp_path, server.url)
    assert server.requests[1]["range"] == "bytes=1000-"


def test_nobody_there(toy: Toy, server: Server, tmp_path: Path) -> None:
    server.close()
    assert "cannot be read (Connection refused), 5 times" in complaint(toy, tmp_path, server.url)


@pytest.mark.parametrize("elsewhere", ["ftp://127.0.0.1/file", "file:///etc/hostname", "data:,abc"])
def test_a_redirect_to_another_kind_of_address_is_refused(
    toy: Toy, server: Server, elsewhere: str, target: Path, tmp_path: Path
) -> None:
    server.behave = lambda handler: handler.start(302, Location=elsewhere, Content_Length=0)
    assert "could not be fetched" in complaint(toy, tmp_path, server.url)
    assert {path.name for path in target.parent.iterdir()} == {".lock"}


@pytest.mark.parametrize("mirror", ["ftp://a/b", "a/b", "/a/b", "data:,abc", "", "http://[a", "javascript:b"])
def test_other_addresses_are_refused(toy: Toy, mirror: str, tmp_path: Path) -> None:
    assert complaint(toy, tmp_path, mirror) == (
        f"a mirror must be an http, https or file address, got {mirror!r}"
    )


def test_no_mirror_at_all(toy: Toy, tmp_path: Path) -> None:
    assert complaint(toy, tmp_path) == "toy-files.tar.gz could not be fetched: no mirror was named"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_said(toy: Toy, server: Server, part: Path, tmp_path: Path) -> None:
    part.symlink_to("/dev/full")
    assert complaint(toy, tmp_path, server.url) == (
        f"toy cannot be stored in {tmp_path}/data (No space left on device): what was fetched so far is "
        "kept, and fetching goes on from there"
    )


def test_what_fitted_on_the_disk_is_kept_and_continued(
    toy: Toy, server: Server, part: Path, target: Path, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        said = complaint(toy, tmp_path, server.url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "toy cannot be stored in" in said
    kept = part.read_bytes()
    assert 0 < len(kept) <= 100_000
    assert toy.archive.startswith(kept)
    bring(toy, tmp_path, server.url)
    assert target.read_bytes() == toy.archive
    assert server.requests[1]["range"] == f"bytes={len(kept)}-"


def test_a_folder_that_cannot_be_made_is_said(toy: Toy, server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    assert f"toy cannot be stored in {tmp_path}/data (" in complaint(toy, tmp_path, server.url)


# What is there already.


@pytest.mark.parametrize("form", ["unpacked", "archive"])
@pytest.mark.parametrize("subfolder", [".", "toy"])
def test_what_is_there_and_right_is_not_fetched(
    toy: Toy, server: Server, tmp_path: Path, form: str, subfolder: str
) -> None:
    folder = tmp_path / "data" / subfolder
    folder.mkdir(parents=True)
    if form == "unpacked":
        toy.unpack_into(folder)
    else:
        (folder / "toy-files.tar.gz").write_bytes(toy.archive)
    where = folder if form == "unpacked" else folder / "toy-files.tar.gz"
    sentence = f"toy is already in {where}, verified: nothing was downloaded"
    assert bring(toy, tmp_path, server.url) == Fetched(where, 0, (sentence,))
    assert server.requests == []
    assert not list(tmp_path.rglob(".lock"))  # nothing is written: the folder may be read-only


@pytest.mark.parametrize("subfolder", [".", "toy"])
def test_what_is_there_and_wrong_stays_until_the_right_one_is_there(
    toy: Toy, server: Server, tmp_path: Path, subfolder: str
) -> None:
    there = tmp_path / "data" / subfolder / "toy-files.tar.gz"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"wrong")

    def still_there(done: int, total: int) -> None:
        assert there.read_bytes() == b"wrong"

    server.behave = send_missing
    complaint(toy, tmp_path, server.url)
    assert there.read_bytes() == b"wrong"
    server.behave = send_range
    fetched = fetch(toy, tmp_path / "data", [server.url], still_there)
    assert there.read_bytes() == toy.archive
    assert fetched.sentences[0].startswith(f"{there} is truncated or not a tar.gz archive")
    assert fetched.sentences[1] == f"{there} was fetched from {server.url}/toy-files.tar.gz, verified"


def test_an_altered_folder_is_left_and_a_right_archive_put_beside_it(
    toy: Toy, server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    toy.unpack_into(folder)
    (folder / "toy-files/one").write_bytes(b"altered")
    fetched = bring(toy, tmp_path, server.url)
    assert fetched.sentences[0].startswith(f"{folder}/toy-files/one is truncated")
    assert (folder / "toy-files/one").read_bytes() == b"altered"
    assert bring(toy, tmp_path, server.url).num_bytes == 0


def test_of_several_downloads_only_the_missing_are_fetched(toy: Toy, server: Server, tmp_path: Path) -> None:
    toy.downloads = tuple(DataFile(f"{file.name}", file.num_bytes, file.md5) for file in toy.files)
    toy.unpack_into(tmp_path / "data/toy")
    (tmp_path / "data/toy/toy-files/two").unlink()
    server.content = toy.contents["toy-files/two"]
    fetched = bring(toy, tmp_path, server.url)
    assert fetched.num_bytes == 70_000
    assert (tmp_path / "data/toy/toy-files/two").read_bytes() == toy.contents["toy-files/two"]
    assert len(server.requests) == 1


def test_a_second_process_is_told_of_the_first(
    toy: Toy, server: Server, target: Path, tmp_path: Path
) -> None:
    def hold(handler: Handler) -> None:
        server.released.wait(10)
        send_range(handler)

    server.behave = hold
    done: list[Fetched] = []
    first_fetch = threading.Thread(
        target=lambda: done.append(
            fetch(toy, tmp_path / "data", [server.url], lambda *_: None),
        )
    )
    first_fetch.start()
    while not server.requests:
        time.sleep(0.01)
    said = complaint(toy, tmp_path, server.url)
    assert said == f"another process is fetching toy into {tmp_path}/data: wait until it is done"
    server.released.set()
    first_fetch.join()
    assert len(done) == 1
    assert target.read_bytes() == toy.archive
    assert bring(toy, tmp_path, server.url).num_bytes == 0  # the lock was given back


def test_the_lock_is_one_that_other_processes_see(toy: Toy, server: Server, tmp_path: Path) -> None:
    lock = tmp_path / "data/toy/.lock"
    lock.parent.mkdir(parents=True)
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert "another process is fetching toy" in complaint(toy, tmp_path, server.url)
    finally:
        os.close(descriptor)


# What needs no fetching, and where from.


def test_embedded_and_unfetchable_benchmarks(toy: Toy, tmp_path: Path) -> None:
    toy.downloads = ()
    assert complaint(toy, tmp_path) == "toy cannot be fetched: ask its maker for the file `one`"
    toy.embedded = True
    fetched = bring(toy, tmp_path)
    assert fetched == Fetched(None, 0, ("toy needs no fetching: it comes with http://127.0.0.1:9/",))
    assert not (tmp_path / "data").exists()


def test_where_from(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mirrors_for(toy, []) == ("http://127.0.0.1:9/",)
    monkeypatch.setenv("ENCORE_MIRRORS", "http://a, http://b/,")
    assert mirrors_for(toy, []) == ("http://a", "http://b/", "http://127.0.0.1:9/")
    assert mirrors_for(toy, ["http://c"]) == ("http://c", "http://a", "http://b/", "http://127.0.0.1:9/")


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        ("http://a", "http://a/x.tar.gz"),
        ("http://a/b/", "http://a/b/x.tar.gz"),
        ("https://a/b/x.tar.gz", "https://a/b/x.tar.gz"),
        ("http://a/prex.tar.gz", "http://a/prex.tar.gz/x.tar.gz"),
        ("HTTP://a", "HTTP://a/x.tar.gz"),
        ("file:///a", "file:///a/x.tar.gz"),
    ],
)
def test_a_mirror_is_a_folder_or_the_file(mirror: str, expected: str) -> None:
    assert address(mirror, DataFile("x.tar.gz", 1, "")) == expected
