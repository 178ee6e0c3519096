"""A benchmark of small pictures in folders, decoded when they are read, and all that can be known of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from encore.data.benchmark import FileCheck
from encore.data.gathered import Gathered
from encore.data.image_set import ImageSet
from encore.data.pictures import PictureFiles

SIDE = 6


class Shelf(Gathered):
    """Pictures of 6x6 in a folder for each class."""

    name = "shelf"
    num_tasks = 2
    source = "nowhere"
    terms = "none"
    steps = "call fill_shelf"
    size = "small"

    def __init__(self, num_channels: int = 3) -> None:
        self.num_channels = num_channels

    def lies_in(self, folder: Path) -> bool:
        return any(folder.glob("*/*.png"))

    def list_files(self, folder: Path) -> tuple[Path, ...]:
        return tuple(sorted(folder.glob("*/*.png")))

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        return (FileCheck("pictures", f"{len(self.list_files(self.find(data_dir)))} found"),)

    def load(self, data_dir: Path | None) -> ImageSet:
        folder = self.find(data_dir)
        files = self.list_files(folder)
        class_names = sorted({file.parent.name for file in files})
        numbers = np.arange(len(files))
        names = [str(file.relative_to(folder)) for file in files]
        return ImageSet(
            PictureFiles(folder, names, (self.num_channels, SIDE, SIDE), "exact"),
            np.array([class_names.index(file.parent.name) for file in files]),
            tuple(class_names),
            is_test=numbers % 3 == 0,
            official_tasks=tuple((label,) for label in range(len(class_names))),
            times=numbers / 7,
            given_tasks=numbers % 2,
            crop=4,
        )


def fill_shelf(folder: Path, num_classes: int = 3, per_class: int = 5) -> dict[str, NDArray[np.uint8]]:
    """Write pictures of random pixels; return the pixels [3, 6, 6] by name."""
    draws = np.random.default_rng(num_classes * per_class)
    written = {}
    for label in range(num_classes):
        (folder / f"class {label}").mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            name = f"class {label}/{number}.png"
            pixels = draws.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name)
            written[name] = pixels.transpose(2, 0, 1)
    return written
