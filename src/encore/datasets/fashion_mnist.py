"""Fashion-MNIST, read from the four idx files its makers publish, gzipped or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from encore.data.benchmark import DataFile, FileCheck, Located
from encore.data.idx import lying_in, parse_idx, read_variant
from encore.data.image_set import ImageSet, LabelledImages
from encore.data.places import not_found, places
from encore.data.published import Published
from encore.data.verified import Content, Contents, first_problem
from encore.errors import EncoreError

_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


class FashionMnist(Published):
    """Fashion-MNIST: 5 tasks of 2 classes, 60,000 grey images of 28x28 to train on and 10,000 to test.

    `load` looks for the four idx files, each gzipped or not, in the folder given, then in the one that
    the environment variable ENCORE_DATA names, then in the user's cache folder; in each of them also in
    the subfolder `fashion_mnist`; and last where Debian's package `dataset-fashion-mnist` puts them. What
    is checked is the md5 of the unpacked files: Debian packs the same bytes a little differently.

    >>> benchmark = FashionMnist()
    >>> benchmark.num_tasks, benchmark.num_classes, benchmark.image_shape
    (5, 10, (1, 28, 28))
    """

    name: str = "fashion_mnist"
    num_tasks: int = 5
    num_classes: int = 10
    image_shape: tuple[int, int, int] = (1, 28, 28)
    class_sizes: tuple[int, ...] = (6000,) * 10
    num_test: int = 10_000
    class_names: tuple[str, ...] = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    source: str = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
    terms: str = (
        "MIT licence, copyright Zalando SE; cite H. Xiao, K. Rasul and R. Vollgraf, "
        "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms, 2017"
    )
    steps: str = "run `encore data fetch fashion_mnist`, or install Debian's package dataset-fashion-mnist"
    files: tuple[DataFile, ...] = (
        DataFile(_TRAIN_IMAGES, num_bytes=47_040_016, md5="f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        DataFile(_TRAIN_LABELS, num_bytes=60_008, md5="9018921c3c673c538a1fc5bad174d6f9"),
        DataFile(_TEST_IMAGES, num_bytes=7_840_016, md5="8181f5470baa50b63fa0f6fddb340f0a"),
        DataFile(_TEST_LABELS, num_bytes=10_008, md5="15d484375f8d13e6eb1aabb0c3f46965"),
    )
    downloads: tuple[DataFile, ...] = (
        DataFile(f"{_TRAIN_IMAGES}.gz", num_bytes=26_421_880, md5="8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        DataFile(f"{_TRAIN_LABELS}.gz", num_bytes=29_515, md5="25c81989df183df01b3e8a0aad5dffbe"),
        DataFile(f"{_TEST_IMAGES}.gz", num_bytes=4_422_102, md5="bef4ecab320f06d8554ea6380940ec79"),
        DataFile(f"{_TEST_LABELS}.gz", num_bytes=5_148, md5="bb300cfdad3c16e7a12a480ee83cd310"),
    )
    package_folder: Path = Path("/usr/share/datasets/fashion-mnist")  # of Debian's dataset-fashion-mnist

    def locate(self, data_dir: Path | None) -> Located:
        """Find the copy that is read, by names: what is in the files is not looked at."""
        copies = [Located(folder, lying_in(folder, self.files)) for folder in self._folders(data_dir)]
        return max(copies, key=lambda copy: len(copy.files))  # the first of several that are whole

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Compare every file, unpacked, with its checksum."""
        contents = self._find(data_dir)
        return tuple(
            FileCheck(name, "", str(content))
            if isinstance(content, EncoreError)
            else FileCheck(name, f"{len(content.data):,} bytes, checksum right, in {content.origin}")
            for name, content in contents.items()
        )

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images, verified; look in `data_dir` first where it is given."""
        found = self._find(data_dir)
        if problem := first_problem(found):
            raise EncoreError(
                f"{problem}: put the published file in its place, or run `encore data fetch {self.name}` "
                "with the same data folder"
            )
        contents = {name: content for name, content in found.items() if isinstance(content, Content)}
        return ImageSet.from_parts(
            train=self._part(contents[_TRAIN_IMAGES], contents[_TRAIN_LABELS], sum(self.class_sizes)),
            test=self._part(contents[_TEST_IMAGES], contents[_TEST_LABELS], self.num_test),
            class_names=self.class_names,
        )

    def _folders(self, data_dir: Path | None) -> list[Path]:
        """Return the folders that hold any of the files, of the first place that has such folders."""
        candidates = [[place.folder, place.folder / self.name] for place in places(data_dir)]
        for folders in (*candidates, [self.package_folder]):
            if found := [folder for folder in folders if lying_in(folder, self.files)]:
                return found
        raise not_found(self, data_dir)

    def _find(self, data_dir: Path | None) -> Contents:
        """Read the copy that counts: the first right one of a place, else the first."""
        copies = [
            {file.name: read_variant(folder, file) for file in self.files}
            for folder in self._folders(data_dir)
        ]
        return next((copy for copy in copies if not first_problem(copy)), copies[0])

    def _part(self, images: Content, labels: Content, count: int) -> LabelledImages:
        pixels = parse_idx(images, (count, *self.image_shape[1:]))
        numbers = parse_idx(labels, (count,))
        if numbers.max() >= self.num_classes:
            raise EncoreError(
                f"{labels.origin} must hold labels from 0 to {self.num_classes - 1}, "
                f"and holds {numbers.max()}"
            )
        return LabelledImages(pixels.reshape(count, *self.image_shape), numbers.astype(np.int64))
