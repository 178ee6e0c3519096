"""Every operation against Pillow: the same image, strength and sign, in both ways to apply it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from sklearn.datasets import load_digits
from tests.reference.pillow_rand_augment import pillow_operation, pillow_rand_augment
from torch import Tensor

from encore.augment.rand_augment import Draws, RandAugment
from encore.augment.tables import CENTRE_BITS, blend_table, choices

SPACES = ("paper", "authors")
MAGNITUDES = (0, 5, 14, 22, 30)


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def smooth(channels: int, height: int, width: int) -> Tensor:
    """Return waves of many levels, which neither begin at 0 nor reach 255."""
    y, x = torch.meshgrid(torch.linspace(0, 3, height), torch.linspace(0, 4, width), indexing="ij")
    waves = torch.stack(
        [torch.sin(x + 2 * channel) + torch.cos(y * x - channel) for channel in range(channels)]
    )
    return (127 + 50 * waves).to(torch.uint8)


def constant(*levels: int) -> Tensor:
    return torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1).expand(-1, 32, 32).contiguous()


def digit(number: int) -> Tensor:
    pixels: Tensor = torch.from_numpy(load_digits().images[number] * 15.9375)
    return pixels.to(torch.uint8).unsqueeze(0)


PICTURES = {
    "noise 32x32": noise(3, 32, 32),
    "smooth 32x32": smooth(3, 32, 32),
    "noise 84x84": noise(3, 84, 84),
    "smooth 84x84": smooth(3, 84, 84),
    "noise 21x40": noise(3, 21, 40),
    "smooth 40x21": smooth(3, 40, 21),
    "grey noise 32x32": noise(1, 32, 32),
    "grey smooth 17x30": smooth(1, 17, 30),
    "digit 8x8": digit(5),
    "black": constant(0, 0, 0),
    "white": constant(255, 255, 255),
    "one colour": constant(10, 130, 200),
    "two levels": constant(99, 99, 99) + (noise(3, 32, 32) > 127),
    "1x1": noise(3, 1, 1),
    "2x5": noise(3, 2, 5),
}


def every_choice(space: str, picture: Tensor) -> tuple[Tensor, Draws]:
    """Return a batch of one picture in which image i has drawn choice i, and centres all over the place."""
    num_choices = len(choices(space))
    centres = torch.randint(1 << CENTRE_BITS, (1, num_choices, 2), generator=torch.Generator().manual_seed(2))
    return picture.expand(num_choices, *picture.shape), Draws(torch.arange(num_choices).view(1, -1), centres)


@pytest.mark.parametrize("fixed_shapes", [False, True], ids=["host", "fixed shapes"])
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("space", SPACES)
def test_every_operation_is_pillows(space: str, magnitude: int, picture: str, fixed_shapes: bool) -> None:
    rand_augment = RandAugment(space)
    images, draws = every_choice(space, PICTURES[picture])
    height, width = images.shape[2:]
    points = draws.centres[0].double() / 2**CENTRE_BITS * torch.tensor([height, width])
    drawn = [(name, sign) for name in rand_augment.operations for sign in (1, -1)]
    expected = pillow_rand_augment(
        images,
        [[pillow_operation(space, name, magnitude, sign)] for name, sign in drawn],
        [[(y, x)] for y, x in points.tolist()],
    )
    augmented = rand_augment.apply(images, draws, magnitude, fixed_shapes=fixed_shapes)
    # Not one level, not one pixel: fixed-point coordinates and tabled rounding leave no ties to chance.
    assert [drawn[i] for i in range(len(drawn)) if not torch.equal(augmented[i], expected[i])] == []


@pytest.mark.parametrize("space", SPACES)
def test_blend_tables_are_pillows(space: str) -> None:
    level = np.arange(256, dtype=np.uint8)
    others = Image.fromarray(np.repeat(level[:, np.newaxis], 256, axis=1))
    levels = Image.fromarray(np.repeat(level[np.newaxis], 256, axis=0))
    factors = {
        strength
        for operation, strengths in choices(space)
        if operation.name in ("Brightness", "Contrast", "Color", "Sharpness")
        for strength in strengths
    }
    assert len(factors) == {"paper": 61, "authors": 31}[space]
    for factor in factors:
        np.testing.assert_array_equal(blend_table(factor), np.asarray(Image.blend(others, levels, factor)))


def test_auto_contrast_is_pillows_for_all_kinds_of_extremes() -> None:
    rand_augment = RandAugment("paper")
    pairs = [(lo, hi) for lo in range(0, 256, 15) for hi in range(lo, 256, 7)]
    ramp = torch.arange(256)
    images = torch.stack([ramp.clamp(lo, hi) for lo, hi in pairs]).to(torch.uint8).view(-1, 1, 16, 16)
    choice = 2 * rand_augment.operations.index("AutoContrast")
    draws = Draws(torch.full((1, len(pairs)), choice), torch.zeros(1, len(pairs), 2, dtype=torch.int64))
    expected = [np.array(ImageOps.autocontrast(Image.fromarray(image[0].numpy()))) for image in images]
    for fixed_shapes in (False, True):
        augmented = rand_augment.apply(images, draws, 14, fixed_shapes=fixed_shapes)
        np.testing.assert_array_equal((augmented * 255).round()[:, 0].byte(), np.stack(expected))


def test_whole_numbers_round_the_smoothed_image_as_pillow_does() -> None:
    # 1 x 1 x ... x 5 weights sum to 13; every total up to 13 * 255 can occur, and each is rounded.
    totals = np.arange(13 * 255 + 1)
    np.testing.assert_array_equal((totals + 6) // 13, np.floor(totals / 13 + 0.5))
    assert ImageFilter.SMOOTH.filterargs == ((3, 3), 13, 0, (1, 1, 1, 1, 5, 1, 1, 1, 1))


def apply_one(space: str, name: str, image: Tensor, magnitude: int, sign: int = 1) -> Tensor:
    """Return what one operation, drawn with its centre in the middle, makes of an image, as levels."""
    rand_augment = RandAugment(space)
    choice = 2 * rand_augment.operations.index(name) + (sign < 0)
    middle = 1 << (CENTRE_BITS - 1)
    draws = Draws(torch.tensor([[choice]]), torch.tensor([[[middle, middle]]]))
    return (rand_augment.apply(image.unsqueeze(0), draws, magnitude)[0] * 255).round().to(torch.uint8)


def levels(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(1, 1, -1)


@pytest.mark.parametrize(
    ("space", "name", "magnitude", "sign", "before", "after"),
    [
        ("paper", "Identity", 30, 1, (0, 7, 255), (0, 7, 255)),
        ("paper", "Posterize", 14, 1, (0, 3, 4, 255), (0, 0, 4, 252)),  # 6 bits
        ("paper", "Posterize", 30, 1, (15, 16, 255), (0, 16, 240)),  # 4 bits
        ("paper", "Solarize", 14, 1, (0, 135, 136, 255), (0, 135, 119, 0)),  # .533 of 255
        ("paper", "Solarize", 0, 1, (0, 254, 255), (0, 254, 0)),
        ("paper", "Solarize", 30, 1, (0, 255), (255, 0)),
        ("paper", "Brightness", 14, 1, (0, 100, 200), (0, 142, 255)),  # 1.42
        ("paper", "Brightness", 14, -1, (0, 100, 200), (0, 58, 116)),  # 0.58
        ("paper", "Contrast", 14, -1, (0, 100, 200), (42, 100, 158)),  # 100 + .58 (level - 100)
        ("paper", "AutoContrast", 14, 1, (50, 60, 90), (0, 63, 255)),  # 10 * 255 / 40 = 63.75
        ("paper", "TranslateX", 14, 1, (1, 2, 3, 4), (1, 2, 3, 4)),  # .846 pixels are none
        ("paper", "TranslateX", 22, 1, (1, 2, 3, 4), (2, 3, 4, 0)),  # 1.33 pixels are one
        ("paper", "TranslateX", 22, -1, (1, 2, 3, 4), (0, 1, 2, 3)),
        ("authors", "Invert", 0, 1, (0, 7, 255), (255, 248, 0)),
        ("authors", "Posterize", 14, 1, (0, 127, 128, 255), (0, 0, 128, 128)),  # int(1.87) bits
        ("authors", "Posterize", 5, 1, (0, 127, 128, 255), (0, 0, 128, 128)),  # int(.67), but at least one
        ("authors", "Posterize", 30, 1, (15, 16, 255), (0, 16, 240)),  # 4 bits
        ("authors", "Solarize", 14, 1, (0, 119, 120, 255), (0, 119, 135, 0)),  # 119.47
        ("authors", "Solarize", 5, 1, (42, 43), (42, 212)),  # 42.67
        ("authors", "SolarizeAdd", 14, 1, (0, 76, 77, 250), (51, 127, 127, 0)),  # +51
        ("authors", "SolarizeAdd", 5, 1, (0, 109, 110), (18, 127, 127)),  # +18
        ("authors", "Brightness", 14, 1, (0, 100, 200), (0, 94, 188)),  # .94
        ("authors", "Brightness", 14, -1, (0, 100, 200), (0, 94, 188)),  # never signed
        ("authors", "Brightness", 5, 1, (0, 100, 200), (0, 40, 80)),  # .40
        ("authors", "TranslateXabs", 1, 1, (1, 2, 3, 4, 5), (4, 5, 0, 0, 0)),  # 3.33 pixels
        ("authors", "TranslateXabs", 14, 1, (1, 2, 3, 4), (0, 0, 0, 0)),  # 46.7 pixels
    ],
)
def test_levels_by_hand(
    space: str, name: str, magnitude: int, sign: int, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    assert apply_one(space, name, levels(*before), magnitude, sign).flatten().tolist() == list(after)


def test_equalize_by_hand() -> None:
    # 510 pixels of 0, 255 of 10 and 255 of 20: 765 are darker than the brightest, so a step is 3 pixels.
    image = torch.tensor([0] * 510 + [10] * 255 + [20] * 255, dtype=torch.uint8).view(1, 30, 34)
    equalized = apply_one("paper", "Equalize", image, 14)
    assert equalized.unique().tolist() == [0, 170, 255]


def test_color_keeps_grey_and_moves_away_from_it() -> None:
    image = torch.tensor([[100, 200], [100, 50], [100, 0]], dtype=torch.uint8).view(3, 1, 2)
    # The grey of (200, 50, 0) is 89: at factor 1.42, 89 + 1.42 (200 - 89) = 246.6, 33.6 and below 0.
    assert apply_one("paper", "Color", image, 14).flatten(1).T.tolist() == [[100, 100, 100], [246, 33, 0]]


def test_sharpness_by_hand_leaves_the_border() -> None:
    image = torch.zeros(1, 4, 4, dtype=torch.uint8)
    image[0, 1, 1] = image[0, 3, 3] = 130
    # Smoothed, 50 in the middle, 10 beside one of the two, 20 between them; factor .58 goes 42 % of the way.
    expected = [[0, 0, 0, 0], [0, 96, 4, 0], [0, 4, 8, 0], [0, 0, 0, 130]]
    assert apply_one("paper", "Sharpness", image, 14, -1)[0].tolist() == expected


@pytest.mark.parametrize("channels", [3, 1])
def test_cutout_paints_one_grey_square(channels: int) -> None:
    image = torch.zeros(channels, 32, 32, dtype=torch.uint8)
    # 18.67 pixels about (16, 16): from 6.67, so from pixel 6, to 24.67, so to pixel 24.
    painted = apply_one("authors", "CutoutAbs", image, 14)
    expected = torch.zeros_like(image)
    color = torch.tensor([125, 123, 114] if channels == 3 else [123], dtype=torch.uint8)
    expected[:, 6:25, 6:25] = color.view(-1, 1, 1)
    assert torch.equal(painted, expected)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["TranslateXabs", "TranslateYabs"])
def test_authors_translations_leave_nothing_of_32_pixels(name: str, sign: int) -> None:
    assert apply_one("authors", name, noise(3, 32, 32), 14, sign).max() == 0
    assert apply_one("authors", name, noise(3, 84, 84), 14, sign).max() > 0
