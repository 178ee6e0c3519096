"""Several runs on one device: each goes on by one incoming batch, then it is the next one's turn.

On a GPU every run has a stream of its own. A run gives its stream the work of a batch and does not wait for
it, so that the work of many runs lies on the GPU at the same time: that of one run is too little to fill it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

import torch

from encore.keeper import Interrupted


def take_turns(runs: Iterable[Iterator[None]], device: torch.device, at_once: int) -> None:
    """Bring all runs to their end, so many at a time; when one has ended, the next one begins.

    Asked to stop, each saves itself at its next turn; then the first one's `Interrupted` is raised.
    """
    waiting, stopped = iter(runs), None
    going = [(run, _own_stream(device, at_once)) for run in islice(waiting, at_once)]
    while going:
        for turn in list(going):
            run, stream = turn
            try:
                with stream:
                    next(run)
            except StopIteration:
                going.remove(turn)
                if stopped is None:
                    going += [(run, stream) for run in islice(waiting, 1)]
            except Interrupted as interrupted:
                going.remove(turn)
                stopped = stopped or interrupted
    if stopped is not None:
        raise stopped


def _own_stream(device: torch.device, at_once: int) -> AbstractContextManager[object]:
    if device.type != "cuda" or at_once == 1:
        return nullcontext()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.default_stream(device))  # where what is shared was made
    context: AbstractContextManager[object] = torch.cuda.stream(stream)
    return context
