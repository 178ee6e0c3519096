from __future__ import annotations

import io
import json
import pickle
import struct
import threading
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.datasets.seeds import check_seeds

from encore import registry
from encore.cli import main
from encore.data import core50_lists, core50_pixels
from encore.data.core50_lists import Numbers
from encore.data.image_set import Images, ImageSet
from encore.data.verified import md5_of
from encore.datasets import core50
from encore.datasets.core50 import Core50
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.layout import make_stream
from encore.settings import RunSettings, StreamSettings

NUM_IMAGES = 550  # one of each object in each session; the published data have about 300
SIZES = [10, 5, 5, 5, 5, 5, 5, 5, 5]
TESTED = (3, 7, 10)
PLACES = [(session, thing) for session in range(1, 12) for thing in range(1, 51)]
PATHS = [f"s{session}/o{thing}/C_{session:02d}_{thing:02d}_000.png" for session, thing in PLACES]
TINY = ["--model.width", "2", "--threads", "1", "--device", "cpu"]
MARK = (1, 2, 3)  # the colour of the pixel at x = 5, y = 9
RNG = np.random.default_rng(0)
ORDERS = [RNG.permutation(50).tolist() for _ in range(10)]  # of the objects, in each run


class SmallCore50(Core50):
    numbers = Numbers(images=NUM_IMAGES)


def colour(row: int) -> tuple[int, int, int]:
    session, thing = PLACES[row]
    return 5 * thing, 20 * session, 77


def pixels_of(row: int) -> NDArray[np.uint8]:
    """An image of the fixture [3, 128, 128], written down without any reader of ours."""
    image = np.empty((3, 128, 128), dtype=np.uint8)
    image[:] = np.array(colour(row))[:, None, None]
    image[:, 9, 5] = MARK
    return image


def png(row: int) -> bytes:
    picture = Image.new("RGB", (128, 128), colour(row))
    picture.putpixel((5, 9), MARK)
    written = io.BytesIO()
    picture.save(written, "PNG", compress_level=1)
    return written.getvalue()


PICTURES = [png(row) for row in range(NUM_IMAGES)]


def make_lists() -> dict[str, Any]:
    """The three lists as the makers have them: in each run objects are numbered in the order they come."""
    tested = [row for row, (session, _) in enumerate(PLACES) if session in TESTED]
    batches, labels = [], []
    for order in ORDERS:
        number_of = {thing: number for number, thing in enumerate(order)}
        ends = np.cumsum(SIZES).tolist()
        taught = [
            [
                row
                for row, (session, thing) in enumerate(PLACES)
                if thing - 1 in group and session not in TESTED
            ]
            for group in (set(order[end - size : end]) for end, size in zip(ends, SIZES, strict=True))
        ]
        rows = [*(np.random.default_rng(1).permutation(batch).tolist() for batch in taught), list(tested)]
        batches.append(rows)
        labels.append([[number_of[PLACES[row][1] - 1] for row in batch] for batch in rows])
    return {
        "paths.pkl": list(PATHS),
        "LUP.pkl": {"ni": [[[0], [1]]] * 10, "nc": batches},
        "labels.pkl": {"ni": [[[0], [0]]] * 10, "nc": labels},
    }


def write_lists(folder: Path, lists: dict[str, Any], protocol: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in lists.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))
    return folder


def write_tree(folder: Path) -> None:
    for name, picture in zip(PATHS, PICTURES, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture)


def write_zip(path: Path, top: str = "core50_128x128/", pictures: dict[str, bytes] | None = None) -> None:
    entries = {**dict(zip(PATHS, PICTURES, strict=True)), **(pictures or {})}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("core50_128x128")
        for name, picture in entries.items():
            archive.writestr(f"{top}{name}", picture)


def array() -> NDArray[np.uint8]:
    return np.stack([pixels_of(row) for row in range(NUM_IMAGES)]).transpose(0, 2, 3, 1).copy()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each way in which the pixels may lie there."""
    found = {}
    for name in ("tree", "unpacked", "zip", "flat_zip", "stored", "deflated", "bare"):
        found[name] = write_lists(tmp_path_factory.mktemp(name) / "core50", make_lists())
    write_tree(found["tree"])
    (found["unpacked"] / "core50_128x128").symlink_to(found["tree"], target_is_directory=True)
    write_zip(found["zip"] / "core50_128x128.zip")
    write_zip(found["flat_zip"] / "core50_128x128.zip", top="")
    np.savez(found["stored"] / "core50_imgs.npz", x=array())
    np.savez_compressed(found["deflated"] / "core50_imgs.npz", x=array())
    array().tofile(found["bare"] / "core50_imgs.bin")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_lists(tmp_path / "data", make_lists())


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def refusal(folder: Path, run: int = 0) -> str:
    with pytest.raises(EncoreError) as caught:
        SmallCore50(run).load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def problems(folder: Path) -> list[str]:
    return [check.problem for check in SmallCore50().check_files(folder) if check.problem]


# What is read.


def test_it_is_found_by_its_name_and_counts_as_published() -> None:
    assert registry.find("benchmark", "core50") is Core50
    assert Core50.numbers == Numbers(164_866, 10, tuple(SIZES), TESTED)
    assert len(Core50.class_names) == len(set(Core50.class_names)) == 50
    assert Core50.class_names[0] == "plug_adapter1"
    assert Core50.class_names[25] == "glass1"
    assert Core50.class_names[49] == "remote_control5"


@pytest.mark.parametrize("way", ["tree", "unpacked", "zip", "flat_zip", "stored", "deflated", "bare"])
def test_the_same_images_come_from_wherever_they_lie(way: str, sources: dict[str, Path]) -> None:
    found = SmallCore50().load(sources[way])
    assert found.images.shape == (3, 128, 128)
    assert len(found.images) == NUM_IMAGES
    rows = np.array([0, 1, 49, 50, 333, 549])
    assert np.array_equal(found.images.read(rows), [pixels_of(row) for row in rows.tolist()])
    assert found.labels.tolist() == [thing - 1 for _, thing in PLACES]
    assert found.is_test is not None
    assert found.is_test.tolist() == [session in TESTED for session, _ in PLACES]
    assert (found.is_test.sum(), (~found.is_test).sum()) == (150, 400)


@pytest.mark.parametrize("run", range(10))
def test_a_run_has_its_own_tasks_and_the_same_classes(run: int, sources: dict[str, Path]) -> None:
    found = SmallCore50(run).load(sources["zip"])
    order = [thing for task in found.official_tasks or () for thing in task]
    assert order == ORDERS[run], "the i-th class is the one to which the run gives the number i"
    assert [len(task) for task in found.official_tasks or ()] == SIZES
    assert found.labels.tolist() == [thing - 1 for _, thing in PLACES]


@pytest.mark.parametrize("run", [-1, 10, 2.5, "1"])
def test_there_are_ten_runs(run: Any) -> None:
    with pytest.raises(EncoreError, match=r"benchmark.run must be a whole number from 0 to 9"):
        Core50(run)


def stream_of(images: ImageSet, seed: int, settings: StreamSettings) -> Any:
    store = ImageStore(images, torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    return make_stream(RunSettings(settings), seed, SmallCore50(), store, generator)


def test_a_stream_teaches_every_training_image_once_in_the_official_order(sources: dict[str, Path]) -> None:
    stream = stream_of(SmallCore50().load(sources["zip"]), 5, StreamSettings())
    assert [task.classes for task in stream.tasks] == [
        tuple(ORDERS[0][end - size : end]) for end, size in zip(np.cumsum(SIZES), SIZES, strict=True)
    ]
    assert [len(task.train) for task in stream.tasks] == [8 * size for size in SIZES]
    assert [len(task.test) for task in stream.tasks] == [3 * size for size in SIZES]
    taught = torch.cat([task.train for task in stream.tasks]).tolist()
    assert sorted(taught) == [row for row, (session, _) in enumerate(PLACES) if session not in TESTED]


def test_seeds_decide_the_stream_which_passes_once(sources: dict[str, Path]) -> None:
    check_seeds(SmallCore50(), sources["bare"])


def test_a_seed_may_order_the_classes(sources: dict[str, Path]) -> None:
    stream = stream_of(SmallCore50().load(sources["zip"]), 5, StreamSettings(class_order=("seed",)))
    assert [len(task.classes) for task in stream.tasks] == SIZES
    # NumPy's legacy generator, seeded with 5, begins the permutation of 50 so.
    expected = np.random.RandomState(5).permutation(50).tolist()
    assert [label for task in stream.tasks for label in task.classes] == expected


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_lists_of_other_pythons_are_read(protocol: int, sources: dict[str, Path], tmp_path: Path) -> None:
    lists = make_lists()
    lists["LUP.pkl"] = {"nc": dict(enumerate(lists["LUP.pkl"]["nc"]))}
    if protocol > 2:  # as bytes, which Python 2's texts come as
        lists["paths.pkl"] = [name.encode() for name in PATHS]
        lists["labels.pkl"] = {b"nc": tuple(lists["labels.pkl"]["nc"])}
    folder = write_lists(tmp_path / "lists", lists, protocol)
    (folder / "core50_128x128.zip").symlink_to(sources["zip"] / "core50_128x128.zip")
    found = SmallCore50(4).load(folder)
    assert [thing for task in found.official_tasks or () for thing in task] == ORDERS[4]


def test_images_that_no_batch_names_are_left_out(sources: dict[str, Path], tmp_path: Path) -> None:
    lists = make_lists()
    for name in ("LUP.pkl", "labels.pkl"):
        lists[name]["nc"][0][0] = lists[name]["nc"][0][0][5:]
    for way in ("zip", "deflated", "bare", "tree"):
        folder = write_lists(tmp_path / way, lists)
        for source in sources[way].iterdir():
            if source.suffix != ".pkl":
                (folder / source.name).symlink_to(source)
        found = SmallCore50().load(folder)
        assert len(found.images) == len(found.labels) == NUM_IMAGES - 5
        assert np.array_equal(found.images.read(np.array([544])), [pixels_of(549)])


def test_what_is_whole_is_taken_and_what_needs_no_decoding_first(
    sources: dict[str, Path], folder: Path
) -> None:
    (folder / "core50_imgs.npz").symlink_to(sources["deflated"] / "core50_imgs.npz")
    assert isinstance(SmallCore50().load(folder).images, core50_pixels.DeflatedPixels)
    (folder / "core50_128x128.zip").symlink_to(sources["zip"] / "core50_128x128.zip")
    assert type(SmallCore50().load(folder).images).__name__ == "ZippedPictures"
    (folder / "s1/o1").mkdir(parents=True)  # as while something is being unpacked
    assert type(SmallCore50().load(folder).images).__name__ == "ZippedPictures"
    (folder / "core50_imgs.bin").symlink_to(sources["bare"] / "core50_imgs.bin")
    assert isinstance(SmallCore50().load(folder).images, core50_pixels.PixelFile)
    (folder / "core50_imgs.bin").unlink()
    (folder / "core50_imgs.bin").write_bytes(bytes(1000))  # as while something is being written
    assert type(SmallCore50().load(folder).images).__name__ == "ZippedPictures"
    assert [(check.name, check.verdict) for check in SmallCore50().check_files(folder)][4:] == [
        (
            "core50_imgs.bin",
            f"not used: {folder}/core50_imgs.bin has 1,000 bytes, and 550 images have 27,033,600",
        ),
        ("core50_imgs.npz", "550 images, which can only be read in their order"),
        (folder.name, f"not used: {folder} lacks 550 of 550 pictures: {', '.join(PATHS[:3])} and 547 more"),
        ("core50_128x128.zip", "550 images"),
    ]


def test_it_is_found_in_a_subfolder_of_its_name_and_all_its_files_are_named(
    sources: dict[str, Path],
) -> None:
    located = SmallCore50().locate(sources["tree"].parent)
    assert located.path == sources["tree"]
    assert [path.name for path in located.files[:3]] == ["paths.pkl", "LUP.pkl", "labels.pkl"]
    assert [str(path.relative_to(sources["tree"])) for path in located.files[3:]] == PATHS
    assert SmallCore50().locate(sources["zip"]).files[3:] == (sources["zip"] / "core50_128x128.zip",)


# Lists that are wrong.


def renamed(row: int, name: Any) -> Callable[[dict[str, Any]], None]:
    return lambda lists: lists["paths.pkl"].__setitem__(row, name)


def placed(file: str, batch: int, place: int, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda lists: lists[file]["nc"][0][batch].__setitem__(place, value)


def swap_batches(lists: dict[str, Any]) -> None:
    """Teach an image of a session for testing, and test on one of the same object instead."""
    labels, batches = lists["labels.pkl"]["nc"][0], lists["LUP.pkl"]["nc"][0]
    place = labels[-1].index(labels[1][0])
    batches[1][0], batches[-1][place] = batches[-1][place], batches[1][0]


def move_object(lists: dict[str, Any]) -> None:
    """Teach one image of the first task in the second."""
    for name in ("LUP.pkl", "labels.pkl"):
        lists[name]["nc"][0][1].append(lists[name]["nc"][0][0].pop())


def examine_more(lists: dict[str, Any]) -> None:
    """Test on an image of a session for training, instead of teaching it."""
    for name in ("LUP.pkl", "labels.pkl"):
        lists[name]["nc"][0][-1].append(lists[name]["nc"][0][1].pop())


def teach_again(lists: dict[str, Any]) -> None:
    """Teach an object of the first task in the second as well, and one of the second's not at all."""
    labels, batches = lists["labels.pkl"]["nc"][0], lists["LUP.pkl"]["nc"][0]
    again, dropped = labels[0][0], labels[1][0]
    kept = [place for place, label in enumerate(labels[1]) if label != dropped]
    moved = labels[0].index(again)
    labels[1] = [labels[1][place] for place in kept] + [labels[0].pop(moved)]
    batches[1] = [batches[1][place] for place in kept] + [batches[0].pop(moved)]


def number_from_1(lists: dict[str, Any]) -> None:
    lists["labels.pkl"]["nc"][0] = [[label + 1 for label in batch] for batch in lists["labels.pkl"]["nc"][0]]


def repeat(place: tuple[int, int]) -> Callable[[dict[str, Any]], None]:
    """Name one training image in another batch again."""

    def change(lists: dict[str, Any]) -> None:
        for name in ("LUP.pkl", "labels.pkl"):
            batches = lists[name]["nc"][0]
            batches[place[1]].append(batches[place[0]][0])

    return change


WRONG: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda lists: lists["paths.pkl"].pop(), r"paths.pkl names 549 images, and CORe50 has 550"),
    (renamed(3, "../../etc/passwd"), r"paths.pkl must hold names such as .*, got '../../etc/passwd'"),
    (renamed(3, "/etc/s1/o4/C_01_04_000.png"), "paths.pkl must hold names such as"),
    (renamed(3, "s1/o4/C_01_05_000.png"), "paths.pkl must hold names such as"),
    (renamed(3, "s12/o4/C_12_04_000.png"), "paths.pkl must hold names such as"),
    (renamed(3, "s1/o51/C_01_51_000.png"), "paths.pkl must hold names such as"),
    (renamed(3, "s1/o4/C_01_04_000.png\n"), "paths.pkl must hold names such as"),
    (renamed(3, PATHS[2]), r"paths.pkl names s1/o3/C_01_03_000.png more than once"),
    (renamed(3, None), "paths.pkl must hold names such as"),
    (lambda lists: lists.update({"paths.pkl": {"a": 1}}), "paths.pkl must hold a list of names"),
    (lambda lists: lists.update({"paths.pkl": []}), "paths.pkl must hold a list of names"),
    (lambda lists: lists["LUP.pkl"].pop("nc"), r"LUP.pkl must hold a dictionary with the key 'nc'"),
    (lambda lists: lists.update({"labels.pkl": [1]}), "labels.pkl must hold a dictionary with the key 'nc'"),
    (
        lambda lists: lists["LUP.pkl"]["nc"].pop(),
        "must hold 10 runs of 10 batches .* got 9 runs of 10 batches",
    ),
    (lambda lists: lists["LUP.pkl"]["nc"][4].pop(), "must hold 10 runs .* got 10 runs of 9 or 10 batches"),
    (lambda lists: lists["LUP.pkl"].update({"nc": 7}), "must hold 10 runs .* got 0 runs of no batches"),
    (placed("LUP.pkl", 2, 0, 1.5), "LUP.pkl, run 0, batch 2 must be a list of whole numbers"),
    (placed("LUP.pkl", 2, 0, [1]), "LUP.pkl, run 0, batch 2 must be a list of whole numbers"),
    (placed("LUP.pkl", 2, 0, 1 << 70), "LUP.pkl, run 0, batch 2 must be a list of whole numbers"),
    (lambda lists: lists["LUP.pkl"]["nc"][0].__setitem__(2, []), "batch 2 must be a list of whole numbers"),
    (placed("LUP.pkl", 2, 0, 550), "run 0 of nc in .*LUP.pkl names image 550, and paths.pkl lists 0 to 549"),
    (placed("LUP.pkl", 2, 0, -1), "LUP.pkl names image -1, and paths.pkl lists 0 to 549"),
    (lambda lists: lists["labels.pkl"]["nc"][0][2].pop(), "labels 39 images of batch 2 .* LUP.pkl names 40"),
    (placed("labels.pkl", 2, 0, 3), "must number the 50 objects of run 0 from 0 to 49, each with one number"),
    (placed("labels.pkl", 2, 0, 50), "must number the 50 objects of run 0 from 0 to 49, .* the number 50"),
    (placed("labels.pkl", 2, 0, -1), "must number the 50 objects of run 0 from 0 to 49, .* the number -1"),
    (repeat((0, -1)), r"LUP.pkl names s\d+/o\d+/\S+ twice, to train on and to test on"),
    (repeat((0, 0)), r"LUP.pkl names s\d+/o\d+/\S+ twice, to train on and to train on"),
    (repeat((-1, -1)), r"LUP.pkl names s\d+/o\d+/\S+ twice, to test on and to test on"),
    (swap_batches, r"must test on sessions 3, 7, 10 and train on the others, and does not with s\d+/o\d+/C_"),
    (examine_more, r"must test on sessions 3, 7, 10 and train on the others, and does not with s\d+/o\d+/C_"),
    (teach_again, "must bring 10, 5, .* none of them twice, and brings 10, 5, .* together 49 of 50"),
    (number_from_1, "must number the 50 objects of run 0 from 0 to 49, .* gives o\\d+ the number 50"),
    (move_object, "must bring 10, 5, .* objects, none of them twice, and brings 10, 6, 5"),
]


@pytest.mark.parametrize(("change", "reason"), WRONG)
def test_lists_that_contradict_the_protocol_are_refused(
    change: Callable[[dict[str, Any]], Any], reason: str, tmp_path: Path
) -> None:
    lists = make_lists()
    change(lists)
    folder = write_lists(tmp_path / "lists", lists)
    sentence = refusal(folder)
    with pytest.raises(EncoreError, match=reason):
        raise EncoreError(sentence)
    assert sentence in problems(folder)


def test_all_classes_numbered_otherwise_but_one_to_one_are_fine(
    sources: dict[str, Path], tmp_path: Path
) -> None:
    lists = make_lists()
    lists["labels.pkl"]["nc"] = [
        [[49 - label for label in batch] for batch in run] for run in lists["labels.pkl"]["nc"]
    ]
    folder = write_lists(tmp_path / "lists", lists)
    (folder / "core50_imgs.bin").symlink_to(sources["bare"] / "core50_imgs.bin")
    found = SmallCore50().load(folder)
    assert found.labels.tolist() == [thing - 1 for _, thing in PLACES]
    assert (found.official_tasks or ())[0] == tuple(reversed(ORDERS[0][:10]))


def test_a_wrong_run_is_found_by_the_check_and_stops_no_other_run(tmp_path: Path, sources: Any) -> None:
    lists = make_lists()
    lists["LUP.pkl"]["nc"][7][3][0] = 9999
    folder = write_lists(tmp_path / "lists", lists)
    (folder / "core50_imgs.bin").symlink_to(sources["bare"] / "core50_imgs.bin")
    assert len(SmallCore50(6).load(folder).labels) == NUM_IMAGES
    assert refusal(folder, run=7) in problems(folder)


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "it_ran"
    code = f"open({str(marker)!r}, 'w').close()".encode()
    (folder / "core50_imgs.bin").touch()
    hostile = b"\x80\x02cbuiltins\neval\nX" + struct.pack("<I", len(code)) + code + b"\x85R."
    for name in ("paths.pkl", "LUP.pkl", "labels.pkl"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(hostile)
        assert f"{folder / name} is refused: it asks for 'builtins.eval'" in refusal(folder)
        (folder / name).write_bytes(whole[:-100])
        assert refusal(folder) == f"{folder / name} is refused: it is damaged, or no pickle"
        (folder / name).unlink()
        assert refusal(folder) == f"{folder / name} is missing, and core50 needs it"
        (folder / name).mkdir()
        assert refusal(folder) == f"{folder / name} cannot be read (Is a directory)"
        (folder / name).rmdir()
        (folder / name).write_bytes(whole)
    assert not marker.exists()


def test_a_list_that_is_far_too_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core50_lists, "MOST_BYTES", 10)
    assert refusal(folder) == f"{folder}/paths.pkl is larger than any file of that name that was published"


# Pixels that are wrong.


def test_lists_without_pixels_say_what_is_missing(folder: Path) -> None:
    assert refusal(folder).startswith(f"{folder} holds CORe50's lists and no pixels: put core50_128x128.zip")
    assert [problem[:30] for problem in problems(folder)] == [f"there are no pixels in {folder}"[:30]]


def test_nothing_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"core50 was not found in {tmp_path} (the folder given)")
    (tmp_path / "labels.pkl").touch()  # which many data sets have
    assert refusal(tmp_path).startswith("core50 was not found in")


def test_missing_pictures_are_counted_and_the_first_named(folder: Path) -> None:
    write_tree(folder)
    (folder / PATHS[7]).unlink()
    for thing in range(1, 51):
        (folder / PATHS[thing + 99]).unlink()
        (folder / PATHS[thing + 99]).parent.rmdir()
    (folder / "s3").rmdir()
    sentence = f"{folder} lacks 51 of 550 pictures: {PATHS[7]}, {PATHS[100]}, {PATHS[101]} and 48 more"
    assert refusal(folder) == sentence
    assert problems(folder) == [sentence]


def test_a_broken_picture_can_be_left_out(folder: Path) -> None:
    write_tree(folder)
    (folder / PATHS[3]).write_bytes(PICTURES[3][:-30])
    (folder / PATHS[4]).write_bytes(b"no picture")
    (folder / PATHS[5]).unlink()
    images = SmallCore50().load
    with pytest.raises(EncoreError, match=rf"lacks 1 of 550 pictures: {PATHS[5]}"):
        images(folder)
    (folder / PATHS[5]).write_bytes(PICTURES[5])
    found = images(folder)
    (folder / PATHS[5]).unlink()  # it vanishes later
    with pytest.raises(EncoreError, match=rf"{PATHS[3]} cannot be decoded .*; .*{PATHS[4]} is not a picture"):
        found.images.read(np.arange(6))
    store = ImageStore(found, torch.device("cpu"), skip_broken=3)
    assert store.read(torch.arange(6)).labels.tolist() == [0, 1, 2]


def test_pictures_of_the_original_size_are_refused(folder: Path) -> None:
    write_tree(folder)
    Image.new("RGB", (350, 350)).save(folder / PATHS[0])
    (problem,) = problems(folder)
    assert "350x350 pixels, and 128x128 are expected" in problem


def change_zip(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def entry_at(content: bytearray, signature: bytes, name: str) -> int:
    """Where an entry's header begins: the one before its content, or the one in the directory at the end."""
    length = {b"PK\3\4": 30, b"PK\1\2": 46}[signature]
    return next(
        at
        for at in range(len(content))
        if content.startswith(signature, at) and content.startswith(name.encode(), at + length)
    )


NAME = f"core50_128x128/{PATHS[8]}"


def test_an_archive_with_a_name_that_leads_out_is_refused(folder: Path) -> None:
    for hostile in ("../../evil.png", "/evil.png", "C:/evil.png", "..\\evil.png"):
        write_zip(folder / "core50_128x128.zip", top="", pictures={hostile: b"x"})
        assert "core50_128x128.zip is refused: its entry" in refusal(folder)
        assert "leads out of it" in refusal(folder)


def test_an_archive_with_a_picture_twice_is_refused(folder: Path) -> None:
    write_zip(folder / "core50_128x128.zip", pictures={f"../core50_128x128/{PATHS[0]}": b""})
    assert "leads out of it" in refusal(folder)
    write_zip(folder / "core50_128x128.zip", top="", pictures={f"core50_128x128/{PATHS[8]}": b"other"})
    assert refusal(folder) == f"{folder}/core50_128x128.zip is refused: it holds {PATHS[8]} twice"


def test_an_archive_that_would_unpack_to_much_is_refused(folder: Path) -> None:
    write_zip(folder / "core50_128x128.zip", pictures={PATHS[8]: bytes((1 << 20) + 1)})
    assert f"{PATHS[8]} in it is too large for a small picture" in refusal(folder)


def test_an_entry_that_unpacks_to_more_than_it_says_is_broken(folder: Path) -> None:
    path = folder / "core50_128x128.zip"
    write_zip(path, pictures={PATHS[8]: bytes(900_000)})

    def lie(content: bytearray) -> None:
        at = entry_at(content, b"PK\1\2", NAME)
        content[at + 24 : at + 28] = struct.pack("<I", 5000)

    change_zip(path, lie)
    images = SmallCore50().load(folder).images
    tracemalloc.start()
    try:
        with pytest.raises(EncoreError, match=rf"{PATHS[8]} in {path} is damaged \(its checksum"):
            images.read(np.array([8]))
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("signature", "offset", "value", "reason"),
    [
        (b"PK\1\2", 8, b"\1\0", "is encrypted, or packed unusually"),
        (b"PK\1\2", 10, b"\x0e\0", "is encrypted, or packed unusually"),
    ],
)
def test_an_archive_packed_otherwise_is_refused(
    signature: bytes, offset: int, value: bytes, reason: str, folder: Path
) -> None:
    write_zip(folder / "core50_128x128.zip")

    def change(content: bytearray) -> None:
        at = entry_at(content, signature, NAME) + offset
        content[at : at + 2] = value

    change_zip(folder / "core50_128x128.zip", change)
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("signature", "offset", "value", "reason"),
    [
        (b"PK\3\4", 0, b"xxxx", "is not where the archive says"),
        (b"PK\1\2", 42, b"\xff\xff\xff\x0f", "is not where the archive says"),
        (b"PK\1\2", 16, b"abcd", "is damaged .its checksum"),
        (b"PK\3\4", 30 + len(NAME) + 20, b"damaged!", "is damaged"),
    ],
)
def test_a_damaged_entry_is_a_broken_picture_and_the_others_are_not(
    signature: bytes, offset: int, value: bytes, reason: str, folder: Path
) -> None:
    write_zip(folder / "core50_128x128.zip")

    def change(content: bytearray) -> None:
        at = entry_at(content, signature, NAME) + offset
        content[at : at + len(value)] = value

    change_zip(folder / "core50_128x128.zip", change)
    found = SmallCore50().load(folder)
    with pytest.raises(EncoreError, match=rf"^{PATHS[8]} in .*core50_128x128.zip {reason}"):
        found.images.read(np.array([7, 8, 9]))
    store = ImageStore(found, torch.device("cpu"), skip_broken=1)
    assert store.read(torch.tensor([7, 8, 9])).labels.tolist() == [7, 9]


@pytest.mark.parametrize("length", [0, 10, 5000, -1000, -10])
def test_a_truncated_archive_is_refused(length: int, folder: Path) -> None:
    for name in ("core50_128x128.zip", "core50_imgs.npz"):
        path = folder / name
        if name.endswith(".zip"):
            write_zip(path)
        else:
            np.savez(path, x=array()[:20])
        path.write_bytes(path.read_bytes()[:length])
        assert refusal(folder).startswith(f"{path} is truncated or no zip archive")
        path.unlink()


def test_an_archive_that_lacks_pictures_is_refused(folder: Path) -> None:
    with zipfile.ZipFile(folder / "core50_128x128.zip", "w") as archive:
        archive.writestr(PATHS[0], PICTURES[0])
    sentence = f"{folder}/core50_128x128.zip lacks 549 of 550 pictures: {', '.join(PATHS[1:4])} and 546 more"
    assert refusal(folder) == sentence


def test_an_archive_that_vanishes_or_changes_is_a_sentence(folder: Path) -> None:
    write_zip(folder / "core50_128x128.zip")
    images = SmallCore50().load(folder).images
    (folder / "core50_128x128.zip").write_bytes(bytes(100))
    with pytest.raises(EncoreError, match="is not where the archive says"):
        images.read(np.array([8]))
    (folder / "core50_128x128.zip").unlink()
    with pytest.raises(EncoreError, match=r"core50_128x128.zip cannot be read \(No such file"):
        images.read(np.array([8]))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"x": np.zeros((NUM_IMAGES, 128, 128, 3), dtype=np.int8)}, "must be an array of uint8 .* says .*i1"),
        ({"x": np.zeros((NUM_IMAGES - 1, 128, 128, 3), dtype=np.uint8)}, r"and says .*\(549, 128, 128, 3\)"),
        ({"x": np.zeros((3, 128, 128, NUM_IMAGES), dtype=np.uint8).T}, "'fortran_order': True"),
        ({"x": np.array([None, "a"], dtype=object)}, r"must be an array of uint8 \[550, 128, 128, 3\]"),
        ({"y": np.zeros(3)}, "must hold one array called x.npy, and holds 0"),
    ],
)
def test_another_array_is_refused(wrong: dict[str, Any], reason: str, folder: Path) -> None:
    np.savez_compressed(folder / "core50_imgs.npz", **wrong)
    with pytest.raises(EncoreError, match=reason):
        SmallCore50().load(folder)


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_array_whose_header_is_odd_is_refused(packing: int, folder: Path) -> None:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({NUM_IMAGES}, 128, 128, 3), }}".encode()
    for content in (
        b"no array at all",
        b"\x93NUMPY\x01\x00\xff\xff" + header,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + header,
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 5000) + b"(" * 5000,
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.replace(b"550", b"9" * 50),
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(1000),
    ):
        with zipfile.ZipFile(folder / "core50_imgs.npz", "w", packing) as archive:
            archive.writestr("x.npy", content)
        assert f"x.npy in {folder}/core50_imgs.npz" in refusal(folder)


def test_an_array_packed_otherwise_is_refused(folder: Path) -> None:
    np.savez(folder / "core50_imgs.npz", x=array()[:2])

    def change(content: bytearray) -> None:
        at = entry_at(content, b"PK\1\2", "x.npy") + 10
        content[at : at + 2] = b"\x0e\0"

    change_zip(folder / "core50_imgs.npz", change)
    assert "x.npy in" in refusal(folder)
    assert "is packed unusually: NumPy's savez or savez_compressed is read" in refusal(folder)


def test_an_array_of_python_2_is_read(folder: Path) -> None:
    header = (
        f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({NUM_IMAGES}L, 128L, 128L, 3L), }}\n".encode()
    )
    with zipfile.ZipFile(folder / "core50_imgs.npz", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(
            "x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array().tobytes()
        )
    found = SmallCore50().load(folder).images
    assert found.reads_at_once
    assert np.array_equal(found.read(np.array([549, 0])), [pixels_of(549), pixels_of(0)])


def test_bare_pixels_are_read_one_by_one(sources: dict[str, Path]) -> None:
    for way in ("stored", "bare"):
        images = SmallCore50().load(sources[way]).images
        rows = np.array([540, 3, 3, 0])
        tracemalloc.start()
        try:
            found = images.read(rows)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert np.array_equal(found, [pixels_of(row) for row in rows.tolist()])
        assert peak < 20 * 49_152, "27 MB lie there"


def test_bare_pixels_that_are_cut_short_or_vanish_are_a_sentence(folder: Path) -> None:
    path = folder / "core50_imgs.bin"
    array().tofile(path)
    images = SmallCore50().load(folder).images
    with path.open("r+b") as file:
        file.truncate(10 * 49_152 + 7)
    assert len(images.read(np.array([9]))) == 1
    with pytest.raises(EncoreError, match=f"{path} is truncated: image 10 is not whole"):
        images.read(np.array([10]))
    path.unlink()
    with pytest.raises(EncoreError, match=rf"{path} cannot be read \(No such file"):
        images.read(np.array([9]))


# An array that is compressed as a whole.


def test_compressed_images_are_read_in_their_order_only(sources: dict[str, Path]) -> None:
    images = SmallCore50().load(sources["deflated"]).images
    assert not images.reads_at_once
    for start in (0, 100, 101, 540, 20):  # going back begins anew
        rows = np.arange(start, start + 10)
        assert np.array_equal(images.read(rows), [pixels_of(row) for row in rows.tolist()])
    assert len(images.read(np.array([], dtype=np.int64))) == 0
    with pytest.raises(EncoreError) as caught:
        images.read(np.array([5, 4]))
    assert str(caught.value) == (
        f"{sources['deflated']}/core50_imgs.npz is compressed as a whole, so that its images can only be "
        "read in their order: decode it once with `encore data prepare core50`, or put core50_128x128.zip "
        "beside it"
    )


def test_compressed_images_are_passed_once_and_a_few_are_kept(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core50_pixels, "WINDOW", 16)
    passes = []

    class Counted(core50_pixels._Inflater):
        def __init__(self, *arguments: Any) -> None:
            passes.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(core50_pixels, "_Inflater", Counted)
    images = SmallCore50().load(sources["deflated"]).images
    for start in (4, 0, 12, 8):  # as threads may ask for them
        rows = np.arange(start, start + 4)
        assert np.array_equal(images.read(rows), [pixels_of(row) for row in rows.tolist()])
    assert len(passes) == 1
    assert np.array_equal(images.read(np.arange(40)), [pixels_of(row) for row in range(40)])
    assert len(passes) == 1
    images.read(np.array([0]))
    assert len(passes) == 2
    peak = 0
    tracemalloc.start()
    try:
        for row in range(NUM_IMAGES):
            images.read(np.array([row]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000, "27 MB were passed"


def test_a_store_may_hold_compressed_images(sources: dict[str, Path]) -> None:
    store = ImageStore(SmallCore50().load(sources["deflated"]), torch.device("cpu"))
    assert store.is_resident
    batch = store.read(torch.tensor([333, 2]))
    assert np.array_equal(batch.images.numpy(), [pixels_of(333), pixels_of(2)])


def with_changed_array(folder: Path, change: Callable[[bytearray], None]) -> Images:
    np.savez_compressed(folder / "core50_imgs.npz", x=array())
    images = SmallCore50().load(folder).images
    content = bytearray((folder / "core50_imgs.npz").read_bytes())
    change(content)
    (folder / "core50_imgs.npz").write_bytes(content)
    return images


def test_compressed_images_that_are_damaged_are_never_handed_on(folder: Path) -> None:
    def damage(content: bytearray) -> None:
        content[len(content) // 2 : len(content) // 2 + 40] = bytes(range(40))

    images = with_changed_array(folder, damage)
    for _ in range(2):
        with pytest.raises(EncoreError, match=r"core50_imgs.npz is (damaged|truncated)"):
            for row in range(NUM_IMAGES):
                images.read(np.array([row]))

    images = with_changed_array(folder, lambda content: content.__delitem__(slice(5000, None)))
    with pytest.raises(EncoreError, match=r"core50_imgs.npz is truncated: image \d+ is not whole"):
        images.read(np.arange(NUM_IMAGES))
    (folder / "core50_imgs.npz").unlink()
    with pytest.raises(EncoreError, match=r"core50_imgs.npz cannot be read \(No such file"):
        images.read(np.arange(2))


def test_the_checksum_of_compressed_images_is_compared_at_their_end(folder: Path) -> None:
    content = io.BytesIO()
    np.lib.format.write_array(content, array())
    altered = content.getvalue()
    with zipfile.ZipFile(folder / "core50_imgs.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", altered)

    def lie(content: bytearray) -> None:
        at = entry_at(content, b"PK\1\2", "x.npy")
        content[at + 16 : at + 20] = struct.pack("<I", zlib.crc32(altered) ^ 1)

    change_zip(folder / "core50_imgs.npz", lie)
    images = SmallCore50().load(folder).images
    images.read(np.arange(NUM_IMAGES - 1))
    with pytest.raises(EncoreError, match="its checksum is not the one it should have"):
        images.read(np.array([NUM_IMAGES - 1]))


# Several threads, the command line.


@pytest.mark.parametrize("way", ["tree", "zip", "stored", "deflated", "bare"])
def test_threads_may_read_at_the_same_time(way: str, sources: dict[str, Path]) -> None:
    images = SmallCore50().load(sources[way]).images
    start = threading.Barrier(8)

    def read(thread: int) -> bool:
        start.wait()
        rows = np.arange(thread, 200, 8)
        return np.array_equal(images.read(rows), [pixels_of(row) for row in rows.tolist()])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))


def test_the_check_knows_the_published_files(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = SmallCore50().check_files(sources["zip"])
    other = "in order, but by its checksum not the published file"
    assert [(check.name, check.verdict) for check in checks] == [
        ("paths.pkl", other),
        ("LUP.pkl", other),
        ("labels.pkl", other),
        ("runs", "10 of 9 tasks, all in agreement"),
        ("core50_128x128.zip", "550 images"),
    ]
    checksum = md5_of(sources["zip"] / "LUP.pkl")
    monkeypatch.setitem(core50.CHECKSUMS, "LUP.pkl", checksum)
    assert SmallCore50().check_files(sources["zip"])[1].verdict == "as published"


def test_the_command_line_checks_it(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Core50, "numbers", Numbers(images=NUM_IMAGES))
    assert main(["data", "check", "core50", "--data-dir", str(sources["zip"])]) == 0
    shown = capsys.readouterr().out
    assert "train: 400 images of 50 classes, 8 of each" in shown
    assert "test: 150 images of 50 classes, 3 of each" in shown
    (sources["zip"] / "LUP.pkl").rename(sources["zip"] / "LUP")
    try:
        assert main(["data", "check", "core50", "--data-dir", str(sources["zip"])]) == 2
    finally:
        (sources["zip"] / "LUP").rename(sources["zip"] / "LUP.pkl")
    assert "LUP.pkl is missing, and core50 needs it" in capsys.readouterr().out


def test_a_run_on_the_small_one(
    sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Core50, "numbers", SmallCore50.numbers)
    chosen = ["--benchmark", "core50", "--data-dir", str(sources["zip"]), "--benchmark.run", "4"]
    small = ["--batch-size", "30", "--memory-size", "9", "--first-tasks", "1", *TINY]
    assert main(["run", *chosen, *small, "--quiet", "--out", str(tmp_path / "runs")]) == 0
    record = json.loads((tmp_path / "runs/seed-0/record.json").read_text())
    assert record["config"]["image_shape"] == [3, 128, 128]
    assert record["images_seen"] == 60
    (task,) = record["tasks"]
    assert (task["classes"], task["train"], task["test"]) == (ORDERS[4][:10], 80, 30)
