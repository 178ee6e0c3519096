"""ImageNet-1k, read from the photographs as a user has unpacked them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from encore.data.benchmark import FileCheck
from encore.data.gathered import Gathered
from encore.data.image_set import ImageSet
from encore.data.imagenet_files import (
    Pictures,
    find_layout,
    label_files,
    list_by_folders,
    list_classes,
    list_validation,
)
from encore.data.pictures import PictureFiles
from encore.errors import EncoreError


class ImageNet(Gathered):
    """ImageNet-1k: 10 tasks of 100 classes, 1,281,167 photographs to train on and 50,000 to test.

    The photographs lie as `train/<wnid>/*.JPEG`, and as `val/<wnid>/*.JPEG` or `val/*.JPEG` with a list of
    what they show; a wnid is a class's number in WordNet. Classes are numbered from 0 in the order of these.
    Photographs are decoded when they are read: the shorter side becomes 256 pixels long, and the middle
    square is kept. Of this, a square of 224 is learnt from, cut at random; the middle one is tested.

    >>> ImageNet().num_tasks, ImageNet().usual["--model"]
    (10, 'resnet18')
    """

    name: str = "imagenet"
    num_tasks: int = 10
    num_classes: int = 1000
    num_train: int = 1_281_167
    num_test: int = 50_000
    side: int = 256  # of the square that is kept
    crop: int = 224  # of the square that is cut out of it
    source: str = "https://www.image-net.org/download.php"
    terms: str = "for non-commercial research and education only, after registration"
    size: str = "155 GB"
    steps: str = (
        "register with image-net.org, unpack ILSVRC2012_img_train.tar and then each of the 1,000 archives in "
        "it into train/<wnid>, ILSVRC2012_img_val.tar into val, and the development kit beside them"
    )
    usual: Mapping[str, str] = {
        "--model": "resnet18",
        "--batch-size": "32",
        "--memory-batch-size": "32",
        "--memory-size": "20000",
        "--weight-decay": "0.001",
    }

    def lies_in(self, folder: Path) -> bool:
        """Whether `train` or `val` lies there, with classes or photographs of ImageNet."""
        return find_layout(folder) is not None

    def list_files(self, folder: Path) -> tuple[Path, ...]:
        """Return the folders that hold the photographs, in place of a million names, and the lists."""
        layout = find_layout(folder) or ""
        held = [
            folder / layout / part / wnid
            for part in ("train", "val")
            if (folder / layout / part).is_dir()
            for wnid in ("", *list_classes(folder / layout / part))
        ]
        return (*held, *label_files(folder))

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Count the classes and the photographs, and read the list of what they show."""
        folder = self.find(data_dir)
        checks = []
        for part, read in (("train", self._read_train), ("val", self._read_test)):
            try:
                found = read(folder, self._number_classes(folder))
                verdict = f"{len(found.names):,} photographs, their classes told by {found.said_by}"
                checks.append(FileCheck(part, verdict))
            except EncoreError as error:
                checks.append(FileCheck(part, "", str(error)))
        return tuple(checks)

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return the photographs, which are decoded when they are read."""
        folder = self.find(data_dir)
        numbers = self._number_classes(folder)
        train, test = self._read_train(folder, numbers), self._read_test(folder, numbers)
        names = train.names + test.names
        return ImageSet(
            images=PictureFiles(folder, names, (3, self.side, self.side), "cover"),
            labels=np.array(train.labels + test.labels, dtype=np.int64),
            class_names=tuple(numbers),
            is_test=np.arange(len(names)) >= len(train.names),
            crop=self.crop,
        )

    def _number_classes(self, folder: Path) -> dict[str, int]:
        """Return the number of each class by its wnid, in ascending order."""
        train = self._part(folder, "train")
        wnids = list_classes(train)
        if len(wnids) != self.num_classes:
            raise EncoreError(
                f"{train} holds folders of {len(wnids):,} classes, and ImageNet-1k has "
                f"{self.num_classes:,}: {self.steps}"
            )
        return {wnid: number for number, wnid in enumerate(wnids)}

    def _read_train(self, folder: Path, numbers: Mapping[str, int]) -> Pictures:
        train = self._part(folder, "train")
        return self._complete(train, list_by_folders(folder, train, numbers), self.num_train)

    def _read_test(self, folder: Path, numbers: Mapping[str, int]) -> Pictures:
        val = self._part(folder, "val")
        return self._complete(val, list_validation(folder, val, numbers), self.num_test)

    def _part(self, folder: Path, name: str) -> Path:
        part = folder / (find_layout(folder) or "") / name
        if not part.is_dir():
            raise EncoreError(f"{part} is missing: {self.steps}")
        return part

    def _complete(self, place: Path, found: Pictures, expected: int) -> Pictures:
        """Return the photographs, or refuse if some are missing."""
        num_found, num_classes = len(found.names), len(set(found.labels))
        if (num_found, num_classes) != (expected, self.num_classes):
            raise EncoreError(
                f"{place} holds {num_found:,} photographs of {num_classes:,} classes, and ImageNet-1k has "
                f"{expected:,} of {self.num_classes:,}: unpack it again"
            )
        return found
