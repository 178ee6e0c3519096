"""The operations on a batch of images as tensors, in whole numbers and fixed shapes.

Nothing here looks at a value on the host, so all of it may run inside a captured or compiled graph. Every
operation is computed for every image; one that an image has not drawn is given numbers that do nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from encore.augment.operation_spaces import SPACES, Family
from encore.augment.tables import (
    CENTRE_BITS,
    CUTOUT_COLOR,
    FIXED_POINT_BITS,
    LUMA,
    choices,
    cutout_square,
    level_tables,
    scaled_levels,
    source_matrix,
)
from encore.interfaces import MAX_MAGNITUDE


class DeviceTables(NamedTuple):
    """The tables of a space for images of one size, on their device."""

    settings: Tensor  # int64 [magnitude, choice, field of Settings]
    levels: Tensor  # uint8 [size]
    scaled_levels: Tensor  # float64 [extent, level]
    cutout_color: Tensor | None  # uint8 [C, 1, 1]; None where no operation of the space cuts out


class Settings(NamedTuple):
    """The numbers that say what happens to each image, all int64 [N]."""

    curve: Tensor  # where its table of 256 new levels starts; 0 is the identity
    mean_factor: Tensor  # 256 moves that start on by 256 for each level of the mean grey, 0 does not
    blend: Tensor  # where its table of 256 x 256 new levels starts; 0 is the identity
    grey_factor: Tensor  # 256 blends with the grey image, 0 does not
    smooth_factor: Tensor  # 256 blends with the smoothed image, 0 does not
    equalize: Tensor  # 1 or 0
    stretch: Tensor  # 1 or 0
    a: Tensor  # pixel (x, y) is fetched from (a x + b y + c, d x + e y + f)
    b: Tensor
    c: Tensor
    d: Tensor
    e: Tensor
    f: Tensor
    half_side: Tensor  # of the square to cut out, in units of 2 ** -31 pixels
    num_cut_out: Tensor  # pixels that the square covers each way; 0 cuts nothing out


def device_tables(space: str, image_shape: torch.Size, device: torch.device) -> DeviceTables:
    """Put the tables of a space on a device, for images of shape [C, H, W]."""
    num_channels, height, width = image_shape
    settings = [_settings(space, magnitude, height, width) for magnitude in range(MAX_MAGNITUDE + 1)]
    color = None
    if any(operation.family is Family.CUTOUT for operation in SPACES[space]):
        color = torch.tensor(CUTOUT_COLOR[num_channels], dtype=torch.uint8, device=device).view(-1, 1, 1)
    return DeviceTables(
        torch.tensor(settings, dtype=torch.int64, device=device),
        torch.from_numpy(level_tables(space).levels).to(device),
        torch.from_numpy(scaled_levels()).to(device),
        color,
    )


def _settings(space: str, magnitude: int, height: int, width: int) -> list[list[int]]:
    starts: list[int] = level_tables(space).starts[magnitude].tolist()
    rows = []
    for (operation, strengths), start in zip(choices(space), starts, strict=True):
        family, strength = operation.family, strengths[magnitude]
        by_pixel = family in (Family.COLOR, Family.SHARPNESS)
        row = [
            0 if by_pixel else start,
            256 * (family is Family.CONTRAST),
            start if by_pixel else 0,
            256 * (family is Family.COLOR),
            256 * (family is Family.SHARPNESS),
            int(family is Family.EQUALIZE),
            int(family is Family.STRETCH),
            *source_matrix(operation, strength, height, width),
            *cutout_square(operation, strength),
        ]
        rows.append(row)
    return rows


def augment(images: Tensor, drawn: Tensor, centres: Tensor, settings: Tensor, tables: DeviceTables) -> Tensor:
    """Apply to each image [N, C, H, W] the choice it has drawn [N], with the centre it has drawn [N, 2].

    The settings, int64 [choice, field of Settings], are those of one magnitude.
    """
    setting = Settings(*settings.index_select(0, drawn).unbind(1))
    grey = grey_image(images)
    moved = fetch_pixels(images, setting)
    if tables.cutout_color is not None:
        moved = cut_out(moved, centres, setting, tables.cutout_color)
    levels = new_levels(images, grey, setting, tables)
    bent = levels.gather(2, moved.flatten(2).long()).view_as(images)
    other = _spread(setting.grey_factor) * grey + _spread(setting.smooth_factor) * smooth_image(images)
    return tables.levels.take(_spread(setting.blend) + other + bent)


def _spread(numbers: Tensor) -> Tensor:
    return numbers.view(-1, 1, 1, 1)


def fetch_pixels(images: Tensor, setting: Settings) -> Tensor:
    """Fetch every pixel from its source; black where that lies outside the image."""
    height, width = images.shape[2:]
    xs = torch.arange(width, device=images.device)
    ys = torch.arange(height, device=images.device).unsqueeze(1)
    x = _spread(setting.a) * xs + (_spread(setting.b) * ys + _spread(setting.c)) >> FIXED_POINT_BITS
    y = _spread(setting.d) * xs + (_spread(setting.e) * ys + _spread(setting.f)) >> FIXED_POINT_BITS
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    source = ((y * width + x) * inside).flatten(2)
    planes = images.flatten(2)
    return planes.gather(2, source.expand_as(planes)).view_as(images) * inside


def cut_out(images: Tensor, centres: Tensor, setting: Settings, color: Tensor) -> Tensor:
    """Paint a square over each image.

    Its first corner lies half a side before the centre, but not before the image; what reaches beyond the
    far border is lost.
    """
    painted = []
    for axis, length in enumerate(images.shape[2:]):
        first = (centres[:, axis] * length - setting.half_side).clamp(min=0) >> CENTRE_BITS
        offsets = torch.arange(length, device=images.device) - first.unsqueeze(1)
        painted.append((offsets >= 0) & (offsets < setting.num_cut_out.unsqueeze(1)))
    square = painted[0].unsqueeze(2) & painted[1].unsqueeze(1)
    return torch.where(square.unsqueeze(1), color, images)


def grey_image(images: Tensor) -> Tensor:
    """Return the luma, int32 [N, 1, H, W]."""
    if images.shape[1] == 1:
        return images.int()
    red, green, blue = images.int().unbind(1)
    luma = red * LUMA[0] + green * LUMA[1] + blue * LUMA[2] + (1 << 15) >> 16
    return luma.unsqueeze(1)


def smooth_image(images: Tensor) -> Tensor:
    """Return the rounded averages of 3 x 3 pixels, the middle one weighing 5, as int32; borders stay."""
    levels = images.int()
    across = levels[..., :-2] + levels[..., 1:-1] + levels[..., 2:]
    around = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :]
    inner = levels[..., 1:-1, 1:-1]
    inner.copy_((around + 4 * inner + 6) // 13)
    return levels


def new_levels(images: Tensor, grey: Tensor, setting: Settings, tables: DeviceTables) -> Tensor:
    """Return what becomes of every level in every channel, uint8 [N, C, 256]."""
    num_pixels = grey.shape[2] * grey.shape[3]
    mean_grey = (grey.sum((1, 2, 3)) + num_pixels // 2) // num_pixels
    all_levels = torch.arange(256, device=images.device)
    start = setting.curve + setting.mean_factor * mean_grey
    levels = tables.levels.take(start.unsqueeze(1) + all_levels).unsqueeze(1)
    equalized = equalized_levels(images, all_levels)
    stretched = stretched_levels(images, all_levels, tables.scaled_levels)
    levels = torch.where(setting.equalize.view(-1, 1, 1) > 0, equalized, levels)
    return torch.where(setting.stretch.view(-1, 1, 1) > 0, stretched, levels)


def equalized_levels(images: Tensor, all_levels: Tensor) -> Tensor:
    """Return the new levels that flatten each channel's histogram, uint8 [N, C, 256]."""
    planes = images.flatten(2).long()
    histograms = planes.new_zeros(*planes.shape[:2], 256).scatter_add_(2, planes, torch.ones_like(planes))
    darker = histograms.cumsum(2) - histograms
    step = darker.gather(2, planes.amax(2, keepdim=True)) // 255
    levels = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, levels, all_levels).to(torch.uint8)


def stretched_levels(images: Tensor, all_levels: Tensor, scaled_levels: Tensor) -> Tensor:
    """Return the new levels that spread each channel from 0 to 255, uint8 [N, C, 256]."""
    planes = images.flatten(2)
    lowest = planes.amin(2, keepdim=True).long()
    extent = planes.amax(2, keepdim=True) - lowest
    scaled = scaled_levels.index_select(0, extent.flatten()).view(*planes.shape[:2], 256)
    # Levels outside the extremes get numbers that no pixel asks for.
    levels = (scaled - scaled.gather(2, lowest)).int()
    return torch.where(extent > 0, levels, all_levels).to(torch.uint8)
