"""ImageNet in every way it lies on disks, made small: a few classes, thousands of small pictures."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.datasets.seeds import check_seeds

from encore import image_store, launch, registry
from encore.cli import main
from encore.data.imagenet_files import find_layout
from encore.datasets.imagenet import ImageNet
from encore.display import Quiet
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Feedback
from encore.keeper import Interrupted
from encore.run import Run
from encore.settings import (
    PlanSettings,
    RehearsalSettings,
    RunSettings,
    StreamSettings,
    TrainingSettings,
)

# Not in the order of the development kit's own numbers, which are 1 to 12 in the order below.
WNIDS = (
    "n02119789", "n02100735", "n02110185", "n02096294", "n02102040", "n02066245",
    "n02509815", "n02124075", "n02417914", "n02123394", "n02125311", "n02423022",
)  # fmt: skip
CLASSES = tuple(sorted(WNIDS))
NUM_TRAIN, NUM_TEST = 3000, 120


def colour_of(number: int) -> tuple[int, int, int]:
    """Return a colour that no other of the numbers below 8,000 has, with steps that JPEG leaves apart."""
    return 13 * (number % 20), 13 * (number // 20 % 20), 13 * (number // 400)


def jpeg(number: int, width: int = 40, height: int = 30, **options: object) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), colour_of(number)).save(data, "JPEG", quality=95, **options)
    return data.getvalue()


class Official(NamedTuple):
    """A small ImageNet as its archives unpack, and what it shows."""

    folder: Path
    train: list[str]  # paths in the order of classes, then of names
    val_wnids: list[str]  # what ILSVRC2012_val_00000001.JPEG and those after it show


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Official:
    """Write `train/<wnid>/<wnid>_<n>.JPEG`, `val/ILSVRC2012_val_<n>.JPEG` and the development kit."""
    folder = tmp_path_factory.mktemp("imagenet")
    train, per_class = [], NUM_TRAIN // len(WNIDS)
    for label, wnid in enumerate(CLASSES):
        place = folder / "train" / wnid
        place.mkdir(parents=True)
        # The numbers in names have no leading zeros: 10 comes before 9.
        names = sorted(f"{wnid}_{number}.JPEG" for number in range(9, 9 + per_class))
        for number, name in enumerate(names):
            size = (90, 700) if number == 3 else (40, 30) if number % 2 else (30, 40)
            (place / name).write_bytes(jpeg(label * per_class + number, *size))
            train.append(f"train/{wnid}/{name}")
    val_wnids = [WNIDS[5 * number % len(WNIDS)] for number in range(NUM_TEST)]
    (folder / "val").mkdir()
    for number in range(NUM_TEST):
        (folder / "val" / f"ILSVRC2012_val_{number + 1:08d}.JPEG").write_bytes(jpeg(NUM_TRAIN + number))
    write_kit(folder / "ILSVRC2012_devkit_t12" / "data", val_wnids)
    return Official(folder, train, val_wnids)


def write_kit(folder: Path, val_wnids: list[str]) -> None:
    """Write `meta.mat` with its eight fields, also for groups of classes, and the ground truth."""
    savemat = pytest.importorskip("scipy.io").savemat
    folder.mkdir(parents=True)
    names = (
        "ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height",
        "num_train_images",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = [
        (number, wnid, f"dog {wnid}", "a dog", 0, [], 0, 250) for number, wnid in enumerate(WNIDS, 1)
    ]
    rows += [(len(WNIDS) + 1, "n02084071", "dog, domestic dog", "a group", 3, [1, 2, 3], 1, 0)]
    synsets = np.zeros((len(rows), 1), dtype=[(name, object) for name in names])
    for place, row in enumerate(rows):
        synsets[place, 0] = row
    savemat(folder / "meta.mat", {"synsets": synsets})
    numbers = [WNIDS.index(wnid) + 1 for wnid in val_wnids]
    truth = "".join(f"{number}\n" for number in numbers)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(truth)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let ImageNet have so few classes and pictures, in smaller squares, and lie nowhere else."""
    for name, value in SMALL.items():
        monkeypatch.setattr(ImageNet, name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ENCORE_DATA", raising=False)


SMALL = {
    "num_classes": 12,
    "num_train": NUM_TRAIN,
    "num_test": NUM_TEST,
    "side": 32,
    "crop": 28,
    "num_tasks": 6,
}


def linked(official: Official, folder: Path) -> Path:
    """Return a copy of the pictures that may be altered without altering the others': names, not contents."""
    shutil.copytree(official.folder, folder, copy_function=lambda one, other: Path(other).hardlink_to(one))
    return folder


def alter(path: Path, data: bytes) -> None:
    path.unlink()  # as it may be a link to another's
    path.write_bytes(data)


def sort_into_folders(folder: Path, val_wnids: list[str]) -> None:
    for number, wnid in enumerate(val_wnids, start=1):
        picture = folder / "val" / f"ILSVRC2012_val_{number:08d}.JPEG"
        (folder / "val" / wnid).mkdir(exist_ok=True)
        picture.rename(folder / "val" / wnid / picture.name)
    shutil.rmtree(folder / "ILSVRC2012_devkit_t12")


def as_kaggle_has_it(folder: Path, val_wnids: list[str]) -> None:
    (folder / "ILSVRC" / "Data").mkdir(parents=True)
    inner = folder / "ILSVRC" / "Data" / "CLS-LOC"
    inner.mkdir()
    for part in ("train", "val"):
        (folder / part).rename(inner / part)
    shutil.rmtree(folder / "ILSVRC2012_devkit_t12")
    order = [7 * number % NUM_TEST for number in range(NUM_TEST)]  # Kaggle's list is in no order
    with (folder / "LOC_val_solution.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ImageId", "PredictionString"])
        for number in order:
            wnid = val_wnids[number]
            boxes = f"{wnid} 85 1 499 272 " if number % 2 else f"{wnid} 1 1 5 5 {wnid} 2 2 9 9 "
            writer.writerow([f"ILSVRC2012_val_{number + 1:08d}", boxes])


def with_a_list(folder: Path, val_wnids: list[str]) -> None:
    shutil.rmtree(folder / "ILSVRC2012_devkit_t12")
    text = "\n".join(val_wnids)
    (folder / "val" / "imagenet_2012_validation_synset_labels.txt").write_text(text)


def with_a_loose_kit(folder: Path, val_wnids: list[str]) -> None:
    for path in list((folder / "ILSVRC2012_devkit_t12" / "data").iterdir()):
        path.rename(folder / path.name)


TOLD_BY = {
    "official": "ILSVRC2012_validation_ground_truth.txt",
    "folders": "folders",
    "kaggle": "LOC_val_solution.csv",
    "list": "imagenet_2012_validation_synset_labels.txt",
    "loose kit": "ILSVRC2012_validation_ground_truth.txt",
}
LAYOUTS = {
    "official": lambda folder, val_wnids: None,
    "folders": sort_into_folders,
    "kaggle": as_kaggle_has_it,
    "list": with_a_list,
    "loose kit": with_a_loose_kit,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_the_same_data_set(official: Official, tmp_path: Path, layout: str) -> None:
    folder = linked(official, tmp_path / "imagenet")
    LAYOUTS[layout](folder, official.val_wnids)
    pool = ImageNet().load(folder if layout == "kaggle" else tmp_path)  # itself, or where its subfolder is
    assert pool.class_names == CLASSES
    assert pool.crop == 28
    assert len(pool.images) == NUM_TRAIN + NUM_TEST
    assert pool.images.shape == (3, 32, 32)
    assert pool.is_test is not None
    assert np.array_equal(pool.is_test, np.arange(NUM_TRAIN + NUM_TEST) >= NUM_TRAIN)
    assert np.array_equal(pool.labels[:NUM_TRAIN], np.repeat(np.arange(12), 250))
    assert pool.labels[NUM_TRAIN:].tolist() == [CLASSES.index(wnid) for wnid in official.val_wnids]
    rows = np.array([0, 1, 249, 250, 1777, 2999, 3000, 3001, 3119])
    for row, pixels in zip(rows.tolist(), pool.images.read(rows), strict=True):
        # Colours stand 13 apart, and JPEG changes a single one by three at most: it is this picture.
        assert np.abs(pixels.astype(int) - np.reshape(colour_of(row), (3, 1, 1))).max() <= 3
    assert np.bincount(pool.labels[pool.is_test]).tolist() == [10] * 12
    train, val = ImageNet().check_files(folder)
    assert (train.problem, val.problem) == ("", "")
    assert train.verdict == "3,000 photographs, their classes told by folders"
    assert val.verdict == f"120 photographs, their classes told by {TOLD_BY[layout]}"


def test_it_is_found_by_its_name_and_in_the_environment(
    official: Official, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.find("benchmark", "imagenet") is ImageNet
    monkeypatch.setenv("ENCORE_DATA", str(official.folder))
    assert ImageNet().find(None) == official.folder
    files = ImageNet().locate(None).files
    assert official.folder / "train" / CLASSES[0] in files
    assert (
        official.folder / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt" in files
    )
    assert all(path.exists() for path in files)


def test_seeds_decide_the_stream_which_passes_once(official: Official) -> None:
    check_seeds(ImageNet(), official.folder)


def test_tasks_are_the_seed_s(official: Official) -> None:
    pool = ImageNet().load(official.folder)
    tasks = ImageNet().arrange(pool, 5, None).tasks
    order = np.random.RandomState(5).permutation(12).tolist()
    assert [label for task in tasks for label in task] == order
    assert [len(task) for task in tasks] == [2] * 6


def remove_class(folder: Path) -> None:
    shutil.rmtree(folder / "train" / CLASSES[3])


def remove_picture(folder: Path) -> None:
    next((folder / "train" / CLASSES[3]).iterdir()).unlink()


def rename_val_picture(folder: Path) -> None:
    (folder / "val" / "ILSVRC2012_val_00000007.JPEG").rename(folder / "val" / "seven.JPEG")


def mix_val(folder: Path) -> None:
    (folder / "val" / CLASSES[0]).mkdir()
    (folder / "val" / "ILSVRC2012_val_00000007.JPEG").rename(folder / "val" / CLASSES[0] / "7.JPEG")


KIT = "ILSVRC2012_devkit_t12/data"
TRUTH, META = f"{KIT}/ILSVRC2012_validation_ground_truth.txt", f"{KIT}/meta.mat"


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (remove_class, "train holds folders of 11 classes, and ImageNet-1k has 12: register with"),
        (remove_picture, "train holds 2,999 photographs of 12 classes, and ImageNet-1k has 3,000 of 12"),
        (lambda folder: shutil.rmtree(folder / "train"), "train is missing: register with image-net.org"),
        (lambda folder: shutil.rmtree(folder / "val"), "val is missing: register with image-net.org"),
        (rename_val_picture, "that it shows nothing"),
        (mix_val, "val holds folders of classes, and ILSVRC2012_val_00000001.JPEG beside them"),
        (lambda folder: shutil.rmtree(folder / KIT), "nothing says what the pictures in "),
        (lambda folder: (folder / META).unlink(), "meta.mat is missing: it says which class"),
        (lambda folder: alter(folder / META, b"MATLAB 5.0" + b"\0" * 300), "meta.mat is damaged or not the"),
        (lambda folder: alter(folder / META, b"\x80\x04cos\nsystem\n"), "meta.mat is damaged or not the"),
        (lambda folder: alter(folder / TRUTH, b"1\n2\n"), "00000003.JPEG that it shows nothing"),
        (lambda folder: alter(folder / TRUTH, b"1\n-2\n"), "line 2 must hold the number of a class"),
        (lambda folder: alter(folder / TRUTH, b"1\n99\n"), "line 2 must hold the number of a class"),
        (lambda folder: alter(folder / TRUTH, b"13\n" * 120), "shows 'n02084071', which has no folder"),
        (lambda folder: alter(folder / TRUTH, b"\xff\xfe1\n"), "is not text: get it again"),
        (
            lambda folder: (folder / "LOC_val_solution.csv").write_text(
                "ImageId,PredictionString\n../../x,n1\n"
            ),
            "LOC_val_solution.csv, line 2 must name a picture and its class, got '../../x,n1'",
        ),
        (
            lambda folder: (folder / "val" / "synset_labels.txt").mkdir(),
            None,  # a folder is no list: the kit's is read
        ),
    ],
)
def test_what_is_incomplete_or_wrong_is_said_in_a_sentence(
    official: Official, tmp_path: Path, harm: Callable[[Path], object], sentence: str | None
) -> None:
    folder = linked(official, tmp_path / "imagenet")
    harm(folder)
    if sentence is None:
        assert [file.problem for file in ImageNet().check_files(folder)] == ["", ""]
        return
    with pytest.raises(EncoreError) as caught:
        ImageNet().load(folder)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert str(caught.value) in [file.problem for file in ImageNet().check_files(folder)]


def test_without_scipy_a_sentence_says_what_else_will_do(
    official: Official, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(EncoreError, match=r"needs scipy: pip install \"scipy>=1.11\", or sort"):
        ImageNet().load(official.folder)


def test_absent_and_other_folders_are_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "val").mkdir()
    assert find_layout(tmp_path) is None
    with pytest.raises(EncoreError, match=r"imagenet was not found in .*: register with image-net.org"):
        ImageNet().load(tmp_path)


# Kinds of picture that the real one holds, too, and what Pillow makes of each by itself.
GOOD: dict[str, Callable[[], bytes]] = {
    "cmyk": lambda: picture_bytes(Image.new("CMYK", (40, 30), (10, 200, 30, 40)), "JPEG"),
    "grey": lambda: picture_bytes(noise(40, 30).convert("L"), "JPEG"),
    "png": lambda: picture_bytes(noise(40, 30), "PNG"),
    "turned": lambda: picture_bytes(noise(40, 30), "JPEG", exif=turned_by_180()),
    "deep": lambda: picture_bytes(
        Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50), "PNG"
    ),
    "large": lambda: picture_bytes(noise(60, 45), "JPEG"),
}
BROKEN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "truncated": lambda: jpeg(1)[:-200],
    "text": lambda: b"<html><title>404 Not Found</title></html>",
    "corrupt": lambda: picture_bytes(noise(40, 30), "PNG")[:60] + b"\0" * 400,
}


def picture_bytes(picture: Image.Image, file_format: str, **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, file_format, **options)
    return data.getvalue()


def noise(width: int, height: int) -> Image.Image:
    numbers = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(numbers).resize((width, height), Image.Resampling.BICUBIC)


def turned_by_180() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 3
    return exif


def by_pillow(data: bytes, kind: str) -> NDArray[np.uint8]:
    """Return a picture's middle square as 32x32, step by step."""
    picture: Image.Image = Image.open(io.BytesIO(data))
    if kind == "deep":
        picture = Image.fromarray((np.array(picture) // 256).astype(np.uint8))
    if kind == "turned":
        picture = picture.rotate(180)
    picture = picture.convert("RGB")
    left = (picture.width - picture.height) / 2
    square = (left, 0, left + picture.height, picture.height)
    return np.array(picture.resize((32, 32), Image.Resampling.BILINEAR, box=square)).transpose(2, 0, 1)


@pytest.fixture
def mixed(official: Official, tmp_path: Path) -> tuple[Path, dict[int, str], dict[int, str]]:
    """Return a copy in which some pictures are of other kinds and others broken, with their rows."""
    folder = linked(official, tmp_path / "mixed")
    good, broken = {}, {}
    for number, (kind, make) in enumerate(GOOD.items()):
        good[10 + 333 * number] = kind
        alter(folder / official.train[10 + 333 * number], make())
    for number, (kind, make) in enumerate(BROKEN.items()):
        broken[20 + 301 * number] = kind
        alter(folder / official.train[20 + 301 * number], make())
    alter(folder / "val" / "ILSVRC2012_val_00000050.JPEG", b"no picture")
    broken[NUM_TRAIN + 49] = "no picture"
    return folder, good, broken


Mixed = tuple[Path, dict[int, str], dict[int, str]]


def test_other_kinds_of_picture_are_what_pillow_makes_of_them(official: Official, mixed: Mixed) -> None:
    folder, good, _ = mixed
    images = ImageNet().load(folder).images
    for row, kind in good.items():
        expected = by_pillow((folder / official.train[row]).read_bytes(), kind)
        assert np.array_equal(images.read(np.array([row]))[0], expected), kind


@pytest.mark.parametrize("share", [0.25, 0.0])
def test_broken_pictures_are_left_out_and_listed(
    official: Official, mixed: Mixed, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_store, "LARGEST_SHARE", share)
    folder, _, broken = mixed
    store = ImageStore(ImageNet().load(folder), torch.device("cpu"), skip_broken=len(broken))
    rows = torch.arange(NUM_TRAIN + NUM_TEST)
    labels = torch.cat([batch.labels for batch in store.batches(rows, 100)])
    kept = np.setdiff1d(rows.numpy(), list(broken))
    assert np.array_equal(labels.numpy(), store.image_set.labels[kept])
    assert sorted(store.skipped) == sorted(broken)
    for row, reason in store.skipped.items():
        name = official.train[row] if row < NUM_TRAIN else "val/ILSVRC2012_val_00000050.JPEG"
        assert reason.startswith(str(folder / name))
    with pytest.raises(EncoreError, match="5 images are broken, and --skip-broken allows 4"):
        store = ImageStore(ImageNet().load(folder), torch.device("cpu"), skip_broken=4)
        list(store.batches(rows, 100))


RUN = ["run", "--benchmark", "imagenet", "--device", "cpu", "--threads", "1", "--quiet"]
RUN += ["--model.width", "2", "--memory-size", "40"]


def test_run_goes_on_past_broken_pictures_and_refuses_more(
    mixed: Mixed, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_store, "LARGEST_SHARE", 0)
    folder, _, broken = mixed
    out = tmp_path / "out"
    command = [*RUN, "--data-dir", str(folder), "--batch-size", "100", "--out", str(out), "--skip-broken"]
    assert main([*command, str(len(broken))]) == 0
    record = json.loads((out / "seed-0" / "record.json").read_text())
    assert len(record["images_skipped"]) == len(broken)
    assert all(str(folder) in reason for reason in record["images_skipped"])
    assert record["images_seen"] == NUM_TRAIN - len(BROKEN)
    assert not record["diverged"]
    config = record["config"]
    assert config["image_shape"] == [3, 28, 28]
    assert config["parts"]["model"] == {"name": "resnet18", "options": {"width": 2}}
    assert (config["rehearsal"]["memory_batch_size"], config["training"]["weight_decay"]) == (32, 0.001)
    shutil.rmtree(out)
    assert main([*command, str(len(broken) - 1)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "5 images are broken, and --skip-broken allows 4: " in message


class Stopper(Quiet):
    """Asks the run to stop once so many batches are learnt, as a person would."""

    def __init__(self, task: int, batch: int) -> None:
        self.place = task, batch

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        if (run.task, run.batch) == self.place:
            signal.raise_signal(signal.SIGINT)


def test_resumed_run_cuts_the_same_squares_and_remembers_what_was_broken(
    mixed: Mixed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_store, "LARGEST_SHARE", 0)
    folder, _, broken = mixed
    settings = RunSettings(
        StreamSettings(
            "imagenet", str(folder), class_order=("sorted",), first_tasks=2, batch_size=100, skip_broken=5
        ),
        RehearsalSettings(memory_size=40),
        PlanSettings(num_ops=1),
        TrainingSettings(model="resnet18", device="cpu", threads=1),
        {"model.width": 2},
    )
    launch.start(settings, [0], tmp_path / "left alone", Quiet())
    # The first two broken ones are of the first task: whoever resumes does not meet them again.
    with pytest.raises(Interrupted):
        launch.start(settings, [0], tmp_path / "stopped", Stopper(task=1, batch=2))
    launch.resume(tmp_path / "stopped", Quiet())
    runs = [tmp_path / name / "seed-0" for name in ("left alone", "stopped")]
    learners = [(run / "learner.encore").read_bytes() for run in runs]
    assert learners[0] == learners[1]
    records = [json.loads((run / "record.json").read_text()) for run in runs]
    assert records[0]["accuracy_matrix"] == records[1]["accuracy_matrix"]
    assert len(records[1]["processes"]) == 2
    assert records[0]["images_skipped"] == records[1]["images_skipped"]
    assert len(records[1]["images_skipped"]) == len(broken)


def test_pictures_that_vanish_while_they_are_read(official: Official, tmp_path: Path) -> None:
    folder = linked(official, tmp_path / "imagenet")
    images = ImageNet().load(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_store, "LARGEST_SHARE", 0)
        store = ImageStore(images, torch.device("cpu"), skip_broken=250)
    batches = store.batches(torch.arange(1000), 10)
    next(batches)
    shutil.rmtree(folder / "train" / CLASSES[2])  # rows 500 to 749, far behind what is read ahead
    sizes = [len(batch.labels) for batch in batches]
    assert sizes == [10] * 49 + [0] * 25 + [10] * 25
    assert store.skipped[500] == f"{folder / official.train[500]} has vanished"


def test_pictures_do_not_gather_in_memory(official: Official, tmp_path: Path) -> None:
    """A run, with less than half of the memory that the pictures of its only task take decoded."""
    decoded, room = (1500 + 60) * 3 * 448 * 448, 440 * 2**20
    assert decoded > 2 * room
    program = f"""
import resource, sys
sys.modules["triton"] = None  # which torch loads where it is installed, and which takes half of the room
from pathlib import Path
import encore.launch, encore.results, encore.display
from encore.cli import main
from encore.data import reading
from encore.datasets.imagenet import ImageNet
for name, value in {SMALL | {"side": 448}!r}.items():
    setattr(ImageNet, name, value)
reading.num_readers = lambda: 2  # each takes addresses for itself
reading.MOST_AHEAD = 2**26
pages = int(Path("/proc/self/statm").read_text().split()[0])
allowed = pages * resource.getpagesize() + {room}
resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
sys.exit(main(sys.argv[1:]))
"""
    command = [*RUN, "--data-dir", str(official.folder), "--out", str(tmp_path / "out")]
    command += ["--tasks", "2", "--first-tasks", "1"]
    finished = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True)
    assert finished.stderr == ""
    assert finished.returncode == 0
    record = json.loads((tmp_path / "out" / "seed-0" / "record.json").read_text())
    assert record["images_seen"] == 1500 // 32 * 32
    assert record["peak_memory_bytes"] < decoded
