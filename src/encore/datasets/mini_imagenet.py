"""Mini-ImageNet, from the files that are passed on: pickles, or pictures in one of two layouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from encore.data.benchmark import Arrangement, FileCheck
from encore.data.gathered import Gathered
from encore.data.image_set import ImageSet
from encore.data.mini_imagenet_layout import Expected, Layout
from encore.data.mini_imagenet_pickles import Pickles
from encore.data.mini_imagenet_pictures import find_pictures
from encore.errors import EncoreError, unknown_name
from encore.stream import cut_into_tasks, legacy_generator

_SPLITS = ("seed", "fixed")


class MiniImagenet(Gathered):
    """Mini-ImageNet: 10 tasks of 10 classes, 500 colour images of 84x84 of each to train on and 100 to test.

    Of each class's 600 images, 100 are drawn for testing from the seed, as the published code does;
    `--split fixed` takes the last 100 instead, whatever the seed. The order of the classes is the seed's.

    >>> benchmark = MiniImagenet()
    >>> benchmark.num_tasks, sum(benchmark.classes_of_parts.values()), benchmark.image_shape
    (10, 100, (3, 84, 84))
    """

    name: str = "mini_imagenet"
    num_tasks: int = 10
    classes_of_parts: Mapping[str, int] = {"train": 64, "val": 16, "test": 20}
    num_per_class: int = 600
    num_tested: int = 100  # of each class
    image_shape: tuple[int, int, int] = (3, 84, 84)
    class_sizes: tuple[int, ...] = (500,) * 100
    source: str = "images of ImageNet (https://www.image-net.org/), passed on by people"
    terms: str = (
        "ImageNet's: for research and education that is not commercial; cite O. Vinyals et al., Matching "
        "Networks for One Shot Learning, 2016, and S. Ravi and H. Larochelle, Optimization as a Model for "
        "Few-Shot Learning, 2017"
    )
    steps: str = (
        "put mini-imagenet-cache-train.pkl, mini-imagenet-cache-val.pkl and mini-imagenet-cache-test.pkl "
        "into one folder, or a folder images with train.csv, val.csv and test.csv beside it, or a folder of "
        "600 pictures for each class, named by its WordNet number such as n01532829, and name that folder "
        "with --data-dir or $ENCORE_DATA"
    )
    size: str = "1.3 GB as pickles, about 3 GB as pictures"

    def lies_in(self, folder: Path) -> bool:
        """Whether one of the layouts is found here, complete or not."""
        return self._find_layout(folder) is not None

    def list_files(self, folder: Path) -> tuple[Path, ...]:
        """Return the pickles, or the lists and pictures."""
        layout = self._find_layout(folder)
        return () if layout is None else layout.list_files()

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Name the layout, and check numbers of classes and images and what lists say."""
        folder, layout = self._locate_layout(data_dir)
        checks = [FileCheck(str(folder), f"the layout found is {layout.words}")]
        parts = []
        for part, origin in layout.origins().items():
            try:
                found = layout.read(part)
            except EncoreError as error:
                checks.append(FileCheck(str(origin), "", str(error)))
            else:
                parts.append(found)
                counts = f"{found.num_images:,} images of {len(found.classes)} classes"
                checks.append(FileCheck(str(origin), counts))
        if len(parts) == len(layout.origins()):
            try:
                layout.join(parts)
            except EncoreError as error:
                checks.append(FileCheck(str(folder), "", str(error)))
        return tuple(checks)

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return all images: those of pickles where they are, pictures to be decoded when they are read."""
        folder, layout = self._locate_layout(data_dir)
        try:
            return layout.join([layout.read(part) for part in layout.origins()])
        except EncoreError as error:
            raise EncoreError(f"{self.name} was found in {folder} as {layout.words}, but {error}") from error

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Return the seed's split or the fixed one, but for images that are parted already, and the tasks."""
        chosen = split or _SPLITS[0]
        if chosen not in _SPLITS:
            raise unknown_name("split", chosen, _SPLITS)
        draws = legacy_generator(seed)
        is_test = np.zeros(len(images.labels), dtype=np.bool_)
        for label in range(len(images.class_names)):
            drawn = np.arange(self.num_per_class)
            draws.shuffle(drawn)  # for any split: the order of the classes is drawn after it
            if images.is_test is None:
                tested = drawn[: self.num_tested] if chosen == "seed" else np.arange(-self.num_tested, 0)
                is_test[np.flatnonzero(images.labels == label)[tested]] = True
        order = np.arange(len(images.class_names))
        draws.shuffle(order)
        tasks = tuple(cut_into_tasks(order.tolist(), self.num_tasks))
        return Arrangement(is_test if images.is_test is None else images.is_test, tasks)

    def _locate_layout(self, data_dir: Path | None) -> tuple[Path, Layout]:
        folder = self.find(data_dir)
        layout = self._find_layout(folder)
        if layout is None:
            raise EncoreError(f"{self.name} has vanished from {folder}")
        return folder, layout

    def _find_layout(self, folder: Path) -> Layout | None:
        expected = Expected(self.classes_of_parts, self.num_per_class, self.image_shape)
        pickles = Pickles(folder, expected)
        return pickles if pickles.list_files() else find_pictures(folder, expected)
