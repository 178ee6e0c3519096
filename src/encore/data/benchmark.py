"""What a benchmark says about itself and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from encore.interfaces import ImageSet


@dataclass(frozen=True)
class DataFile:
    """A file as its makers publish it.

    >>> DataFile("cifar-100-python/meta", num_bytes=1_473, md5="7973b15100ade9c7d40fb424638fde48").name
    'cifar-100-python/meta'
    """

    name: str  # relative to the folder the data lies in, or to the root of the archive; `/` between parts
    num_bytes: int
    md5: str  # hexadecimal


class Benchmark(Protocol):
    """A data set cut into tasks: a class of `datasets/`, made without arguments."""

    name: str  # as its file is called; also the subfolder its data may lie in
    num_tasks: int
    num_classes: int
    image_shape: tuple[int, int, int]  # channels, height, width
    class_sizes: tuple[int, ...]  # training images of each class, known without the files
    source: str  # the folder on the web that the downloads lie in, or the package that carries the images
    terms: str  # the licence, or what the makers ask for
    embedded: bool  # an installed package carries the images: nothing is looked for and nothing is fetched
    files: tuple[DataFile, ...]  # what is read
    downloads: tuple[DataFile, ...]  # what is fetched: the files, or tar.gz archives that hold them

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images, verified; look in `data_dir` first where it is given."""
