"""Several runs on one device: each goes on by one incoming batch, then it is the next one's turn.

On a GPU every run has a stream of its own. A run gives its stream the work of a batch and does not wait for
it, so that the work of many runs lies on the GPU at the same time: that of one run is too little to fill it.
A run that is ahead of the GPU by enough is passed over, so that one with long batches does not hold up the
others; and one that needs what its last batch gave has its turn when that is there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import torch

from encore.keeper import Interrupted

MOST_AHEAD = 2  # batches that a run may have given the GPU and that are not done
PAUSE = 5e-5  # seconds, when no run can go on


def take_turns(runs: Iterable[Iterator[bool]], device: torch.device, at_once: int) -> None:
    """Bring all runs to their end, so many at a time; when one has ended, the next one begins.

    A run yields whether its next turn needs what this one gave. Asked to stop, each saves itself at its next
    turn; then the first one's `Interrupted` is raised.
    """
    waiting, stopped = iter(runs), None
    going = [_Lane(run, _own_stream(device, at_once)) for run in islice(waiting, at_once)]
    while going:
        ready = [lane for lane in going if lane.is_ready()]
        for lane in ready:
            try:
                lane.go_on()
            except StopIteration:
                going.remove(lane)
                if stopped is None:
                    going += [_Lane(run, lane.stream) for run in islice(waiting, 1)]
            except Interrupted as interrupted:
                going.remove(lane)
                stopped = stopped or interrupted
        if not ready:
            time.sleep(PAUSE)
    if stopped is not None:
        raise stopped


class _Lane:
    """A run with its stream of the GPU, if it has one."""

    def __init__(self, run: Iterator[bool], stream: torch.cuda.Stream | None) -> None:
        self.run, self.stream = run, stream
        self.needs_last = False
        self.undone: deque[torch.cuda.Event] = deque()  # an event for each batch, at its end

    def is_ready(self) -> bool:
        """Whether the run is not too far ahead of the GPU; nothing is waited for."""
        while self.undone and self.undone[0].query():
            self.undone.popleft()
        return len(self.undone) < (1 if self.needs_last else MOST_AHEAD)

    def go_on(self) -> None:
        """Give the run its turn."""
        if self.stream is None:
            self.needs_last = next(self.run)
            return
        with torch.cuda.stream(self.stream):
            self.needs_last = next(self.run)
            self.undone.append(self.stream.record_event())


def _own_stream(device: torch.device, at_once: int) -> torch.cuda.Stream | None:
    if device.type != "cuda" or at_once == 1:
        return None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.default_stream(device))  # where what is shared was made
    return stream
