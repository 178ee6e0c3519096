from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.datasets.seeds import check_seeds
from tests.datasets.test_cifar100 import Python2Pickle

from encore import registry
from encore.cli import main
from encore.data.benchmark import Benchmark
from encore.data.image_set import ImageSet, Rows
from encore.data.mini_imagenet_pickles import PickledImages
from encore.data.safe_pickle import read_pickle
from encore.datasets.mini_imagenet import MiniImagenet
from encore.errors import EncoreError
from encore.image_store import ImageStore

PARTS = ("train", "val", "test")
BY_PART = {
    "train": ["n00000001", "n00000004", "n00000005"],
    "val": ["n00000003"],
    "test": ["n00000002", "n00000006"],
}
IN_ORDER = [name for names in BY_PART.values() for name in names]
PER_CLASS = 4
TINY = ["--model.width", "2", "--threads", "1", "--device", "cpu"]


class SmallMiniImagenet(MiniImagenet):
    num_tasks = 3
    classes_of_parts: Mapping[str, int] = {part: len(names) for part, names in BY_PART.items()}
    num_per_class = PER_CLASS
    num_tested = 1
    class_sizes: tuple[int, ...] = (PER_CLASS - 1,) * 6


class Fakes:
    """As many images as there really are, which nobody reads."""

    shape = (3, 84, 84)
    reads_at_once = True

    def __len__(self) -> int:
        return 60_000

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        raise AssertionError("to arrange images is not to read them")


def whole() -> ImageSet:
    labels = np.repeat(np.arange(100), 600)
    return ImageSet(Fakes(), labels, tuple(str(label) for label in range(100)))


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# Splits and tasks.


def test_it_is_found_by_its_name_and_describes_itself() -> None:
    assert registry.find("benchmark", MiniImagenet.name) is MiniImagenet
    benchmark: Benchmark = MiniImagenet()
    assert sum(benchmark.class_sizes) == 50_000
    assert sum(MiniImagenet.classes_of_parts.values()) * MiniImagenet.num_per_class == 60_000


@pytest.mark.parametrize(
    ("seed", "first_task"),
    [
        (1259051, (12, 68, 17, 6, 90, 85, 24, 25, 67, 61)),
        (1259052, (22, 24, 68, 9, 34, 65, 90, 79, 81, 3)),
        (1259053, (46, 85, 7, 52, 48, 12, 69, 44, 38, 77)),
    ],
)
@pytest.mark.parametrize("split", [None, "seed", "fixed"])
def test_the_seeds_of_the_paper_give_its_tasks(
    seed: int, first_task: tuple[int, ...], split: str | None
) -> None:
    arranged = MiniImagenet().arrange(whole(), seed, split)
    assert arranged.tasks[0] == first_task
    assert [len(task) for task in arranged.tasks] == [10] * 10
    assert sorted(label for task in arranged.tasks for label in task) == [*range(100)]


def test_the_seed_draws_a_hundred_images_of_each_class_for_testing() -> None:
    is_test = MiniImagenet().arrange(whole(), 1259051, None).is_test.reshape(100, 600)
    assert is_test.sum(axis=1).tolist() == [100] * 100
    draws = np.random.RandomState(1259051)
    for of_class in is_test:
        numbers = list(range(600))
        draws.shuffle(numbers)
        assert np.flatnonzero(of_class).tolist() == sorted(numbers[:100])
    again = MiniImagenet().arrange(whole(), 1259051, "seed").is_test.reshape(100, 600)
    assert np.array_equal(is_test, again)
    other = MiniImagenet().arrange(whole(), 1259052, "seed").is_test.reshape(100, 600)
    assert not np.array_equal(is_test, other)


def test_the_fixed_split_tests_on_the_last_hundred_whatever_the_seed() -> None:
    for seed in (0, 1):
        is_test = MiniImagenet().arrange(whole(), seed, "fixed").is_test.reshape(100, 600)
        assert not is_test[:, :500].any()
        assert is_test[:, 500:].all()


def test_images_of_a_class_need_not_lie_together() -> None:
    mixed = ImageSet(Fakes(), np.tile(np.arange(100), 600), whole().class_names)
    fixed = MiniImagenet().arrange(mixed, 0, "fixed").is_test.reshape(600, 100)
    assert fixed[500:].all()
    assert fixed.sum() == 10_000


def test_images_that_are_parted_already_stay_so() -> None:
    is_test = np.arange(60_000) % 7 == 0
    parted = ImageSet(Fakes(), whole().labels, whole().class_names, is_test)
    arranged = MiniImagenet().arrange(parted, 1259052, None)
    assert np.array_equal(arranged.is_test, is_test)
    assert arranged.tasks[0] == (22, 24, 68, 9, 34, 65, 90, 79, 81, 3)


def test_other_splits_are_refused() -> None:
    with pytest.raises(EncoreError, match=r"no split 'fixd'; did you mean 'fixed'\? .known: fixed, seed"):
        MiniImagenet().arrange(whole(), 0, "fixd")


# Pickles.


def pixels_of(labels: list[int]) -> NDArray[np.uint8]:
    """Images that tell their label, their number, and where each colour lies."""
    pixels = np.zeros((len(labels), 84, 84, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0] = labels
    pixels[:, 0, 0, 1] = np.arange(len(labels))
    pixels[:, 5, 7] = 11, 22, 33
    return pixels


def contents_of(part: str) -> dict[str, Any]:
    names = BY_PART[part]
    rows = {
        name: list(range(number * PER_CLASS, (number + 1) * PER_CLASS)) for number, name in enumerate(names)
    }
    labels = [IN_ORDER.index(name) for name in names for _ in range(PER_CLASS)]
    # Python 2 wrote its dictionaries in no particular order.
    return {"image_data": pixels_of(labels), "class_dict": dict(reversed(rows.items()))}


class Nested(Python2Pickle):
    """Also writes a dictionary of lists within the dictionary, and the shape of coloured images."""

    def array(self, values: NDArray[np.generic]) -> None:
        super().array(values.reshape(len(values), -1))
        count = b"K" + bytes([len(values)])
        flat, shape = count + b"M\xb0\x52\x86", b"(" + count + b"KTKTK\x03t"
        assert self.written.count(flat) == 1
        self.written = self.written.replace(flat, shape)

    def text(self, value: Any) -> None:
        if not isinstance(value, dict):
            return super().text(value)
        self.written += b"}"
        self.remember()
        self.written += b"("
        for name, rows in value.items():
            super().text(name.encode())
            self.list(rows)
        self.written += b"u"
        return None


def by_python_2(value: dict[str, Any]) -> bytes:
    return Nested().dump({key.encode(): held for key, held in value.items()})


def by_numpy_1(value: dict[str, Any]) -> bytes:
    written = pickle.dumps(value, protocol=3)
    return written.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


WRITERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "python 2": by_python_2,
    "numpy 1": by_numpy_1,
    "protocol 3": lambda value: pickle.dumps(value, protocol=3),
    "protocol 4": lambda value: pickle.dumps(value, protocol=4),
}


def write_pickles(
    folder: Path, write: Callable[[dict[str, Any]], bytes] = by_numpy_1, **changed: Any
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        content = changed.get(part) or write(contents_of(part))
        (folder / f"mini-imagenet-cache-{part}.pkl").write_bytes(content)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("subfolder", [".", "mini_imagenet"])
def test_pickles_are_read_as_they_are_passed_on(writer: str, subfolder: str, tmp_path: Path) -> None:
    write_pickles(tmp_path / subfolder, WRITERS[writer])
    benchmark = SmallMiniImagenet()
    found = benchmark.load(tmp_path)
    assert found.images.shape == (3, 84, 84)
    assert found.class_names == tuple(IN_ORDER)
    assert found.labels.tolist() == np.repeat(np.arange(6), PER_CLASS).tolist()
    assert found.is_test is None
    rows = np.array([23, 0, 12, 11, 16, 0])  # of all three pickles, out of order, one twice
    read = found.images.read(rows)
    assert read.dtype == np.uint8
    assert read[:, 0, 0, 0].tolist() == [5, 0, 3, 2, 4, 0]
    assert read[:, 1, 0, 0].tolist() == [7, 0, 0, 11, 0, 0]
    assert read[:, :, 5, 7].tolist() == [[11, 22, 33]] * 6
    assert read[0].sum() == 5 + 7 + 66
    assert benchmark.locate(tmp_path).files == tuple(
        tmp_path / subfolder / f"mini-imagenet-cache-{part}.pkl" for part in PARTS
    )


def test_the_check_names_the_layout_and_counts(tmp_path: Path) -> None:
    write_pickles(tmp_path)
    checks = SmallMiniImagenet().check_files(tmp_path)
    assert [check.verdict for check in checks] == [
        "the layout found is three pickles",
        "12 images of 3 classes",
        "4 images of 1 classes",
        "8 images of 2 classes",
    ]
    assert not any(check.problem for check in checks)
    (tmp_path / "mini-imagenet-cache-val.pkl").unlink()
    problems = [check.problem for check in SmallMiniImagenet().check_files(tmp_path)]
    assert problems == ["", "", f"{tmp_path}/mini-imagenet-cache-val.pkl is missing", ""]


def test_classes_count_in_the_order_of_their_rows(tmp_path: Path) -> None:
    first, last = list(range(0, 8, 2)), list(range(1, 8, 2))
    changed = {"image_data": pixels_of([9] * 8), "class_dict": {"n00000006": last, "n00000002": first}}
    write_pickles(tmp_path, test=by_numpy_1(changed))
    found = SmallMiniImagenet().load(tmp_path)
    assert found.class_names[4:] == ("n00000002", "n00000006")
    assert found.labels[16:].tolist() == [4, 5] * 4


def test_pixels_stay_in_their_files(tmp_path: Path) -> None:
    write_pickles(tmp_path)
    tracemalloc.start()
    try:
        found = SmallMiniImagenet().load(tmp_path)
        ImageStore(found, torch.device("cpu"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000 < 24 * 84 * 84 * 3
    assert len(found.images.read(np.array([3]))) == 1


def write_whole_pickles(folder: Path) -> None:
    """Pickles of the real size, whose pixels are holes in their files but for one image in each."""
    start = 0
    for part, num_classes in MiniImagenet.classes_of_parts.items():
        num_images = num_classes * 600
        names = [f"n{start + number:08}" for number in range(num_classes)]
        rows = {name: list(range(600 * number, 600 * number + 600)) for number, name in enumerate(names)}
        one = np.zeros((1, 84, 84, 3), dtype=np.uint8)
        content = by_numpy_1({"image_data": one, "class_dict": rows})
        before, rest = content.split(b"(K\x01KTKTK\x03t", 1)
        middle, after = rest.split(b"B\xb0\x52\0\0" + bytes(one.nbytes), 1)
        shape = b"(M" + num_images.to_bytes(2, "little") + b"KTKTK\x03t"
        with (folder / f"mini-imagenet-cache-{part}.pkl").open("wb") as file:
            file.write(before + shape + middle + b"B" + (num_images * one.nbytes).to_bytes(4, "little"))
            begin = file.tell()
            file.seek(begin + (num_images - 1) * one.nbytes)
            file.write(bytes([100 + len(part)]))
            file.seek(begin + num_images * one.nbytes)
            file.write(after)
        start += num_classes


def test_pickles_of_the_real_size(tmp_path: Path) -> None:
    write_whole_pickles(tmp_path)
    benchmark = MiniImagenet()
    assert [check.verdict for check in benchmark.check_files(tmp_path)][1:] == [
        "38,400 images of 64 classes",
        "9,600 images of 16 classes",
        "12,000 images of 20 classes",
    ]
    found = benchmark.load(tmp_path)
    assert len(found.images) == 60_000
    assert np.bincount(found.labels).tolist() == [600] * 100
    assert found.class_names[63:65] == ("n00000063", "n00000064")
    read = found.images.read(np.array([38_398, 38_399, 38_400, 47_999, 59_999]))
    assert read[:, 0, 0, 0].tolist() == [0, 105, 0, 103, 104]
    arranged = benchmark.arrange(found, 1259051, None)
    assert arranged.tasks[0] == (12, 68, 17, 6, 90, 85, 24, 25, 67, 61)


def test_a_file_that_shrinks_is_not_read_past_its_end(tmp_path: Path) -> None:
    write_pickles(tmp_path)
    found = SmallMiniImagenet().load(tmp_path)
    assert isinstance(found.images, PickledImages)
    path = tmp_path / "mini-imagenet-cache-val.pkl"
    with path.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(EncoreError, match=f"^{path} was changed while it was being read"):
        found.images.read(np.array([12]))


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    write_pickles(tmp_path)
    found = SmallMiniImagenet().load(tmp_path)
    for part in PARTS:
        (tmp_path / f"mini-imagenet-cache-{part}.pkl").unlink()
    assert found.images.read(np.array([12]))[0, 0, 0, 0] == 3


def changed_test(**changed: Any) -> bytes:
    return by_numpy_1({**contents_of("test"), **changed})


def with_rows(rows: list[Any]) -> bytes:
    return changed_test(class_dict={"n00000002": [0, 1, 2, 3], "n00000006": rows})


MUST_HOLD = "must hold image_data, bytes .N, 84, 84, 3., and class_dict"
ONCE = "must name each row from 0 to 7 once"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"\x80\x02cos\nsystem\nU\x04true\x85R.", "asks for 'os.system'", id="code"),
        pytest.param(b"<!DOCTYPE html><html>", "is damaged, or no pickle", id="a page of the web"),
        pytest.param(changed_test()[:100_000], "is damaged, or no pickle", id="truncated in the pixels"),
        pytest.param(changed_test()[:-1], "is damaged, or no pickle", id="without its end"),
        pytest.param(pickle.dumps([1]), MUST_HOLD, id="a list"),
        pytest.param(pickle.dumps({}), MUST_HOLD, id="nothing"),
        pytest.param(changed_test(image_data=[1]), MUST_HOLD, id="no array"),
        pytest.param(changed_test(image_data=pixels_of([0] * 8)[..., :1]), MUST_HOLD, id="grey"),
        pytest.param(changed_test(image_data=pixels_of([0] * 8)[:, :80]), MUST_HOLD, id="smaller"),
        pytest.param(changed_test(image_data=pixels_of([0] * 8).view(np.int8)), MUST_HOLD, id="signed"),
        pytest.param(changed_test(class_dict={}), MUST_HOLD, id="no classes"),
        pytest.param(changed_test(class_dict=[0] * 8), MUST_HOLD, id="labels"),
        pytest.param(changed_test(class_dict={1: [0], 2: [1]}), MUST_HOLD, id="classes without names"),
        pytest.param(changed_test(class_dict={"a": 1, "b": 2}), MUST_HOLD, id="classes without rows"),
        pytest.param(with_rows([4, 5, 6]), "has 3 images of class n00000006 where 4", id="one too few"),
        pytest.param(with_rows([4, 5, 6, 7, 7]), "has 5 images of class n00000006", id="one too many"),
        pytest.param(with_rows([4, 5, 6, 8]), ONCE, id="a row that is not there"),
        pytest.param(with_rows([4, 5, 6, -1]), ONCE, id="a row from the end"),
        pytest.param(with_rows([4, 5, 6, 3]), ONCE, id="a row of two classes"),
        pytest.param(with_rows([4, 5, 6, 7.0]), ONCE, id="a fraction"),
        pytest.param(with_rows([4, 5, 6, True]), ONCE, id="a truth"),
        pytest.param(with_rows([4, 5, 6, 2**90]), ONCE, id="a huge number"),
        pytest.param(with_rows([4, 5, 6, [7]]), ONCE, id="a list of lists"),
        pytest.param(
            changed_test(class_dict={"n00000002": [0, 1, 2, 3]}),
            "has 1 classes where 2 are expected",
            id="a class too few",
        ),
        pytest.param(
            changed_test(image_data=pixels_of([0] * 9)),
            "each row from 0 to 8 once",
            id="an image of no class",
        ),
        pytest.param(
            changed_test(class_dict={"n00000003": [0, 1, 2, 3], "n00000006": [4, 5, 6, 7]}),
            "class n00000003 is in .*val.pkl and in .*test.pkl",
            id="a class of two files",
        ),
    ],
)
def test_pickles_that_are_wrong_are_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    write_pickles(tmp_path, test=content)
    benchmark = SmallMiniImagenet()
    with pytest.raises(EncoreError, match=reason) as refused:
        benchmark.load(tmp_path)
    assert str(refused.value).startswith(f"mini_imagenet was found in {tmp_path} as three pickles, but ")
    assert "mini-imagenet-cache-test.pkl" in str(refused.value)
    problems = [check.problem for check in benchmark.check_files(tmp_path) if check.problem]
    assert len(problems) == 1
    assert problems[0] in str(refused.value)


def test_an_empty_pickle_is_refused(tmp_path: Path) -> None:
    write_pickles(tmp_path)
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(b"")
    with pytest.raises(EncoreError, match=r"cache-train[.]pkl is empty"):
        SmallMiniImagenet().load(tmp_path)


def test_dictionaries_within_each_other_do_not_exhaust_the_stack(tmp_path: Path) -> None:
    endless = b"\x80\x02}q\x01U\x0aclass_dictq\x02h\x01s."  # its class_dict is itself
    held: Any = read_pickle(bytearray(endless), "endless")
    assert held[b"class_dict"] is held
    write_pickles(tmp_path, test=endless)
    with pytest.raises(EncoreError, match=MUST_HOLD):
        SmallMiniImagenet().load(tmp_path)


# Pictures, with lists or in folders of their classes.


def picture(label: int, number: int) -> Image.Image:
    """A picture that tells its label and number, of a size of its own."""
    return Image.new("RGB", (40 + 30 * number, 100 - 10 * number), (20 * label, 30 * number, 200))


def names_of(name: str) -> list[str]:
    return [f"{name}{number:08}.jpg" for number in range(PER_CLASS)]


def write_listed(folder: Path) -> None:
    (folder / "images").mkdir(parents=True)
    for part, names in BY_PART.items():
        lines = ["filename,label"]
        for name in names:
            for number, file in enumerate(names_of(name)):
                picture(IN_ORDER.index(name), number).save(folder / "images" / file, quality=95)
                lines.insert(1 if number == 3 else len(lines), f"{file},{name}")
        (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")


def write_in_folders(folder: Path, parted: bool) -> None:
    for part, names in BY_PART.items():
        for name in names:
            of_class = folder / (part if parted else ".") / name
            of_class.mkdir(parents=True)
            for number, file in enumerate(names_of(name)):
                picture(IN_ORDER.index(name), number).save(of_class / file, quality=95)


def check_pictures(found: ImageSet, class_names: list[str]) -> None:
    assert found.class_names == tuple(class_names)
    assert found.images.shape == (3, 84, 84)
    assert found.labels.tolist() == np.repeat(np.arange(6), PER_CLASS).tolist()
    middle = found.images.read(np.arange(24))[:, :, 42, 42].astype(int)
    expected = [
        [20 * IN_ORDER.index(name), 30 * number, 200] for name in class_names for number in range(PER_CLASS)
    ]
    assert np.abs(middle - expected).max() <= 3  # what JPEG changes


def test_listed_pictures_are_read(tmp_path: Path) -> None:
    write_listed(tmp_path)
    # The lists of the fixture name the last picture of their last class first.
    check_pictures(
        SmallMiniImagenet().load(tmp_path),
        ["n00000005", "n00000004", "n00000001", "n00000003", "n00000006", "n00000002"],
    )
    first = SmallMiniImagenet().check_files(tmp_path)[0]
    assert first.verdict == "the layout found is the folder images with train.csv, val.csv and test.csv"
    assert len(SmallMiniImagenet().locate(tmp_path).files) == 3 + 24


@pytest.mark.parametrize("parted", [True, False])
def test_folders_of_classes_are_read(parted: bool, tmp_path: Path) -> None:
    write_in_folders(tmp_path, parted)
    for name in ("Thumbs.db", ".hidden.jpg"):
        (tmp_path / ("train" if parted else ".") / "n00000001" / name).write_bytes(b"no picture")
    check_pictures(SmallMiniImagenet().load(tmp_path), IN_ORDER if parted else sorted(IN_ORDER))
    first = SmallMiniImagenet().check_files(tmp_path)[0]
    assert first.verdict.startswith("the layout found is a folder for each class")
    assert len(SmallMiniImagenet().locate(tmp_path).files) == 24


def test_the_real_classes_have_one_order_in_folders_with_and_without_parts(tmp_path: Path) -> None:
    names = {"train": "n13133613", "val": "n01855672", "test": "n01930112"}

    class Three(SmallMiniImagenet):
        classes_of_parts = {"train": 1, "val": 1, "test": 1}  # noqa: RUF012
        num_per_class = 1

    for part, name in names.items():
        for folder in (tmp_path / "flat" / name, tmp_path / "parted" / part / name):
            folder.mkdir(parents=True)
            picture(0, 0).save(folder / "1.jpg")
    for layout in ("flat", "parted"):
        assert Three().load(tmp_path / layout).class_names == tuple(names.values())


def test_pictures_are_stretched(tmp_path: Path) -> None:
    write_listed(tmp_path)
    wide = Image.new("RGB", (200, 100), (255, 0, 0))
    wide.paste((0, 0, 255), (50, 0, 200, 100))
    wide.save(tmp_path / "images" / names_of("n00000003")[0], quality=95)
    read = SmallMiniImagenet().load(tmp_path).images.read(np.array([12]))[0]
    red, blue = read[0] > 128, read[2] > 128
    assert red[:, :20].all()  # a quarter, as of the whole picture
    assert blue[:, 22:].all()
    assert not red[:, 22:].any()


def test_a_truncated_picture_can_be_left_out(tmp_path: Path) -> None:
    write_listed(tmp_path)
    broken = tmp_path / "images" / names_of("n00000003")[2]
    broken.write_bytes(broken.read_bytes()[:300])
    found = SmallMiniImagenet().load(tmp_path)
    with pytest.raises(EncoreError, match=f"^{broken} cannot be decoded"):
        ImageStore(found, torch.device("cpu")).read(torch.arange(24))
    store = ImageStore(found, torch.device("cpu"), skip_broken=1)
    assert len(store.read(torch.arange(24)).labels) == 23
    assert list(store.skipped) == [14]


def edit(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


FIRST = "n0000000300000000.jpg"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param(
            FIRST, "../val.csv", "line 3 must name a file right in .*images, and names ../val", id="up"
        ),
        pytest.param(FIRST, "/etc/passwd", "names /etc/passwd", id="absolute"),
        pytest.param(
            FIRST,
            "a\\b.jpg",
            r"must name a file right in .*, and names a\\b.jpg",
            id="another system's separator",
        ),
        pytest.param(FIRST, "..", "names ..", id="the folder above"),
        pytest.param(FIRST, "gone.jpg", "val.csv names gone.jpg, not in .*images", id="missing"),
        pytest.param(
            FIRST, "n0000000300000001.jpg", "val.csv names n0000000300000001.jpg, twice", id="twice"
        ),
        pytest.param(
            FIRST,
            "n0000000100000001.jpg",
            "train.csv names n0000000100000001.jpg, again in",
            id="in two lists",
        ),
        pytest.param(f"{FIRST},n00000003", FIRST, "line 3 must have a file name and a label", id="no label"),
        pytest.param(
            f"{FIRST},", f"{FIRST},,", "line 3 must have a file name and a label", id="a comma more"
        ),
        pytest.param(f"{FIRST},n00000003\n", "", "3 images of class n00000003 where 4", id="one too few"),
        pytest.param(
            FIRST + ",n00000003", FIRST + ",n9", "2 classes where 1 .*2 more numbers", id="a class more"
        ),
        pytest.param(
            "filename,label", "path,label", "begin with filename,label, and begins with path", id="path"
        ),
        pytest.param(
            "filename,label", "filename,label,x", "must begin with filename,label", id="a column more"
        ),
        pytest.param("filename,label\n", "", "begins with n00000003", id="no header"),
        pytest.param(FIRST, '"open', "cannot be read as a table", id="an open quote"),
        pytest.param(",n00000003", ",n00000001", "val.csv has 2 classes", id="a label of another list"),
    ],
)
def test_lists_that_are_wrong_are_refused(old: str, new: str, reason: str, tmp_path: Path) -> None:
    write_listed(tmp_path)
    edit(tmp_path, "val.csv", old, new)
    with pytest.raises(EncoreError, match=f"^mini_imagenet was found in .* as the folder images .*{reason}"):
        SmallMiniImagenet().load(tmp_path)
    assert any(check.problem for check in SmallMiniImagenet().check_files(tmp_path))


def test_a_label_in_two_lists_is_refused(tmp_path: Path) -> None:
    write_listed(tmp_path)
    text = (tmp_path / "val.csv").read_text()
    (tmp_path / "val.csv").write_text(text.replace(",n00000003", ",n00000001"))
    with pytest.raises(EncoreError, match=r"class n00000001 is in .*train.csv and in .*val.csv"):
        SmallMiniImagenet().load(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "begins with nothing"),
        (b"filename,label\n\xff\xfe,n1\n", "cannot be read as a table"),
        (b"filename,label\n" + b"a" * 200_000 + b",n1\n", "cannot be read as a table"),
        (b"filename,label\n", "has 0 classes where 1 are expected"),
        (b"\0" * 1000, "must begin with|cannot be read as a table"),
    ],
)
def test_files_that_are_no_lists_are_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    write_listed(tmp_path)
    (tmp_path / "val.csv").write_bytes(content)
    with pytest.raises(EncoreError, match=f"val.csv.* ({reason})"):
        SmallMiniImagenet().load(tmp_path)


def test_a_list_from_a_spreadsheet_is_read(tmp_path: Path) -> None:
    write_listed(tmp_path)
    text = (tmp_path / "val.csv").read_text()
    (tmp_path / "val.csv").write_bytes(
        b"\xef\xbb\xbf" + text.replace("\n", "\r\n").replace(",", ", ").encode()
    )
    assert len(SmallMiniImagenet().load(tmp_path).labels) == 24


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    write_listed(tmp_path)
    (tmp_path / "test.csv").unlink()
    with pytest.raises(EncoreError, match=f"but {tmp_path}/test.csv is missing"):
        SmallMiniImagenet().load(tmp_path)


@pytest.mark.parametrize("parted", [True, False])
def test_a_folder_with_a_picture_too_few_is_named_with_its_number(parted: bool, tmp_path: Path) -> None:
    write_in_folders(tmp_path, parted)
    of_class = tmp_path / ("val" if parted else ".") / "n00000003"
    (of_class / names_of("n00000003")[1]).unlink()
    with pytest.raises(EncoreError, match=r"has 3 images of class n00000003 where 4 are expected$"):
        SmallMiniImagenet().load(tmp_path)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    write_in_folders(tmp_path, parted=True)
    (tmp_path / "val").rename(tmp_path / "valid")
    with pytest.raises(EncoreError, match=f"as a folder for each class in .*, but {tmp_path}/val is missing"):
        SmallMiniImagenet().load(tmp_path)


def test_a_class_in_two_parts_is_refused(tmp_path: Path) -> None:
    write_in_folders(tmp_path, parted=True)
    (tmp_path / "val" / "n00000003").rename(tmp_path / "val" / "n00000001")
    with pytest.raises(EncoreError, match=f"class n00000001 is in {tmp_path}/train and in {tmp_path}/val"):
        SmallMiniImagenet().load(tmp_path)


# Which folder it is.


def test_imagenet_as_a_whole_is_not_taken_for_it(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / "train" / f"n{number:08}").mkdir(parents=True)
    with pytest.raises(EncoreError, match=r"^mini_imagenet was not found in .*put mini-imagenet-cache-train"):
        SmallMiniImagenet().load(tmp_path)
    write_pickles(tmp_path / "mini_imagenet")
    assert SmallMiniImagenet().locate(tmp_path).path == tmp_path / "mini_imagenet"


def test_pickles_count_before_pictures(tmp_path: Path) -> None:
    write_in_folders(tmp_path, parted=True)
    write_listed(tmp_path)
    assert SmallMiniImagenet().check_files(tmp_path)[0].verdict.endswith("train.csv, val.csv and test.csv")
    write_pickles(tmp_path)
    assert SmallMiniImagenet().check_files(tmp_path)[0].verdict.endswith("three pickles")


@pytest.mark.parametrize("write", [write_pickles, write_listed])
def test_seeds_decide_the_stream_which_passes_once(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    check_seeds(SmallMiniImagenet(), tmp_path)


def test_a_run_on_the_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pickles(tmp_path)
    for name in ("num_tasks", "classes_of_parts", "num_per_class", "num_tested", "class_sizes"):
        monkeypatch.setattr(MiniImagenet, name, getattr(SmallMiniImagenet, name))
    chosen = ["--benchmark", "mini_imagenet", "--data-dir", str(tmp_path), "--split", "fixed"]
    small = ["--batch-size", "3", "--memory-size", "5", "--first-tasks", "1", "--quiet", *TINY]
    assert main(["data", "check", "mini_imagenet", "--data-dir", str(tmp_path)]) == 0
    assert "all: 24 images of 6 classes, 4 of each" in capsys.readouterr().out
    assert main(["run", *chosen, *small, "--out", str(tmp_path / "runs")]) == 0
    assert (tmp_path / "runs" / "seed-0" / "record.json").is_file()
