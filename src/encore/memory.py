"""A fixed number of remembered examples, as rows of tensors on the training device."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, nn

from encore.free_memory import fits, free_memory
from encore.interfaces import NOTHING, Batch, Remembered
from encore.values import whole_number

LARGEST_SHARE = 0.5  # of a GPU's free memory, up to which the images lie there; the network needs some, too


class Memory(nn.Module):
    """`capacity` slots for images and labels, and one more, the scratch row: written, never read.

    What is not to be kept is written to the scratch row, so that every write has the same shape. Images that
    would fill half of a GPU's free memory stay on the host; then reading and writing wait for the device.

    >>> memory = Memory(capacity=4, image_shape=(1, 2, 2))
    >>> incoming = Batch(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([7, 8]))
    >>> memory.write(torch.tensor([0, 1]), incoming)
    >>> memory.num_filled, memory.read(torch.tensor([1])).labels
    (2, tensor([8]))
    """

    images: Tensor  # uint8 [capacity + 1, C, H, W]
    labels: Tensor  # int64 [capacity + 1]
    num_seen_on_device: Tensor  # int64 []
    num_filled_on_device: Tensor  # int64 []

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, int, int],
        device: torch.device | str = "cpu",
        stored_shapes: Mapping[str, tuple[int, ...]] = NOTHING,
    ) -> None:
        super().__init__()
        self.capacity = capacity = whole_number("the memory size", capacity, lowest=1)
        self.num_seen = 0
        self.num_filled = 0  # known without asking the device (see `Retention`)
        images_on = _place_images((capacity + 1) * prod(image_shape), torch.device(device))
        self.register_buffer(
            "images", torch.zeros((capacity + 1, *image_shape), dtype=torch.uint8, device=images_on)
        )
        self.register_buffer("labels", torch.zeros(capacity + 1, dtype=torch.int64, device=device))
        self.stored_names = tuple(stored_shapes)  # what an objective wants beside each example
        for name, shape in stored_shapes.items():
            self.register_buffer(f"stored_{name}", torch.zeros((capacity + 1, *shape), device=device))
        # The counts stand on the host, where shapes are decided, and on the device, where draws are.
        self.register_buffer("num_seen_on_device", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("num_filled_on_device", torch.zeros((), dtype=torch.int64, device=device))

    @property
    def scratch(self) -> int:
        """The slot for what is not kept."""
        return self.capacity

    @property
    def is_full(self) -> bool:
        """Whether every slot holds an example; it never changes back."""
        return self.num_filled == self.capacity

    def read(self, slots: Tensor) -> Remembered:
        """Return the examples in the slots [R]."""
        images = self.images.index_select(0, slots.to(self.images.device))
        stored = {name: self._stored(name).index_select(0, slots) for name in self.stored_names}
        return Remembered(images.to(slots.device), self.labels.index_select(0, slots), stored)

    def write(self, slots: Tensor, incoming: Batch, stored: Mapping[str, Tensor] = NOTHING) -> None:
        """Store each incoming example in its slot [B], and count all of them as seen."""
        self.put(slots, incoming, stored)
        self.count(len(incoming.labels))

    def put(self, slots: Tensor, incoming: Batch, stored: Mapping[str, Tensor] = NOTHING) -> None:
        """Do the part of `write` that is the device's."""
        on = self.images.device
        self.images.index_copy_(0, slots.to(on), incoming.images.to(on))
        self.labels.index_copy_(0, slots, incoming.labels)
        for name in self.stored_names:
            self._stored(name).index_copy_(0, slots, stored[name])
        self.num_seen_on_device += len(incoming.labels)
        torch.clamp(self.num_seen_on_device, max=self.capacity, out=self.num_filled_on_device)

    def count(self, num_incoming: int) -> None:
        """Do the part of `write` that is the host's."""
        self.num_seen += num_incoming
        self.num_filled = min(self.num_filled + num_incoming, self.capacity)

    def pass_by(self, num_incoming: int) -> None:
        """Count examples as seen of which none is kept."""
        self.num_seen += num_incoming
        self.num_seen_on_device += num_incoming

    def filled(self) -> Batch:
        """Return all that is remembered, in the order of the slots; the images where they lie."""
        return Batch(self.images[: self.num_filled], self.labels[: self.num_filled])

    def _stored(self, name: str) -> Tensor:
        return self.get_buffer(f"stored_{name}")

    def get_extra_state(self) -> list[int]:
        """Return the host's counts, which are no tensors."""
        return [self.num_seen, self.num_filled]

    def set_extra_state(self, state: list[int]) -> None:
        """Take the host's counts back."""
        self.num_seen, self.num_filled = state


def _place_images(num_bytes: int, device: torch.device) -> torch.device:
    """Return where so many bytes of images lie best: on the device, if that leaves room on it."""
    if device.type != "cuda" or fits(num_bytes, free_memory(device), LARGEST_SHARE):
        return device
    return torch.device("cpu")
