"""The second view against plain loops, Pillow and colorsys, and what it draws against its distributions."""

from __future__ import annotations

import colorsys
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from tests.helpers import NoHostSynchronisation
from torch import Generator, Tensor

from encore.augment.contrastive_view import ContrastiveView, ViewDraws, crop

LOG_RATIO = math.log(4 / 3)


def make_images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=Generator().manual_seed(1), dtype=torch.float64)


def make_view() -> ContrastiveView:
    return ContrastiveView().double()


def no_change(size: int, height: int, width: int) -> ViewDraws:
    box = torch.tensor([0, 0, width, height], dtype=torch.float64).expand(size, 4)
    zeros, ones = torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.float64)
    return ViewDraws(box, zeros.bool(), zeros, ones, ones, zeros, zeros.bool())


def plain_crop(image: Tensor, box: list[int], is_flipped: bool) -> Tensor:
    """Look up every pixel of [C, H, W] among its four neighbours."""
    num_channels, height, width = image.shape
    left, top, box_width, box_height = box
    planes = image.tolist()
    view = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            seen = width - 1 - column if is_flipped else column
            x = left + seen * (box_width - 1) / max(width - 1, 1)
            y = top + row * (box_height - 1) / max(height - 1, 1)
            x0, y0 = math.floor(x), math.floor(y)
            x1, y1 = min(x0 + 1, width - 1), min(y0 + 1, height - 1)
            right, down = x - x0, y - y0
            for channel in range(num_channels):
                pixels = planes[channel]
                upper = (1 - right) * pixels[y0][x0] + right * pixels[y0][x1]
                lower = (1 - right) * pixels[y1][x0] + right * pixels[y1][x1]
                view[channel, row, column] = (1 - down) * upper + down * lower
    return view


@pytest.mark.parametrize(
    ("shape", "boxes"),
    [
        ((3, 8, 8), [[0, 0, 8, 8], [2, 3, 4, 5], [7, 7, 1, 1], [0, 6, 8, 2]]),
        ((1, 5, 9), [[0, 0, 9, 5], [4, 1, 5, 3], [8, 0, 1, 5]]),
        ((3, 1, 4), [[1, 0, 2, 1], [0, 0, 4, 1]]),
        ((1, 1, 1), [[0, 0, 1, 1]]),
    ],
)
@pytest.mark.parametrize("is_flipped", [False, True])
def test_crop_is_the_plain_loop_s(
    shape: tuple[int, int, int], boxes: list[list[int]], is_flipped: bool
) -> None:
    images = make_images(len(boxes), *shape)
    views = crop(images, torch.tensor(boxes).double(), torch.full((len(boxes),), is_flipped))
    expected = [plain_crop(image, box, is_flipped) for image, box in zip(images, boxes, strict=True)]
    torch.testing.assert_close(views, torch.stack(expected))


def test_crop_is_pillow_s() -> None:
    image, (left, top, width, height) = make_images(1, 1, 12, 12), (2, 1, 7, 10)
    view = crop(image, torch.tensor([[left, top, width, height]]).double(), torch.tensor([False]))
    across, down = (width - 1) / 11, (height - 1) / 11
    # Pillow counts from the corners of pixels, half a pixel from their centres.
    numbers = (across, 0, left + 0.5 - across / 2, 0, down, top + 0.5 - down / 2)
    pillow = Image.fromarray(image[0, 0].float().numpy(), mode="F")
    resampling = Image.Resampling.BILINEAR
    expected = np.asarray(pillow.transform((12, 12), Image.Transform.AFFINE, numbers, resampling))
    np.testing.assert_allclose(view[0, 0].numpy(), expected, atol=1e-6)


def test_crop_by_hand() -> None:
    image = torch.tensor([[0.0, 1.0, 3.0], [6.0, 7.0, 9.0], [0.0, 0.0, 0.0]]).view(1, 1, 3, 3)
    view = crop(image, torch.tensor([[1.0, 0.0, 2.0, 2.0]]), torch.tensor([False]))
    assert view.flatten().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    mirrored = crop(image, torch.tensor([[1.0, 0.0, 2.0, 2.0]]), torch.tensor([True]))
    assert mirrored.flatten().tolist() == [3, 2, 1, 6, 5, 4, 9, 8, 7]


def cut(number: float) -> float:
    return min(max(number, 0.0), 1.0)


def plain_colours(
    pixel: list[float], brightness: float, contrast: float, saturation: float, hue: float, is_grey: bool
) -> list[float]:
    """Change one pixel with three channels."""
    pixel = [cut(cut(channel + brightness) * contrast) for channel in pixel]
    turn, share, value = colorsys.rgb_to_hsv(*pixel)
    red, green, blue = colorsys.hsv_to_rgb((turn + hue) % 1.0, cut(share * saturation), value)
    if is_grey:
        return [0.299 * red + 0.587 * green + 0.114 * blue] * 3
    return [red, green, blue]


COLOURS = [
    *[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.4, 0.4, 0.4]],
    *[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    *[[1.0, 1.0, 0.0], [0.0, 0.7, 0.7], [0.3, 0.0, 0.3]],  # where two channels are the largest
    *[[0.2, 0.5, 0.5], [0.5, 0.2, 0.5], [0.5, 0.5, 0.2]],
    *[[0.8, 0.3, 0.1], [0.1, 0.8, 0.3], [0.3, 0.1, 0.8], [0.8, 0.1, 0.3], [0.3, 0.8, 0.1], [0.1, 0.3, 0.8]],
]
CHANGES = [
    *[(0.0, 1.0, 1.0, 0.0, False), (0.4, 1.0, 1.0, 0.0, False), (-0.4, 1.0, 1.0, 0.0, False)],
    *[(0.0, 1.4, 1.0, 0.0, False), (0.0, 0.6, 1.0, 0.0, False), (0.0, 1.0, 1.4, 0.0, False)],
    *[(0.0, 1.0, 0.6, 0.0, False), (0.0, 1.0, 1.0, 0.1, False), (0.0, 1.0, 1.0, -0.1, False)],
    *[(0.0, 1.0, 1.0, 0.0, True), (0.3, 1.3, 1.2, -0.07, False), (-0.2, 0.7, 1.4, 0.05, True)],
]


@pytest.mark.parametrize("change", CHANGES)
def test_colours_are_those_of_colorsys(change: tuple[float, float, float, float, bool]) -> None:
    pixels = torch.cat([torch.tensor(COLOURS, dtype=torch.float64), make_images(31, 3)])  # 49 in all
    images = pixels.T.reshape(1, 3, 7, 7)
    *amounts, is_grey = (torch.tensor([value]) for value in change)
    brightness, contrast, saturation, hue = (amount.double() for amount in amounts)
    same = no_change(1, 7, 7)
    draws = ViewDraws(same.box, same.is_flipped, brightness, contrast, saturation, hue, is_grey)
    views = make_view().apply_draws(images, draws)
    expected = torch.tensor([plain_colours(pixel, *change) for pixel in pixels.tolist()]).double()
    # The luma's weights and the amounts are kept in single precision.
    torch.testing.assert_close(views.flatten(2)[0].T, expected, rtol=0, atol=1e-6)


def test_images_change_each_by_its_own_draws() -> None:
    images = make_images(6, 3, 7, 7)
    view = make_view()
    draws = view.draw(6, 7, 7, Generator().manual_seed(3))
    together = view.apply_draws(images, draws)
    for number in range(6):
        own = ViewDraws(*(drawn[number : number + 1] for drawn in draws))
        change: Any
        box, is_flipped, *change = (drawn[0] for drawn in own)
        cropped = plain_crop(images[number], [int(side) for side in box], bool(is_flipped))
        change = [value.item() for value in change]
        pixels = [plain_colours(pixel, *change) for pixel in cropped.flatten(1).T.tolist()]
        expected = torch.tensor(pixels, dtype=torch.float64).T.view(3, 7, 7)
        torch.testing.assert_close(together[number], expected, rtol=0, atol=1e-6)


def test_grey_images_change_in_brightness_and_contrast() -> None:
    images = make_images(1, 1, 4, 4)
    one = torch.ones(1, dtype=torch.float64)
    draws = no_change(1, 4, 4)._replace(
        brightness=-0.2 * one, contrast=1.4 * one, saturation=0 * one, hue=0.1 * one, is_grey=one.bool()
    )
    expected = (1.4 * (images - 0.2).clamp(0, 1)).clamp(0, 1)
    torch.testing.assert_close(make_view().apply_draws(images, draws), expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_nothing_drawn_changes_nothing(channels: int) -> None:
    images = make_images(3, channels, 6, 5)
    torch.testing.assert_close(make_view().apply_draws(images, no_change(3, 6, 5)), images)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 30), (30, 1), (8, 8), (84, 60)])
def test_boxes_lie_in_the_image(shape: tuple[int, int]) -> None:
    height, width = shape
    box = ContrastiveView().draw(2000, height, width, Generator().manual_seed(0)).box
    left, top, box_width, box_height = box.unbind(1)
    assert torch.equal(box, box.round())
    assert min(left.min(), top.min()) >= 0
    assert min(box_width.min(), box_height.min()) >= 1
    assert (left + box_width).max() <= width
    assert (top + box_height).max() <= height


def test_boxes_are_those_of_a_plain_sampler() -> None:
    numbers = random.Random(0)

    def sample() -> tuple[int, int]:
        while True:
            area, ratio = 64 * numbers.uniform(0.2, 1), math.exp(numbers.uniform(-LOG_RATIO, LOG_RATIO))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if width <= 8 and height <= 8:
                return width, height

    plain = Counter(sample() for _ in range(20000))
    box = ContrastiveView().draw(20000, 8, 8, Generator().manual_seed(0)).box
    ours = Counter((int(width), int(height)) for width, height in box[:, 2:].tolist())
    cells = [cell for cell in plain | ours if plain[cell] + ours[cell] >= 10]
    assert (8, 8) in cells
    table = [[counts[cell] for cell in cells] for counts in (plain, ours)]
    assert stats.chi2_contingency(table).pvalue > 1e-3
    for start, extent in ((0, 2), (1, 3)):
        starts = Counter(box[box[:, extent] == 5][:, start].tolist())
        assert set(starts) == {0, 1, 2, 3}
        assert stats.chisquare(list(starts.values())).pvalue > 1e-3


@pytest.fixture(scope="module")
def many() -> ViewDraws:
    """Return the draws of so large images that whole pixels are as good as fractions."""
    return make_view().draw(20000, 10**6, 10**6, Generator().manual_seed(0))


def area_share_below(share: float) -> float:
    """Return how probable a box with less of the area is, if boxes that do not fit are drawn again.

    Given its share a, a box fits if the logarithm of its ratio is at most -log a either way.
    """

    def integral(upper: float) -> float:
        beyond = upper - upper * math.log(upper) - (0.75 - 0.75 * math.log(0.75)) if upper > 0.75 else 0.0
        return min(upper, 0.75) - 0.2 + beyond / LOG_RATIO

    return integral(share) / integral(1.0)


def test_areas_and_ratios_are_distributed_as_stated(many: ViewDraws) -> None:
    _, _, width, height = (many.box / 10**6).unbind(1)
    shares, logarithms = width * height, (width / height).log()
    assert stats.kstest(shares, np.vectorize(area_share_below)).pvalue > 1e-3
    always_fit = shares < 0.75
    assert stats.kstest(logarithms[always_fit], stats.uniform(-LOG_RATIO, 2 * LOG_RATIO).cdf).pvalue > 1e-3
    assert logarithms.abs().max() <= LOG_RATIO + 1e-5


def test_boxes_lie_anywhere_with_the_same_probability(many: ViewDraws) -> None:
    left, top, width, height = many.box.unbind(1)
    across, down = left / (10**6 - width), top / (10**6 - height)
    for places in (across, down):
        assert stats.kstest(places, stats.uniform.cdf).pvalue > 1e-3
    assert abs(stats.pearsonr(across, down).statistic) < 4 / math.sqrt(20000)


def test_changes_are_as_probable_as_stated_and_independent(many: ViewDraws) -> None:
    is_jittered = many.contrast != 1
    kinds = (4 * many.is_flipped + 2 * is_jittered + many.is_grey).tolist()
    expected = [
        20000 * flipped * jittered * grey
        for flipped in (0.5, 0.5)
        for jittered in (0.2, 0.8)
        for grey in (0.8, 0.2)
    ]
    counts = Counter(kinds)
    assert stats.chisquare([counts[kind] for kind in range(8)], expected).pvalue > 1e-3


def test_jitter_is_uniform_where_there_is_one(many: ViewDraws) -> None:
    is_jittered = many.contrast != 1
    bounds = {"brightness": (-0.4, 0.4), "contrast": (0.6, 1.4), "saturation": (0.6, 1.4), "hue": (-0.1, 0.1)}
    for name, (lowest, highest) in bounds.items():
        numbers = getattr(many, name)
        within = stats.uniform(lowest, highest - lowest)
        assert stats.kstest(numbers[is_jittered], within.cdf).pvalue > 1e-3
        neutral = 1.0 if name in ("contrast", "saturation") else 0.0
        assert set(numbers[~is_jittered].tolist()) == {neutral}


def test_view_draws_from_its_generator_and_waits_for_nothing() -> None:
    images, view = torch.rand(5, 3, 8, 8), ContrastiveView()
    before = images.clone()
    global_state = torch.get_rng_state()
    with NoHostSynchronisation():
        first, second = (view(images, Generator().manual_seed(seed)) for seed in (0, 1))
    again = view(images, Generator().manual_seed(0))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(images, before)
    assert torch.equal(global_state, torch.get_rng_state())
    assert first.dtype == torch.float32
    assert 0 <= first.min() <= first.max() <= 1
    assert view.state_dict() == {}
