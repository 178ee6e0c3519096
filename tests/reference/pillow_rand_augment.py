"""RandAugment as plain as it gets: one image after the other, through Pillow, from a table of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

Centre = tuple[float, float]  # y and x, in pixels
PillowOperation = Callable[[Image.Image, Centre], Image.Image]

GREY = (125, 123, 114)
ENHANCERS = {
    "Brightness": ImageEnhance.Brightness,
    "Contrast": ImageEnhance.Contrast,
    "Color": ImageEnhance.Color,
    "Sharpness": ImageEnhance.Sharpness,
}
RANGES = {  # of the published code; those of the paper's space are written out below
    "Rotate": (0.0, 30.0),
    "ShearX": (0.0, 0.3),
    "ShearY": (0.0, 0.3),
    "TranslateXabs": (0.0, 100.0),
    "TranslateYabs": (0.0, 100.0),
    "CutoutAbs": (0.0, 40.0),
    "Posterize": (0.0, 4.0),
    "Solarize": (0.0, 256.0),
    "SolarizeAdd": (0.0, 110.0),
    **dict.fromkeys(ENHANCERS, (0.1, 1.9)),
}
SIGNED = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "TranslateXabs", "TranslateYabs")


def pillow_operation(space: str, name: str, magnitude: int, sign: int) -> PillowOperation:
    """Return what an operation does to an image."""
    value = _value(space, name, magnitude)
    if name in ENHANCERS:
        factor = 1 + sign * value if space == "paper" else value
        return lambda image, centre: ENHANCERS[name](image).enhance(factor)
    if name in SIGNED:
        value = sign * value
    return {
        "Identity": lambda image, centre: image,
        "AutoContrast": lambda image, centre: ImageOps.autocontrast(image),
        "Equalize": lambda image, centre: ImageOps.equalize(image),
        "Invert": lambda image, centre: ImageOps.invert(image),
        "Rotate": lambda image, centre: image.rotate(value),
        "ShearX": lambda image, centre: _affine(image, (1, value, 0, 0, 1, 0)),
        "ShearY": lambda image, centre: _affine(image, (1, 0, 0, value, 1, 0)),
        "TranslateX": lambda image, centre: _affine(image, (1, 0, int(value * image.width), 0, 1, 0)),
        "TranslateY": lambda image, centre: _affine(image, (1, 0, 0, 0, 1, int(value * image.height))),
        "TranslateXabs": lambda image, centre: _affine(image, (1, 0, value, 0, 1, 0)),
        "TranslateYabs": lambda image, centre: _affine(image, (1, 0, 0, 0, 1, value)),
        "Posterize": lambda image, centre: ImageOps.posterize(image, int(value)),
        "Solarize": lambda image, centre: _solarize(image, value),
        "SolarizeAdd": lambda image, centre: _solarize(_add(image, value), 128),
        "CutoutAbs": lambda image, centre: _cut_out(image, value, centre),
    }[name]


def pillow_rand_augment(
    images: torch.Tensor,
    operations: Sequence[Sequence[PillowOperation]],
    centres: Sequence[Sequence[Centre]],
) -> torch.Tensor:
    """Augment uint8 images [N, C, H, W], each by its own operations, to float32 in [0, 1]."""
    augmented = torch.empty(images.shape)
    for number, (steps, points) in enumerate(zip(operations, centres, strict=True)):
        pixels = images[number].permute(1, 2, 0).contiguous().numpy()
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        for step, centre in zip(steps, points, strict=True):
            image = step(image, centre)
        result = torch.from_numpy(np.array(image))
        augmented[number] = result.permute(2, 0, 1) if result.dim() == 3 else result
    return augmented.div_(255)


def _value(space: str, name: str, magnitude: int) -> float:
    if space == "paper":
        if name in ("TranslateX", "TranslateY"):
            return 150 / 331 * magnitude / 30
        if name in ENHANCERS:
            return magnitude / 30 * 0.9
        if name == "Posterize":
            return 8 - round(magnitude * 4 / 30)
        if name == "Solarize":
            return (30 - magnitude) * 255 / 30
    lowest, highest = RANGES.get(name, (0.0, 0.0))
    value = lowest + magnitude / 30 * (highest - lowest)
    return max(1, int(value)) if name == "Posterize" else value


def _affine(image: Image.Image, matrix: Sequence[float]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def _solarize(image: Image.Image, threshold: float) -> Image.Image:
    levels = [level if level < threshold else 255 - level for level in range(256)]
    return image.point(levels * len(image.getbands()))


def _add(image: Image.Image, addition: float) -> Image.Image:
    levels: NDArray[np.float64] = np.asarray(image) + addition
    return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))


def _cut_out(image: Image.Image, side: float, centre: Centre) -> Image.Image:
    top, left = (int(max(0, middle - side / 2)) for middle in centre)
    corners = (left, top, min(image.width, left + side), min(image.height, top + side))
    painted = image.copy()
    grey = Image.new("RGB", (1, 1), GREY).convert(image.mode).getpixel((0, 0))
    ImageDraw.Draw(painted).rectangle(corners, grey)
    return painted
