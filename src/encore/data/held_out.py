"""Images set aside for testing, where nobody has said which they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from encore.data.image_set import ImageSet
from encore.errors import EncoreError
from encore.randomness import Randomness
from encore.values import positive_number

SPLITS = ("seed", "fixed")
FIXED_SEED = 0  # whose split is taken where every seed is to have the same


def hold_out(images: ImageSet, share: float, seed: int) -> NDArray[np.bool_]:
    """Return which images are for testing, bool [N]: a random share of each class, but never all of it.

    Where the data say to which task each image belongs, it is a share of each class in each task. It is at
    least one image, so that all is tested of which there are two; a single image is trained on.

    >>> from encore.data.image_set import ArrayImages
    >>> labels = np.array([0] * 10 + [1] * 2 + [2])
    >>> pool = ImageSet(ArrayImages(np.zeros((13, 1, 8, 8), dtype=np.uint8)), labels, ("a", "b", "c"))
    >>> np.bincount(labels[hold_out(pool, share=0.3, seed=0)], minlength=3).tolist()
    [3, 1, 0]
    """
    keys = [images.labels] if images.given_tasks is None else [images.labels, images.given_tasks]
    return draw_share(keys, share, Randomness(seed).host_generator("split"))


def draw_share(keys: Sequence[NDArray[np.int64]], share: float, generator: Generator) -> NDArray[np.bool_]:
    """Return a random share of those whose keys [N] are the same, bool [N]: at least one, but never all."""
    order = np.lexsort(keys[::-1])
    is_new = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    is_drawn = np.zeros(len(order), dtype=np.bool_)
    for rows in np.split(order, np.flatnonzero(is_new) + 1):
        num_drawn = min(max(1, round(share * len(rows))), len(rows) - 1)
        is_drawn[rows[torch.randperm(len(rows), generator=generator)[:num_drawn].numpy()]] = True
    return is_drawn


def check_share(name: str, share: Any) -> float:
    """Return a share that leaves something on either side."""
    if not isinstance(share, bool) and (checked := positive_number(name, share)) < 1:
        return checked
    raise EncoreError(f"{name} must be above 0 and below 1, such as 0.2, got {share!r}")


def refuse_untaught(labels: NDArray[np.int64], is_test: NDArray[np.bool_], names: Sequence[str]) -> None:
    """Refuse a split with classes that are tested and never taught."""
    untaught = np.setdiff1d(labels[is_test], labels[~is_test])
    if len(untaught):
        shown = ", ".join(names[label] for label in untaught[:3])
        more = f" and {len(untaught) - 3} more" if len(untaught) > 3 else ""
        raise EncoreError(
            f"{shown}{more}: there are images to test on, but none to train on; a class needs both or only "
            "the latter"
        )
