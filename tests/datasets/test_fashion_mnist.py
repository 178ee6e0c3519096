from __future__ import annotations

import gzip
import hashlib
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.datasets.seeds import check_seeds

from encore import registry
from encore.cli import main
from encore.data.benchmark import Benchmark, DataFile
from encore.data.fetch import fetch
from encore.data.inventory import describe_benchmarks
from encore.datasets.fashion_mnist import FashionMnist
from encore.errors import EncoreError

NUM_TRAIN, NUM_TEST = 30, 20
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = (file.name for file in FashionMnist.files)
LABELS = np.arange(NUM_TRAIN) % 10
Write = Callable[[Path, dict[str, bytes]], None]


def idx(values: NDArray[np.generic]) -> bytes:
    """An idx file of bytes, as the format's description has it."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return header + values.astype("u1").tobytes()


def images(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def small(**changed: bytes) -> tuple[FashionMnist, dict[str, bytes]]:
    """A Fashion-MNIST of few images, and its files unpacked; only their checksums cannot be the published."""
    contents = {
        TRAIN_IMAGES: idx(images(NUM_TRAIN, seed=1)),
        TRAIN_LABELS: idx(LABELS),
        TEST_IMAGES: idx(images(NUM_TEST, seed=2)),
        TEST_LABELS: idx(LABELS[:NUM_TEST]),
    }
    contents |= {name: changed[key] for name, key in zip(contents, KEYS, strict=True) if key in changed}
    packed = {f"{name}.gz": gzip.compress(content, mtime=1) for name, content in contents.items()}

    class SmallFashionMnist(FashionMnist):
        class_sizes = (NUM_TRAIN // 10,) * 10
        num_test = NUM_TEST
        files = tuple(describe(name, content) for name, content in contents.items())
        downloads = tuple(describe(name, content) for name, content in packed.items())
        package_folder = Path("/there/is/no/such/folder")

    return SmallFashionMnist(), contents


KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def describe(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.md5(content).hexdigest())


def write(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def write_gzipped(folder: Path, contents: dict[str, bytes]) -> None:
    write(folder, {f"{name}.gz": gzip.compress(content, 1) for name, content in contents.items()})


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_is_found_by_its_name_and_describes_itself() -> None:
    assert registry.find("benchmark", FashionMnist.name) is FashionMnist
    benchmark: Benchmark = FashionMnist()
    assert sum(benchmark.class_sizes) == 60_000
    assert benchmark.size == "55 MB, 31 MB to fetch"
    assert [file.num_bytes for file in benchmark.files] == [
        16 + 60_000 * 784,
        8 + 60_000,
        16 + 10_000 * 784,
        8 + 10_000,
    ]


@pytest.mark.parametrize("subfolder", [".", "fashion_mnist"])
@pytest.mark.parametrize("put", [write, write_gzipped])
def test_it_is_read_packed_or_not(put: Write, subfolder: str, tmp_path: Path) -> None:
    benchmark, contents = small()
    put(tmp_path / subfolder, contents)
    found = benchmark.load(tmp_path)
    assert found.train.images.shape == (NUM_TRAIN, 1, 28, 28)
    assert np.array_equal(found.train.images[:, 0], images(NUM_TRAIN, seed=1))
    assert np.array_equal(found.test.images[:, 0], images(NUM_TEST, seed=2))
    assert found.train.labels.tolist() == [*range(10)] * 3
    assert found.test.labels.tolist() == [*range(10)] * 2
    assert found.class_names[0] == "T-shirt/top"
    assert found.class_names[9] == "Ankle boot"
    assert [check.problem for check in benchmark.check_files(tmp_path)] == [""] * 4
    (listing,) = describe_benchmarks([benchmark], tmp_path)
    assert (listing.path, listing.is_here) == (tmp_path / subfolder, True)


def test_a_byte_is_the_pixel_it_should_be(tmp_path: Path) -> None:
    pixels = bytearray(NUM_TRAIN * 784)
    pixels[3 * 784 + 5 * 28 + 7] = 11
    benchmark, contents = small(train_images=struct.pack(">4I", 0x803, NUM_TRAIN, 28, 28) + bytes(pixels))
    write(tmp_path, contents)
    found = benchmark.load(tmp_path).train.images
    assert found[3, 0, 5, 7] == 11
    assert found.sum() == 11


def test_the_package_of_the_system_is_looked_at_last(tmp_path: Path) -> None:
    benchmark, contents = small()
    package = tmp_path / "share"
    type(benchmark).package_folder = package
    with pytest.raises(EncoreError, match=r"run `encore data fetch fashion_mnist`, or install Debian's"):
        benchmark.load(tmp_path / "given")
    write_gzipped(package, contents)
    assert benchmark.locate(tmp_path / "given").path == package
    assert len(benchmark.load(tmp_path / "given").train.labels) == NUM_TRAIN
    write(tmp_path / "given", {TRAIN_LABELS: contents[TRAIN_LABELS]})
    assert benchmark.locate(tmp_path / "given").path == tmp_path / "given"
    with pytest.raises(EncoreError, match=f"^{tmp_path}/given/{TRAIN_IMAGES} is missing, and so is .*[.]gz:"):
        benchmark.load(tmp_path / "given")


def test_a_packed_file_heals_an_altered_one_beside_it(tmp_path: Path) -> None:
    benchmark, contents = small()
    write(tmp_path, contents | {TEST_LABELS: contents[TEST_LABELS][:-1] + b"\x07"})
    with pytest.raises(EncoreError, match=f"^{tmp_path}/{TEST_LABELS} is altered .*encore data fetch"):
        benchmark.load(tmp_path)
    write_gzipped(tmp_path, {TEST_LABELS: contents[TEST_LABELS]})
    assert benchmark.load(tmp_path).test.labels.tolist() == [*range(10)] * 2


def test_a_whole_copy_in_the_subfolder_counts_before_a_wrong_one_above(tmp_path: Path) -> None:
    benchmark, contents = small()
    write(tmp_path, {TRAIN_IMAGES: b""})
    write(tmp_path / "fashion_mnist", contents)
    assert len(benchmark.load(tmp_path).labels) == NUM_TRAIN + NUM_TEST
    assert benchmark.locate(tmp_path).path == tmp_path / "fashion_mnist"


def test_what_was_fetched_is_read_and_not_fetched_again(tmp_path: Path) -> None:
    benchmark, contents = small()
    mirror = tmp_path / "mirror"
    write(mirror, {f"{name}.gz": gzip.compress(content, mtime=1) for name, content in contents.items()})
    folder = tmp_path / "data"
    fetched = fetch(benchmark, folder, [mirror.as_uri()], lambda done, total: None)
    assert fetched.num_bytes == sum(download.num_bytes for download in benchmark.downloads)
    assert fetched.path is not None
    assert len(benchmark.load(folder).labels) == NUM_TRAIN + NUM_TEST
    assert fetch(benchmark, folder, [], lambda done, total: None).num_bytes == 0


# Files whose checksum is right and whose content is not.


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"train_images": b"\0\0\x08\x01" + idx(images(NUM_TRAIN, 1))[4:]}, "begins with .*00000803"),
        ({"train_images": b"\0\0\x09\x03" + idx(images(NUM_TRAIN, 1))[4:]}, "and begins with 00000903"),
        ({"train_images": b"\0\x01\x08\x03" + idx(images(NUM_TRAIN, 1))[4:]}, "and begins with 00010803"),
        ({"train_images": b"\x08\x03\0\0" + idx(images(NUM_TRAIN, 1))[4:]}, "and begins with 08030000"),
        ({"train_images": idx(images(NUM_TRAIN - 1, 1))}, "of 30 x 28 x 28 unsigned bytes"),
        ({"test_images": idx(images(NUM_TEST, 1).reshape(-1, 14, 56))}, "of 20 x 28 x 28 unsigned bytes"),
        ({"train_images": idx(images(NUM_TRAIN, 1))[:-1]}, "30 x 28 x 28 bytes .* and holds 23,519"),
        ({"train_images": idx(images(NUM_TRAIN, 1)) + b"\0"}, "30 x 28 x 28 bytes .* and holds 23,521"),
        ({"train_images": idx(images(NUM_TRAIN, 1))[:16]}, "and holds 0"),
        ({"train_images": b""}, "and begins with nothing"),
        ({"train_labels": idx(LABELS + 1)}, "labels from 0 to 9, and holds 10"),
        ({"test_labels": idx(np.full(NUM_TEST, 255))}, "labels from 0 to 9, and holds 255"),
        ({"test_labels": idx(images(NUM_TEST, 1))}, "of 20 unsigned bytes"),
    ],
)
def test_contents_that_are_not_fashion_mnist_are_refused(
    changed: dict[str, bytes], reason: str, tmp_path: Path
) -> None:
    benchmark, contents = small(**changed)
    write(tmp_path, contents)
    with pytest.raises(EncoreError, match=reason) as refused:
        benchmark.load(tmp_path)
    (name,) = (name for name, key in zip(contents, KEYS, strict=True) if key in changed)
    assert str(tmp_path / name) in str(refused.value)


# Files whose checksum is wrong.


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"", "is truncated"),
        (b"no gzip file", "is truncated or no gzip file"),
        (gzip.compress(idx(images(NUM_TRAIN, 1)))[:-9], "is truncated"),
        (gzip.compress(idx(images(NUM_TRAIN, 1))[:-1]), "is truncated .23,535 of 23,536 bytes"),
        (gzip.compress(idx(images(NUM_TRAIN, 1)) + b"\0"), "longer than the 23,536 bytes"),
        (gzip.compress(idx(images(NUM_TRAIN, 1))) + b"more", "truncated or no gzip file"),
        (gzip.compress(idx(images(NUM_TRAIN, 5))), "is altered .its md5 is"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\xff" * 40, "truncated or no gzip file"),
    ],
)
def test_packed_files_that_are_wrong_are_refused(packed: bytes, reason: str, tmp_path: Path) -> None:
    benchmark, contents = small()
    write_gzipped(tmp_path, contents)
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(packed)
    with pytest.raises(EncoreError, match=f"^{tmp_path}/{TRAIN_IMAGES}.gz .*{reason}"):
        benchmark.load(tmp_path)
    problems = [check.problem for check in benchmark.check_files(tmp_path)]
    assert [bool(problem) for problem in problems] == [True, False, False, False]


def test_a_small_file_cannot_unpack_to_a_huge_one(tmp_path: Path) -> None:
    benchmark, contents = small()
    write_gzipped(tmp_path, contents)
    with gzip.open(tmp_path / f"{TRAIN_IMAGES}.gz", "wb", 1) as bomb:
        for _ in range(50):
            bomb.write(bytes(1_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(EncoreError, match="longer than the 23,536 bytes"):
            benchmark.load(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    benchmark, contents = small()
    write(tmp_path, contents)
    (tmp_path / TEST_LABELS).unlink()
    (tmp_path / TEST_LABELS).mkdir()
    with pytest.raises(EncoreError, match=f"{TEST_LABELS} is no file"):
        benchmark.load(tmp_path)


# The published files, where they are.


def is_there() -> bool:
    try:
        FashionMnist().locate(None)
    except EncoreError:
        return False
    return True


PRESENT = is_there()  # before a test hides what this machine has


@pytest.mark.skipif(not PRESENT, reason="needs Fashion-MNIST: `encore data fetch fashion_mnist`")
def test_the_published_images_are_what_they_are_known_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = FashionMnist().load(None)
    assert np.bincount(found.train.labels).tolist() == [6000] * 10 == list(FashionMnist.class_sizes)
    assert np.bincount(found.test.labels).tolist() == [1000] * 10
    assert found.train.labels[:5].tolist() == [9, 0, 0, 3, 0]
    assert found.test.labels[:5].tolist() == [9, 2, 1, 1, 6]
    # The mean and deviation that everybody normalises with.
    assert round(float(found.train.images.mean()) / 255, 4) == 0.2860
    assert round(float(found.train.images.std()) / 255, 4) == 0.3530


def test_seeds_decide_the_stream_which_passes_once(tmp_path: Path) -> None:
    benchmark, contents = small()
    write(tmp_path, contents)
    check_seeds(benchmark, tmp_path)


def test_a_run_on_the_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark, contents = small()
    write(tmp_path, contents)
    for name in ("files", "class_sizes", "num_test"):
        monkeypatch.setattr(FashionMnist, name, getattr(benchmark, name))
    chosen = ["--benchmark", "fashion_mnist", "--data-dir", str(tmp_path), "--batch-size", "3"]
    small_run = [
        "--memory-size",
        "10",
        "--first-tasks",
        "1",
        "--model.width",
        "2",
        "--threads",
        "1",
        "--quiet",
    ]
    assert main(["run", *chosen, *small_run, "--out", str(tmp_path / "runs")]) == 0
    assert (tmp_path / "runs" / "seed-0" / "record.json").is_file()
