"""RandAugment for a whole batch at once: what every image draws, and the two ways to apply it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from encore import own_kernels
from encore.augment.host_ops import HostOperation, host_operations
from encore.augment.image_ops import DeviceTables, augment, device_tables
from encore.augment.operation_spaces import SPACES
from encore.augment.tables import CENTRE_BITS
from encore.errors import EncoreError, unknown_name
from encore.interfaces import Plan
from encore.pixels import to_unit_interval


class Draws(NamedTuple):
    """What every image draws for each of its operations."""

    choices: Tensor  # int64 [num_ops, N]: 2 i is operation i of the space with plus, 2 i + 1 with minus
    centres: Tensor  # int64 [num_ops, N, 2]: where to cut out, y and x in units of 2 ** -31 of the image


class RandAugment:
    """Augments every image by operations of its own, drawn uniformly and with replacement.

    There are two spaces to draw from. "paper" has the 14 operations of the published RandAugment for small
    images, which are mild at magnitude 14. "authors" has the 16 operations of the paper's published code:
    with Invert, SolarizeAdd and CutoutAbs, without Identity, and with translations in pixels.

    An image is uint8 again after each operation, and each operation gives level for level what Pillow gives
    for the same image, strength and sign. Pixels are fetched from the nearest one, or are black; shears keep
    the upper left corner, rotations the middle. Translations of "paper" are truncated to whole pixels. For
    grey images Color is the identity, and the squares of CutoutAbs have the grey of their colour.

    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> rand_augment = RandAugment("authors")
    >>> rand_augment(images, num_ops=1, magnitude=14, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """

    def __init__(self, space: str = "paper") -> None:
        if space not in SPACES:
            raise unknown_name("operation space", space, SPACES)
        self._space = space
        self._host_operations: dict[tuple[int, int, int], list[HostOperation]] = {}
        self._device_tables: dict[tuple[torch.Size, torch.device], DeviceTables] = {}

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations, in the order in which `Draws` counts them."""
        return tuple(operation.name for operation in SPACES[self._space])

    def __call__(
        self, images: Tensor, num_ops: int, magnitude: int | Tensor, generator: torch.Generator
    ) -> Tensor:
        """Augment images, uint8 [N, C, H, W] with 1 or 3 channels, to float32 of that shape in [0, 1].

        The generator must be on the images' device. The magnitude may be a 0-d integer tensor on that device,
        so that a captured graph can be replayed with another one.
        """
        check_call(images, num_ops, magnitude, generator)
        if num_ops == 0:
            return to_unit_interval(images)
        return self.apply(images, self.draw(len(images), num_ops, generator), magnitude)

    def draw(self, num_images: int, num_ops: int, generator: torch.Generator) -> Draws:
        """Draw for every image; what is taken from the generator depends on nothing but the two counts."""
        shape, device = (num_ops, num_images), generator.device
        return Draws(
            torch.randint(2 * len(SPACES[self._space]), shape, generator=generator, device=device),
            torch.randint(1 << CENTRE_BITS, (*shape, 2), generator=generator, device=device),
        )

    def apply(
        self, images: Tensor, draws: Draws, magnitude: int | Tensor, *, fixed_shapes: bool | None = None
    ) -> Tensor:
        """Augment images by what they have drawn.

        There are two ways, with the same result. On the host each image goes through the operations that it
        has drawn. With fixed shapes, which is the way on an accelerator, every operation is computed for
        every image, and nothing waits for a value. The first call for a size and a device makes the tables
        there, so it must not be the one that is captured.
        """
        if fixed_shapes is None:
            fixed_shapes = images.device.type != "cpu"
        if not fixed_shapes:
            return to_unit_interval(self._apply_on_host(images, draws, magnitude))
        return self._apply_to_batch(images, draws, magnitude)

    def _apply_on_host(self, images: Tensor, draws: Draws, magnitude: int | Tensor) -> Tensor:
        pixels = images.contiguous().numpy()
        key = (pixels.shape[2], pixels.shape[3], int(magnitude))
        if key not in self._host_operations:
            self._host_operations[key] = host_operations(self._space, *key)
        operations = self._host_operations[key]
        augmented = np.empty_like(pixels)
        drawn = zip(draws.choices.t().tolist(), draws.centres.transpose(0, 1).tolist(), strict=True)
        for number, (choices, centres) in enumerate(drawn):
            image = pixels[number]
            for choice, centre in zip(choices, centres, strict=True):
                image = operations[choice](image, centre)
            augmented[number] = image
        return torch.from_numpy(augmented)

    def _apply_to_batch(self, images: Tensor, draws: Draws, magnitude: int | Tensor) -> Tensor:
        key = (images.shape[1:], images.device)
        if key not in self._device_tables:
            self._device_tables[key] = device_tables(self._space, *key)
        tables = self._device_tables[key]
        if isinstance(magnitude, int):
            settings = tables.settings[magnitude]
        else:
            settings = tables.settings.index_select(0, magnitude.view(1)).squeeze(0)
        drawn = list(zip(draws.choices.unbind(0), draws.centres.unbind(0), strict=True))
        if own_kernels.in_use(images, adds_up=False):
            from encore.kernels import rand_augment as kernels  # which needs Triton

            images = images.contiguous()
            for number, (choices, centres) in enumerate(drawn, start=1):
                is_last = number == len(drawn)
                images = kernels.augment(images, choices, centres, settings, tables, is_last)
            return images
        for choices, centres in drawn:
            images = augment(images, choices, centres, settings, tables)
        return to_unit_interval(images)


def check_call(images: Tensor, num_ops: int, magnitude: int | Tensor, generator: torch.Generator) -> None:
    """Refuse what cannot be augmented."""
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3):
        got = f"{str(images.dtype).removeprefix('torch.')} {list(images.shape)}"
        raise EncoreError(f"images to augment must be uint8 [N, C, H, W] with 1 or 3 channels, got {got}")
    if generator.device.type != images.device.type:
        here, there = images.device.type, generator.device.type
        raise EncoreError(f"the generator must be on the images' device, {here}, but it is on {there}")
    if isinstance(magnitude, Tensor):
        Plan(num_ops=num_ops)
    else:
        Plan(num_ops=num_ops, magnitude=magnitude)
