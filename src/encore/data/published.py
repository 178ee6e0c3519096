"""What is common to benchmarks whose files have known checksums, or come with an installed package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from encore.data.benchmark import Arrangement, DataFile, FileCheck, Located, arrange_officially
from encore.data.image_set import ImageSet
from encore.data.places import Copy, copies, not_found, places
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
    usual: Mapping[str, str] = {}

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
        """Find the copy that is read, by names and sizes: what is in the files is not looked at."""
        for place in places(data_dir):
            if found := copies(self, place.folder):
                copy = next(filter(self._is_whole, found), found[0])
                return Located(copy.path, tuple(path for path, _ in self._sizes(copy)))
        raise not_found(self, data_dir)

    def _is_whole(self, copy: Copy) -> bool:
        return all(path.is_file() and path.stat().st_size == size for path, size in self._sizes(copy))

    def _sizes(self, copy: Copy) -> list[tuple[Path, int]]:
        """Return the files of a copy with the sizes they should have."""
        if copy.is_archive:
            return [(copy.path, file.num_bytes) for file in self.downloads if file.name == copy.path.name]
        return [(copy.path / file.name, file.num_bytes) for file in self.files]

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
