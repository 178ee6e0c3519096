"""Work that a GPU does beside other work of the same iteration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


class SideStream:
    """A second queue on the GPU, for networks too small to fill it; on a CPU one thing follows the other.

    What is begun here sees all that was asked for before. What it returns may be used after `wait`, and
    nothing that it reads may be changed or let go before.
    """

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    @contextmanager
    def begin(self, device: torch.device) -> Iterator[None]:
        """Queue beside the current stream."""
        if device.type != "cuda":
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            yield

    def wait(self) -> None:
        """Let the current stream go on when what was begun is done; the host does not wait."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


@cache
def side_stream_of(device: torch.device) -> SideStream:
    """Return the one queue that a device's gradients of weights share.

    Nothing may be allocated while something is begun there: PyTorch would hand the memory out again without
    asking whether streams other than this one have done with it.
    """
    return SideStream()
