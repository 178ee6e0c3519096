"""What a benchmark says about itself, its files, and how it becomes tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from encore.data.image_set import ImageSet
from encore.errors import EncoreError
from encore.stream import cut_into_tasks, draw_class_order


@dataclass(frozen=True)
class DataFile:
    """A file as its makers publish it.

    >>> DataFile("cifar-100-python/meta", num_bytes=1_473, md5="7973b15100ade9c7d40fb424638fde48").name
    'cifar-100-python/meta'
    """

    name: str  # relative to the folder the data lies in, or to the root of the archive; `/` between parts
    num_bytes: int
    md5: str  # hexadecimal


@dataclass(frozen=True)
class FileCheck:
    """A file, or what many files must be together, and what is wrong with it.

    >>> FileCheck("meta", "1,473 bytes, checksum right").problem
    ''
    """

    name: str
    verdict: str  # what was found right; empty where something is wrong
    problem: str = ""  # empty where it is right


class Located(NamedTuple):
    """Where a benchmark's data lies."""

    path: Path  # the folder or archive that holds it
    files: tuple[Path, ...]  # every file that is read, in an order that does not change


class Arrangement(NamedTuple):
    """How one seed sees a benchmark."""

    is_test: NDArray[np.bool_]  # [N]
    tasks: tuple[tuple[int, ...], ...]  # the classes of each task, in their order


class Benchmark(Protocol):
    """A data set cut into tasks: a class of `datasets/`, whose options all have defaults."""

    name: str  # as its file is called; also the subfolder its data may lie in
    num_tasks: int  # unless asked for otherwise
    class_sizes: tuple[int, ...]  # training images of each class; empty where only the files tell
    source: str  # where on the web it comes from, or the package that carries the images
    terms: str  # the licence, or what the makers ask for
    embedded: bool  # an installed package carries the images: nothing is looked for and nothing is fetched
    files: tuple[DataFile, ...]  # what is read, where its makers' checksums are known
    downloads: tuple[DataFile, ...]  # what is fetched: the files, or tar.gz archives that hold them
    usual: Mapping[str, str]  # options of `encore run`, with the values they have unless others are given

    @property
    def steps(self) -> str:
        """What to do to get it, and which file goes where."""

    @property
    def size(self) -> str:
        """How much there is to store, and to fetch, in words."""

    def locate(self, data_dir: Path | None) -> Located:
        """Find the files, in `data_dir` first where it is given; say how to get them if they are nowhere."""

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Check the files without decoding images: checksums, or names and numbers."""

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images, or what decodes them when they are read."""

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Say which images are for testing and which classes make a task; `split` is what was asked for."""


def arrange_officially(benchmark: Benchmark, images: ImageSet, seed: int, split: str | None) -> Arrangement:
    """Return the official split, with the official tasks or, where there are none, the seed's."""
    assert images.is_test is not None
    if split is not None:
        raise EncoreError(f"{benchmark.name} has an official split: leave --split out")
    if images.official_tasks is not None:
        return Arrangement(images.is_test, images.official_tasks)
    order = draw_class_order(len(images.class_names), seed)
    return Arrangement(images.is_test, tuple(cut_into_tasks(order, benchmark.num_tasks)))
