from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.data.shelf import Shelf, fill_shelf

from encore.data.benchmark import FileCheck
from encore.data.inventory import Listing, PartCheck, check, describe_benchmarks
from encore.data.opening import Choice, prepare
from encore.datasets.digits import Digits
from encore.errors import EncoreError

if TYPE_CHECKING:
    from tests.data.conftest import Toy


def listing(toy: Toy, data_dir: Path) -> Listing:
    (found,) = describe_benchmarks([toy], data_dir)
    return found


def test_a_row_of_what_is_there(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    assert listing(toy, tmp_path) == Listing(
        name="toy",
        summary="A toy benchmark of two files of random bytes, published as one archive.",
        source="http://127.0.0.1:9/",
        terms="do as you like",
        steps="run `encore data fetch toy`",
        size="0 MB, 0 MB to fetch",
        embedded=False,
        path=tmp_path,
        named_by="the folder given",
        problem="",
        prepared=(),
    )


def test_listing_reads_no_file(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.unpack_into(tmp_path)
    monkeypatch.setattr(Path, "open", lambda *arguments: pytest.fail("a file was opened"))
    monkeypatch.setattr("builtins.open", lambda *arguments: pytest.fail("a file was opened"))
    assert listing(toy, tmp_path).is_here


@pytest.mark.parametrize(
    ("place", "named_by"),
    [
        ("given/toy", "the folder given"),
        ("environment", "$ENCORE_DATA"),
        ("cache/encore/data", "your cache folder"),
    ],
)
def test_a_row_says_who_named_the_folder(
    toy: Toy, place: str, named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path / "environment"))
    toy.unpack_into(tmp_path / place)
    found = listing(toy, tmp_path / "given")
    assert (found.path, found.named_by) == (tmp_path / place, named_by)


def test_a_row_of_what_lies_in_an_archive(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "toy-files.tar.gz").write_bytes(toy.archive)
    assert listing(toy, tmp_path).path == tmp_path / "toy-files.tar.gz"


def test_a_whole_archive_comes_before_a_folder_that_is_not(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/one").write_bytes(b"short")
    (tmp_path / "toy-files.tar.gz").write_bytes(toy.archive)
    assert listing(toy, tmp_path).path == tmp_path / "toy-files.tar.gz"


def test_a_row_of_what_is_incomplete(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/two").unlink()
    found = listing(toy, tmp_path)
    assert (found.path, found.is_here) == (tmp_path, False)
    assert found.problem == f"{tmp_path}/toy-files/two is missing"


def test_a_row_of_what_is_not_there(toy: Toy, tmp_path: Path) -> None:
    found = listing(toy, tmp_path)
    assert (found.path, found.named_by, found.is_here) == (None, "", False)
    assert found.problem.startswith("toy was not found in ")


def test_a_row_of_what_a_package_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = describe_benchmarks([Digits()], None)
    assert (found.embedded, found.path, found.is_here, found.problem) == (True, None, True, "")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    (found,) = describe_benchmarks([Digits()], None)
    assert not found.is_here
    assert "pip install" in found.problem


def test_every_file_is_checked_and_the_images_are_counted(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    found = check(Choice(toy, data_dir=tmp_path))
    assert found.is_right
    assert found.files == (
        FileCheck("toy-files/one", "150,000 bytes, checksum right"),
        FileCheck("toy-files/two", "70,000 bytes, checksum right"),
    )
    assert found.parts == (PartCheck("train", (1, 1, 1, 3)), PartCheck("test", (1, 0, 0, 1)))


def test_every_wrong_file_has_its_line(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/two").unlink()
    found = check(Choice(toy, data_dir=tmp_path))
    assert not found.is_right
    assert [file.problem for file in found.files] == [
        "",
        f"{tmp_path}/toy-files/two is missing, and toy needs it",
    ]
    assert found.parts == ()


def test_every_file_of_a_truncated_archive_has_its_line(toy: Toy, tmp_path: Path) -> None:
    path = tmp_path / "toy-files.tar.gz"
    path.write_bytes(toy.archive[:200_000])
    found = check(Choice(toy, data_dir=tmp_path))
    assert [file.name for file in found.files] == ["toy-files/one", "toy-files/two"]
    for file in found.files:
        assert file.problem.startswith(f"{path} is truncated or not a tar.gz archive")


def test_checking_what_is_not_there_says_where_it_was_looked_for(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match="toy was not found in"):
        check(Choice(toy, data_dir=tmp_path))


def test_checking_what_a_package_carries_counts_its_images() -> None:
    found = check(Choice(Digits()))
    assert found.files == ()
    assert [sum(part.images_per_class) for part in found.parts] == [1442, 355]


# Images that are decoded, and what was prepared from them.


@pytest.fixture
def choice(tmp_path: Path) -> Choice:
    fill_shelf(tmp_path / "pictures")
    return Choice(Shelf(), {"num_channels": 3}, tmp_path / "pictures")


def test_every_image_is_decoded(choice: Choice) -> None:
    seen: list[tuple[str, int, int]] = []
    found = check(choice, lambda *done: seen.append(done))
    assert found.is_right
    assert found.parts == (PartCheck("train", (3, 3, 4)), PartCheck("test", (2, 2, 1)))
    assert seen[-1] == ("decoding", 15, 15)


def test_every_broken_image_is_listed(choice: Choice, tmp_path: Path) -> None:
    for name in ("class 0/1.png", "class 2/4.png"):
        (tmp_path / "pictures" / name).write_bytes(b"no picture")
    found = check(choice)
    assert not found.is_right
    assert [reason.partition(" is ")[0] for reason in found.broken] == [
        f"{tmp_path}/pictures/class 0/1.png",
        f"{tmp_path}/pictures/class 2/4.png",
    ]


def test_what_was_prepared_is_compared(choice: Choice) -> None:
    path = prepare(choice).prepared.path
    seen: list[tuple[str, int, int]] = []
    found = check(choice, lambda *done: seen.append(done))
    assert found.is_right
    assert found.prepared == FileCheck(str(path), "6 kB, every checksum right")
    assert seen[-1] == ("comparing", 15, 15)


def test_a_damaged_image_in_what_was_prepared_is_found(choice: Choice) -> None:
    path = prepare(choice).prepared.path
    content = bytearray(path.read_bytes())
    content[4096 + 14 * 108] ^= 1
    path.write_bytes(content)
    found = check(choice)
    assert not found.is_right
    assert found.prepared is not None
    assert found.prepared.problem.startswith(f"{path} is damaged (image 14 does not match its checksum)")


def test_what_is_out_of_date_is_no_mistake(choice: Choice, tmp_path: Path) -> None:
    prepare(choice)
    (tmp_path / "pictures/class 1/2.png").unlink()
    found = check(choice)
    assert found.is_right
    assert found.prepared is not None
    assert found.prepared.verdict.startswith("out of date (files in ")


def test_broken_images_that_were_left_out_are_counted(choice: Choice, tmp_path: Path) -> None:
    (tmp_path / "pictures/class 0/1.png").write_bytes(b"no picture")
    prepare(choice, skip_broken=1)
    found = check(choice)
    assert len(found.broken) == 1
    assert found.prepared is not None
    assert found.prepared.verdict == "6 kB, every checksum right, without 1 broken image"


def test_what_was_prepared_from_files_that_are_gone_is_checked(choice: Choice, tmp_path: Path) -> None:
    prepare(choice)
    (tmp_path / "pictures").rename(tmp_path / "elsewhere")
    found = check(choice)
    assert found.is_right
    assert found.files == (FileCheck("files", "gone: runs use what was prepared"),)
    assert [sum(part.images_per_class) for part in found.parts] == [10, 5]


def test_a_set_that_cannot_be_loaded_is_a_mistake_even_if_it_was_prepared(
    choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(shelf: Shelf, data_dir: Path | None) -> None:
        raise EncoreError("the labels are wrong")

    with monkeypatch.context() as broken:
        broken.setattr(Shelf, "load", refuse)
        with pytest.raises(EncoreError, match="the labels are wrong"):
            check(choice)
    prepare(choice)
    monkeypatch.setattr(Shelf, "load", refuse)
    found = check(choice)
    assert [file.problem for file in found.files] == ["", "the labels are wrong"]
    assert found.prepared is not None
    assert found.prepared.problem == ""


def test_a_listing_names_what_was_prepared(choice: Choice, tmp_path: Path) -> None:
    path = prepare(choice).prepared.path
    (found,) = describe_benchmarks([choice.benchmark], choice.data_dir)
    assert found.prepared == (path,)
    (found,) = describe_benchmarks([choice.benchmark], None)
    assert (found.path, found.prepared) == (None, (path,))
