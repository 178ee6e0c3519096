"""CORe50, as its makers list it for learning new classes one batch after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np

from encore.data.benchmark import FileCheck
from encore.data.core50_lists import (
    BATCHES,
    LABELS,
    PATHS,
    Batches,
    Catalogue,
    Numbers,
    join_run,
    read_batches,
    read_catalogue,
)
from encore.data.core50_pixels import DeflatedPixels
from encore.data.core50_sources import find_sources, list_source, open_best, open_source
from encore.data.gathered import Gathered
from encore.data.image_set import ImageSet
from encore.data.verified import md5_of
from encore.errors import EncoreError
from encore.values import whole_number

Content = TypeVar("Content")

# Of the files as they are published, by what other loaders record.
CHECKSUMS = {
    PATHS: "b568f86998849184df3ec3465290f1b0",
    BATCHES: "33afc26faa460aca98739137fdfa606e",
    LABELS: "281c95774306a2196f4505f22fd60ab1",
}
KINDS = (
    "plug_adapter",
    "mobile_phone",
    "scissor",
    "light_bulb",
    "can",
    "glass",
    "ball",
    "marker",
    "cup",
    "remote_control",
)


class Core50(Gathered):
    """CORe50-NC: 9 tasks, of 10 and then 5 objects each; 164,866 colour images of 128x128.

    The classes are the 50 objects, o1 to o50, whatever numbers a run gives them. What comes when, and that
    sessions 3, 7 and 10 are for testing, is as the makers' lists say; the class order of another seed is had
    with `--class-order seed`. The pixels are taken from the first of these that is there and whole:
    `core50_imgs.bin`, `core50_imgs.npz`, the folders `s1` to `s11` (right there or in `core50_128x128`),
    `core50_128x128.zip`. Nothing is unpacked to disk, and nothing in the pickles is executed.

    >>> Core50(run=3).num_tasks, Core50().class_names[12]
    (9, 'scissor3')
    """

    name: str = "core50"
    num_tasks: int = 9
    num_classes: int = 50
    image_shape: tuple[int, int, int] = (3, 128, 128)
    class_names: tuple[str, ...] = tuple(f"{kind}{number}" for kind in KINDS for number in range(1, 6))
    numbers: Numbers = Numbers()
    source: str = "https://vlomonaco.github.io/core50"
    terms: str = (
        "CC BY 4.0; cite V. Lomonaco and D. Maltoni, "
        "CORe50: a New Dataset and Benchmark for Continuous Object Recognition, 2017"
    )
    size: str = "5.9 GB as pictures, 8.1 GB as bare pixels"
    steps: str = (
        "put core50_128x128.zip (unpacked or not) or core50_imgs.npz, and paths.pkl, LUP.pkl and labels.pkl, "
        "all from https://vlomonaco.github.io/core50, into one folder and name it with --data-dir or "
        "$ENCORE_DATA"
    )

    def __init__(
        self, run: Annotated[int, "Which of the makers' ten orders of the objects, 0 to 9."] = 0
    ) -> None:
        self.run = whole_number("benchmark.run", run, 0, self.numbers.runs - 1)

    def lies_in(self, folder: Path) -> bool:
        """Whether pixels or the table of batches lie there."""
        return (folder / BATCHES).is_file() or bool(find_sources(folder))

    def list_files(self, folder: Path) -> tuple[Path, ...]:
        """Return the lists, and the files of every source of pixels."""
        sources = [file for source in find_sources(folder) for file in list_source(source)]
        return (*(folder / name for name in CHECKSUMS), *sources)

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return the images of the chosen run."""
        folder = self.find(data_dir)
        catalogue = read_catalogue(folder, self.numbers)
        batches, labels = (read_batches(folder, name, self.numbers) for name in (BATCHES, LABELS))
        chosen = join_run(folder, self.run, catalogue, batches, labels, self.numbers)
        sources = find_sources(folder)
        if not sources:
            raise EncoreError(f"{folder} holds CORe50's lists and no pixels: {self.steps}")
        images = open_best(sources, catalogue, chosen.rows, self.image_shape)
        labels_of = catalogue.objects[chosen.rows]
        return ImageSet(images, labels_of, self.class_names, chosen.is_test, chosen.tasks)

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Check the lists, that they agree in every run, and that no image is missing; one is decoded."""
        folder = self.find(data_dir)
        checks: list[FileCheck] = []
        catalogue = self._try(checks, folder / PATHS, lambda: read_catalogue(folder, self.numbers))
        batches, labels = (
            self._try(checks, folder / name, partial(read_batches, folder, name, self.numbers))
            for name in (BATCHES, LABELS)
        )
        if catalogue and batches and labels:
            checks.append(self._check_runs(folder, catalogue, batches, labels))
        if catalogue:
            checks += self._check_pixels(folder, catalogue)
        return tuple(checks)

    def _try(self, checks: list[FileCheck], path: Path, read: Callable[[], Content]) -> Content | None:
        try:
            content = read()
        except EncoreError as error:
            checks.append(FileCheck(path.name, "", str(error)))
            return None
        is_published = md5_of(path) == CHECKSUMS[path.name]
        verdict = "as published" if is_published else "in order, but by its checksum not the published file"
        checks.append(FileCheck(path.name, verdict))
        return content

    def _check_runs(self, folder: Path, catalogue: Catalogue, batches: Batches, labels: Batches) -> FileCheck:
        try:
            for run in range(self.numbers.runs):
                join_run(folder, run, catalogue, batches, labels, self.numbers)
        except EncoreError as error:
            return FileCheck("runs", "", str(error))
        return FileCheck("runs", f"{self.numbers.runs} of {self.num_tasks} tasks, all in agreement")

    def _check_pixels(self, folder: Path, catalogue: Catalogue) -> list[FileCheck]:
        sources = find_sources(folder)
        if not sources:
            return [FileCheck("pixels", "", f"there are no pixels in {folder}: {self.steps}")]
        rows = np.arange(len(catalogue.names))
        verdicts, problems = {}, {}
        for source in sources:
            try:
                images = open_source(source, catalogue, rows, self.image_shape)
                images.read(rows[:1])
                in_passing = ", which can only be read in their order" * isinstance(images, DeflatedPixels)
                verdicts[source] = f"{len(images):,} images{in_passing}"
            except EncoreError as error:
                problems[source] = str(error)
                verdicts[source] = f"not used: {error}"
        if len(problems) == len(sources):
            return [FileCheck(source.name, "", problem) for source, problem in problems.items()]
        return [FileCheck(source.name, verdict) for source, verdict in verdicts.items()]
