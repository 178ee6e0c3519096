"""A second view of every image of a batch, as supervised contrastive replay draws it."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

SMALLEST_SHARE = 0.2  # of an image's area that a box may have; the largest is all of it
LARGEST_RATIO = 4 / 3  # of a box's width to its height, and of its height to its width
NUM_TRIALS = 10  # boxes drawn for each image, of which the first that fits is taken
FLIPPED, JITTERED, GREYED = 0.5, 0.8, 0.2  # how probable each is
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue
LEAST_CHROMA = 1e-12  # that a hue is computed from; below, there is none to be seen

# What is drawn for an image, uniformly between two bounds: its boxes' shares of the area and half the
# logarithms of their ratios, then the numbers below.
_BOXES = [(SMALLEST_SHARE, 1.0), (-log(LARGEST_RATIO) / 2, log(LARGEST_RATIO) / 2)]
_JITTER = [(-0.4, 0.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1)]  # brightness, contrast, saturation, hue
_CHANCES = [(0.0, 1.0)] * 5  # where the box lies in x and y, whether flipped, jittered, greyed
_SIZES = [NUM_TRIALS, NUM_TRIALS, len(_JITTER), len(_CHANCES)]
_NO_JITTER = [0.0, 1.0, 1.0, 0.0]


class ViewDraws(NamedTuple):
    """What every image draws."""

    box: Tensor  # [N, 4]: left, top, width and height in whole pixels
    is_flipped: Tensor  # bool [N]
    brightness: Tensor  # [N], added; 0 where colours are not jittered
    contrast: Tensor  # [N], multiplied; there 1
    saturation: Tensor  # [N], multiplied; there 1
    hue: Tensor  # [N], added, in turns of the circle of hues; there 0
    is_grey: Tensor  # bool [N]


class ContrastiveView(nn.Module):
    """A random crop, mirror image, jitter of colours and loss of colours, each image with its own.

    1. A box with a share of the area that is uniform in (0.2, 1), and a ratio of width to height whose
       logarithm is uniform in that of (3/4, 4/3), rounded to whole pixels; of ten such boxes the first that
       fits into the image, and if none does the first, cut to fit. It lies anywhere in the image with the
       same probability, and is brought to the image's size by bilinear interpolation, the centres of its
       corner pixels to those of the view's.
    2. Left and right are exchanged with probability 1/2.
    3. With probability 0.8 the colours change, in this order: a number in (-0.4, 0.4) is added to all
       channels; they are multiplied by a factor in (0.6, 1.4); of hue, saturation and value, the saturation
       is multiplied by a factor in (0.6, 1.4), and the hue turned by up to a tenth of its circle either way.
       Channels, and the saturation, are cut to [0, 1] each time.
    4. With probability 0.2 all three channels become the luma 0.299 R + 0.587 G + 0.114 B.

    Grey images are changed in 3 by the first two only, and not in 4. Shapes are fixed, and nothing waits for
    the device.

    >>> view = ContrastiveView()
    >>> view(torch.rand(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """

    lowest: Tensor
    extent: Tensor
    no_jitter: Tensor
    phases: Tensor
    luma: Tensor

    def __init__(self) -> None:
        super().__init__()
        trials = [bounds for bounds in _BOXES for _ in range(NUM_TRIALS)]
        bounds = torch.tensor([*trials, *_JITTER, *_CHANCES])
        constants = {
            "lowest": bounds[:, 0],
            "extent": bounds[:, 1] - bounds[:, 0],
            "no_jitter": torch.tensor(_NO_JITTER),
            "phases": torch.tensor([5.0, 3.0, 1.0]).view(3, 1, 1),
            "luma": torch.tensor(LUMA).view(3, 1, 1),
        }
        for name, value in constants.items():  # on the device: a recorded graph can fetch none from the host
            self.register_buffer(name, value.clone(), persistent=False)

    def forward(self, images: Tensor, generator: Generator) -> Tensor:
        """Return a view of each image, floats [N, C, H, W] in [0, 1]; the generator is on their device."""
        size, _, height, width = images.shape
        return self.apply_draws(images, self.draw(size, height, width, generator))

    def draw(self, num_images: int, height: int, width: int, generator: Generator) -> ViewDraws:
        """Draw for every image; what is taken from the generator depends on their number alone."""
        shape = num_images, len(self.lowest)
        uniform = torch.rand(shape, generator=generator, device=generator.device, dtype=self.lowest.dtype)
        drawn = torch.addcmul(self.lowest, self.extent, uniform)
        shares, ratios, jitter, chances = drawn.split(_SIZES, dim=1)
        x, y, flip, change, grey = chances.unbind(1)

        sides, roots = shares.sqrt() * sqrt(height * width), ratios.exp()
        drawn_widths, drawn_heights = (sides * roots).round(), (sides / roots).round()
        widths, heights = drawn_widths.clamp(1, width), drawn_heights.clamp(1, height)
        fits = (widths == drawn_widths) & (heights == drawn_heights)
        first = fits.byte().argmax(dim=1, keepdim=True)  # 0 where none fits
        box_width, box_height = widths.gather(1, first).squeeze(1), heights.gather(1, first).squeeze(1)
        left, top = (x * (width + 1 - box_width)).floor(), (y * (height + 1 - box_height)).floor()

        jitter = torch.where((change < JITTERED).unsqueeze(1), jitter, self.no_jitter)
        box = torch.stack([left, top, box_width, box_height], dim=1)
        brightness, contrast, saturation, hue = jitter.unbind(1)
        return ViewDraws(box, flip < FLIPPED, brightness, contrast, saturation, hue, grey < GREYED)

    def apply_draws(self, images: Tensor, draws: ViewDraws) -> Tensor:
        """Return the view that each image has drawn."""
        views = crop(images, draws.box, draws.is_flipped)
        views = (views + _spread(draws.brightness)).clamp_(0, 1)
        views = (views * _spread(draws.contrast)).clamp_(0, 1)
        if images.shape[1] == 3:
            views = self._turn_colours(views, _spread(draws.saturation), _spread(draws.hue))
            luma = (views * self.luma).sum(dim=1, keepdim=True)
            views = torch.where(_spread(draws.is_grey), luma, views)
        return views.contiguous(memory_format=torch.channels_last)

    def _turn_colours(self, images: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
        """Change saturation and hue, and leave the value: the largest channel.

        With value V, chroma C = V - smallest channel, and hue h in sixths of its circle, the channels are
        V - C max(0, min(k, 4 - k, 1)) for k = (phase + h) mod 6 and the phases 5, 3, 1 of red, green, blue.
        C / V is the saturation, which is at most 1.
        """
        value, brightest = images.max(dim=1, keepdim=True)
        chroma = value - images.amin(dim=1, keepdim=True)
        differences = images.roll(-1, 1) - images.roll(1, 1)  # G - B, B - R, R - G
        differences = differences.gather(1, brightest)
        sixths = differences / chroma.clamp(min=LEAST_CHROMA) + 2 * brightest + 6 * hue
        steps = (self.phases + sixths) % 6
        reach = torch.minimum(steps, 4 - steps).clamp_(0, 1)
        return value - torch.minimum(chroma * saturation, value) * reach


def crop(images: Tensor, box: Tensor, is_flipped: Tensor) -> Tensor:
    """Return what lies in each image's box [N, 4], brought to the image's size, and mirrored or not [N].

    Pixel x of W shows the place left + x (width - 1) / (W - 1) of the image, or, if mirrored, the place of
    pixel W - 1 - x; so in y.
    """
    height, width = images.shape[2:]
    left, top, box_width, box_height = box.unbind(1)
    sign = 1 - 2 * is_flipped.to(box.dtype)
    x = _places(left, box_width, width, sign).unsqueeze(1)
    y = _places(top, box_height, height, 1).unsqueeze(2)
    grid = torch.stack(torch.broadcast_tensors(x, y), dim=-1).to(images.dtype)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=True)


def _places(start: Tensor, extent: Tensor, length: int, sign: Tensor | int) -> Tensor:
    """Return where each pixel of a line is taken from, [N, length], from -1 at the first centre to 1."""
    steps = max(length - 1, 1)
    slope, middle = sign * (extent - 1) / steps, (2 * start + extent - length) / steps
    line = torch.linspace(-1, 1, length, dtype=start.dtype, device=start.device)
    return torch.addcmul(middle.unsqueeze(1), slope.unsqueeze(1), line)


def _spread(numbers: Tensor) -> Tensor:
    return numbers.view(-1, 1, 1, 1)
