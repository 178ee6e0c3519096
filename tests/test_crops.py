"""Squares cut out of images: where, and that a stream cuts the same ones however it is asked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from encore.crops import central_crops, random_crops
from encore.data.image_set import ArrayImages, ImageSet
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.stream import Stream, Task

# Each value says where it stands: 16 times the row and the column, in an image of 8 rows and 10 columns.
PLACES = (16 * np.arange(8)[:, None] + np.arange(10)).astype(np.uint8)
IMAGES = np.broadcast_to(PLACES, (60, 1, 8, 10)).copy()


def make_stream(seed: int = 0, crop: int | None = 5) -> Stream:
    pool = ImageSet(ArrayImages(IMAGES), np.arange(60) % 2, ("a", "b"), crop=crop)
    store = ImageStore(pool, torch.device("cpu"))
    tasks = [
        Task((0, 1), torch.arange(20), torch.arange(40, 60)),
        Task((0,), torch.arange(20, 40), torch.arange(2)),
    ]
    return Stream(store, tasks, seed)


def test_every_place_is_as_likely_as_any_other() -> None:
    images = torch.from_numpy(PLACES).expand(3000, 1, 8, 10)
    crops = random_crops(images, 6, np.random.default_rng(0))
    assert crops.shape == (3000, 1, 6, 6)
    counts = Counter(crops[:, 0, 0, 0].tolist())
    assert set(counts) == {16 * row + column for row in range(3) for column in range(5)}
    # 200 each; the deviation is below 14, and of 15 none is four deviations away.
    assert all(144 < count < 256 for count in counts.values())


def test_crop_is_a_piece_of_its_image() -> None:
    pixels = torch.randint(
        0, 256, (20, 3, 8, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    for image, crop in zip(pixels, random_crops(pixels, 4, np.random.default_rng(1)), strict=True):
        pieces = image.unfold(1, 4, 1).unfold(2, 4, 1).permute(1, 2, 0, 3, 4).reshape(-1, 3, 4, 4)
        assert sum(torch.equal(crop, piece) for piece in pieces) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
def test_crops_on_a_gpu_are_those_on_the_host() -> None:
    pixels = torch.randint(0, 256, (20, 3, 8, 10), dtype=torch.uint8)
    on_host = random_crops(pixels, 4, np.random.default_rng(1))
    assert torch.equal(random_crops(pixels.cuda(), 4, np.random.default_rng(1)).cpu(), on_host)


def test_middle_is_the_middle() -> None:
    crops = central_crops(torch.from_numpy(IMAGES), 4)
    assert crops.shape == (60, 1, 4, 4)
    assert np.array_equal(crops[7, 0], PLACES[2:6, 3:7])


def test_whole_image_and_no_image_can_be_cut() -> None:
    square = torch.from_numpy(IMAGES)[..., :8]
    assert torch.equal(random_crops(square, 8, np.random.default_rng(0)), square)
    assert random_crops(square[:0], 5, np.random.default_rng(0)).shape == (0, 1, 5, 5)


def test_stream_that_goes_on_cuts_what_it_would_have_cut() -> None:
    whole = list(make_stream().batches(1, 4))
    for start in range(5):
        rest = list(make_stream().batches(1, 4, start=start))
        assert len(rest) == 5 - start
        for ours, theirs in zip(rest, whole[start:], strict=True):
            assert torch.equal(ours.images, theirs.images)


def test_seeds_tasks_batches_and_images_have_crops_of_their_own() -> None:
    def corners(seed: int, task: int) -> list[list[int]]:
        return [batch.images[:, 0, 0, 0].tolist() for batch in make_stream(seed).batches(task, 10)]

    found = [corner for seed in (0, 1) for task in (0, 1) for corner in corners(seed, task)]
    assert len({tuple(corner) for corner in found}) == 8
    assert all(len(set(corner)) > 3 for corner in found)
    assert corners(1, 1) == corners(1, 1)


def test_learner_sees_crops_and_is_tested_on_the_middle() -> None:
    stream = make_stream()
    assert stream.store.image_shape == (1, 5, 5)
    (tested,) = stream.test_batches(0)
    assert np.array_equal(tested.images[3, 0], PLACES[1:6, 2:7])
    assert make_stream(crop=None).store.image_shape == (1, 8, 10)
    assert next(make_stream(crop=None).batches(0, 10)).images.shape == (10, 1, 8, 10)


@pytest.mark.parametrize("crop", [0, 9])
def test_crop_must_fit(crop: int) -> None:
    with pytest.raises(EncoreError, match=f"a crop of {crop} pixels cannot be cut out of images"):
        make_stream(crop=crop)
