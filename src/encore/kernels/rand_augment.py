"""RandAugment's operations as two Triton kernels: what becomes of every level, and then of every pixel.

They compute what `encore.augment.image_ops` does with tensors, from the same tables and with the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from encore.augment.image_ops import DeviceTables
from encore.augment.tables import CENTRE_BITS, FIXED_POINT_BITS, LUMA

BLOCK = 1024  # pixels that a program takes at a time
POINT: tl.constexpr = tl.constexpr(FIXED_POINT_BITS)
CENTRE: tl.constexpr = tl.constexpr(CENTRE_BITS)
RED: tl.constexpr = tl.constexpr(LUMA[0])
GREEN: tl.constexpr = tl.constexpr(LUMA[1])
BLUE: tl.constexpr = tl.constexpr(LUMA[2])


def augment(
    images: Tensor, drawn: Tensor, centres: Tensor, settings: Tensor, tables: DeviceTables, is_last: bool
) -> Tensor:
    """Do as `image_ops.augment`; after the last operation return floats from 0 to 1, channels innermost."""
    num_images, num_channels, height, width = images.shape
    levels = torch.empty((num_images, num_channels, 256), dtype=torch.uint8, device=images.device)
    _find_levels[num_images, num_channels](
        images, drawn, settings, tables.levels, tables.scaled_levels, levels,
        num_channels, height * width, settings.shape[1], BLOCK,
    )  # fmt: skip
    if is_last:
        out = torch.empty(images.shape, device=images.device, memory_format=torch.channels_last)
    else:
        out = torch.empty_like(images)
    _change_pixels[num_images, triton.cdiv(height * width, BLOCK)](
        images, drawn, centres, settings, tables.levels, levels,
        levels if tables.cutout_color is None else tables.cutout_color, out,
        num_channels, height, width, settings.shape[1], tables.cutout_color is not None, is_last, BLOCK,
    )  # fmt: skip
    return out


@triton.jit
def _grey(plane, at, there, NUM_CHANNELS: tl.constexpr, NUM_PIXELS: tl.constexpr):
    """Return the luma of pixels, int32."""
    value = tl.load(plane + at, mask=there, other=0).to(tl.int32)
    if NUM_CHANNELS == 3:
        green = tl.load(plane + NUM_PIXELS + at, mask=there, other=0).to(tl.int32)
        blue = tl.load(plane + 2 * NUM_PIXELS + at, mask=there, other=0).to(tl.int32)
        value = (value * RED + green * GREEN + blue * BLUE + (1 << 15)) >> 16
    return value


@triton.jit
def _find_levels(
    images, drawn, settings, all_levels, scaled_levels, levels,
    NUM_CHANNELS: tl.constexpr, NUM_PIXELS: tl.constexpr, NUM_FIELDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find what becomes of every level in one channel of one image."""
    image, channel = tl.program_id(0), tl.program_id(1)
    setting = settings + tl.load(drawn + image) * NUM_FIELDS
    curve, mean_factor = tl.load(setting), tl.load(setting + 1)
    equalize, stretch = tl.load(setting + 5), tl.load(setting + 6)
    first_plane = images + image * NUM_CHANNELS * NUM_PIXELS
    level = tl.arange(0, 256)
    histogram = tl.zeros((256,), tl.int32)
    sum_grey = 0
    for start in tl.static_range(0, NUM_PIXELS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < NUM_PIXELS
        value = tl.load(first_plane + channel * NUM_PIXELS + at, mask=there, other=0).to(tl.int32)
        histogram += tl.histogram(value, 256)
        sum_grey += tl.sum(_grey(first_plane, at, there, NUM_CHANNELS, NUM_PIXELS), 0)
    # What lies beyond the last pixel was read as black.
    histogram -= tl.where(level == 0, (BLOCK - NUM_PIXELS % BLOCK) % BLOCK, 0)
    mean_grey = (sum_grey + NUM_PIXELS // 2) // NUM_PIXELS
    lowest = tl.min(tl.where(histogram > 0, level, 255), 0)
    highest = tl.max(tl.where(histogram > 0, level, 0), 0)
    found = tl.load(all_levels + curve + mean_factor * mean_grey + level).to(tl.int32)

    darker = tl.cumsum(histogram, 0) - histogram
    step = tl.sum(tl.where(level < highest, histogram, 0), 0) // 255
    equalized = tl.minimum((darker + step // 2) // tl.maximum(step, 1), 255)
    found = tl.where((equalize > 0) & (step > 0), equalized, tl.where(equalize > 0, level, found))

    scaled = scaled_levels + (highest - lowest) * 256
    stretched = (tl.load(scaled + level) - tl.load(scaled + lowest)).to(tl.int32)
    stretched = tl.where(highest > lowest, stretched, level)
    found = tl.where(stretch > 0, stretched, found)
    tl.store(levels + (image * NUM_CHANNELS + channel) * 256 + level, (found & 255).to(tl.uint8))


@triton.jit
def _change_pixels(
    images, drawn, centres, settings, all_levels, levels, cutout_color, out,
    NUM_CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, NUM_FIELDS: tl.constexpr,
    CUTS_OUT: tl.constexpr, IS_LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fetch every pixel of a block from its source, cut out, and give it its new level."""
    NUM_PIXELS: tl.constexpr = HEIGHT * WIDTH
    image = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < NUM_PIXELS
    y, x = at // WIDTH, at % WIDTH
    setting = settings + tl.load(drawn + image) * NUM_FIELDS
    blend, grey_factor, smooth_factor = tl.load(setting + 2), tl.load(setting + 3), tl.load(setting + 4)
    a, b, c = tl.load(setting + 7), tl.load(setting + 8), tl.load(setting + 9)
    d, e, f = tl.load(setting + 10), tl.load(setting + 11), tl.load(setting + 12)
    source_x = (a * x + b * y + c) >> POINT
    source_y = (d * x + e * y + f) >> POINT
    inside = there & (source_x >= 0) & (source_x < WIDTH) & (source_y >= 0) & (source_y < HEIGHT)
    source = source_y * WIDTH + source_x
    square = x < 0
    if CUTS_OUT:
        half_side, num_cut_out = tl.load(setting + 13), tl.load(setting + 14)
        top = tl.maximum(tl.load(centres + 2 * image) * HEIGHT - half_side, 0) >> CENTRE
        left = tl.maximum(tl.load(centres + 2 * image + 1) * WIDTH - half_side, 0) >> CENTRE
        square = (y >= top) & (y - top < num_cut_out) & (x >= left) & (x - left < num_cut_out)
    first_plane = images + image * NUM_CHANNELS * NUM_PIXELS
    mixes_grey = there & (tl.full((BLOCK,), grey_factor, tl.int64) > 0)
    grey = grey_factor * _grey(first_plane, at, mixes_grey, NUM_CHANNELS, NUM_PIXELS)
    smooths = there & (tl.full((BLOCK,), smooth_factor, tl.int64) > 0)
    has_around = smooths & (y > 0) & (y < HEIGHT - 1) & (x > 0) & (x < WIDTH - 1)
    for channel in tl.static_range(NUM_CHANNELS):
        plane = first_plane + channel * NUM_PIXELS
        level = tl.load(plane + source, mask=inside, other=0).to(tl.int32)
        if CUTS_OUT:
            level = tl.where(square, tl.load(cutout_color + channel).to(tl.int32), level)
        bent = tl.load(levels + (image * NUM_CHANNELS + channel) * 256 + level).to(tl.int64)
        middle = tl.load(plane + at, mask=smooths, other=0).to(tl.int32)
        around = 4 * middle
        for step in tl.static_range(9):
            neighbour = at + (step // 3 - 1) * WIDTH + step % 3 - 1
            around += tl.load(plane + neighbour, mask=has_around, other=0).to(tl.int32)
        smooth = smooth_factor * tl.where(has_around, (around + 6) // 13, middle)
        changed = tl.load(all_levels + blend + grey + smooth + bent, mask=there, other=0)
        if IS_LAST:
            place = (image * NUM_PIXELS + at) * NUM_CHANNELS + channel
            tl.store(out + place, tl.div_rn(changed.to(tl.float32), 255.0), mask=there)
        else:
            tl.store(out + (image * NUM_CHANNELS + channel) * NUM_PIXELS + at, changed, mask=there)
