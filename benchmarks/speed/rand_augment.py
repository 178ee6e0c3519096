"""RandAugment on the CPU, for a batch at once, against Pillow for one image after the other.

There are two rivals. "lean" goes from uint8 to Pillow and back with as few steps as possible, and makes
floats of the whole batch at the end. "pipeline" is what image pipelines, and the paper's published code, do:
the images are stored as floats, and each one is turned into a Pillow image and back into a tensor by itself.

All get the same draws and give the same floats. They take turns of some calls in a row, so that whatever
else the machine does falls on all. Pillow's part of the work is that of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from tests.reference.pillow_rand_augment import pillow_operation, pillow_rand_augment
from torch import Tensor

from encore.augment.rand_augment import Draws, RandAugment
from encore.augment.tables import CENTRE_BITS

NUM_IMAGES = 20
MAGNITUDE = 14
CALLS_IN_A_ROW = 10


def measure(num_rounds: int = 30) -> list[dict[str, Any]]:
    """Return one row for each case, with the medians over all rounds in microseconds."""
    num_threads_before = torch.get_num_threads()
    try:
        return [
            _measure_case(space, num_ops, side, num_threads, num_rounds)
            for num_threads in (1, 2)
            for side in (32, 84)
            for space in ("paper", "authors")
            for num_ops in (1, 3)
        ]
    finally:
        torch.set_num_threads(num_threads_before)


def _measure_case(space: str, num_ops: int, side: int, num_threads: int, num_rounds: int) -> dict[str, Any]:
    torch.set_num_threads(num_threads)
    generator = torch.Generator().manual_seed(0)
    images = _photographs(side, generator)
    rand_augment = RandAugment(space)
    contestants: dict[str, Callable[[Draws], Tensor]] = {
        "batch": lambda draws: rand_augment.apply(images, draws, MAGNITUDE),
        "lean": _pillow(rand_augment, space, images),
        "pipeline": _pipeline(rand_augment, space, images / 255),
    }
    microseconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(num_rounds):
        drawn = [rand_augment.draw(NUM_IMAGES, num_ops, generator) for _ in range(CALLS_IN_A_ROW)]
        ours, lean, pipeline = (augment(drawn[0]) for augment in contestants.values())
        if not (torch.equal(ours, lean) and torch.equal(ours, pipeline)):
            raise AssertionError("the three do not give the same images")
        for name, augment in contestants.items():
            start = perf_counter()
            for draws in drawn:
                augment(draws)
            microseconds[name].append((perf_counter() - start) * 1e6 / CALLS_IN_A_ROW)
    medians = {name: median(taken) for name, taken in microseconds.items()}
    ratios = {
        name: median(theirs / ours for ours, theirs in zip(microseconds["batch"], taken, strict=True))
        for name, taken in microseconds.items()
    }
    return {
        "threads": num_threads,
        "images": f"3x{side}x{side}",
        "space": space,
        "num_ops": num_ops,
        "Encore us": medians["batch"],
        "lean us": medians["lean"],
        "lean ratio": ratios["lean"],
        "pipeline us": medians["pipeline"],
        "pipeline ratio": ratios["pipeline"],
    }


def _photographs(side: int, generator: torch.Generator) -> Tensor:
    """Return images of large shapes and some noise, with few pixels at either end of the levels."""
    shapes = torch.rand(NUM_IMAGES, 3, 6, 6, generator=generator)
    large = torch.nn.functional.interpolate(shapes, size=(side, side), mode="bicubic")
    noise = torch.randn(large.shape, generator=generator)
    return (30 + 190 * large + 10 * noise).clamp(0, 255).to(torch.uint8)


def _pillow(rand_augment: RandAugment, space: str, images: Tensor) -> Callable[[Draws], Tensor]:
    operations = [
        pillow_operation(space, name, MAGNITUDE, sign) for name in rand_augment.operations for sign in (1, -1)
    ]
    pixels = images.shape[2] / 2**CENTRE_BITS

    def augment(draws: Draws) -> Tensor:
        chosen = [[operations[choice] for choice in choices] for choices in draws.choices.T.tolist()]
        centres = (draws.centres.transpose(0, 1) * pixels).tolist()
        return pillow_rand_augment(images, chosen, centres)

    return augment


def _pipeline(rand_augment: RandAugment, space: str, images: Tensor) -> Callable[[Draws], Tensor]:
    operations = [
        pillow_operation(space, name, MAGNITUDE, sign) for name in rand_augment.operations for sign in (1, -1)
    ]
    pixels = images.shape[2] / 2**CENTRE_BITS

    def augment_one(image: Tensor, choices: list[int], centres: list[tuple[float, float]]) -> Tensor:
        picture = Image.fromarray(image.mul(255).round().byte().permute(1, 2, 0).numpy())
        for choice, centre in zip(choices, centres, strict=True):
            picture = operations[choice](picture, centre)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float().div(255)

    def augment(draws: Draws) -> Tensor:
        choices = draws.choices.T.tolist()
        centres = (draws.centres.transpose(0, 1) * pixels).tolist()
        return torch.stack([augment_one(*drawn) for drawn in zip(images, choices, centres, strict=True)])

    return augment
