"""Folders of pictures as people have them: every arrangement, every list, and what is wrong with them."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.datasets.seeds import check_seeds

from encore.cli import main
from encore.data.image_set import BrokenImagesError, ImageSet
from encore.datasets.image_folder import ImageFolder
from encore.errors import EncoreError
from encore.layout import lay_out
from encore.settings import RunSettings, StreamSettings
from encore.stream import Task

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
SMALL = [
    "--benchmark.side",
    "16",
    "--model.width",
    "2",
    "--memory-size",
    "10",
    "--threads",
    "1",
    "--device",
    "cpu",
]


def paint(path: Path, *bands: tuple[int, int, int], size: tuple[int, int] = (20, 20)) -> Path:
    """Write a picture of upright bands of these colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGB", size)
    width = size[0] // max(1, len(bands))
    for number, colour in enumerate(bands or [RED]):
        picture.paste(colour, (number * width, 0, (number + 1) * width if bands else size[0], size[1]))
    picture.save(path)
    return path


def paint_classes(folder: Path, classes: Iterable[str] = ("cat", "dog"), count: int = 3) -> Path:
    for number, name in enumerate(classes):
        for each in range(count):
            paint(folder / name / f"{each}.png", (40 * number, 10 * each, 90), size=(17 + each, 30 - each))
    return folder


def write_list(folder: Path, text: str, name: str = "images.csv", encoding: str = "utf-8") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode(encoding))
    return folder


def load(folder: Path, **options: Any) -> ImageSet:
    return ImageFolder(**{"side": 8, **options}).load(folder)


def labelled(images: ImageSet, tested: bool | None = None) -> dict[str, str]:
    """Return the class of each file by name."""
    rows = list(range(len(images.labels)))
    if tested is not None:
        assert images.is_test is not None
        rows = np.flatnonzero(images.is_test == tested).tolist()
    names: Any = images.images
    return {names.names[row]: images.class_names[images.labels[row]] for row in rows}


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(EncoreError) as caught:
        load(folder, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def verdicts(folder: Path, **options: Any) -> dict[str, str]:
    return {check.name: check.verdict for check in ImageFolder(**options).check_files(folder)}


# What is found, and where


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in ("img10", "Img9", "img1"):
        paint(tmp_path / name / "a.png", RED)
    paint(tmp_path / "img1" / "deep" / "deeper" / "b.jpg", BLUE)
    images = load(tmp_path)
    assert images.class_names == ("img1", "Img9", "img10")
    assert labelled(images) == {
        "Img9/a.png": "Img9",
        "img1/a.png": "img1",
        "img1/deep/deeper/b.jpg": "img1",
        "img10/a.png": "img10",
    }
    known = (images.is_test, images.times, images.given_tasks, images.official_tasks)
    assert known == (None, None, None, None)
    row = list(labelled(images)).index("img1/a.png")
    assert images.images.read(np.array([row]))[0, :, 4, 4].tolist() == list(RED)


def test_pictures_become_what_the_options_say(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        paint(tmp_path / name / "wide.png", RED, GREEN, BLUE, size=(60, 20))
    row = np.array([0])
    covered = load(tmp_path, side=16).images.read(row)[0]
    assert covered.shape == (3, 16, 16)
    assert covered[:, 8, [1, 8, 14]].T.tolist() == [list(GREEN)] * 3  # the middle, not squeezed
    stretched = load(tmp_path, side=16, fit="stretch").images.read(row)[0]
    assert stretched[:, 8, [1, 8, 14]].T.tolist() == [list(RED), list(GREEN), list(BLUE)]
    grey = load(tmp_path, side=16, grey=True).images.read(row)[0]
    assert grey.shape == (1, 16, 16)
    assert grey[0, 8, 8] == 150  # 0.587 of 255, as ITU-R 601 weighs green
    assert ImageFolder().load(tmp_path).images.shape == (3, 64, 64)


@pytest.mark.parametrize("tested", ["test", "val", "valid", "validation", "Test"])
def test_folders_for_training_and_testing(tmp_path: Path, tested: str) -> None:
    paint_classes(tmp_path / "train")
    paint_classes(tmp_path / tested, count=1)
    images = load(tmp_path)
    assert set(labelled(images, tested=True)) == {f"{tested}/cat/0.png", f"{tested}/dog/0.png"}
    assert Counter(labelled(images, tested=False).values()) == {"cat": 3, "dog": 3}
    with pytest.raises(EncoreError, match="leave --split out"):
        ImageFolder().arrange(images, 0, "seed")


def test_pictures_for_validation_are_left_out_where_others_are_for_testing(tmp_path: Path) -> None:
    for name, count in (("train", 3), ("val", 2), ("test", 1)):
        paint_classes(tmp_path / name, count=count)
    paint(tmp_path / "train" / "stray.png")
    images = load(tmp_path)
    assert (len(labelled(images, tested=False)), len(labelled(images, tested=True))) == (6, 2)
    assert verdicts(tmp_path)["passed over"] == (
        "4 pictures for validation, 1 picture in no folder of a class"
    )


def test_what_is_no_picture_is_passed_over_and_counted(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    paint(tmp_path / "logo.png")
    paint(tmp_path / "cat" / ".hidden.png")
    paint(tmp_path / ".cache" / "1.png")
    (tmp_path / "dog" / "Thumbs.db").write_bytes(b"")
    (tmp_path / "names.csv").write_text("number,name\n1,cat\n")
    (tmp_path / "empty").mkdir()
    assert len(labelled(load(tmp_path))) == 6
    assert verdicts(tmp_path) == {
        "found by": "a folder for each class",
        "classes": "2 (cat, dog)",
        "pictures": "6",
        "passed over": "2 hidden files or folders, 2 files that are no pictures, 1 picture in no folder of a "
        "class, 1 folder without pictures (empty)",
    }


def test_every_file_is_located(tmp_path: Path) -> None:
    paint_classes(tmp_path, count=1)
    pictures = (tmp_path / "cat" / "0.png", tmp_path / "dog" / "0.png")
    assert ImageFolder().locate(tmp_path) == (tmp_path, pictures)
    write_list(tmp_path, "path,label\ndog/0.png,b\ncat/0.png,a\n")
    assert ImageFolder().locate(tmp_path) == (tmp_path, (tmp_path / "images.csv", *reversed(pictures)))


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    elsewhere = paint_classes(tmp_path / "elsewhere")
    folder = tmp_path / "mine"
    paint(folder / "cow" / "0.png")
    (folder / "cat").symlink_to(elsewhere / "cat")
    (folder / "cow" / "1.png").symlink_to(elsewhere / "dog" / "1.png")
    (folder / "cow" / "back").symlink_to(folder)
    (folder / "cow" / "gone.png").symlink_to(folder / "nowhere.png")
    os.mkfifo(folder / "cow" / "pipe.png")
    assert Counter(labelled(load(folder)).values()) == {"cat": 3, "cow": 2}
    assert verdicts(folder)["passed over"] == "2 files that are no pictures"


@pytest.mark.parametrize(
    "name", ["a b.png", "[red]x[bold].png", "Größe 😀.png", "two\nlines.png", "-o.png", "%s{0}.png"]
)
def test_any_name_will_do(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    paint(tmp_path / "cat" / "1.png")
    paint(tmp_path / name.removesuffix(".png") / name, BLUE)
    images = load(tmp_path)
    assert len(images.images) == 2
    assert images.images.read(np.arange(2)).shape == (2, 3, 8, 8)
    assert all(shown.isprintable() for shown in images.class_names)
    assert main(["data", "check", "image_folder", "--data-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "2 images of 2 classes, 1 of each" in shown
    if name.isprintable():
        assert name.removesuffix(".png") in shown


def test_a_name_that_is_no_text_at_all_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paint_classes(tmp_path)
    try:
        (tmp_path / os.fsdecode(b"\xff")).mkdir()
    except OSError:
        pytest.skip("this file system has only names that are texts")
    (tmp_path / "dog" / "0.png").rename(tmp_path / os.fsdecode(b"\xff") / os.fsdecode(b"\xfe.png"))
    assert load(tmp_path).images.read(np.arange(6)).shape[0] == 6
    assert main(["data", "check", "image_folder", "--data-dir", str(tmp_path)]) == 0
    assert "'\\udcff'" in capsys.readouterr().out


# Lists


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", ["path,label", "Filename,Class", "file_name, category ", "id,image,label"])
def test_a_list_names_the_pictures(tmp_path: Path, delimiter: str, header: str) -> None:
    paint_classes(tmp_path, classes=["some"])
    header = header.replace(",", delimiter)
    first = f"7{delimiter}" if header.startswith("id") else ""
    rows = [f"{first}some/{number}.png{delimiter}{label}" for number, label in ((2, "b"), (0, "a"), (1, "b"))]
    for ending in ("\n", "\r\n"):
        write_list(tmp_path, ending.join([header, *rows, ""]))
        images = load(tmp_path)
        assert labelled(images) == {"some/2.png": "b", "some/0.png": "a", "some/1.png": "b"}
        assert images.class_names == ("a", "b")


def test_a_list_as_spreadsheets_write_it(tmp_path: Path) -> None:
    for name in ("a, b.png", "Größe.png", "two\nlines.png", "c.png"):
        paint(tmp_path / name)
    text = (
        'path,label,,\r\n"a, b.png","cats, big",,\r\n,,,\r\nGröße.png,"say ""cat""",,\r\n\r\n'
        '"two\nlines.png",dog,,\r\n./c.png,dog,,\r\n'
    )
    write_list(tmp_path, text, encoding="utf-8-sig")
    assert labelled(load(tmp_path)) == {
        "a, b.png": "cats, big",
        "Größe.png": 'say "cat"',
        "two\nlines.png": "dog",
        "c.png": "dog",
    }


def test_times_tasks_and_parts_of_a_list(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    text = (
        "path,label,time,task,split\n"
        "cat/0.png,cat,30,2,train\ncat/1.png,cat,10.5,2,test\ncat/2.png,cat,1e3,1,val\n"
        "dog/0.png,dog,-4,1,train\ndog/1.png,dog,5,1,Test\n"
    )
    images = load(write_list(tmp_path, text))
    assert images.is_test is not None
    assert images.is_test.tolist() == [False, True, False, True]  # validation left out
    assert images.times is not None
    assert images.times.tolist() == [30, 10.5, -4, 5]
    assert images.given_tasks is not None
    assert images.given_tasks.tolist() == [2, 2, 1, 1]
    assert verdicts(tmp_path) == {
        "found by": "images.csv, by its columns path, label, time, task, split",
        "classes": "2 (cat, dog)",
        "pictures": "4",
        "passed over": "1 picture for validation, 2 pictures not listed",
    }


def test_dates_become_times(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    text = (
        "path,label,time\ncat/0.png,cat,1970-01-02\ncat/1.png,cat,1970-01-01T00:00:30Z\n"
        "dog/0.png,dog,1970-01-01 01:00:00\ndog/1.png,dog,1970-01-01T01:00:00+01:00\n"
    )
    images = load(write_list(tmp_path, text))
    assert images.times is not None
    assert images.times.tolist() == [86_400, 30, 3_600, 0]


def test_a_list_is_taken_for_one_by_its_columns(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    write_list(tmp_path, "path,label\ncat/0.png,x\ncat/1.png,y\n", name="mine.csv")
    assert load(tmp_path).class_names == ("x", "y")
    write_list(tmp_path, "number,name\n0,cat\n", name="labels.csv")  # no list, whatever its name
    assert load(tmp_path).class_names == ("x", "y")
    write_list(tmp_path, "path,label\ncat/0.png,1\ndog/1.png,2\n")
    assert load(tmp_path).class_names == ("1", "2")  # images.csv, before another name
    assert load(tmp_path, list="mine.csv").class_names == ("x", "y")
    (tmp_path / "lists").mkdir()
    write_list(tmp_path / "lists", "path,label\ndog/0.png,7\ndog/1.png,8\n", name="some.tsv")
    assert load(tmp_path, list="lists/some.tsv").class_names == ("7", "8")


def test_a_list_may_name_files_of_any_ending(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    (tmp_path / "cat" / "0.png").rename(tmp_path / "cat" / "0")
    write_list(tmp_path, "path,label\ncat/0,cat\ndog/0.png,dog\n")
    assert load(tmp_path).images.read(np.arange(2)).shape == (2, 3, 8, 8)


def test_several_lists_need_a_choice(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    for name in ("one.csv", "two.csv"):
        write_list(tmp_path, "path,label\ncat/0.png,x\ncat/1.png,y\n", name=name)
    assert refusal(tmp_path) == (
        f"{tmp_path} holds several lists (one.csv, two.csv): name one with --benchmark.list"
    )


BAD_LISTS = {
    "": "is empty: it must begin with a header such as path,label",
    "path,label\n": "lists no pictures: below its header there is nothing",
    "name,kind,x\ncat/0.png,cat,1\n": "must have a column path and a column label in its first line, and has "
    "name, kind, x",
    "cat/0.png,cat\ndog/0.png,dog\n": "must have a column path and a column label in its first line, and has "
    "cat/0.png, cat",
    "path,label\ncat/0.png,cat\ndog/0.png,\n": "line 3 has no label",
    "path,label\ncat/0.png,cat\n,dog\n": "line 3 has no path",
    "path,label,time\ncat/0.png,cat,1\ndog/0.png,dog,\n": "line 3 has no time",
    "path,label\ncat/0.png\n": "line 2 has 1 fields and the header has 2",
    "path,label\na, b.png,cat\n": "line 2 has 3 fields and the header has 2: put what holds commas into "
    "double quotes",
    'path,label\n"cat/0.png,cat\n': "line 2 cannot be read as a table: unexpected end of data",
    "path,label\n../secret.png,cat\ndog/0.png,dog\n": "line 2: ../secret.png leads out of the folder",
    "path,label\ncat/../../secret.png,cat\ndog/0.png,dog\n": "leads out of the folder",
    "path,label\n/etc/passwd,cat\ndog/0.png,dog\n": "line 2: /etc/passwd leads out of the folder",
    "path,label\ncat/0.png,cat\n./cat//0.png,dog\n": "line 3: cat/0.png was named before, in line 2",
    "path,label\ncat/0.png,cat\ndog/9.png,dog\ndog,dog\n\ndog/0.png,dog\n"
    + "x" * 300
    + ",dog\n": "names files that are not in ",
    "path,label,time\ncat/0.png,cat,soon\ndog/0.png,dog,1\n": "line 2: time must be a date such as "
    "2024-05-31 or 2024-05-31T12:30, or a number, got 'soon'",
    "path,label,time\ncat/0.png,cat,1\ndog/0.png,dog,2024-05-31\n": "line 3: time must be a number, as the "
    "first is, got '2024-05-31'",
    "path,label,time\ncat/0.png,cat,nan\ndog/0.png,dog,1\n": "line 2: time must be ",
    "path,label,task\ncat/0.png,cat,1.5\ndog/0.png,dog,1\n": "line 2: task must be a whole number, got '1.5'",
    "path,label,split\ncat/0.png,cat,train\ndog/0.png,dog,maybe\n": "line 3: split must be train or test, "
    "got 'maybe'",
    "path,label,split\ncat/0.png,cat,train\ndog/0.png,dog,train\n": "says train or test, and no row "
    "says test",
    "path,label,split\ncat/0.png,cat,test\ndog/0.png,dog,test\n": "says train or test, and no row says train",
    "path,label,split\ncat/0.png,cat,train\ndog/0.png,dog,test\n": "dog: there are images to test on, but "
    "none to train on",
    "path,label\ncat/0.png,cat\ncat/1.png,cat\n": "holds pictures of one class only, cat",
}


@pytest.mark.parametrize("text", BAD_LISTS, ids=range(len(BAD_LISTS)))
def test_a_wrong_list_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    paint(tmp_path / "secret.png")
    folder = paint_classes(tmp_path / "mine")
    assert BAD_LISTS[text] in refusal(write_list(folder, text), list="images.csv")


def test_missing_files_are_named_with_their_lines(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    write_list(tmp_path, "path,label\ncat/0.png,cat\ndog/9.png,dog\ndog/8.png,dog\nx,y\nz,y\n")
    assert refusal(tmp_path) == (
        f"{tmp_path}/images.csv names files that are not in {tmp_path}: dog/9.png in line 3, dog/8.png in "
        "line 4, x in line 5 and 1 more"
    )


@pytest.mark.parametrize(("encoding", "line"), [("latin-1", 3), ("utf-16", 1)])
def test_a_list_in_another_encoding_is_refused(tmp_path: Path, encoding: str, line: int) -> None:
    write_list(tmp_path, "path,label\ncat/0.png,cat\nGröße.png,dog\n", encoding=encoding)
    assert refusal(tmp_path, list="images.csv") == (
        f"{tmp_path}/images.csv, line {line} is not UTF-8: save the list with that encoding"
    )


@pytest.mark.parametrize("name", ["gone.csv", "cat"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    paint_classes(tmp_path)
    assert refusal(tmp_path, list=name) in (
        f"there is no list {tmp_path}/gone.csv",
        f"{tmp_path}/cat cannot be read: Is a directory",
    )


def test_a_lone_table_says_what_it_lacks_where_there_is_nothing_else(tmp_path: Path) -> None:
    paint(tmp_path / "pictures" / "0.png")
    write_list(tmp_path, "picture,kind\npictures/0.png,cat\n", name="mine.csv")
    assert refusal(tmp_path).endswith("in its first line, and has picture, kind")


# Folders with which nothing can be done


def test_folders_with_which_nothing_can_be_done(tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match=r"^image_folder reads your own pictures: .* with --data-dir$"):
        ImageFolder().load(None)
    assert refusal(tmp_path / "gone").startswith(f"there is no folder {tmp_path}/gone")
    assert refusal(tmp_path).startswith(f"{tmp_path} holds no pictures (files ending in .bmp, ")
    paint(tmp_path / "0.png")
    assert refusal(tmp_path).startswith(f"{tmp_path} holds pictures but no folders of classes: put ")
    assert refusal(tmp_path / "0.png").startswith("there is no folder ")
    paint(tmp_path / "cat" / "0.png")
    assert refusal(tmp_path).startswith(f"{tmp_path} holds pictures of one class only, cat: ")


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    paint_classes(tmp_path / "train")
    paint(tmp_path / "test" / "0.png")
    assert refusal(tmp_path).endswith(
        "no picture to test lies in a folder of its class, as test/CLASS/picture.png"
    )
    for name in ("cat", "cow", "pig", "hen", "bee"):
        paint(tmp_path / "test" / name / "0.png")
    assert refusal(tmp_path).startswith(
        "bee, cow, hen and 1 more: there are images to test on, but none to train"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fit": "crop"}, "there is no fit 'crop'"),
        ({"side": 4}, "benchmark.side must be a whole number from 8 to 1024, got 4"),
        ({"test_share": 1.0}, "benchmark.test_share must be above 0 and below 1, such as 0.2, got 1.0"),
        ({"test_share": 0.0}, "benchmark.test_share must be a number above 0, got 0.0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        ImageFolder(**options)


# Splits and tasks


def tasks_of(folder: Path, seed: int = 0, options: dict[str, Any] | None = None, **stream: Any) -> list[Task]:
    benchmark = ImageFolder(side=8, **(options or {}))
    settings = RunSettings(StreamSettings(batch_size=1, **stream))
    generator = torch.Generator().manual_seed(seed)
    return lay_out(settings, seed, benchmark, benchmark.load(folder), generator)


def test_a_share_of_each_class_is_for_testing(tmp_path: Path) -> None:
    for name, count in (("a", 10), ("b", 4), ("c", 2), ("d", 1)):
        paint_classes(tmp_path, [name], count)
    images = load(tmp_path)
    for share, expected in ((0.2, [2, 1, 1, 0]), (0.3, [3, 1, 1, 0]), (0.99, [9, 3, 1, 0])):
        is_test, tasks = ImageFolder(test_share=share).arrange(images, 0, None)
        assert np.bincount(images.labels[is_test], minlength=4).tolist() == expected
        assert sorted(label for task in tasks for label in task) == [0, 1, 2, 3]
        assert len(tasks) == 4  # fewer classes than the usual five tasks


def test_the_seed_decides_the_split_unless_it_is_fixed(tmp_path: Path) -> None:
    images = load(paint_classes(tmp_path, count=30))

    def split(seed: int, how: str | None) -> list[bool]:
        return list(ImageFolder().arrange(images, seed, how).is_test)

    assert split(1, None) == split(1, "seed") != split(2, "seed")
    assert split(1, "fixed") == split(2, "fixed")
    with pytest.raises(EncoreError, match="there is no split 'official'"):
        split(0, "official")
    counts = np.sum([split(seed, "seed") for seed in range(300)], axis=0)
    # Each of the 60 is tested in a fifth of 300 splits, with a deviation of 6.9: none is favoured.
    assert 60 - 5 * 6.9 < counts.min() < counts.max() < 60 + 5 * 6.9


def test_seeds_decide_the_stream_which_passes_once(tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(10)]
    check_seeds(ImageFolder(side=8), paint_classes(tmp_path / "mine", names, count=10))


def test_five_tasks_unless_asked_for_otherwise(tmp_path: Path) -> None:
    paint_classes(tmp_path, [f"class {number}" for number in range(12)], count=2)
    assert [len(task.classes) for task in tasks_of(tmp_path)] == [3, 3, 2, 2, 2]
    assert [len(task.classes) for task in tasks_of(tmp_path, tasks=4)] == [3, 3, 3, 3]


def test_a_class_of_one_picture_is_taught_and_a_task_of_it_refused(tmp_path: Path) -> None:
    paint_classes(tmp_path, ["a", "b"], count=2)
    paint_classes(tmp_path, ["c"], count=1)
    assert sum(len(task.train) for task in tasks_of(tmp_path, tasks=1)) == 3
    with pytest.raises(EncoreError, match=r"task \d has no test images"):
        tasks_of(tmp_path, tasks=3)


def test_times_and_tasks_of_a_list_make_streams(tmp_path: Path) -> None:
    paint_classes(tmp_path, count=20)
    rows = [
        f"{name}/{number}.png,{name},{100 - number},{number // 10 + 7}"
        for name in ("cat", "dog")
        for number in range(20)
    ]
    write_list(tmp_path, "\n".join(["path,label,time,task", *rows]))
    given = tasks_of(tmp_path, kind="given")
    images = load(tmp_path)
    assert images.times is not None
    assert images.given_tasks is not None
    for number, task in zip((7, 8), given, strict=True):
        assert set(images.given_tasks[task.train].tolist()) == {number}
        assert Counter(images.labels[task.test].tolist()) == {0: 2, 1: 2}  # a fifth of each class in it
    by_time = np.concatenate([images.times[task.train] for task in tasks_of(tmp_path, kind="by_time")])
    assert (np.diff(by_time) >= 0).all()
    (tmp_path / "images.csv").unlink()
    for kind, sentence in (("by_time", "does not know when"), ("given", "does not say which image")):
        with pytest.raises(EncoreError, match=sentence):
            tasks_of(tmp_path, kind=kind)


# Files that cannot be read


def reason(folder: Path, row: int = 0) -> str:
    images = load(folder).images
    with pytest.raises(BrokenImagesError) as caught:
        images.read(np.arange(len(images)))
    assert set(caught.value.reasons) == {row}
    return caught.value.reasons[row]


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    images = load(paint_classes(tmp_path)).images
    (tmp_path / "cat" / "1.png").unlink()
    with pytest.raises(BrokenImagesError, match=r"/cat/1\.png has vanished"):
        images.read(np.array([1]))
    assert images.read(np.array([0, 2])).shape[0] == 2


def test_what_may_not_be_read(tmp_path: Path) -> None:
    paint_classes(tmp_path)
    (tmp_path / "cat" / "0.png").chmod(0)
    if os.access(tmp_path / "cat" / "0.png", os.R_OK):
        pytest.skip("nothing is unreadable to this user, who is root")
    assert reason(tmp_path) == f"{tmp_path}/cat/0.png cannot be read (Permission denied)"
    (tmp_path / "cat").chmod(0)
    try:
        assert refusal(tmp_path) == f"{tmp_path}/cat cannot be listed: Permission denied"
    finally:
        (tmp_path / "cat").chmod(0o700)


def test_a_folder_that_vanishes_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint_classes(tmp_path)
    scan = os.scandir

    def vanish(path: Any) -> Any:
        if Path(path).name == "cat":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", vanish)
    assert refusal(tmp_path) == f"{tmp_path}/cat cannot be listed: No such file or directory"


def test_a_huge_picture_is_not_unpacked(tmp_path: Path) -> None:
    paint_classes(tmp_path)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    (tmp_path / "cat" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b""))
    assert "60000" in reason(tmp_path) or "3600000000" in reason(tmp_path)


# The whole way


def run(
    capsys: pytest.CaptureFixture[str], folder: Path, out: Path, *more: str, batch_size: str = "3"
) -> tuple[int, str]:
    arguments = [
        "run",
        "--benchmark",
        "image_folder",
        "--data-dir",
        str(folder),
        *SMALL,
        "--batch-size",
        batch_size,
    ]
    status = main([*arguments, "--out", str(out), *more])
    return status, capsys.readouterr().err


def test_broken_pictures_stop_a_run_or_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = paint_classes(tmp_path / "my [pictures]", [f"class {number}" for number in range(4)], count=10)
    truncated = folder / "class 1" / "4.png"
    truncated.write_bytes(truncated.read_bytes()[:60])
    empty = folder / "class 3" / "7.png"
    empty.write_bytes(b"")
    status, sentence = run(capsys, folder, tmp_path / "stopped")
    assert status == 2
    assert sentence.startswith(f"encore: error: {truncated} cannot be ")
    assert sentence.count("\n") == 1
    assert not (tmp_path / "stopped").exists()
    assert run(capsys, folder, tmp_path / "one", "--skip-broken", "1")[0] == 2

    status, sentence = run(capsys, folder, tmp_path / "runs", "--skip-broken", "2", "--tasks", "2")
    assert (status, sentence) == (0, "")
    record = json.loads((tmp_path / "runs" / "seed-0" / "record.json").read_text())
    assert [
        Path(skipped.partition(" cannot")[0].partition(" is ")[0]) for skipped in record["images_skipped"]
    ] == [
        truncated,
        empty,
    ]
    assert [len(task["classes"]) for task in record["tasks"]] == [2, 2]
    assert main(["show", str(tmp_path / "runs")]) == 0
    told = capsys.readouterr().out
    assert "left out, as broken: 2 of the images\n" in told
    assert all(f"  {reason}\n" in told for reason in record["images_skipped"])
    assert (record["config"]["image_shape"], record["config"]["num_classes"]) == ([3, 16, 16], 4)
    assert record["config"]["parts"]["benchmark"]["options"]["side"] == 16


def test_options_reach_the_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = paint_classes(tmp_path / "mine", count=10)
    options = ["--benchmark.grey", "--benchmark.fit", "stretch", "--benchmark.test-share", "0.5"]
    assert run(capsys, folder, tmp_path / "runs", *options, "--split", "fixed", "--quiet") == (0, "")
    record = json.loads((tmp_path / "runs" / "seed-0" / "record.json").read_text())
    assert record["config"]["image_shape"] == [1, 16, 16]
    assert [(task["train"], task["test"]) for task in record["tasks"]] == [(5, 5), (5, 5)]
    status, sentence = run(capsys, folder, tmp_path / "more", batch_size="9")
    assert (status, sentence) == (
        2,
        "encore: error: the batch size must be from 1 to 8, the size of the smallest task, got 9: choose a "
        "smaller one, or fewer tasks\n",
    )
