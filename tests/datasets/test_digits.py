from __future__ import annotations

import sys

import numpy as np
import pytest
from tests.datasets.seeds import check_seeds

from encore import registry
from encore.data.image_set import ImageSet
from encore.datasets.digits import Digits
from encore.errors import EncoreError


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    return Digits().load(None)


def test_it_is_found_by_its_name() -> None:
    assert registry.find("benchmark", Digits.name) is Digits


def test_shapes_and_types(digits: ImageSet) -> None:
    assert digits.train.images.shape == (1442, 1, 8, 8)
    assert digits.test.images.shape == (355, 1, 8, 8)
    for part in (digits.train, digits.test):
        assert part.images.dtype == np.uint8
        assert part.labels.dtype == np.int64
    assert digits.class_names == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


def test_every_class_is_split_four_to_one(digits: ImageSet) -> None:
    # Of 178, 182, 177, 183, 181, 182, 181, 179, 174 and 180 images a fifth, rounded down, is for testing.
    assert np.bincount(digits.test.labels).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert np.bincount(digits.train.labels).tolist() == [143, 146, 142, 147, 145, 146, 145, 144, 140, 144]
    assert Digits.class_sizes == (143, 146, 142, 147, 145, 146, 145, 144, 140, 144)


def test_no_image_is_in_both_parts_and_none_is_lost(digits: ImageSet) -> None:
    from sklearn.datasets import load_digits

    everything = sorted(pixels.astype(int).tobytes() for pixels in load_digits().data)
    ours = np.concatenate([digits.train.images, digits.test.images]).reshape(-1, 64)
    # 15.9375 and its multiples, rounded, are all different, so that the original values can be had back.
    assert sorted(np.rint(pixels / 15.9375).astype(int).tobytes() for pixels in ours) == everything
    assert not {image.tobytes() for image in digits.train.images} & {
        image.tobytes() for image in digits.test.images
    }


def test_the_first_image_is_the_published_one(digits: ImageSet) -> None:
    assert digits.train.labels[:6].tolist() == [0, 1, 2, 3, 4, 5]
    # Values 0 0 5 13 9 1 0 0, times 15.9375: 0 0 79.69 207.19 143.44 15.94 0 0.
    assert digits.train.images[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert digits.train.images.max() == 255


def test_the_first_test_image_of_a_class_is_its_fifth(digits: ImageSet) -> None:
    from sklearn.datasets import load_digits

    carried = load_digits()
    for label in range(10):
        fifth = carried.images[carried.target == label][4]
        ours = digits.test.images[digits.test.labels == label][0, 0]
        assert np.array_equal(ours, np.floor(fifth * 255 / 16 + 0.5))


def test_seeds_decide_the_stream_which_passes_once() -> None:
    check_seeds(Digits(), None)


def test_without_scikit_learn_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "encore.datasets.digits")
    from encore.datasets.digits import Digits as ImportedWithoutIt

    with pytest.raises(EncoreError) as caught:
        ImportedWithoutIt().load(None)
    assert str(caught.value) == (
        'the benchmark digits needs scikit-learn, which carries its images: pip install "scikit-learn>=1.4"'
    )
