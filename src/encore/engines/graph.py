"""Whole iterations as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Generic

import torch
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Inputs, Result
from encore.own_kernels import use_own_kernels
from encore.randomness import Randomness
from encore.values import whole_number


class Graph:
    """On a GPU: an iteration is recorded once as a CUDA graph, and replayed from then on.

    The first time that work comes with inputs of a kind (their shapes, and whatever in them is no tensor) it
    is done eagerly, which makes everything ready that is made only once. The second time it is recorded and
    replayed. Recording computes nothing, so neither of them trains more or less than the eager engine does.
    K is how often a recording is replayed. What changes between replays lies on the device: the weights, the
    memory with its counts, the magnitude, and the state of the generators.
    """

    def __init__(
        self,
        draws: Randomness,
        most_recordings: Annotated[int, "Kinds of work that are recorded; others are done eagerly."] = 32,
        own_kernels: Annotated[bool, "Record Encore's own kernels where there are any."] = True,
    ) -> None:
        if draws.device.type != "cuda":
            raise EncoreError(
                f"the engine graph needs a GPU with CUDA, and the device is {draws.device}: "
                "use the engine auto or eager"
            )
        self.most_recordings = whole_number("most_recordings", most_recordings, lowest=0)
        self.own_kernels = own_kernels
        self._draws = draws
        self._stream = torch.cuda.Stream(draws.device)
        self._met: set[Hashable] = set()
        self._recordings: dict[Hashable, _Recording[Any, Any]] = {}

    def run(self, work: Callable[[Inputs], Result], inputs: Inputs, times: int = 1) -> Result:
        """Replay the work, if it was met before; else do it."""
        switches = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32
        kind = (work, _kind_of(inputs), switches)
        with self._own_stream(), use_own_kernels(self.own_kernels):
            recording = self._recordings.get(kind)
            if recording is None and kind in self._met and len(self._recordings) < self.most_recordings:
                recording = _Recording(work, inputs, self._draws.device_generators())
                self._recordings[kind] = recording
            if recording is not None:
                return recording.replay(inputs, times)  # type: ignore[no-any-return]
            self._met.add(kind)
            for _ in range(times - 1):
                work(inputs)
            return work(inputs)

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Work on a stream that can be captured: the default one cannot."""
        current = torch.cuda.current_stream(self._draws.device)
        if current != torch.cuda.default_stream(self._draws.device):
            yield
            return
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)


class _Recording(Generic[Inputs, Result]):
    """A graph, with the places that it reads its inputs from and leaves its result in."""

    def __init__(self, work: Callable[[Inputs], Result], inputs: Inputs, generators: list[Generator]) -> None:
        self._inputs: Inputs = _with_tensors(inputs, torch.clone)
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        stream = torch.cuda.current_stream()
        try:
            # Other threads may use the device meanwhile; only this one must not wait for it.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._result = work(self._inputs)
        except RuntimeError as error:
            raise EncoreError(
                "an iteration cannot be recorded as a CUDA graph, as a part of it waits for the device or "
                f"has no fixed shape ({str(error).partition(chr(10))[0]}): give the retrieval or the "
                "retention `capturable = False`, or use the engine eager"
            ) from error

    def replay(self, inputs: Inputs, times: int) -> Result:
        """Do the recorded work on other inputs of the same kind."""
        for place, value in zip(_tensors(self._inputs), _tensors(inputs), strict=True):
            place.copy_(value)
        for _ in range(times):
            self._graph.replay()
        return self._result


def _with_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return nested tuples and mappings with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _with_tensors(held, change) for name, held in value.items()}
    if isinstance(value, tuple):
        held = [_with_tensors(part, change) for part in value]
        return type(value)(*held) if hasattr(value, "_fields") else tuple(held)
    return value


def _tensors(value: Any) -> list[Tensor]:
    """Return all tensors in nested tuples and mappings, in order."""
    found: list[Tensor] = []
    _with_tensors(value, found.append)
    return found


def _kind_of(value: Any) -> Hashable:
    """Return what tells inputs apart that need a recording each.

    >>> _kind_of((torch.zeros(2, 3), 5, {"stored": torch.ones(1)}))
    (((2, 3), torch.float32), 5, (('stored', ((1,), torch.float32)),))
    """
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, Mapping):
        return tuple((name, _kind_of(held)) for name, held in value.items())
    if isinstance(value, tuple):
        return tuple(_kind_of(part) for part in value)
    hashed: Hashable = value
    return hashed
