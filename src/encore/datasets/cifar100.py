"""CIFAR-100, read from the files its makers publish, unpacked or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from encore.data.benchmark import DataFile
from encore.data.image_set import ImageSet, LabelledImages
from encore.data.published import Published
from encore.data.safe_pickle import read_pickle
from encore.data.verified import Content, read_verified
from encore.errors import EncoreError

_TRAIN, _TEST, _META = (f"cifar-100-python/{name}" for name in ("train", "test", "meta"))


class Cifar100(Published):
    """CIFAR-100: 20 tasks of 5 classes, 50,000 colour images of 32x32 to train on and 10,000 to test.

    `load` looks for the folder `cifar-100-python` or the archive `cifar-100-python.tar.gz` in the folder
    given, then in the one that the environment variable ENCORE_DATA names, then in the user's cache
    folder; in each of them also in the subfolder `cifar100`. Nothing is unpacked to disk, everything read
    is checked against the published md5.

    >>> benchmark = Cifar100()
    >>> benchmark.num_tasks, benchmark.num_classes, benchmark.image_shape
    (20, 100, (3, 32, 32))
    """

    name: str = "cifar100"
    num_tasks: int = 20
    num_classes: int = 100
    image_shape: tuple[int, int, int] = (3, 32, 32)
    class_sizes: tuple[int, ...] = (500,) * 100
    source: str = "https://www.cs.toronto.edu/~kriz/"
    terms: str = (
        "no licence is stated; cite A. Krizhevsky, "
        "Learning Multiple Layers of Features from Tiny Images, 2009"
    )
    files: tuple[DataFile, ...] = (
        DataFile(_TRAIN, num_bytes=155_249_918, md5="16019d7e3df5f24257cddd939b257f8d"),
        DataFile(_TEST, num_bytes=31_049_707, md5="f0ef6b0ae62326f3e7ffdfab6717acfc"),
        DataFile(_META, num_bytes=1_473, md5="7973b15100ade9c7d40fb424638fde48"),
    )
    downloads: tuple[DataFile, ...] = (
        DataFile("cifar-100-python.tar.gz", num_bytes=169_001_437, md5="eb9058c3a382ffc7106e4002c42a8d85"),
    )

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images, verified; look in `data_dir` first where it is given."""
        contents = read_verified(self, data_dir)
        return ImageSet.from_parts(
            train=self._images(contents[_TRAIN]),
            test=self._images(contents[_TEST]),
            class_names=self._class_names(contents[_META]),
        )

    def _images(self, content: Content) -> LabelledImages:
        match read_pickle(content.data, content.origin):
            case {b"data": np.ndarray() as pixels, b"fine_labels": list() as labels} if (
                pixels.dtype == np.uint8
                and pixels.shape == (len(labels), int(np.prod(self.image_shape)))
                and all(type(label) is int and 0 <= label < self.num_classes for label in labels)
            ):
                images = pixels.reshape(-1, *self.image_shape)
                return LabelledImages(images, np.array(labels, dtype=np.int64))
        raise EncoreError(
            f"{content.origin} must hold images of {self.image_shape} with labels from 0 to "
            f"{self.num_classes - 1}, as CIFAR-100 has them"
        )

    def _class_names(self, content: Content) -> tuple[str, ...]:
        match read_pickle(content.data, content.origin):
            case {b"fine_label_names": list() as names} if len(names) == self.num_classes and all(
                isinstance(name, bytes) for name in names
            ):
                return tuple(name.decode() for name in names)
        raise EncoreError(f"{content.origin} must hold the names of {self.num_classes} classes")
