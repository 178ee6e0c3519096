"""What is common to benchmarks whose files a user puts in place: checked by names and numbers, not by md5."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from encore.data.benchmark import Arrangement, DataFile, FileCheck, Located, arrange_officially
from encore.data.image_set import ImageSet
from encore.data.places import not_found, places


class Gathered(ABC):
    """A benchmark that is found by what a folder holds.

    >>> issubclass(Gathered, ABC), Gathered.embedded
    (True, False)
    """

    name: str
    num_tasks: int
    class_sizes: tuple[int, ...] = ()
    source: str
    terms: str
    embedded: bool = False
    files: tuple[DataFile, ...] = ()
    downloads: tuple[DataFile, ...] = ()
    usual: Mapping[str, str] = {}

    @property
    @abstractmethod
    def steps(self) -> str:
        """What to do to get it, and which file goes where."""

    @property
    @abstractmethod
    def size(self) -> str:
        """How much there is to store, in words."""

    @abstractmethod
    def lies_in(self, folder: Path) -> bool:
        """Whether anything of the benchmark lies in this folder, complete or not."""

    @abstractmethod
    def list_files(self, folder: Path) -> tuple[Path, ...]:
        """Return every file that is read, in an order that does not change."""

    @abstractmethod
    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Check names and numbers of files, and what lists say, without decoding images."""

    @abstractmethod
    def load(self, data_dir: Path | None) -> ImageSet:
        """Return the images, which are decoded when they are read."""

    def find(self, data_dir: Path | None) -> Path:
        """Return the first folder in which it lies: a place, or the subfolder of its name there."""
        for place in places(data_dir):
            for folder in (place.folder, place.folder / self.name):
                if self.lies_in(folder):
                    return folder
        raise not_found(self, data_dir)

    def locate(self, data_dir: Path | None) -> Located:
        """Find the files."""
        folder = self.find(data_dir)
        return Located(folder, self.list_files(folder))

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Return the official split and tasks."""
        return arrange_officially(self, images, seed, split)
