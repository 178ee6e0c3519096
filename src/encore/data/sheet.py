"""A picture sheet: some images of each class side by side, with the class's name beneath."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from encore.data.image_set import ImageSet
from encore.data.reading import Reader
from encore.errors import EncoreError
from encore.files import written_atomically

MOST_CLASSES = 100
IMAGES_PER_CLASS = 6
SMALLEST, LARGEST = 48, 96  # pixels on the sheet, of an image's longer side
MARGIN, GAP, SPACE = 16, 2, 14  # around the sheet, between images, between classes
TEXT, HEADING = 15, 22  # sizes of the letters
BACKGROUND, INK = (238, 238, 238), (20, 20, 20)  # so that white images show where they end


def save_sheet(image_set: ImageSet, title: str, path: Path) -> None:
    """Write a sheet as a PNG."""
    check_path(path)
    sheet = make_sheet(image_set, title)
    with written_atomically(path) as unfinished:
        sheet.save(unfinished, format="PNG")


def check_path(path: Path) -> None:
    """Refuse a file that could not be written, before all images are decoded."""
    if path.suffix.lower() != ".png":
        raise EncoreError(f"a picture sheet is a PNG: name a file that ends in .png, not {path}")
    if not path.parent.is_dir():
        raise EncoreError(f"{path} could not be written: there is no folder {path.parent}; create it first")


def make_sheet(image_set: ImageSet, title: str) -> Image.Image:
    """Return a sheet of the first classes, with images from all over each class.

    >>> from encore.datasets.digits import Digits
    >>> make_sheet(Digits().load(None), "digits").mode
    'RGB'
    """
    names = image_set.class_names[:MOST_CLASSES]
    width, height = _size(image_set.images.shape)
    cell_width = IMAGES_PER_CLASS * (width + GAP) - GAP
    cell_height = height + GAP + TEXT + SPACE
    num_columns = _num_columns(len(names), cell_width, cell_height)
    num_rows = -(-len(names) // num_columns)
    top = MARGIN + HEADING + SPACE
    sheet = Image.new(
        "RGB",
        (2 * MARGIN + num_columns * (cell_width + SPACE) - SPACE, top + num_rows * cell_height + MARGIN),
        BACKGROUND,
    )
    draw = ImageDraw.Draw(sheet)
    right = sheet.width - 2 * MARGIN
    draw.text((MARGIN, MARGIN), _fitting(_heading(image_set, title), HEADING, right), INK, _font(HEADING))
    for label, name in enumerate(names):
        column, row = divmod(label, num_rows)  # down the columns, as lists are read
        left, upper = MARGIN + column * (cell_width + SPACE), top + row * cell_height
        for number, pixels in enumerate(_some_images(image_set, label)):
            picture = _picture(pixels, (width, height))
            sheet.paste(picture, (left + number * (width + GAP), upper))
        draw.text((left, upper + height + GAP), _fitting(name, TEXT, cell_width), INK, _font(TEXT))
    return sheet


def _some_images(image_set: ImageSet, label: int) -> list[NDArray[np.uint8]]:
    """Return images from the beginning to the end of a class, leaving out broken ones."""
    rows = np.flatnonzero(image_set.labels == label)
    count = min(IMAGES_PER_CLASS, len(rows))
    chosen = rows[np.linspace(0, len(rows) - 1, count).round().astype(np.int64)] if count else rows
    return list(Reader(image_set.images, skip_broken=len(chosen)).read(chosen)[1])


def _heading(image_set: ImageSet, title: str) -> str:
    num_classes = len(image_set.class_names)
    of = f"{MOST_CLASSES} of {num_classes}" if num_classes > MOST_CLASSES else f"{num_classes}"
    channels, height, width = image_set.images.shape
    colour = "grey" if channels == 1 else "colour"
    return f"{title}: {len(image_set.images):,} {colour} images of {width}x{height}, {of} classes"


def _size(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return the width and height of an image on the sheet: whole multiples of small ones."""
    _, height, width = shape
    longer = max(height, width)
    if longer > LARGEST:
        return max(1, width * LARGEST // longer), max(1, height * LARGEST // longer)
    factor = -(-SMALLEST // longer)
    return width * factor, height * factor


def _num_columns(num_classes: int, cell_width: int, cell_height: int) -> int:
    """Return how many columns make the sheet nearly as wide as it is high, none of them empty."""
    wanted = max(1, round(math.sqrt(num_classes * cell_height / (cell_width + SPACE))))
    num_rows = -(-num_classes // wanted)
    return -(-num_classes // num_rows)


def _picture(pixels: NDArray[np.uint8], size: tuple[int, int]) -> Image.Image:
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    grows = size[0] >= picture.width
    return picture.convert("RGB").resize(
        size, Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS
    )


def _fitting(text: str, size: int, width: int) -> str:
    """Return as much of a text as finds room on one line."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    font = _font(size)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
