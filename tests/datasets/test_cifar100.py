from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.datasets.seeds import check_seeds

from encore import registry
from encore.data.benchmark import Benchmark, DataFile
from encore.data.places import copies
from encore.data.verified import read_verified
from encore.datasets.cifar100 import Cifar100
from encore.errors import EncoreError

REAL_DATA = Path(os.environ["ENCORE_DATA"]) if os.environ.get("ENCORE_DATA") else None
FOLDER = "cifar-100-python"


class Python2Pickle:
    """Writes CIFAR-100's files bit for bit as Python 2's cPickle wrote them, at protocol 2."""

    def __init__(self) -> None:
        self.written = bytearray(b"\x80\x02")
        self.num_remembered = 0

    def dump(self, value: dict[bytes, Any]) -> bytes:
        self.written += b"}"
        self.remember()
        self.written += b"("
        for key, held in value.items():
            self.text(key)
            self.remember()
            if isinstance(held, np.ndarray):
                self.array(held)
            elif isinstance(held, list):
                self.list(held)
            else:
                self.text(held)
                self.remember()
        return bytes(self.written + b"u.")

    def remember(self) -> None:
        self.num_remembered += 1
        index = self.num_remembered
        self.written += b"q" + struct.pack("<B", index) if index < 256 else b"r" + struct.pack("<I", index)

    def text(self, value: bytes) -> None:
        short = len(value) < 256
        self.written += (
            b"U" + struct.pack("<B", len(value)) if short else b"T" + struct.pack("<i", len(value))
        )
        self.written += value

    def number(self, value: int) -> None:
        if 0 <= value < 256:
            self.written += b"K" + struct.pack("<B", value)
        elif 0 <= value < 65536:
            self.written += b"M" + struct.pack("<H", value)
        else:
            self.written += b"J" + struct.pack("<i", value)

    def list(self, values: list[Any]) -> None:
        self.written += b"]"
        self.remember()
        for start in range(0, len(values), 1000):
            self.written += b"("
            for value in values[start : start + 1000]:
                if isinstance(value, bytes):
                    self.text(value)
                    self.remember()
                else:
                    self.number(value)
            self.written += b"e"

    def array(self, values: NDArray[np.generic]) -> None:
        for name in (b"numpy.core.multiarray\n_reconstruct", b"numpy\nndarray"):
            self.written += b"c" + name + b"\n"
            self.remember()
        self.written += b"K\x00\x85U\x01b\x87R"
        self.remember()
        self.written += b"(K\x01"
        for size in values.shape:
            self.number(size)
        self.written += b"\x86cnumpy\ndtype\n"
        self.remember()
        self.written += b"U\x02" + values.dtype.str[1:].encode() + b"K\x00K\x01\x87R"
        self.remember()
        self.written += b"(K\x03U\x01" + values.dtype.str[:1].encode() + b"NNN" + b"J\xff\xff\xff\xff" * 2
        self.written += b"K\x00tb\x89"
        self.text(values.tobytes())
        self.written += b"tb"


def part(num_images: int, seed: int, **changed: Any) -> dict[bytes, Any]:
    draws = np.random.default_rng(seed)
    labels = [index % 100 for index in range(num_images)]
    contents = {
        "filenames": [b"image_%06d.png" % index for index in range(num_images)],
        "batch_label": b"training batch 1 of 1",
        "fine_labels": labels,
        "coarse_labels": [label // 5 for label in labels],
        "data": draws.integers(0, 256, size=(num_images, 3072), dtype=np.uint8),
    }
    return {key.encode(): value for key, value in {**contents, **changed}.items()}


NAMES = [b"class_%d" % label for label in range(100)]
META = {b"fine_label_names": NAMES, b"coarse_label_names": [b"group_%d" % group for group in range(20)]}


def small(
    train: dict[bytes, Any] | bytes | None = None,
    test: dict[bytes, Any] | bytes | None = None,
    meta: dict[bytes, Any] | bytes | None = None,
) -> tuple[Cifar100, dict[str, bytes]]:
    """A CIFAR-100 of few images, and its files: their layout is the published one, their md5 cannot be."""
    held = {"train": train or part(300, seed=1), "test": test or part(100, seed=2), "meta": meta or META}
    contents = {
        f"{FOLDER}/{name}": value if isinstance(value, bytes) else Python2Pickle().dump(value)
        for name, value in held.items()
    }

    class SmallCifar100(Cifar100):
        files = tuple(
            DataFile(name, len(content), hashlib.md5(content).hexdigest())
            for name, content in contents.items()
        )

    return SmallCifar100(), contents


def write_folder(folder: Path, contents: dict[str, bytes]) -> None:
    (folder / FOLDER).mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def write_archive(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{FOLDER}.tar.gz", "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_is_found_by_its_name_and_describes_itself() -> None:
    assert registry.find("benchmark", Cifar100.name) is Cifar100
    benchmark: Benchmark = Cifar100()
    assert not benchmark.embedded
    assert sum(file.num_bytes for file in benchmark.files) == 155_249_918 + 31_049_707 + 1_473


@pytest.mark.parametrize("subfolder", [".", "cifar100"])
@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_it_is_read_from_folders_and_archives(write: Any, subfolder: str, tmp_path: Path) -> None:
    benchmark, contents = small()
    write(tmp_path / subfolder, contents)
    images = benchmark.load(tmp_path)
    expected = part(300, seed=1)[b"data"]
    assert images.train.images.shape == (300, 3, 32, 32)
    assert images.train.images.dtype == np.uint8
    assert np.array_equal(images.train.images.reshape(300, 3072), expected)
    assert images.test.images.shape == (100, 3, 32, 32)
    assert images.train.labels.dtype == np.int64
    assert images.train.labels.tolist() == [*range(100)] * 3
    assert images.class_names[:2] == ("class_0", "class_1")
    assert len(images.class_names) == 100


def test_a_row_is_all_red_then_all_green_then_all_blue(tmp_path: Path) -> None:
    pixels = np.zeros((100, 3072), dtype=np.uint8)
    pixels[3, 0 * 1024 + 5 * 32 + 7] = 11
    pixels[3, 1 * 1024 + 5 * 32 + 7] = 22
    pixels[3, 2 * 1024 + 31 * 32 + 0] = 33
    benchmark, contents = small(test=part(100, seed=2, data=pixels))
    write_folder(tmp_path, contents)
    images = benchmark.load(tmp_path).test.images
    assert images[3, :, 5, 7].tolist() == [11, 22, 0]
    assert images[3, 2, 31, 0] == 33
    assert images.sum() == 66


def test_an_altered_file_is_refused_before_it_is_interpreted(tmp_path: Path) -> None:
    benchmark, contents = small()
    contents[f"{FOLDER}/test"] = contents[f"{FOLDER}/test"][:-1] + b"!"
    write_folder(tmp_path, contents)
    with pytest.raises(EncoreError, match=r"cifar-100-python/test is altered .*encore data fetch cifar100"):
        benchmark.load(tmp_path)


def test_without_data_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match=r"^cifar100 was not found in .*run `encore data fetch cifar100`$"):
        Cifar100().load(tmp_path)


def test_a_file_that_names_code_is_refused_even_where_its_md5_is_right(tmp_path: Path) -> None:
    marker = tmp_path / "it_ran"
    program = b"\x80\x02cos\nsystem\n" + b"U" + bytes([len(f"touch {marker}")]) + f"touch {marker}".encode()
    benchmark, contents = small(train=program + b"\x85R.")
    write_folder(tmp_path, contents)
    with pytest.raises(EncoreError, match=f"^{tmp_path}/{FOLDER}/train is refused: it asks for 'os.system'"):
        benchmark.load(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        part(300, seed=1, fine_labels=[100] * 300),
        part(300, seed=1, fine_labels=[-1] * 300),
        part(300, seed=1, fine_labels=[b"1"] * 300),
        part(300, seed=1, fine_labels=[0] * 299),
        part(300, seed=1, fine_labels=b"0"),
        part(300, seed=1, data=np.zeros((300, 3073), dtype=np.uint8)),
        part(300, seed=1, data=np.zeros((300, 3072), dtype=np.int8)),
        part(300, seed=1, data=[0]),
        {b"data": b"something"},
    ],
)
def test_contents_that_are_not_cifar_100_are_refused(wrong: dict[bytes, Any], tmp_path: Path) -> None:
    benchmark, contents = small(train=wrong)
    write_folder(tmp_path, contents)
    with pytest.raises(EncoreError, match=r"/train must hold images of \(3, 32, 32\) with labels"):
        benchmark.load(tmp_path)


@pytest.mark.parametrize("names", [NAMES[1:], [0] * 100])
def test_class_names_that_are_not_a_hundred_texts_are_refused(names: list[Any], tmp_path: Path) -> None:
    benchmark, contents = small(meta={b"fine_label_names": names})
    write_folder(tmp_path, contents)
    with pytest.raises(EncoreError, match="/meta must hold the names of 100 classes"):
        benchmark.load(tmp_path)


def test_seeds_decide_the_stream_which_passes_once(tmp_path: Path) -> None:
    benchmark, contents = small()
    write_folder(tmp_path, contents)
    check_seeds(benchmark, tmp_path)


# The real data, where there is some.

needs_real_data = pytest.mark.skipif(
    REAL_DATA is None or not copies(Cifar100(), REAL_DATA),
    reason="the real CIFAR-100 does not lie where $ENCORE_DATA says",
)


@needs_real_data
def test_the_published_data_is_read_as_pythons_own_reader_reads_it() -> None:
    images = Cifar100().load(REAL_DATA)
    assert np.bincount(images.train.labels).tolist() == list(Cifar100.class_sizes) == [500] * 100
    assert np.bincount(images.test.labels).tolist() == [100] * 100
    assert images.class_names[:3] == ("apple", "aquarium_fish", "baby")
    contents = read_verified(Cifar100(), REAL_DATA)
    for name, ours in (("train", images.train), ("test", images.test)):
        theirs = pickle.loads(contents[f"{FOLDER}/{name}"].data, encoding="bytes")
        assert np.array_equal(ours.images.reshape(-1, 3072), theirs[b"data"])
        assert ours.labels.tolist() == theirs[b"fine_labels"]


@needs_real_data
def test_the_small_files_are_written_as_the_published_ones() -> None:
    contents = read_verified(Cifar100(), REAL_DATA)
    for name in ("test", "meta"):
        published = bytes(contents[f"{FOLDER}/{name}"].data)
        assert Python2Pickle().dump(pickle.loads(published, encoding="bytes")) == published
