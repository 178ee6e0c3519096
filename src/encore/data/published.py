"""What is common to benchmarks whose files have known checksums, or come with an installed package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from encore.data.benchmark import Arrangement, DataFile, FileCheck, Located, arrange_officially
from encore.data.image_set import ImageSet
from encore.data.verified import find_contents
from encore.errors import EncoreError


class Published(ABC):
    """A benchmark of files that are right if their checksums are.

    >>> from encore.datasets.cifar100 import Cifar100
    >>> Cifar100().size
    '186 MB, 169 MB to fetch'
    """

    name: str
    num_tasks: int
    class_sizes: tuple[int, ...]
    source: str
    terms: str
    embedded: bool = False
    files: tuple[DataFile, ...] = ()
    downloads: tuple[DataFile, ...] = ()

    @property
    def size(self) -> str:
        """How much there is to store, and to fetch."""
        held = sum(file.num_bytes for file in self.files)
        fetched = sum(download.num_bytes for download in self.downloads)
        return f"{held / 1e6:.0f} MB, {fetched / 1e6:.0f} MB to fetch"

    @property
    def steps(self) -> str:
        """What to do to get it."""
        return f"run `encore data fetch {self.name}`"

    def locate(self, data_dir: Path | None) -> Located:
        """Find the copy that is read."""
        copy, _ = find_contents(self, data_dir)
        files = [copy.path] if copy.is_archive else [copy.path / file.name for file in self.files]
        return Located(copy.path, tuple(files))

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Compare every file with its checksum."""
        _, contents = find_contents(self, data_dir)
        sizes = {file.name: file.num_bytes for file in self.files}
        return tuple(
            FileCheck(name, "", str(content))
            if isinstance(content, EncoreError)
            else FileCheck(name, f"{sizes[name]:,} bytes, checksum right")
            for name, content in contents.items()
        )

    @abstractmethod
    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images, verified; look in `data_dir` first where it is given."""

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Return the official split, and the classes in this seed's order."""
        return arrange_officially(self, images, seed, split)
