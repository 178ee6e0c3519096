"""Handwritten digits, small enough to try everything in seconds, and there without a download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encore.data.benchmark import FileCheck, Located
from encore.data.image_set import ImageSet, LabelledImages
from encore.data.published import Published
from encore.errors import EncoreError

_BRIGHTEST = 16
_EVERY = 5


class Digits(Published):
    """Handwritten digits: 5 tasks of 2 classes, 1,797 grey images of 8x8 that scikit-learn carries.

    Of each class every fifth image, in the order scikit-learn has them, is for testing: a split that no
    seed changes. Pixels are 0 to 16 there; here v becomes 255 v / 16, rounded.

    >>> images = Digits().load(None)
    >>> images.train.images.shape, images.test.images.shape
    ((1442, 1, 8, 8), (355, 1, 8, 8))
    """

    name: str = "digits"
    num_tasks: int = 5
    num_classes: int = 10
    image_shape: tuple[int, int, int] = (1, 8, 8)
    class_sizes: tuple[int, ...] = (143, 146, 142, 147, 145, 146, 145, 144, 140, 144)
    source: str = "scikit-learn, which carries the test set of UCI's handwritten digits"
    terms: str = "CC BY 4.0: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, 1998"
    embedded: bool = True
    steps: str = 'pip install "scikit-learn>=1.4"'
    size: str = "nothing to fetch"

    def locate(self, data_dir: Path | None) -> Located:
        """Return nothing: no file of its own is read."""
        return Located(Path(), ())

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Return nothing to check."""
        return ()

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images; the folder does not matter, as nothing is read from it."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise EncoreError(
                "the benchmark digits needs scikit-learn, which carries its images: "
                'pip install "scikit-learn>=1.4"'
            ) from None
        pixels, labels = load_digits(return_X_y=True)
        images = np.rint(pixels * 255 / _BRIGHTEST).astype(np.uint8).reshape(-1, *self.image_shape)
        labels = labels.astype(np.int64)
        tested = _is_every_fifth_of_its_class(labels, self.num_classes)
        return ImageSet.from_parts(
            train=LabelledImages(images[~tested], labels[~tested]),
            test=LabelledImages(images[tested], labels[tested]),
            class_names=tuple(str(digit) for digit in range(self.num_classes)),
        )


def _is_every_fifth_of_its_class(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.bool_]:
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in range(num_classes):
        of_class = np.flatnonzero(labels == label)
        chosen[of_class[_EVERY - 1 :: _EVERY]] = True
    return chosen
