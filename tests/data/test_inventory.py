from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from encore.data.benchmark import FileCheck
from encore.data.inventory import Listing, PartCheck, check, describe_benchmarks
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
        verified=True,
        problem="",
    )


def test_a_row_of_what_is_altered(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/one").write_bytes(b"altered")
    found = listing(toy, tmp_path)
    assert (found.path, found.verified) == (tmp_path, False)
    assert found.problem == f"{tmp_path}/toy-files/one is truncated (7 of 150,000 bytes)"


def test_a_row_of_what_is_not_there(toy: Toy, tmp_path: Path) -> None:
    found = listing(toy, tmp_path)
    assert (found.path, found.verified) == (None, False)
    assert found.problem.startswith("toy was not found in ")


def test_a_row_of_what_a_package_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = describe_benchmarks([Digits()], None)
    assert (found.embedded, found.path, found.verified, found.problem) == (True, None, True, "")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    (found,) = describe_benchmarks([Digits()], None)
    assert not found.verified
    assert "pip install" in found.problem


def test_every_file_is_checked_and_the_images_are_counted(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    found = check(toy, tmp_path)
    assert found.is_right
    assert found.files == (
        FileCheck("toy-files/one", "150,000 bytes, checksum right"),
        FileCheck("toy-files/two", "70,000 bytes, checksum right"),
    )
    assert found.parts == (PartCheck("train", (1, 1, 1, 3)), PartCheck("test", (1, 0, 0, 1)))


def test_every_wrong_file_has_its_line(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/two").unlink()
    found = check(toy, tmp_path)
    assert not found.is_right
    assert [file.problem for file in found.files] == [
        "",
        f"{tmp_path}/toy-files/two is missing, and toy needs it",
    ]
    assert found.parts == ()


def test_every_file_of_a_truncated_archive_has_its_line(toy: Toy, tmp_path: Path) -> None:
    path = tmp_path / "toy-files.tar.gz"
    path.write_bytes(toy.archive[:200_000])
    found = check(toy, tmp_path)
    assert [file.name for file in found.files] == ["toy-files/one", "toy-files/two"]
    for file in found.files:
        assert file.problem.startswith(f"{path} is truncated or not a tar.gz archive")


def test_checking_what_is_not_there_says_where_it_was_looked_for(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match="toy was not found in"):
        check(toy, tmp_path)


def test_checking_what_a_package_carries_counts_its_images() -> None:
    found = check(Digits(), None)
    assert found.files == ()
    assert [sum(part.images_per_class) for part in found.parts] == [1442, 355]
