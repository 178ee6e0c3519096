from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from encore.data.image_set import ArrayImages, BrokenImagesError, ImageSet, Rows
from encore.data.pictures import PictureFiles
from encore.data.sheet import BACKGROUND, INK, make_sheet, save_sheet
from encore.errors import EncoreError


def coloured(num_classes: int, per_class: int, shape: tuple[int, int, int] = (3, 16, 16)) -> ImageSet:
    """Return images of one colour each, (class, number, 200), which no letter has."""
    labels = np.repeat(np.arange(num_classes), per_class)
    images = np.empty((len(labels), *shape), dtype=np.uint8)
    numbers = np.tile(np.arange(per_class), num_classes)
    for row, colour in enumerate(zip(labels, numbers, [200] * len(labels), strict=True)):
        images[row] = np.array(colour[: shape[0]])[:, None, None]
    return ImageSet(ArrayImages(images), labels, tuple(f"class {label}" for label in range(num_classes)))


def colours_of(sheet: Image.Image) -> dict[tuple[int, int, int], tuple[int, int, int, int]]:
    """Return where each colour of an image lies: left, upper, right, lower."""
    pixels = np.asarray(sheet).astype(np.int64)
    rows, columns = np.nonzero((pixels[:, :, 2] == 200) & (pixels[:, :, 0] != 200))  # letters have greys
    colours, numbers = np.unique(pixels[rows, columns], axis=0, return_inverse=True)
    order = np.argsort(numbers.ravel(), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(numbers.ravel()))[:-1])
    return {
        (int(red), int(green), int(blue)): (
            int(columns[part].min()),
            int(rows[part].min()),
            int(columns[part].max()),
            int(rows[part].max()),
        )
        for (red, green, blue), part in zip(colours, parts, strict=True)
    }


@pytest.mark.parametrize(("side", "expected"), [(8, 48), (16, 48), (32, 64), (84, 84), (96, 96), (224, 96)])
def test_six_images_of_each_class_side_by_side_in_a_readable_size(side: int, expected: int) -> None:
    found = colours_of(make_sheet(coloured(5, 6, (3, side, side)), "toy"))
    assert set(found) == {(label, number, 200) for label in range(5) for number in range(6)}
    for label in range(5):
        corners = [found[label, number, 200] for number in range(6)]
        assert len({upper for _, upper, _, _ in corners}) == 1  # in one row
        for left, upper, right, lower in corners:
            assert (right - left + 1, lower - upper + 1) == (expected, expected)
        for before, after in itertools.pairwise(corners):
            assert after[0] > before[2]


def test_images_come_from_all_over_a_class() -> None:
    found = colours_of(make_sheet(coloured(2, 101), "toy"))
    assert sorted(number for label, number, _ in found if label == 1) == [0, 20, 40, 60, 80, 100]


def test_the_name_stands_right_beneath_its_images() -> None:
    sheet = make_sheet(coloured(2, 6), "toy")
    is_ink = (np.asarray(sheet) == INK).all(axis=2)
    for label in range(2):
        left, _, _, lower = colours_of(sheet)[label, 0, 200]
        assert is_ink[lower + 1 : lower + 22, left : left + 60].any()
        assert not is_ink[lower + 22 : lower + 30, left : left + 60].any()


def test_a_long_name_is_cut_and_one_of_any_letters_is_drawn() -> None:
    names = ("w" * 300, "two\nlines\x1b[31m", "\u200f\u4e2d\u6587 \U0001f600", "", "é")
    few = ImageSet(coloured(5, 2).images, coloured(5, 2).labels, names)
    sheet = make_sheet(few, "t\n" * 100)
    assert sheet.width < 1000
    margin = np.asarray(sheet)[:, -10:]
    assert (margin == BACKGROUND).all()


def test_of_many_classes_the_first_hundred_are_shown() -> None:
    found = colours_of(make_sheet(coloured(130, 2), "toy"))
    assert {label for label, _, _ in found} == set(range(100))


@pytest.mark.parametrize("num_classes", [1, 2, 3, 7, 11, 99, 100])
def test_every_class_finds_a_place(num_classes: int) -> None:
    sheet = make_sheet(coloured(num_classes, 1), "toy")
    assert {label for label, _, _ in colours_of(sheet)} == set(range(num_classes))
    if num_classes > 50:
        assert 0.5 < sheet.width / sheet.height < 2


def test_grey_images_and_those_that_are_not_square() -> None:
    images = np.full((3, 1, 10, 20), 77, dtype=np.uint8)
    sheet = make_sheet(ImageSet(ArrayImages(images), np.array([0, 0, 1]), ("a", "b")), "toy")
    num_found = int((np.asarray(sheet) == (77, 77, 77)).all(axis=2).sum())
    assert 3 * 60 * 30 <= num_found < 3 * 60 * 30 + 50  # letters have greys


def test_a_class_without_images_and_broken_images_leave_gaps(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    Image.new("RGB", (16, 16), (0, 5, 200)).save(tmp_path / "right.png")
    images = PictureFiles(tmp_path, ["broken.png", "right.png", "gone.png"], (3, 16, 16), "exact")
    sheet = make_sheet(ImageSet(images, np.array([0, 0, 2]), ("a", "none", "gone")), "toy")
    assert set(colours_of(sheet)) == {(0, 5, 200)}


def test_only_what_is_shown_is_read() -> None:
    class Counting(ArrayImages):
        reads_at_once = False
        num_read = 0

        def read(self, rows: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
            self.num_read += len(rows)
            if self.num_read > 18:
                raise BrokenImagesError({int(rows[0]): "too many"})
            return super().read(rows)

    full = coloured(3, 100)
    assert isinstance(full.images, ArrayImages)
    images = Counting(full.images.array)
    make_sheet(ImageSet(images, full.labels, full.class_names), "toy")
    assert images.num_read == 18


def test_a_sheet_is_a_png(tmp_path: Path) -> None:
    save_sheet(coloured(2, 2), "toy", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as opened:
        assert opened.format == "PNG"
    with pytest.raises(EncoreError, match=r"name a file that ends in \.png"):
        save_sheet(coloured(2, 2), "toy", tmp_path / "sheet.jpg")
    with pytest.raises(EncoreError, match="there is no folder"):
        save_sheet(coloured(2, 2), "toy", tmp_path / "nowhere" / "sheet.png")
