from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from encore.data.benchmark import DataFile
from encore.data.image_set import ImageSet, LabelledImages
from encore.data.published import Published


def describe(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.md5(content).hexdigest())


class Toy(Published):
    """A toy benchmark of two files of random bytes, published as one archive.

    Not a sentence of this description but the first is listed.
    """

    name = "toy"
    num_tasks = 2
    class_sizes: tuple[int, ...] = (1, 1, 1, 3)
    source = "http://127.0.0.1:9/"
    terms = "do as you like"

    def __init__(self) -> None:
        draws = np.random.default_rng(7)
        self.contents = {"toy-files/one": draws.bytes(150_000), "toy-files/two": draws.bytes(70_000)}
        self.archive = self.pack({"toy-files/readme~": b"not asked for", **self.contents})
        self.files: tuple[DataFile, ...] = tuple(
            describe(name, content) for name, content in self.contents.items()
        )
        self.downloads: tuple[DataFile, ...] = (describe("toy-files.tar.gz", self.archive),)

    @staticmethod
    def pack(members: dict[str, bytes]) -> bytes:
        """A tar.gz of regular files."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return packed.getvalue()

    @property
    def steps(self) -> str:
        return super().steps if self.downloads else "ask its maker for the file `one`"

    def load(self, data_dir: Path | None) -> ImageSet:
        train, test = [0, 1, 2, 3, 3, 3], [0, 3]
        return ImageSet.from_parts(
            LabelledImages(np.zeros((6, 1, 2, 2), dtype=np.uint8), np.array(train)),
            LabelledImages(np.zeros((2, 1, 2, 2), dtype=np.uint8), np.array(test)),
            ("a", "b", "c", "d"),
        )

    def unpack_into(self, folder: Path) -> None:
        for name, content in self.contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENCORE_DATA", raising=False)
    monkeypatch.delenv("ENCORE_MIRRORS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
