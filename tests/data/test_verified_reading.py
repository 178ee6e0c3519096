from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from encore.data import verified
from encore.data.places import places
from encore.data.verified import read_verified
from encore.errors import EncoreError

if TYPE_CHECKING:
    from tests.data.conftest import Toy


def contents_of(toy: Toy, data_dir: Path | None) -> dict[str, bytes]:
    return {name: bytes(content.data) for name, content in read_verified(toy, data_dir).items()}


@pytest.mark.parametrize("subfolder", [".", "toy"])
def test_files_are_read_from_a_folder(toy: Toy, subfolder: str, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path / subfolder)
    assert contents_of(toy, tmp_path) == toy.contents


@pytest.mark.parametrize("subfolder", [".", "toy"])
def test_files_are_read_from_an_archive_and_nothing_is_unpacked(
    toy: Toy, subfolder: str, tmp_path: Path
) -> None:
    (tmp_path / subfolder).mkdir(exist_ok=True)
    (tmp_path / subfolder / "toy-files.tar.gz").write_bytes(toy.archive)
    assert contents_of(toy, tmp_path) == toy.contents
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["toy-files.tar.gz"]


def test_the_order_of_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "encore" / "data"
    assert [place.folder for place in places(None)] == [cache]
    monkeypatch.setenv("ENCORE_DATA", "")
    assert [place.folder for place in places(None)] == [cache]
    monkeypatch.setenv("ENCORE_DATA", "/from/environment")
    assert [place.folder for place in places(Path("/given"))] == [
        Path("/given"),
        Path("/from/environment"),
        cache,
    ]


@pytest.mark.parametrize("holder", ["given", "environment", "cache/encore/data"])
def test_each_place_is_looked_in(
    toy: Toy, holder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path / "environment"))
    toy.unpack_into(tmp_path / holder)
    assert contents_of(toy, tmp_path / "given") == toy.contents


def test_the_first_place_where_anything_lies_decides(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path / "cache/encore/data")
    (tmp_path / "given/toy-files").mkdir(parents=True)
    (tmp_path / "given/toy-files/one").write_bytes(b"something else")
    with pytest.raises(EncoreError, match=f"{tmp_path}/given/toy-files/one is truncated"):
        contents_of(toy, tmp_path / "given")


def test_not_found_names_every_place_and_the_way_out(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path / "empty"))
    with pytest.raises(EncoreError) as caught:
        contents_of(toy, tmp_path / "given")
    assert str(caught.value) == (
        f"toy was not found in {tmp_path}/given (the folder given, which does not exist) or {tmp_path}/empty "
        f"($ENCORE_DATA) or {tmp_path}/cache/encore/data (your cache folder, which does not exist): "
        "run `encore data fetch toy`"
    )


def test_a_file_in_the_place_of_a_folder_is_said_to_be_none(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EncoreError, match=r"/file \(the folder given, which is no folder\)"):
        contents_of(toy, tmp_path / "file")


WAY_OUT = ": put the published file in its place, or run `encore data fetch toy` with the same data folder"


def test_a_missing_file_is_named(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/two").unlink()
    with pytest.raises(EncoreError) as caught:
        contents_of(toy, tmp_path)
    assert str(caught.value) == f"{tmp_path}/toy-files/two is missing, and toy needs it{WAY_OUT}"


def test_a_truncated_file_is_named(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/one").write_bytes(toy.contents["toy-files/one"][:-1])
    with pytest.raises(EncoreError) as caught:
        contents_of(toy, tmp_path)
    assert str(caught.value) == f"{tmp_path}/toy-files/one is truncated (149,999 of 150,000 bytes){WAY_OUT}"


def test_a_file_with_a_byte_more_is_named(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/one").write_bytes(toy.contents["toy-files/one"] + b"a")
    with pytest.raises(EncoreError, match=r"toy-files/one is altered \(longer than the 150,000 bytes"):
        contents_of(toy, tmp_path)


@pytest.mark.parametrize("position", [0, 75_000, 149_999])
def test_a_file_with_another_byte_is_named(toy: Toy, position: int, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    altered = bytearray(toy.contents["toy-files/one"])
    altered[position] ^= 1
    (tmp_path / "toy-files/one").write_bytes(altered)
    with pytest.raises(EncoreError, match=r"toy-files/one is altered \(its md5 is [0-9a-f]{32}, not "):
        contents_of(toy, tmp_path)


def test_a_folder_in_place_of_a_file_is_named(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/one").unlink()
    (tmp_path / "toy-files/one").mkdir()
    with pytest.raises(EncoreError, match="toy-files/one is missing"):
        contents_of(toy, tmp_path)


def test_a_right_archive_heals_an_altered_folder_beside_it(toy: Toy, tmp_path: Path) -> None:
    toy.unpack_into(tmp_path)
    (tmp_path / "toy-files/one").write_bytes(b"altered")
    (tmp_path / "toy-files.tar.gz").write_bytes(toy.archive)
    assert contents_of(toy, tmp_path) == toy.contents


# Archives that nobody vouches for.


@pytest.mark.parametrize("length", [0, 1, 100, 100_000, 220_000])
def test_a_truncated_archive_is_named(toy: Toy, length: int, tmp_path: Path) -> None:
    path = tmp_path / "toy-files.tar.gz"
    path.write_bytes(toy.archive[:length])
    with pytest.raises(EncoreError, match=f"^{path} is truncated or not a tar.gz archive"):
        contents_of(toy, tmp_path)


def test_an_archive_with_an_altered_file_is_named(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "toy-files.tar.gz").write_bytes(toy.pack({**toy.contents, "toy-files/two": b"altered"}))
    with pytest.raises(EncoreError, match=f"^toy-files/two in {tmp_path}/toy-files.tar.gz is truncated"):
        contents_of(toy, tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_regular_members_count(toy: Toy, kind: bytes, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(toy.contents["toy-files/one"])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("../escaped", "/escaped", "toy-files/../toy-files/two"):
            archive.addfile(tarfile.TarInfo(name))
        member = tarfile.TarInfo("toy-files/one")
        member.type = kind
        member.linkname = str(outside)
        archive.addfile(member)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/toy-files.tar.gz").write_bytes(packed.getvalue())
    with pytest.raises(EncoreError, match=r"^toy-files/one is missing in"):
        contents_of(toy, tmp_path / "data")
    assert {path.name for path in tmp_path.rglob("*")} == {"outside", "data", "toy-files.tar.gz"}


def test_an_archive_that_unpacks_to_too_much_is_refused(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = toy.pack({"large": bytes(3_000_000), **toy.contents})
    (tmp_path / "toy-files.tar.gz").write_bytes(packed)
    with pytest.raises(EncoreError, match="unpacks to more than it should hold"):
        contents_of(toy, tmp_path)
    monkeypatch.setattr(verified, "ARCHIVE_SLACK", 4_000_000)
    assert contents_of(toy, tmp_path) == toy.contents
