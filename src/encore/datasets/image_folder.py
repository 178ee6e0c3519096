"""A user's own pictures as a benchmark: found by how they are arranged, whatever their sizes and formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from encore.data.benchmark import Arrangement, FileCheck
from encore.data.folder_listing import Catalogue, count_of, read_folders, shown, shown_all, walk
from encore.data.gathered import Gathered
from encore.data.held_out import FIXED_SEED, SPLITS, check_share, hold_out, refuse_untaught
from encore.data.image_set import ImageSet
from encore.data.picture_list import find_lists, find_tables, read_list
from encore.data.pictures import Fit, PictureFiles
from encore.errors import EncoreError, unknown_name
from encore.stream import cut_into_tasks, draw_class_order
from encore.values import whole_number

FITS = ("cover", "stretch")
SMALLEST_SIDE, LARGEST_SIDE = 8, 1024


class ImageFolder(Gathered):
    """Your own pictures: a folder for each class, or a list of files with their classes.

    `--data-dir` names the folder. Below it lie `CLASS/...`, or `train/CLASS/...` with `test/CLASS/...`, or
    whatever a list in it says: `images.csv`, with the columns `path` and `label`. Where nothing says which
    pictures are for testing, a share of each class is.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, colour in (("cat", "red"), ("dog", "blue")):
    ...     (folder / name).mkdir()
    ...     Image.new("RGB", (90, 60), colour).save(folder / name / "1.png")
    >>> pool = ImageFolder(side=32).load(folder)
    >>> pool.class_names, pool.labels.tolist(), pool.images.shape
    (('cat', 'dog'), [0, 1], (3, 32, 32))
    """

    name: str = "image_folder"
    num_tasks: int = 5  # or the number of classes, where there are fewer
    source: str = "you"
    terms: str = "yours"
    steps: str = "name the folder of your pictures with --data-dir"
    size: str = "as large as your pictures"

    def __init__(
        self,
        side: Annotated[int, "Pixels in a row and in a column, to which pictures are resized."] = 64,
        fit: Annotated[
            str, "How a picture becomes a square: cover (cut off what is too long) or stretch."
        ] = "cover",
        grey: Annotated[bool, "Read pictures in grey instead of in colour."] = False,
        test_share: Annotated[
            float, "Of each class, for testing, where neither folders nor a list say which."
        ] = 0.2,
        list: Annotated[
            str | None, "Table of the pictures, below the folder; else images.csv or labels.csv if there."
        ] = None,
    ) -> None:
        if fit not in FITS:
            raise unknown_name("fit", fit, FITS)
        side = whole_number("benchmark.side", side, SMALLEST_SIDE, LARGEST_SIDE)
        self.shape = (1 if grey else 3, side, side)
        self.fit: Fit = "stretch" if fit == "stretch" else "cover"
        self.test_share = check_share("benchmark.test_share", test_share)
        self.list = list

    def lies_in(self, folder: Path) -> bool:
        """Whether there is a folder: what it must hold is said once it is read."""
        return folder.is_dir()

    def find(self, data_dir: Path | None) -> Path:
        """Return the folder given; pictures of one's own lie nowhere else."""
        if data_dir is None:
            raise EncoreError("image_folder reads your own pictures: name their folder with --data-dir")
        if not self.lies_in(data_dir):
            raise EncoreError(f"there is no folder {data_dir}: name that of your pictures with --data-dir")
        return data_dir

    def list_files(self, folder: Path) -> tuple[Path, ...]:
        """Return the list, if there is one, and every picture."""
        found = self._read(folder)
        pictures = (folder / name for name in found.names)
        return (*([found.list_file] if found.list_file else []), *pictures)

    def check_files(self, data_dir: Path | None) -> tuple[FileCheck, ...]:
        """Say how the pictures were found, how many there are, and what was passed over."""
        folder = self.find(data_dir)
        found = self._read(folder)
        names = found.class_names
        passed_over = found.passed_over
        if found.list_file is not None:
            num_others = len(set(walk(folder).pictures).difference(found.names))
            passed_over = passed_over + count_of(num_others, "picture not listed", "pictures not listed")
        return (
            FileCheck("found by", found.layout),
            FileCheck("classes", f"{len(names):,} ({shown_all(names)})"),
            FileCheck("pictures", f"{len(found.names):,}"),
            FileCheck("passed over", ", ".join(passed_over) or "nothing"),
        )

    def load(self, data_dir: Path | None) -> ImageSet:
        """Return the pictures, which are decoded and resized when they are read."""
        folder = self.find(data_dir)
        found = self._read(folder)
        names = found.class_names
        numbers = {name: number for number, name in enumerate(names)}
        labels = np.array([numbers[label] for label in found.labels], dtype=np.int64)
        is_test = None if found.is_test is None else np.array(found.is_test, dtype=np.bool_)
        class_names = tuple(shown(name) for name in names)
        if is_test is not None:
            refuse_untaught(labels, is_test, class_names)
        return ImageSet(
            PictureFiles(folder, found.names, self.shape, self.fit),
            labels,
            class_names,
            is_test,
            times=None if found.times is None else np.array(found.times, dtype=np.float64),
            given_tasks=None if found.tasks is None else np.array(found.tasks, dtype=np.int64),
        )

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Return the split and the classes of each task, in this seed's order."""
        if split is not None and split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        if split is not None and images.is_test is not None:
            raise EncoreError("these pictures say themselves which are for testing: leave --split out")
        is_test = images.is_test
        if is_test is None:
            is_test = hold_out(images, self.test_share, FIXED_SEED if split == "fixed" else seed)
        num_classes = len(images.class_names)
        order = draw_class_order(num_classes, seed)
        return Arrangement(is_test, tuple(cut_into_tasks(order, min(self.num_tasks, num_classes))))

    def _read(self, folder: Path) -> Catalogue:
        """Return what the folder's list says, or how its own folders are arranged."""
        if self.list is not None:
            return _with_classes(folder, read_list(folder, folder / self.list))
        tables = find_tables(folder)
        lists = find_lists(tables)
        if len(lists) > 1:
            names = shown_all([file.name for file in lists])
            raise EncoreError(f"{folder} holds several lists ({names}): name one with --benchmark.list")
        if lists:
            return _with_classes(folder, read_list(folder, lists[0]))
        try:
            return _with_classes(folder, read_folders(folder))
        except EncoreError:
            if len(tables) == 1:
                read_list(folder, tables[0])  # which says what it lacks to be a list
            raise


def _with_classes(folder: Path, found: Catalogue) -> Catalogue:
    """Return what was found, if there is anything to tell apart."""
    if len(set(found.labels)) > 1:
        return found
    raise EncoreError(
        f"{folder} holds pictures of one class only, {shown(found.labels[0])}: there must be at least two, "
        "each in a folder of its own or named in a list"
    )
