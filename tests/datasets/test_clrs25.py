from __future__ import annotations

import json
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
from encore.data import list_files
from encore.datasets.clrs25 import Clrs25
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.layout import make_stream
from encore.settings import RunSettings, StreamSettings

SCENES = [
    "airport",
    "bare-land",
    "beach",
    "bridge",
    "commercial",
    "desert",
    "farmland",
    "forest",
    "golf-course",
    "highway",
    "industrial",
    "meadow",
    "mountain",
    "overpass",
    "park",
    "parking",
    "playground",
    "port",
    "railway",
    "railway-station",
    "residential",
    "river",
    "runway",
    "stadium",
    "storage-tank",
]
NUM_TRAIN, NUM_EACH = 3, 4  # of each scene; the published data have 450 and 600
TINY = ["--model.width", "2", "--threads", "1", "--device", "cpu"]
RUNS = {number: np.random.default_rng(number).permutation(25).tolist() for number in (0, 1, 2)}


class SmallClrs25(Clrs25):
    class_sizes: tuple[int, ...] = (NUM_TRAIN,) * 25
    images_per_class = NUM_EACH


def name_of(label: int, number: int) -> str:
    return f"{SCENES[label]}/{SCENES[label]}_{number} Level1_0.4m.tif"


def gradient(label: int, number: int) -> NDArray[np.uint8]:
    """A picture [256, 256, 3]: how far down, how far to the right, and which it is."""
    down, right = np.mgrid[:256, :256]
    return np.stack([down, right, np.full_like(down, 10 * label + number)], axis=2).astype(np.uint8)


def lines_of(labels: list[int], numbers: range) -> list[str]:
    return [f"{name_of(label, number)}\t{label}" for number in numbers for label in labels]


def write_run(folder: Path, run: int, order: list[int]) -> dict[str, list[str]]:
    """The six lists as the makers have them: a path, a tab and a label on each line, and no header."""
    lists = {f"train_task{task + 1}": lines_of(order[5 * task : 5 * task + 5], range(3)) for task in range(5)}
    lists["test"] = lines_of(list(range(25)), range(3, 4))
    above = folder / f"label/NC/run{run}"
    above.mkdir(parents=True)
    for name, lines in lists.items():
        (above / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return lists


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("clrs") / "CLRS"
    for label, scene in enumerate(SCENES):
        (top / scene).mkdir(parents=True)
        for number in range(NUM_EACH):
            Image.fromarray(gradient(label, number)).save(top / name_of(label, number))
    return top


@pytest.fixture
def folder(pictures: Path, tmp_path: Path) -> Path:
    """The makers' folder with one run; each class's folder is linked, so that a test may change it."""
    (tmp_path / "data/CLRS").mkdir(parents=True)
    for scene in pictures.iterdir():
        (tmp_path / "data/CLRS" / scene.name).symlink_to(scene, target_is_directory=True)
    write_run(tmp_path / "data", 0, RUNS[0])
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def own_copy(folder: Path, scene: str) -> Path:
    """A folder of pictures that may be changed."""
    place = folder / "CLRS" / scene
    source = place.resolve()
    place.unlink()
    place.mkdir()
    for path in source.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    return place


def refusal(folder: Path, **options: int) -> str:
    with pytest.raises(EncoreError) as caught:
        SmallClrs25(**options).load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def problems(folder: Path) -> list[str]:
    return [check.problem for check in SmallClrs25().check_files(folder) if check.problem]


# What is read.


def test_it_is_found_by_its_name_and_counts_as_published() -> None:
    assert registry.find("benchmark", "clrs25") is Clrs25
    benchmark = Clrs25()
    assert benchmark.image_shape == (3, 256, 256)
    assert sum(benchmark.class_sizes) == 5 * 2250
    assert 25 * benchmark.images_per_class - sum(benchmark.class_sizes) == 5 * 750
    assert registry.options("benchmark", "clrs25")["side"].default == 256


def test_every_line_of_the_lists_is_an_image(folder: Path) -> None:
    found = SmallClrs25().load(folder)
    assert found.images.shape == (3, 256, 256)
    assert found.class_names == tuple(SCENES)
    assert found.is_test is not None
    assert len(found.labels) == 100
    assert found.is_test.tolist() == [False] * 75 + [True] * 25
    # The first line of a list is an image like the others: the header that others take it for is none.
    first = RUNS[0][0]
    assert found.labels[0] == first
    assert np.array_equal(found.images.read(np.array([0]))[0], gradient(first, 0).transpose(2, 0, 1))
    assert found.labels[75] == 0
    assert np.array_equal(found.images.read(np.array([75]))[0], gradient(0, 3).transpose(2, 0, 1))
    assert np.bincount(found.labels[~found.is_test]).tolist() == [3] * 25
    assert np.bincount(found.labels[found.is_test]).tolist() == [1] * 25
    assert found.official_tasks == tuple(tuple(sorted(RUNS[0][5 * task : 5 * task + 5])) for task in range(5))


def test_a_stream_teaches_every_training_image_once(folder: Path) -> None:
    found = SmallClrs25(side=8).load(folder)
    store = ImageStore(found, torch.device("cpu"))
    settings = RunSettings(StreamSettings(benchmark="clrs25"))
    stream = make_stream(settings, 0, SmallClrs25(side=8), store, torch.Generator())
    assert [set(task.classes) for task in stream.tasks] == [
        set(RUNS[0][5 * task : 5 * task + 5]) for task in range(5)
    ]
    assert torch.cat([task.train for task in stream.tasks]).sort().values.tolist() == list(range(75))
    assert [len(task.test) for task in stream.tasks] == [5] * 5


def test_seeds_decide_the_stream_which_passes_once(folder: Path) -> None:
    check_seeds(SmallClrs25(side=8), folder)


def test_the_run_is_chosen_by_its_folder(folder: Path) -> None:
    for run in (1, 2):
        write_run(folder, run, RUNS[run])
        assert set((SmallClrs25(run=run).load(folder).official_tasks or ())[0]) == set(RUNS[run][:5])
    assert set((SmallClrs25().load(folder).official_tasks or ())[0]) == set(RUNS[0][:5])
    assert refusal(folder, run=3) == (
        f"there is no {folder}/label/NC/run3: choose --benchmark.run from 0, 1, 2"
    )
    (folder / "label/NC/run0").rename(folder / "label/NC/run4")  # as where folders are numbered from 1
    assert set((SmallClrs25().load(folder).official_tasks or ())[0]) == set(RUNS[1][:5])
    assert set((SmallClrs25(run=4).load(folder).official_tasks or ())[0]) == set(RUNS[0][:5])
    with pytest.raises(EncoreError, match=r"benchmark.run must be a whole number of at least 0, got -1"):
        Clrs25(run=-1)


@pytest.mark.parametrize("side", [7, 257, 128.5])
def test_a_side_is_at_most_that_of_the_pictures(side: Any) -> None:
    with pytest.raises(EncoreError, match=r"benchmark.side must be a whole number from 8 to 256"):
        Clrs25(side=side)


def test_another_side_is_had_by_resizing_and_not_by_refolding(folder: Path) -> None:
    picture = gradient(0, 3)
    resized = SmallClrs25(side=128).load(folder).images.read(np.array([75]))[0].astype(int)
    middles = 2 * np.arange(128) + 0.5  # of two pixels each
    assert resized.shape == (3, 128, 128)
    assert np.abs(resized[0] - middles[:, None]).max() <= 1
    assert np.abs(resized[1] - middles[None, :]).max() <= 1

    # NumPy's resize, which the published code calls, takes as many numbers as fit from the beginning: the 64
    # upper rows of the picture, and each of them becomes two rows, its left half above its right half.
    refolded = np.resize(picture, (128, 128, 3))
    assert np.array_equal(refolded, picture[:64].reshape(128, 128, 3))
    assert refolded[:, :, 0].max() == 63, "three quarters of the picture are gone"
    assert np.array_equal(refolded[0::2], picture[:64, :128])
    assert np.array_equal(refolded[1::2], picture[:64, 128:])
    assert np.abs(resized.transpose(1, 2, 0) - refolded).max() > 190


@pytest.mark.parametrize(
    "rewrite",
    [
        pytest.param(lambda text: text.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(lambda text: text + b"\n\r\n  \n", id="blank lines at the end"),
        pytest.param(lambda text: text.rstrip(b"\n"), id="no newline at the end"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text, id="byte order mark"),
        pytest.param(lambda text: text.replace(b"/", b"\\"), id="paths of Windows"),
        pytest.param(lambda text: text.replace(b"\t", b"\t "), id="a space before the label"),
        pytest.param(lambda text: b"./" + text.replace(b"\n", b"\n./")[:-2], id="a dot before the path"),
        pytest.param(lambda text: text.replace(b".tif", b".TIF"), id="endings in capital letters"),
    ],
)
def test_lists_as_other_systems_write_them_are_read(rewrite: Callable[[bytes], bytes], folder: Path) -> None:
    expected = SmallClrs25().load(folder)
    for path in (folder / "label/NC/run0").iterdir():
        path.write_bytes(rewrite(path.read_bytes()))
    found = SmallClrs25().load(folder)
    assert found.labels.tolist() == expected.labels.tolist()
    rows = np.array([0, 1, 99])
    assert np.array_equal(found.images.read(rows), expected.images.read(rows))
    assert problems(folder) == []


def test_pictures_may_be_of_another_format_or_have_endings_in_capital_letters(folder: Path) -> None:
    place = own_copy(folder, "beach")
    for number, (ending, kind) in enumerate([(".TIF", "TIFF"), (".tif", "PNG"), (".tif", "JPEG")]):
        path = folder / "CLRS" / name_of(2, number)
        path.unlink()
        Image.new("RGB", (256, 256), (200, 100, 50)).save(path.with_suffix(ending), kind)
    assert len(list(place.iterdir())) == NUM_EACH
    found = SmallClrs25().load(folder)
    rows = np.flatnonzero((found.labels == 2) & ~np.asarray(found.is_test))
    assert np.abs(found.images.read(rows)[:, :, 128, 128] - np.array([200, 100, 50])).max() <= 2


def test_pictures_without_folders_have_classes_by_number(folder: Path) -> None:
    for path in (folder / "label/NC/run0").iterdir():
        path.write_text(
            "".join(line.partition("/")[2] for line in path.read_text().splitlines(keepends=True))
        )
    for path in list((folder / "CLRS").iterdir()):
        for picture in path.iterdir():
            (folder / "CLRS" / picture.name).symlink_to(picture)
        path.unlink()
    assert SmallClrs25().load(folder).class_names == tuple(map(str, range(25)))


def test_it_is_found_in_a_subfolder_of_its_name_and_all_its_files_are_named(
    folder: Path, tmp_path: Path
) -> None:
    folder.rename(tmp_path / "clrs25")
    located = SmallClrs25().locate(tmp_path)
    assert located.path == tmp_path / "clrs25"
    lists = ["train_task1", "train_task2", "train_task3", "train_task4", "train_task5", "test"]
    assert [path.stem for path in located.files[:6]] == lists
    SmallClrs25().load(tmp_path)
    with pytest.raises(EncoreError, match=r"clrs25 was not found in .*: get it from where https://github"):
        SmallClrs25().load(tmp_path / "nowhere")


def test_threads_may_read_at_the_same_time(folder: Path) -> None:
    images = SmallClrs25(side=32).load(folder).images
    expected = images.read(np.arange(100))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda start: images.read(np.arange(start, 100, 8)), range(8)))
    for start, part in enumerate(found):
        assert np.array_equal(part, expected[start::8])


# Lists that are wrong.


def in_list(name: str, change: Callable[[list[str]], Any]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        path = folder / f"label/NC/run0/{name}.txt"
        lines = path.read_text().splitlines()
        change(lines)
        path.write_text("".join(f"{line}\n" for line in lines))

    return rewrite


def put(place: int, line: str) -> Callable[[list[str]], Any]:
    return lambda lines: lines.__setitem__(place, line)


def relabel(lines: list[str]) -> None:
    """Give the first two pictures, of different classes, the label of the first."""
    label = lines[0].split("\t")[1]
    lines[1] = f"{lines[1].split(chr(9))[0]}\t{label}"


def teach_again(folder: Path) -> None:
    """Put a class of the first task into the second instead of one of its own."""
    first, other = RUNS[0][0], RUNS[0][5]
    in_list(
        "train_task2",
        lambda lines: lines.__setitem__(
            slice(None),
            [line for line in lines if not line.endswith(f"\t{other}")] + [f"{name_of(first, 3)}\t{first}"],
        ),
    )(folder)


def swap_labels(folder: Path) -> None:
    """Give the pictures of one folder two labels, each of which has no other folder."""
    one, other = SCENES[RUNS[0][0]], SCENES[RUNS[0][1]]
    for path in (folder / "label/NC/run0").iterdir():
        path.write_text(path.read_text().replace(f"{other}/{other}_", f"{one}/copy_{other}_"))
    place = own_copy(folder, one)
    for number in range(NUM_EACH):
        source = folder / "CLRS" / name_of(RUNS[0][1], number)
        (place / f"copy_{source.name}").write_bytes(source.read_bytes())


WRONG: list[tuple[Callable[[Path], Any], str]] = [
    (
        in_list("train_task1", lambda lines: lines.insert(0, "path\tlabel")),
        r"train_task1.txt, line 1 must be a path, a tab and a number from 0 to 24, got 'path\tlabel': the "
        "list must have no header",
    ),
    (in_list("test", put(4, "no tab 4")), "test.txt, line 5 must be a path, a tab and a number from 0 to 24"),
    (in_list("test", put(4, "beach/a.tif\t")), "test.txt, line 5 must be a path, a tab and a number"),
    (in_list("test", put(4, "\t4")), "test.txt, line 5 must be a path, a tab and a number"),
    (in_list("test", put(4, "beach/a.tif\t2.0")), "test.txt, line 5 must be a path, a tab and a number"),
    (in_list("test", put(4, "beach/a.tif\t-1")), "test.txt, line 5 must be a path, a tab and a number"),
    (in_list("test", put(4, "beach/a.tif\t25")), "test.txt, line 5: 25 is not from 0 to 24"),
    (in_list("test", put(4, "../../secret.tif\t3")), "line 5: '../../secret.tif' leads out of the folder"),
    (in_list("test", put(4, "beach/../../x.tif\t3")), "line 5: 'beach/../../x.tif' leads out of the folder"),
    (in_list("test", put(4, "/etc/passwd\t3")), "line 5: '/etc/passwd' leads out of the folder"),
    (in_list("test", put(4, "\\etc\\passwd\t3")), "line 5: '\\\\etc\\\\passwd' leads out of the folder"),
    (in_list("test", put(4, "C:\\a.tif\t3")), "line 5: 'C:\\\\a.tif' leads out of the folder"),
    (in_list("test", put(4, ".\t3")), "line 5: '.' leads out of the folder"),
    (
        in_list("test", put(4, "beach/none.tif\t2")),
        "/CLRS lacks 1 of 100 pictures: beach/none.tif",
    ),
    (in_list("test", put(4, "beach/no\0ne.tif\t2")), "/CLRS lacks 1 of 100 pictures: 'beach/no\\x00ne.tif'"),
    (in_list("test", put(4, "no\0ne/a.tif\t2")), "/CLRS lacks 1 of 100 pictures: 'no\\x00ne/a.tif'"),
    (
        in_list("test", put(4, f"{name_of(3, 3)}\t3")),
        f"{name_of(3, 3)} is listed twice, in test.txt and in test.txt in",
    ),
    (
        in_list("test", put(4, f"{name_of(RUNS[0][0], 0)}\t{RUNS[0][0]}")),
        f"{name_of(RUNS[0][0], 0)} is listed twice, in train_task1.txt and in test.txt in",
    ),
    (
        in_list("test", put(4, f"{name_of(RUNS[0][0], 0)[:-3]}TIF\t{RUNS[0][0]}")),
        f"{name_of(RUNS[0][0], 0)} is listed twice, in train_task1.txt and in test.txt in",
    ),
    (in_list("test", list.clear), "test.txt is empty"),
    (in_list("train_task3", lambda lines: lines.append(lines[0])), "is listed twice, in train_task3.txt and"),
    (
        in_list("train_task3", lambda lines: lines.__delitem__(slice(0, None, 5))),
        "train_task3.txt must teach 5 classes, and teaches 4",
    ),
    (teach_again, f"train_task2.txt teaches class {RUNS[0][0]}, and so does train_task1.txt"),
    (in_list("train_task1", relabel), f"give the number {RUNS[0][0]} to pictures in "),
    (swap_labels, f"give several numbers to pictures in {SCENES[RUNS[0][0]]}"),
    (lambda folder: (folder / "label/NC/run0/train_task4.txt").unlink(), "train_task4.txt is missing"),
    (
        lambda folder: (folder / "label/NC/run0/test.txt").write_bytes(b"beach/a.tif\t2\n\xff\xfe\t3\n"),
        "test.txt, line 2 is not UTF-8",
    ),
    (lambda folder: (folder / "label/NC/run0").rename(folder / "label/NC/other"), "there is no list in "),
]


@pytest.mark.parametrize(("change", "reason"), WRONG)
def test_lists_that_are_wrong_are_refused(change: Callable[[Path], Any], reason: str, folder: Path) -> None:
    change(folder)
    assert reason in refusal(folder)


def test_a_list_that_is_far_too_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "MOST_BYTES", 10)
    assert refusal(folder) == f"{folder}/label/NC/run0/train_task1.txt is too large for a list of pictures"


def test_missing_pictures_are_counted_and_the_first_named(folder: Path) -> None:
    own_copy(folder, "beach")
    (folder / "CLRS" / name_of(2, 3)).unlink()
    (folder / "CLRS/port").unlink()
    first = [name_of(17, number) for number in range(3)]
    sentence = f"{folder}/CLRS lacks 5 of 100 pictures: "
    assert sentence in refusal(folder)
    assert " and 2 more" in refusal(folder)
    assert any(name in refusal(folder) for name in first)
    assert problems(folder) == [refusal(folder)]


# What the check says.


def test_the_check_counts(folder: Path) -> None:
    checks = SmallClrs25().check_files(folder)
    assert [(check.name, check.verdict, check.problem) for check in checks] == [
        *((f"label/NC/run0/train_task{task}.txt", "15 images of 5 classes", "") for task in range(1, 6)),
        ("label/NC/run0/test.txt", "25 images of 25 classes", ""),
        ("CLRS", "100 pictures, all that the lists name", ""),
    ]


@pytest.mark.parametrize("name", ["train_task2", "test"])
def test_the_check_finds_a_lost_first_line(name: str, folder: Path) -> None:
    in_list(name, lambda lines: lines.pop(0))(folder)
    count = 25 if name == "test" else 15
    assert problems(folder) == [
        f"{folder}/label/NC/run0/{name}.txt names {count - 1} images, and {count} were published: its first "
        "line may be lost, as it is no header"
    ]
    assert len(SmallClrs25().load(folder).labels) == 99, "such a list can still be learnt from"


def test_the_check_finds_what_is_listed_beyond_and_classes_of_other_sizes(folder: Path) -> None:
    in_list("test", put(4, f"{name_of(3, 3)[:-3]}png\t3"))(folder)
    own_copy(folder, "bridge")
    Image.new("RGB", (256, 256)).save(folder / "CLRS" / f"{name_of(3, 3)[:-3]}png")
    assert problems(folder) == ["the lists name 5 images of class 3, and 4 exist"]
    in_list("test", lambda lines: lines.insert(0, lines[4]))(folder)
    assert problems(folder) == [f"{folder}/label/NC/run0/test.txt names 26 images, and 25 were published"]


def test_the_check_names_every_list_that_is_wrong(folder: Path) -> None:
    in_list("train_task1", lambda lines: lines.insert(0, "path\tlabel"))(folder)
    (folder / "label/NC/run0/train_task5.txt").unlink()
    found = SmallClrs25().check_files(folder)
    assert [check.name[14:] for check in found if check.problem] == ["train_task1.txt", "train_task5.txt"]
    assert len(found) == 6


def test_a_broken_picture_can_be_left_out(folder: Path) -> None:
    own_copy(folder, "airport")
    path = folder / "CLRS" / name_of(0, 3)
    path.write_bytes(path.read_bytes()[:1000])
    found = SmallClrs25().load(folder)
    with pytest.raises(EncoreError, match=rf"{path} cannot be decoded"):
        found.images.read(np.array([75]))
    store = ImageStore(found, torch.device("cpu"), skip_broken=1)
    assert store.read(torch.tensor([75, 76])).labels.tolist() == [1]


def test_pictures_of_another_size_are_refused(folder: Path) -> None:
    first = RUNS[0][0]
    own_copy(folder, SCENES[first])
    Image.new("RGB", (128, 128)).save(folder / "CLRS" / name_of(first, 0))
    (problem,) = problems(folder)
    assert "128x128 pixels, and 256x256 are expected" in problem


def test_the_command_line_checks_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Clrs25, "class_sizes", SmallClrs25.class_sizes)
    monkeypatch.setattr(Clrs25, "images_per_class", SmallClrs25.images_per_class)
    assert main(["data", "check", "clrs25", "--data-dir", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "train: 75 images of 25 classes, 3 of each" in shown
    assert "test: 25 images of 25 classes, 1 of each" in shown
    in_list("test", lambda lines: lines.pop(0))(folder)
    assert main(["data", "check", "clrs25", "--data-dir", str(folder)]) == 2
    assert "test.txt names 24 images, and 25 were published" in capsys.readouterr().out


def test_a_run_on_the_small_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pictures as they are, 256x256."""
    monkeypatch.setattr(Clrs25, "class_sizes", SmallClrs25.class_sizes)
    monkeypatch.setattr(Clrs25, "images_per_class", SmallClrs25.images_per_class)
    chosen = ["--benchmark", "clrs25", "--data-dir", str(folder), "--batch-size", "5", *TINY]
    small = ["--memory-size", "4", "--first-tasks", "1", "--quiet", "--out", str(tmp_path / "runs")]
    assert main(["run", *chosen, *small]) == 0
    record = json.loads((tmp_path / "runs/seed-0/record.json").read_text())
    assert record["config"]["image_shape"] == [3, 256, 256]
    assert record["images_seen"] == 15
    assert [(task["train"], task["test"]) for task in record["tasks"]] == [(15, 5)]
