"""A fixed number of remembered examples, as rows of tensors on the training device."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encore.interfaces import Batch
from encore.values import whole_number


class Memory(nn.Module):
    """`capacity` slots for images and labels, and one more, the scratch row: written, never read.

    What is not to be kept is written to the scratch row, so that every write has the same shape.

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
        self, capacity: int, image_shape: tuple[int, int, int], device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        self.capacity = capacity = whole_number("the memory size", capacity, lowest=1)
        self.num_seen = 0
        self.register_buffer(
            "images", torch.zeros((capacity + 1, *image_shape), dtype=torch.uint8, device=device)
        )
        self.register_buffer("labels", torch.zeros(capacity + 1, dtype=torch.int64, device=device))
        # The counts stand on the host, where shapes are decided, and on the device, where draws are.
        self.register_buffer("num_seen_on_device", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("num_filled_on_device", torch.zeros((), dtype=torch.int64, device=device))

    @property
    def scratch(self) -> int:
        """The slot for what is not kept."""
        return self.capacity

    @property
    def num_filled(self) -> int:
        """How many slots hold an example: known without asking the device (see `Retention`)."""
        return min(self.num_seen, self.capacity)

    def read(self, slots: Tensor) -> Batch:
        """Return the examples in the slots [R]."""
        return Batch(self.images.index_select(0, slots), self.labels.index_select(0, slots))

    def write(self, slots: Tensor, incoming: Batch) -> None:
        """Store each incoming example in its slot [B], and count all of them as seen."""
        self.images.index_copy_(0, slots, incoming.images)
        self.labels.index_copy_(0, slots, incoming.labels)
        self.num_seen += len(incoming.labels)
        self.num_seen_on_device += len(incoming.labels)
        torch.clamp(self.num_seen_on_device, max=self.capacity, out=self.num_filled_on_device)

    def filled(self) -> Batch:
        """Return all that is remembered, in the order of the slots."""
        return Batch(self.images[: self.num_filled], self.labels[: self.num_filled])

    def get_extra_state(self) -> int:
        """Return the host's count, which is not a tensor."""
        return self.num_seen

    def set_extra_state(self, state: int) -> None:
        """Take the host's count back."""
        self.num_seen = state
