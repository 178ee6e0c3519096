"""RandAugment on the CPU, for a batch at once, against Pillow for one image after the other.

Both get the same draws and give the same floats; the time of drawing counts for the batch only. The two take
turns, so that whatever else the machine does falls on both. Pillow's part of the work is that of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from tests.reference.pillow_rand_augment import pillow_operation, pillow_rand_augment
from torch import Tensor

from encore.augment.rand_augment import Draws, RandAugment
from encore.augment.tables import CENTRE_BITS

NUM_IMAGES = 20
MAGNITUDE = 14
NUM_WARM_UPS = 20


def measure(num_repetitions: int = 200) -> list[dict[str, Any]]:
    """Return one row for each case, with the medians over all repetitions in microseconds."""
    num_threads_before = torch.get_num_threads()
    try:
        return [
            _measure_case(space, num_ops, side, num_threads, num_repetitions)
            for num_threads in (1, 2)
            for side in (32, 84)
            for space in ("paper", "authors")
            for num_ops in (1, 3)
        ]
    finally:
        torch.set_num_threads(num_threads_before)


def main() -> None:
    """Print the rows as a table."""
    print(f"RandAugment of {NUM_IMAGES} images, magnitude {MAGNITUDE}: medians in microseconds")
    print("threads  images     space    num_ops    batch   pillow    ratio")
    for row in measure():
        shape = f"3x{row['side']}x{row['side']}"
        print(
            f"{row['num_threads']:7}  {shape:9}  {row['space']:7}  {row['num_ops']:7}  "
            f"{row['batch_us']:7.0f}  {row['pillow_us']:7.0f}  {row['ratio']:7.2f}"
        )


def _measure_case(
    space: str, num_ops: int, side: int, num_threads: int, num_repetitions: int
) -> dict[str, Any]:
    torch.set_num_threads(num_threads)
    generator = torch.Generator().manual_seed(0)
    images = _photographs(side, generator)
    rand_augment = RandAugment(space)
    with_pillow = _pillow(rand_augment, space, images)
    batch, pillow = [], []
    for _ in range(NUM_WARM_UPS + num_repetitions):
        start = perf_counter()
        draws = rand_augment.draw(NUM_IMAGES, num_ops, generator)
        augmented = rand_augment.apply(images, draws, MAGNITUDE)
        middle = perf_counter()
        expected = with_pillow(draws)
        end = perf_counter()
        if not torch.equal(augmented, expected):
            raise AssertionError("the two do not give the same images")
        batch.append((middle - start) * 1e6)
        pillow.append((end - middle) * 1e6)
    batch, pillow = batch[NUM_WARM_UPS:], pillow[NUM_WARM_UPS:]
    return {
        "case": "rand_augment",
        "space": space,
        "num_ops": num_ops,
        "side": side,
        "num_threads": num_threads,
        "batch_us": median(batch),
        "pillow_us": median(pillow),
        "ratio": median(theirs / ours for ours, theirs in zip(batch, pillow, strict=True)),
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


if __name__ == "__main__":
    main()
