from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from safetensors import safe_open
from tests.data.shelf import SIDE, Shelf, fill_shelf

from encore.data import prepared
from encore.data.image_set import ArrayImages, BrokenImagesError, ImageSet
from encore.data.mapped import DamagedError, MappedImages, checksums_of
from encore.data.prepared import (
    NotStoredError,
    Origin,
    OtherFormatError,
    Prepared,
    read_prepared,
    write_prepared,
)
from encore.errors import EncoreError

ROOT = Path(__file__).parents[2]
ORIGIN = Origin("shelf", {"side": 6, "list": None}, "/pictures", "/pictures/shelf", "abc", "1.2.3")


def make_set(num_images: int = 50, shape: tuple[int, int, int] = (3, 5, 7), seed: int = 0) -> ImageSet:
    draws = np.random.default_rng(seed)
    images = draws.integers(0, 256, (num_images, *shape), dtype=np.uint8)
    return ImageSet(ArrayImages(images), draws.integers(0, 3, num_images), ("a", "b", "c"))


def opened(path: Path) -> Prepared:
    return read_prepared(path, remedy="prepare it again")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "set.safetensors"
    write_prepared(path, make_set(), ORIGIN)
    return path


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def start_of_images(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


# What is read is what was written.


def test_every_pixel_is_what_decoding_each_picture_again_gives(tmp_path: Path) -> None:
    fill_shelf(tmp_path / "pictures", num_classes=4, per_class=30)
    images = Shelf().load(tmp_path / "pictures")
    write_prepared(tmp_path / "set", images, ORIGIN)
    found = opened(tmp_path / "set").image_set
    files = sorted((tmp_path / "pictures").glob("*/*.png"))
    assert len(found.images) == len(files) == 120
    for row, file in enumerate(files):
        (pixels,) = found.images.read(np.array([row]))
        with Image.open(file) as picture:
            for x, y in itertools.product(range(SIDE), repeat=2):
                assert pixels[:, y, x].tolist() == list(picture.getpixel((x, y)))  # type: ignore[arg-type]
        assert found.class_names[found.labels[row]] == file.parent.name


def assert_same_but_for_images(one: ImageSet, other: ImageSet) -> None:
    for field in dataclasses.fields(ImageSet):
        if field.name == "images":
            continue
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(theirs, np.ndarray):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)
        else:
            assert ours == theirs, field.name


def test_all_that_is_known_of_a_set_is_kept(tmp_path: Path) -> None:
    fill_shelf(tmp_path / "pictures")
    images = Shelf().load(tmp_path / "pictures")
    for field in dataclasses.fields(ImageSet):
        assert getattr(images, field.name) is not None, f"Shelf must set {field.name} for this test to hold"
    write_prepared(tmp_path / "set", images, ORIGIN)
    found = opened(tmp_path / "set")
    assert_same_but_for_images(found.image_set, images)
    assert found.origin == ORIGIN
    assert found.num_bytes == (tmp_path / "set").stat().st_size


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_set_comes_back_and_the_library_reads_it_too(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    num_images = data.draw(st.integers(1, 70))
    shape = data.draw(st.tuples(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9)))
    draws = np.random.default_rng(data.draw(st.integers(0, 99)))
    images = dataclasses.replace(
        make_set(num_images, shape, seed=5),
        class_names=tuple(data.draw(st.lists(st.text(max_size=5), min_size=3, max_size=5))),
        is_test=data.draw(st.sampled_from([None, draws.random(num_images) < 0.5])),
        times=data.draw(st.sampled_from([None, draws.random(num_images)])),
        given_tasks=data.draw(st.sampled_from([None, draws.integers(0, 9, num_images)])),
        official_tasks=data.draw(st.sampled_from([None, ((2, 0), (1,))])),
    )
    path = tmp_path_factory.mktemp("any") / "set.safetensors"
    write_prepared(path, images, ORIGIN)
    found = opened(path).image_set
    assert isinstance(images.images, ArrayImages)
    rows = draws.integers(0, num_images, 2 * num_images)
    assert np.array_equal(found.images.read(rows), images.images.array[rows])
    assert found.images.shape == shape
    assert_same_but_for_images(found, images)
    for framework in ("numpy", "pt"):
        with safe_open(path, framework=framework) as file:
            assert np.array_equal(np.asarray(file.get_tensor("images")), images.images.array)
            assert np.array_equal(np.asarray(file.get_tensor("labels")), images.labels)
            assert json.loads(file.metadata()["class_names"]) == list(images.class_names)
            for name in ("is_test", "times", "given_tasks"):
                assert (name in file.keys()) == (getattr(images, name) is not None)  # noqa: SIM118
                if getattr(images, name) is not None:
                    assert np.array_equal(np.asarray(file.get_tensor(name)), getattr(images, name))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (1, 8, 8)])
def test_the_layout(shape: tuple[int, int, int], tmp_path: Path) -> None:
    path = tmp_path / "set"
    write_prepared(path, make_set(11, shape), ORIGIN)
    start = start_of_images(path)
    assert start % 4096 == 0
    header = json.loads(path.read_bytes()[8:start])
    assert header["__metadata__"]["format"] == prepared.FORMAT
    assert header["images"]["data_offsets"][0] == 0
    widths = {"U8": 1, "BOOL": 1, "U32": 4, "I64": 8, "F64": 8}
    for name, entry in header.items():
        if name != "__metadata__":
            assert (start + entry["data_offsets"][0]) % widths[entry["dtype"]] == 0, name


def test_images_are_mapped_and_not_copied(path: Path) -> None:
    images = opened(path).image_set.images
    assert isinstance(images, MappedImages)
    assert images.reads_at_once
    assert not images._pixels.flags.owndata
    assert not images._pixels.flags.writeable
    assert images.read(np.array([3])).flags.writeable  # a copy


# Broken pictures.


def test_broken_pictures_stay_broken_with_their_reasons(tmp_path: Path) -> None:
    written = fill_shelf(tmp_path / "pictures")
    for name in ("class 0/1.png", "class 2/4.png"):
        (tmp_path / "pictures" / name).write_bytes(b"no picture")
    images = Shelf().load(tmp_path / "pictures")
    with pytest.raises(EncoreError, match="2 images are broken, and --skip-broken allows 1"):
        write_prepared(tmp_path / "set", images, ORIGIN, skip_broken=1)
    write_prepared(tmp_path / "set", images, ORIGIN, skip_broken=2)
    found = opened(tmp_path / "set")
    assert set(found.broken) == {1, 14}
    with pytest.raises(BrokenImagesError) as caught:
        found.image_set.images.read(np.array([0, 14, 2]))
    assert list(caught.value.reasons) == [14]
    assert caught.value.reasons[14].startswith(f"{tmp_path}/pictures/class 2/4.png is not a picture (")
    right = np.array([row for row in range(15) if row not in (1, 14)])
    expected = [pixels for row, pixels in enumerate(written.values()) if row in right]
    assert np.array_equal(found.image_set.images.read(right), expected)


# Damage.


def test_a_flipped_bit_anywhere_but_in_the_images_is_noticed_at_once(path: Path) -> None:
    size, start = path.stat().st_size, start_of_images(path)
    end = start + 50 * 3 * 5 * 7
    for position in [*range(start), *range(end, size)]:
        flip_bit(path, position, bit=position % 8)
        with pytest.raises((DamagedError, OtherFormatError)) as caught:
            opened(path)
        assert str(path) in str(caught.value)
        flip_bit(path, position, bit=position % 8)
    opened(path)


def test_a_flipped_bit_in_an_image_is_noticed_when_it_is_read(path: Path) -> None:
    start, each = start_of_images(path), 3 * 5 * 7
    for row, within in ((0, 0), (17, 50), (49, each - 1)):
        flip_bit(path, start + row * each + within, bit=row % 8)
        images = opened(path).image_set.images
        images.read(np.array([other for other in range(50) if other != row]))
        with pytest.raises(DamagedError) as caught:
            images.read(np.array([5, row, 6]))
        assert str(caught.value) == (
            f"{path} is damaged (image {row} does not match its checksum): prepare it again"
        )
        flip_bit(path, start + row * each + within, bit=row % 8)


def test_images_that_changed_places_are_noticed(path: Path) -> None:
    start, each = start_of_images(path), 3 * 5 * 7
    content = bytearray(path.read_bytes())
    first, second = slice(start, start + each), slice(start + each, start + 2 * each)
    content[first], content[second] = content[second], content[first]
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="image 0 does not match"):
        opened(path).image_set.images.read(np.array([0]))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 4095, 4096, 5000, -33, -32, -1])
def test_a_truncated_file_is_refused(length: int, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:length])
    with pytest.raises(DamagedError, match=f"^{re.escape(str(path))} is truncated"):
        opened(path)


def test_a_longer_file_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"a")
    with pytest.raises(DamagedError, match="longer than it should be"):
        opened(path)


def test_a_file_cut_short_while_it_is_mapped_is_refused_and_kills_nobody(path: Path) -> None:
    images = opened(path).image_set.images
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DamagedError, match="is truncated"):
        images.read(np.array([49]))


def test_a_file_replaced_while_it_is_mapped_does_not_matter(path: Path, tmp_path: Path) -> None:
    images = opened(path).image_set.images
    before = images.read(np.arange(50))
    write_prepared(tmp_path / "other", make_set(seed=1), ORIGIN)
    (tmp_path / "other").replace(path)
    assert np.array_equal(images.read(np.arange(50)), before)


def test_another_format_is_told_from_damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"format": "1"', b'"format": "0"', 1))
    with pytest.raises(OtherFormatError, match="has another format than the one Encore"):
        opened(path)


@pytest.mark.parametrize(
    "content",
    [
        b"no such thing",
        bytes(1000),
        b"\xff" * 1000,
        (2**63).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (50_000).to_bytes(8, "little") + b"[" * 50_000,
        (50_000).to_bytes(8, "little") + b'{"a":' * 10_000,
    ],
)
def test_what_was_never_prepared_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(content)
    with pytest.raises(DamagedError, match=r"set is (truncated or )?.*not a prepared file"):
        opened(tmp_path / "set")


def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Alter a header and make the checksum right again, as someone might who means harm."""
    content = path.read_bytes()
    start = start_of_images(path)
    header = json.loads(content[8:start])
    change(header)
    text = json.dumps(header).encode().ljust(start - 8)
    head = len(text).to_bytes(8, "little") + text
    end = start + 50 * 3 * 5 * 7
    tail = content[end:-32]
    path.write_bytes(head + content[start:end] + tail + hashlib.sha256(head + tail).digest())


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("labels"),
        lambda header: header.pop("images"),
        lambda header: header.pop("__metadata__"),
        lambda header: header["labels"].update(dtype="F8_E4M3"),
        lambda header: header["labels"].update(shape=[49]),
        lambda header: header["labels"].update(shape=[-1, 10**9]),
        lambda header: header["checksums"].update(data_offsets=[0, 2**70]),
        lambda header: header["checksums"].update(data_offsets=[-8, 4]),
        lambda header: header["images"].update(shape=[50, 3, 35]),
        lambda header: header["__metadata__"].update(class_names='["only one"]'),
        lambda header: header["__metadata__"].update(class_names="7"),
        lambda header: header["__metadata__"].update(class_names="not JSON"),
        lambda header: header["__metadata__"].update(surprise="1"),
        lambda header: header["__metadata__"].pop("fingerprint"),
    ],
)
def test_a_forged_header_is_refused(change: Callable[[dict[str, Any]], None], path: Path) -> None:
    forge(path, lambda header: None)
    opened(path)
    forge(path, change)
    with pytest.raises(DamagedError, match=r"is damaged|is truncated"):
        opened(path).image_set.images.read(np.arange(50))


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"is not readable \(No such file or directory\)"):
        opened(tmp_path / "nowhere")
    with pytest.raises(DamagedError, match=r"is not readable \(Is a directory\)"):
        opened(tmp_path)


# Room.


def test_too_little_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    with pytest.raises(NotStoredError) as caught:
        write_prepared(tmp_path / "set", make_set(500, (3, 32, 32)), ORIGIN)
    assert str(caught.value) == (
        f"2 MB are needed in {tmp_path}, and 1 MB are free; make room, or name a roomier folder with "
        "$ENCORE_DATA"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_is_said(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(NotStoredError, match=r"^File too large: 2 MB are needed in .* are free;"):
            write_prepared(tmp_path / "set", make_set(500, (3, 32, 32)), ORIGIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Memory: a set of 240 MB is prepared and read by a process that may not take 64 MB more than it has at rest.

LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from encore.data.image_set import ImageSet
from encore.data.prepared import Origin, read_prepared, write_prepared

class Drawn:
    reads_at_once = False
    shape = (3, 100, 100)
    def __len__(self):
        return 8000
    def read(self, rows):
        return np.broadcast_to((rows % 251).astype(np.uint8)[:, None, None, None], (len(rows), *self.shape))

status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limit = int(status["VmData"].split()[0]) * 1024 + 64_000_000
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.ones(240_000_000, dtype=np.uint8)
except MemoryError:
    print("limited")
path = Path(sys.argv[1])
drawn = ImageSet(Drawn(), np.zeros(8000, dtype=np.int64), ("a",))
write_prepared(path, drawn, Origin("drawn", {}, None, "", "", ""))
images = read_prepared(path, "").image_set.images
for rows in np.split(np.arange(8000), 100):
    pixels = images.read(rows)
    assert (pixels == (rows % 251)[:, None, None, None]).all()
print("done")
"""


def test_preparing_and_reading_hold_few_images_at_a_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "set")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == ["limited", "done"]
    assert (tmp_path / "set").stat().st_size > 240_000_000


def test_progress_is_reported_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    write_prepared(tmp_path / "set", make_set(50), ORIGIN, report=lambda *done: seen.append(done))
    assert seen == [(16, 50), (32, 50), (48, 50), (50, 50)]


def test_checksums_are_the_published_crc32() -> None:
    """Check value of the algorithm: the CRC-32 of `123456789` is CBF43926."""
    pixels: NDArray[np.uint8] = np.frombuffer(b"123456789", dtype=np.uint8).reshape(1, 1, 3, 3)
    assert checksums_of(pixels).tolist() == [0xCBF43926]
