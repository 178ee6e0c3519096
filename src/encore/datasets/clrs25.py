"""CLRS, remote sensing scenes, as its makers list them for learning new classes task after task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import numpy as np

from encore.data.benchmark import FileCheck
from encore.data.folder_listing import shown
from encore.data.gathered import Gathered
from encore.data.image_set import ImageSet
from encore.data.list_files import PictureList, find_pictures, read_list
from encore.data.pictures import PictureFiles
from encore.errors import EncoreError
from encore.values import whole_number

PICTURES, LISTS = "CLRS", "label/NC"
SIDE = 256  # of the published pictures
SMALLEST_SIDE = 8


class Clrs25(Gathered):
    """CLRS25-NC: 5 tasks of 5 scenes, 15,000 satellite images of 256x256, a quarter of them to test.

    Every line of the makers' lists is an image, the first one too. The pictures are taken whole, at the size
    they have or resized to another.

    >>> benchmark = Clrs25(side=128)
    >>> benchmark.num_tasks, benchmark.image_shape
    (5, (3, 128, 128))
    """

    name: str = "clrs25"
    num_tasks: int = 5
    num_classes: int = 25
    class_sizes: tuple[int, ...] = (450,) * 25
    images_per_class: int = 600  # to train on and to test on
    source: str = "https://github.com/lehaifeng/CLRS"
    terms: str = (
        "no licence is stated; said to be for academic purposes; cite H. Li et al., CLRS: Continual Learning "
        "Benchmark for Remote Sensing Image Scene Classification, 2020"
    )
    size: str = "3 GB"
    steps: str = (
        "get it from where https://github.com/lehaifeng/CLRS says, put its folders CLRS (pictures) and label "
        "(lists) into one folder, and name that with --data-dir or $ENCORE_DATA"
    )

    def __init__(
        self,
        run: Annotated[int, "Which of the makers' orders, by its folder; 0 is the first there is."] = 0,
        side: Annotated[int, "Pixels along each edge; the pictures have 256."] = SIDE,
    ) -> None:
        self.run = whole_number("benchmark.run", run, lowest=0)
        self.side = whole_number("benchmark.side", side, SMALLEST_SIDE, SIDE)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return 3, self.side, self.side

    def lies_in(self, folder: Path) -> bool:
        """Whether lists or pictures lie there."""
        return (folder / LISTS).is_dir() or (folder / PICTURES).is_dir()

    def list_files(self, folder: Path) -> tuple[Path, ...]:
        """Return the lists of the chosen run, and all that lies below the folder of pictures."""
        pictures = sorted(path for path in (folder / PICTURES).rglob("*") if path.is_file())
        return (*self._find_lists(folder), *pictures)

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return the images that the lists name."""
        folder = self.find(data_dir)
        lists = [read_list(path, self.num_classes) for path in self._find_lists(folder)]
        tasks = self._tasks(lists[:-1])
        names = find_pictures(folder / PICTURES, [name for part in lists for name in part.names])
        _refuse_repeated(lists, names)
        labels = np.array([label for part in lists for label in part.labels], dtype=np.int64)
        return ImageSet(
            PictureFiles(folder / PICTURES, names, self.image_shape, self._fit),
            labels,
            self._class_names(lists, names),
            is_test=np.arange(len(names)) >= len(names) - len(lists[-1].names),
            official_tasks=tasks,
        )

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Check the lists, how many images each names, and that all are there; one is decoded."""
        folder = self.find(data_dir)
        checks: list[FileCheck] = []
        lists = []
        num_tested = self.num_classes * self.images_per_class - sum(self.class_sizes)
        expected = [sum(self.class_sizes) // self.num_tasks] * self.num_tasks + [num_tested]
        for path, count in zip(self._find_lists(folder), expected, strict=True):
            name = str(path.relative_to(folder))
            try:
                lists.append(read_list(path, self.num_classes))
                checks.append(_check_count(name, lists[-1], count))
            except EncoreError as error:
                checks.append(FileCheck(name, "", str(error)))
        if any(check.problem for check in checks):
            return tuple(checks)
        counts = np.bincount([label for part in lists for label in part.labels], minlength=self.num_classes)
        for label in np.flatnonzero(counts != self.images_per_class)[:1]:
            problem = (
                f"the lists name {counts[label]} images of class {label}, and {self.images_per_class} exist"
            )
            return (*checks, FileCheck("classes", "", problem))
        try:
            images = self.load(data_dir)
            images.images.read(np.arange(1))
        except EncoreError as error:
            return (*checks, FileCheck(PICTURES, "", str(error)))
        return (*checks, FileCheck(PICTURES, f"{len(images.labels):,} pictures, all that the lists name"))

    @property
    def _fit(self) -> Literal["exact", "stretch"]:
        return "exact" if self.side == SIDE else "stretch"

    def _find_lists(self, folder: Path) -> list[Path]:
        """Return the lists of the chosen run: those to train on in their order, then the one to test on."""
        above = folder / LISTS
        entries = [entry.name for entry in above.iterdir()] if above.is_dir() else []
        runs = sorted(int(name[3:]) for name in entries if re.fullmatch(r"run[0-9]{1,3}", name))
        if not runs:
            raise EncoreError(f"there is no list in {above}/run0 or another run: {self.steps}")
        if self.run != 0 and self.run not in runs:
            there = ", ".join(map(str, runs))
            raise EncoreError(f"there is no {above}/run{self.run}: choose --benchmark.run from {there}")
        chosen = above / f"run{self.run if self.run in runs else runs[0]}"
        return [
            *(chosen / f"train_task{number}.txt" for number in range(1, self.num_tasks + 1)),
            chosen / "test.txt",
        ]

    def _tasks(self, lists: Sequence[PictureList]) -> tuple[tuple[int, ...], ...]:
        tasks = tuple(tuple(sorted(set(part.labels))) for part in lists)
        each = self.num_classes // self.num_tasks
        seen: dict[int, Path] = {}
        for part, task in zip(lists, tasks, strict=True):
            if len(task) != each:
                raise EncoreError(f"{part.path} must teach {each} classes, and teaches {len(task)}")
            for label in task:
                if (first := seen.setdefault(label, part.path)) != part.path:
                    raise EncoreError(f"{part.path} teaches class {label}, and so does {first.name}")
        return tasks

    def _class_names(self, lists: Sequence[PictureList], names: Sequence[str]) -> tuple[str, ...]:
        """Return the folder of each class, or its number where the pictures lie in no folders."""
        folders: dict[int, str] = {}
        for label, name in zip((label for part in lists for label in part.labels), names, strict=True):
            folder = PurePosixPath(name).parent.name
            if (first := folders.setdefault(label, folder)) != folder:
                raise EncoreError(
                    f"the lists in {lists[0].path.parent} give the number {label} to pictures in "
                    f"{shown(first)} and in {shown(folder)}: a number must stand for one folder"
                )
        folder, count = Counter(folders.values()).most_common(1)[0]
        if count == self.num_classes and folder == "":
            return tuple(map(str, range(self.num_classes)))
        if count > 1:
            raise EncoreError(
                f"the lists in {lists[0].path.parent} give several numbers to pictures in {shown(folder)}"
            )
        return tuple(folders[label] for label in range(self.num_classes))


def _refuse_repeated(lists: Sequence[PictureList], names: Sequence[str]) -> None:
    origins = [part.path.name for part in lists for _ in part.names]
    first: dict[str, str] = {}
    for name, origin in zip(names, origins, strict=True):
        if name in first:
            raise EncoreError(
                f"{shown(name)} is listed twice, in {first[name]} and in {origin} in {lists[0].path.parent}"
            )
        first[name] = origin


def _check_count(name: str, found: PictureList, expected: int) -> FileCheck:
    count = len(found.names)
    if count == expected:
        return FileCheck(name, f"{count:,} images of {len(set(found.labels))} classes")
    hint = ": its first line may be lost, as it is no header" if count == expected - 1 else ""
    return FileCheck(name, "", f"{found.path} names {count:,} images, and {expected:,} were published{hint}")
