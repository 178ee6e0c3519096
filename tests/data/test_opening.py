from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.data.shelf import Shelf, fill_shelf

from encore.data import opening, prepared
from encore.data.benchmark import Located
from encore.data.image_set import BrokenImagesError, ImageSet
from encore.data.mapped import DamagedError, MappedImages
from encore.data.opening import (
    Choice,
    find_prepared,
    fingerprint,
    forget,
    look,
    open_images,
    prepare,
    prepared_folder,
    verify,
)
from encore.data.pictures import PictureFiles
from encore.data.prepared import NotStoredError
from encore.errors import EncoreError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    fill_shelf(tmp_path / "pictures")
    return tmp_path / "pictures"


@pytest.fixture
def choice(pictures: Path) -> Choice:
    return Choice(Shelf(), {"num_channels": 3}, pictures)


class Told:
    """What a user was told."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def __call__(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def told() -> Told:
    return Told()


def pixels_of(images: ImageSet) -> NDArray[np.uint8]:
    return images.images.read(np.arange(len(images.images)))


def repaint(file: Path, seconds_later: float = 1.0) -> None:
    """Give a picture other pixels, and the time of a later change."""
    before = file.stat()
    with Image.open(file) as picture:
        painted = Image.new(picture.mode, picture.size, "red")
    painted.save(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + int(seconds_later * 1e9)))


# Where it lies.


def test_the_place(choice: Choice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice.path.parent == tmp_path / "cache" / "encore" / "data" / "prepared"
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path / "data"))
    assert choice.path.parent == tmp_path / "data" / "prepared"
    assert choice.path.name.startswith("shelf-")


def test_each_folder_and_each_choice_of_options_has_its_own(pictures: Path) -> None:
    choices = [
        Choice(Shelf(), {"num_channels": channels}, folder)
        for channels in (1, 3)
        for folder in (pictures, pictures.parent, None)
    ]
    assert len({choice.path for choice in choices}) == 6


def test_a_folder_is_the_same_however_it_is_written(
    choice: Choice, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pictures.parent)
    (pictures.parent / "link").symlink_to(pictures)
    for written in ("pictures", "./pictures", "link", "pictures/class 0/.."):
        assert Choice(Shelf(), {"num_channels": 3}, Path(written)).path == choice.path


def test_the_command_line_names_what_is_not_usual(pictures: Path) -> None:
    assert Choice(Shelf(), {"num_channels": 3}).command("prepare") == "encore data prepare shelf"
    assert Choice(Shelf(), {"num_channels": 1}, Path("a b")).command("check") == (
        "encore data check shelf --benchmark.num-channels=1 --data-dir 'a b'"
    )


def test_nothing_is_written_where_the_pictures_lie(choice: Choice, pictures: Path) -> None:
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in [pictures, *pictures.rglob("*")]}

    before = state()
    prepare(choice)
    assert state() == before


# A run.


def test_a_run_uses_what_was_prepared(choice: Choice, told: Told) -> None:
    decoded = open_images(choice, 0, told)
    assert isinstance(decoded.images, PictureFiles)
    assert not prepared_folder().exists()
    prepare(choice)
    mapped = open_images(choice, 0, told)
    assert isinstance(mapped.images, MappedImages)
    assert np.array_equal(pixels_of(mapped), pixels_of(decoded))
    assert told.sentences == []


def test_without_a_folder_named_the_usual_places_are_looked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path))
    fill_shelf(tmp_path / "shelf")
    outcome = prepare(Choice(Shelf()))
    assert outcome.prepared.path.parent == tmp_path / "prepared"
    assert isinstance(open_images(Choice(Shelf()), 0, told).images, MappedImages)


def test_other_options_are_prepared_for_themselves(choice: Choice, pictures: Path, told: Told) -> None:
    prepare(choice)
    grey = Choice(Shelf(num_channels=1), {"num_channels": 1}, pictures)
    assert isinstance(open_images(grey, 0, told).images, PictureFiles)
    prepare(grey)
    assert open_images(grey, 0, told).images.shape == (1, 6, 6)
    assert open_images(choice, 0, told).images.shape == (3, 6, 6)


# Doing it again.


def test_what_is_there_and_right_is_left_alone(choice: Choice) -> None:
    first = prepare(choice)
    assert first.is_new
    before = choice.path.stat()
    again = prepare(choice)
    assert not again.is_new
    assert choice.path.stat().st_ino == before.st_ino
    assert choice.path.stat().st_mtime_ns == before.st_mtime_ns
    assert np.array_equal(pixels_of(again.prepared.image_set), pixels_of(first.prepared.image_set))


def add(pictures: Path) -> None:
    Image.new("RGB", (6, 6)).save(pictures / "class 1" / "new.png")


def remove(pictures: Path) -> None:
    (pictures / "class 2" / "0.png").unlink()


def rename(pictures: Path) -> None:
    (pictures / "class 0" / "0.png").rename(pictures / "class 0" / "9.png")


def alter(pictures: Path) -> None:
    repaint(pictures / "class 1" / "3.png")


CHANGES = [add, remove, rename, alter]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("by", ["run", "prepare"])
def test_files_that_changed_are_prepared_again(
    change: Callable[[Path], None], by: str, choice: Choice, pictures: Path, told: Told
) -> None:
    prepare(choice)
    change(pictures)
    if by == "prepare":
        outcome = prepare(choice)
        assert outcome.is_new
        found = outcome.prepared.image_set
    else:
        found = open_images(choice, 0, told)
        assert told.sentences == [f"shelf is prepared again, as files in {pictures} have changed since"]
        assert isinstance(found.images, MappedImages)
    assert np.array_equal(pixels_of(found), pixels_of(Shelf().load(pictures)))
    assert not prepare(choice).is_new


def test_a_file_of_another_version_is_prepared_again(
    choice: Choice, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(opening, "VERSION", "0.0.1")
        prepare(choice)
    open_images(choice, 0, told)
    assert told.sentences == [f"shelf is prepared again, as {choice.path} was written by Encore 0.0.1"]
    assert not prepare(choice).is_new


def test_a_file_of_another_format_is_prepared_again(
    choice: Choice, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(prepared, "FORMAT", "0")
        prepare(choice)
    assert isinstance(open_images(choice, 0, told).images, MappedImages)
    (sentence,) = told.sentences
    assert "has another format" in sentence
    assert not prepare(choice).is_new


def test_a_file_in_the_place_of_another_is_not_taken_for_it(
    choice: Choice, pictures: Path, told: Told
) -> None:
    grey = Choice(Shelf(num_channels=1), {"num_channels": 1}, pictures)
    prepare(grey)
    grey.path.rename(choice.path)
    assert open_images(choice, 0, told).images.shape == (3, 6, 6)
    assert "was prepared with other options" in told.sentences[0]


# The source is gone.


def test_what_was_prepared_is_used_when_the_files_are_gone(
    choice: Choice, pictures: Path, told: Told
) -> None:
    before = pixels_of(prepare(choice).prepared.image_set)
    pictures.rename(pictures.parent / "elsewhere")
    assert np.array_equal(pixels_of(open_images(choice, 0, told)), before)
    assert told.sentences == []
    found = look(choice)
    assert (found.source, found.problem) == (None, "")
    assert not prepare(choice).is_new


def test_an_emptied_folder_counts_as_gone(choice: Choice, pictures: Path, told: Told) -> None:
    prepare(choice)
    for picture in pictures.rglob("*.png"):
        picture.unlink()
    assert isinstance(open_images(choice, 0, told).images, MappedImages)


def test_nothing_prepared_and_nothing_there_is_said(choice: Choice, pictures: Path, told: Told) -> None:
    pictures.rename(pictures.parent / "elsewhere")
    for attempt in (lambda: prepare(choice), lambda: open_images(choice, 0, told)):
        with pytest.raises(EncoreError, match=r"shelf was not found in .*: call fill_shelf"):
            attempt()
    assert find_prepared("shelf") == []


def test_an_unreadable_format_and_no_files_is_said(
    choice: Choice, pictures: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(prepared, "FORMAT", "0")
        prepare(choice)
    pictures.rename(pictures.parent / "elsewhere")
    with pytest.raises(EncoreError, match="shelf was not found in"):
        open_images(choice, 0, told)


def test_a_source_that_says_what_is_wrong_with_it_is_heard(
    choice: Choice, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(choice)

    def refuse(shelf: Shelf, folder: Path) -> tuple[Path, ...]:
        raise EncoreError("the list is damaged")

    monkeypatch.setattr(Shelf, "list_files", refuse)
    with pytest.raises(EncoreError, match="the list is damaged"):
        open_images(choice, 0, told)


# Fingerprints.


Tree = dict[str, tuple[int, int]]  # of each file its size, and seconds of the last change

TREES = st.dictionaries(
    st.text("abc/ é", min_size=1, max_size=6).filter(lambda name: all(name.split("/"))),
    st.tuples(st.integers(0, 5), st.integers(1, 5)),
    max_size=5,
).filter(lambda tree: not any(other.startswith(f"{name}/") for name in tree for other in tree))


def fingerprint_of(tree: Tree, folder: Path) -> str:
    files = []
    for name, (size, seconds) in sorted(tree.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))
        os.utime(folder / name, (0, seconds))
        files.append(folder / name)
    return fingerprint(Located(folder, tuple(files)))


@given(one=TREES, other=TREES)
@settings(max_examples=150, deadline=None)
def test_fingerprints_are_equal_for_equal_files_only(
    one: Tree, other: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first, second = (fingerprint_of(tree, tmp_path_factory.mktemp("tree")) for tree in (one, other))
    assert (first == second) == (one == other)


@given(tree=TREES.filter(bool), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_smallest_change_is_seen(
    tree: Tree, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.sampled_from(sorted(tree)))
    size, seconds = tree[name]
    changed: Tree = dict(tree)
    match data.draw(st.sampled_from(["remove", "add", "rename", "size", "time"])):
        case "remove":
            del changed[name]
        case "add":
            changed["added"] = (0, 1)
        case "rename":
            changed["renamed"] = changed.pop(name)
        case "size":
            changed[name] = (size + 1, seconds)
        case _:
            changed[name] = (size, seconds + 1)
    first, second = (fingerprint_of(each, tmp_path_factory.mktemp("tree")) for each in (tree, changed))
    assert first != second
    assert fingerprint_of(tree, tmp_path_factory.mktemp("tree")) == first


@pytest.mark.parametrize("other", [{"a1": (2, 3)}, {"a": (1, 3), "b": (2, 3)}, {}])
def test_what_is_written_side_by_side_is_not_confused(other: Tree, tmp_path: Path) -> None:
    tree: Tree = {"a": (12, 3)}
    assert fingerprint_of(tree, tmp_path / "one") != fingerprint_of(other, tmp_path / "other")


def test_a_file_that_vanished_changes_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    located = Located(tmp_path, (tmp_path / "a",))
    before = fingerprint(located)
    (tmp_path / "a").unlink()
    assert fingerprint(located) != before


def test_a_name_that_is_no_text_has_a_fingerprint(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    file.write_bytes(b"a")
    assert fingerprint(Located(tmp_path, (file,))) != fingerprint(Located(tmp_path, ()))


# Damage.


def flip_bit_of_an_image(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 + 5)
        (byte,) = file.read(1)
        file.seek(4096 + 5)
        file.write(bytes([byte ^ 4]))


def test_a_damaged_image_is_refused_with_the_way_out_which_works(
    choice: Choice, pictures: Path, told: Told
) -> None:
    prepare(choice)
    flip_bit_of_an_image(choice.path)
    images = open_images(choice, 0, told)
    with pytest.raises(DamagedError) as caught:
        pixels_of(images)
    assert str(caught.value) == (
        f"{choice.path} is damaged (image 0 does not match its checksum): make it anew with "
        f"`encore data prepare shelf --data-dir {pictures}`"
    )
    with pytest.raises(DamagedError):
        verify(look(choice).prepared or pytest.fail("it was not found"))
    assert prepare(choice).is_new
    assert np.array_equal(pixels_of(open_images(choice, 0, told)), pixels_of(Shelf().load(pictures)))


def test_a_truncated_file_is_refused_with_the_way_out_which_works(choice: Choice, told: Told) -> None:
    prepare(choice)
    choice.path.write_bytes(choice.path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match="is truncated: make it anew with `encore data prepare shelf"):
        open_images(choice, 0, told)
    assert prepare(choice).is_new
    open_images(choice, 0, told)


# Broken pictures.


def test_broken_pictures_stop_a_run_as_they_would_without_preparing(
    choice: Choice, pictures: Path, told: Told
) -> None:
    (pictures / "class 1" / "2.png").write_bytes(b"no picture")
    with pytest.raises(EncoreError, match=r"class 1/2.png is not a picture .*--skip-broken N"):
        prepare(choice)
    assert find_prepared("shelf") == []
    assert prepare(choice, skip_broken=1).is_new
    assert not prepare(choice, skip_broken=1).is_new
    with pytest.raises(EncoreError, match=r"class 1/2.png is not a picture .*--skip-broken N"):
        prepare(choice, skip_broken=0)
    with pytest.raises(BrokenImagesError, match="is not a picture"):
        pixels_of(open_images(choice, 0, told))


def test_a_mended_picture_is_taken_up(choice: Choice, pictures: Path, told: Told) -> None:
    picture = pictures / "class 1" / "2.png"
    content = picture.read_bytes()
    picture.write_bytes(b"no picture")
    prepare(choice, skip_broken=1)
    picture.write_bytes(content)
    assert np.array_equal(pixels_of(open_images(choice, 0, told)), pixels_of(Shelf().load(pictures)))
    assert len(told.sentences) == 1


# What comes between.


def leftovers() -> list[str]:
    return [path.name for path in prepared_folder().iterdir() if path.suffix != ".lock"]


def test_files_that_change_meanwhile_are_noticed(choice: Choice, pictures: Path) -> None:
    def interfere(done: int, total: int) -> None:
        repaint(pictures / "class 0" / "0.png")

    with pytest.raises(EncoreError, match=f"files in {pictures} changed while they were being prepared"):
        prepare(choice, report=interfere)
    assert leftovers() == []


def test_being_stopped_leaves_nothing(choice: Choice) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(choice, report=stop)
    assert leftovers() == []


PREPARE_SLOWLY = """
import sys, time
from pathlib import Path
from tests.data.shelf import Shelf
from encore.data.opening import Choice, prepare

def wait(done, total):
    print("begun", flush=True)
    time.sleep(60)

prepare(Choice(Shelf(), {"num_channels": 3}, Path(sys.argv[1])), report=wait)
"""


def test_being_killed_leaves_no_file_and_the_next_clears_up(
    choice: Choice, pictures: Path, told: Told
) -> None:
    command = [sys.executable, "-c", PREPARE_SLOWLY, str(pictures)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        with pytest.raises(NotStoredError, match="another process is preparing shelf: wait until it is done"):
            prepare(choice)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert [name.endswith(".part") for name in leftovers()] == [True]
    assert find_prepared("shelf") == []
    assert isinstance(open_images(choice, 0, told).images, PictureFiles)
    assert prepare(choice).is_new
    assert leftovers() == [choice.path.name]


def test_a_run_goes_on_without_where_another_process_is_preparing(
    choice: Choice, pictures: Path, told: Told
) -> None:
    prepare(choice)
    alter(pictures)
    with choice.path.with_name(f".{choice.path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert isinstance(open_images(choice, 0, told).images, PictureFiles)
    assert told.sentences[1] == (
        "shelf is decoded as it is needed: another process is preparing shelf: wait until it is done"
    )


def test_a_run_goes_on_without_where_there_is_no_room(
    choice: Choice, pictures: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(choice)
    alter(pictures)
    monkeypatch.setattr(prepared, "_free", lambda path: 100)
    assert isinstance(open_images(choice, 0, told).images, PictureFiles)
    assert "kB are needed in" in told.sentences[1]
    with pytest.raises(NotStoredError, match="kB are needed in"):
        prepare(choice)


def test_a_place_that_cannot_be_written_to_is_said(
    choice: Choice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path / "file"))
    with pytest.raises(NotStoredError, match=r"nothing can be written to .*/prepared \(Not a directory\)"):
        prepare(choice)


# Forgetting.


def test_forgetting_deletes_all_of_a_benchmark_and_nothing_else(choice: Choice, pictures: Path) -> None:
    grey = Choice(Shelf(num_channels=1), {"num_channels": 1}, pictures)
    prepare(choice)
    prepare(grey)
    other = prepared_folder() / "shelf_two-01234567.safetensors"
    other.write_bytes(b"")
    before = sorted(pictures.rglob("*"))
    assert set(forget("shelf")) == {choice.path, grey.path}
    assert forget("shelf") == {}
    assert leftovers() == [other.name]
    half = prepared_folder() / f".{choice.path.name}.123.part"
    half.write_bytes(b"half")
    assert forget("shelf") == {half: 4}
    assert sorted(pictures.rglob("*")) == before


def test_what_is_being_prepared_is_not_forgotten(choice: Choice) -> None:
    prepare(choice)
    with choice.path.with_name(f".{choice.path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EncoreError, match="another process is writing"):
            forget("shelf")
    assert choice.path.is_file()
