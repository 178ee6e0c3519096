"""Class after class, where some classes have many images and others few."""

from __future__ import annotations

from typing import Annotated

import torch

from encore.errors import EncoreError, unknown_name
from encore.interfaces import Material
from encore.stream import Task, shuffled
from encore.streams._classes import rows_by_class, tasks_of_classes
from encore.values import positive_number

LAWS = ("exponential", "step")
LARGEST = ("anywhere", "first", "last")


class Imbalanced:
    """Each task brings its own classes, of which some have lost most of their images.

    The C classes are ranked i = 0 .. C - 1, and class i keeps a share of its n training images,

        exponential:  ratio^(i / (C - 1)),    step:  1 for the first half of the ranks, else ratio,

    where an odd C has the larger half first. It keeps round(share * n) of them, an exact half being rounded
    to the even number, and at least one; which ones is drawn uniformly. So where all classes have the same
    number of images, `ratio` is the smallest class over the largest. Ranks are drawn uniformly
    (`largest` is anywhere), or follow the order in which classes come (first), or its reverse (last). All
    images of a task come in random order; the size of a task is what its classes keep, and its lambda differs
    from task to task. Test images are not touched.

    >>> labels = torch.arange(400) % 4
    >>> rows = torch.arange(400)
    >>> material = Material(labels, rows, rows, ((3, 1), (0, 2)), None, None, torch.Generator())
    >>> tasks = Imbalanced(ratio=0.125, largest="first")(material)
    >>> [labels[task.train].bincount(minlength=4).tolist() for task in tasks]  # 100 * 8^(-i / 3)
    [[0, 50, 0, 100], [25, 0, 12, 0]]
    """

    def __init__(
        self,
        law: Annotated[str, "how sizes fall from class to class: exponential or step"] = "exponential",
        ratio: Annotated[float, "share that the smallest class keeps of its images"] = 0.1,
        largest: Annotated[str, "where the large classes come: anywhere, first or last"] = "anywhere",
    ) -> None:
        if law not in LAWS:
            raise unknown_name("law", law, LAWS)
        if largest not in LARGEST:
            raise unknown_name("place for the largest classes", largest, LARGEST)
        self.law = law
        self.ratio = positive_number("ratio", ratio)
        if self.ratio > 1:
            raise EncoreError(f"ratio must be at most 1, as the smallest over the largest class, got {ratio}")
        self.largest = largest

    def __call__(self, material: Material) -> list[Task]:
        """Return a task for each group of classes."""
        num_classes = sum(map(len, material.class_groups))
        ranks = torch.arange(num_classes)
        if self.largest == "anywhere":
            ranks = shuffled(ranks, material.generator)
        elif self.largest == "last":
            ranks = ranks.flip(0)
        shares = iter([self._share(rank, num_classes) for rank in ranks.tolist()])
        train = [
            [rows[: max(1, round(next(shares) * len(rows)))] for rows in of_task]
            for of_task in rows_by_class(material)
        ]
        none = material.train[:0]
        return tasks_of_classes(
            material, [shuffled(torch.cat([none, *rows]), material.generator) for rows in train]
        )

    def _share(self, rank: int, num_classes: int) -> float:
        if self.law == "step":
            return 1.0 if rank < (num_classes + 1) // 2 else self.ratio
        return float(self.ratio ** (rank / max(1, num_classes - 1)))
