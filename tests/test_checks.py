from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from encore.checks import check_batch, check_images
from encore.errors import EncoreError

COLOUR = (3, 8, 9)
CPU = torch.device("cpu")


def images(*shape: int) -> torch.Tensor:
    return torch.zeros(shape or (4, *COLOUR), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (images(4, 3, 8, 8), r"must have shape \[N, 3, 8, 9\], got \[4, 3, 8, 8\]$"),
        (images(4, 8, 9, 3), r"channels come first, so permute them to \(0, 3, 1, 2\)"),
        (images(3, 8, 9), r"for a single image add the first dimension with images\[None\]"),
        (images(4, 1, 8, 9), r"must have shape \[N, 3, 8, 9\], got \[4, 1, 8, 9\]"),
        (images(0, 3, 8, 9), "the batch is empty"),
        (images().int(), "images must be uint8, or floats from 0 to 1, got int32"),
        (images().bool(), "got bool"),
        (images().to(torch.complex64), "got complex64"),
        (images().float() + torch.nan, "images must be finite"),
        (images().float() - torch.inf, "images must be finite"),
        (images().float() + 1.5, "between 0 and 1, without normalisation, got 1.5 to 1.5"),
        (images().float() - 0.1, "between 0 and 1"),
        (images().float() + 1.01, "between 0 and 1, without normalisation, got 1.01 to 1.01"),
        (images().float().to_sparse(), "images must be a dense tensor, got a sparse one"),
        ([[1]], "images must be a torch tensor or a NumPy array, got list"),
        (np.array(["a"]), "images must hold numbers, got a NumPy array of <U1"),
    ],
)
def test_wrong_images_get_one_sentence(wrong: Any, sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        check_images(wrong, COLOUR, CPU)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (torch.zeros(3, dtype=torch.int64), r"one class for each of the 4 images, got shape \[3\]"),
        (torch.zeros(4, 1, dtype=torch.int64), r"got shape \[4, 1\]"),
        (torch.zeros(4), "labels must be whole numbers .int64., got float32"),
        (torch.zeros(4, dtype=torch.bool), "got bool"),
        (torch.tensor([0, 1, -1, 2]), "labels must be from 0 to 9 for 10 classes, got -1"),
        (np.array([0, 1, 10, 2]), "got 10"),
        (np.array([0, 1, 2**40, 2]), f"got {2**40}"),
        ([0, 1, 2, 3], "labels must be a torch tensor or a NumPy array, got list"),
    ],
)
def test_wrong_labels_get_one_sentence(wrong: Any, sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        check_batch(images(), wrong, COLOUR, 10, CPU)


def test_every_grey_level_survives_as_a_float() -> None:
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(check_images(levels.to(dtype) / 255, (1, 16, 16), CPU), levels)


def test_half_precision_is_accepted() -> None:
    checked = check_images(torch.full((1, *COLOUR), 0.5, dtype=torch.float16), COLOUR, CPU)
    assert checked.unique().tolist() == [128]


def test_arrays_that_torch_cannot_share() -> None:
    array = np.arange(4 * 3 * 8 * 9, dtype=np.uint8).reshape(4, 3, 8, 9)
    read_only = array.copy()
    read_only.flags.writeable = False
    backwards = array[::-1]
    assert torch.equal(check_images(read_only, COLOUR, CPU), torch.from_numpy(array))
    assert torch.equal(check_images(backwards, COLOUR, CPU), torch.from_numpy(backwards.copy()))
    big_endian = (array / 255).astype(">f4")
    assert torch.equal(check_images(big_endian, COLOUR, CPU), torch.from_numpy(array))
    labels = np.arange(4).astype(">i8")
    assert check_batch(array, labels, COLOUR, 4, CPU).labels.tolist() == [0, 1, 2, 3]


def test_unsigned_labels_are_accepted() -> None:
    batch = check_batch(images(), np.array([0, 1, 9, 2], dtype=np.uint16), COLOUR, 10, CPU)
    assert batch.labels.dtype == torch.int64


def test_floats_may_leave_the_range_as_resizing_makes_them() -> None:
    resized = torch.tensor([-1e-4, 0.0, 1.0, 1.0001]).reshape(1, 1, 2, 2)
    assert check_images(resized, (1, 2, 2), CPU).flatten().tolist() == [0, 0, 255, 255]
