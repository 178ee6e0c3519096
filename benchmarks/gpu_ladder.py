"""The rungs from the bare loop to Encore on a GPU, by turns in one process, and where its time goes.

    python -m benchmarks.gpu_ladder

An iteration is that of `encore bench`: 10 + 10 images of 3x32x32 at paper width, a full memory, K = 10. The
bare loop augments with Pillow on the host. Several runs share the GPU by turns; their time is that of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.evidence import carry_out, keep_printed
from encore import own_kernels, side_stream
from encore.bench import BARE, BenchSettings, Case, Contestant, measure_time, prepare
from encore.errors import EncoreError
from encore.side_stream import SideStream
from encore.tables import make_table

ROUNDS = 15
SETTINGS = BenchSettings()
PROFILED = 20  # incoming batches
LISTED = 14  # kernels
PLAIN = {"engine.own_kernels": False}
BASE, EAGER = f"{BARE}, Pillow", "eager"
AUGMENTED, QUEUED = "and own RandAugment", "and own convolutions"
WHOLE = "and weights' gradients beside: Encore"
RUNGS = (
    Case(BASE, None, 1),
    Case(EAGER, "eager", 1),
    Case("compiled", "compiled", 1),
    Case("recorded as a graph", "graph", 1, options=PLAIN),
    Case(AUGMENTED, "graph", 1),
    Case(QUEUED, "graph", 1),
    Case(WHOLE, "graph", 1),
    Case("two runs by turns", "graph", 1, 2),
    Case("four runs by turns", "graph", 1, 4),
    Case("eight runs by turns", "graph", 1, 8),
    Case("sixteen runs by turns", "graph", 1, 16),
    Case("eight without own kernels", "graph", 1, 8, options=PLAIN),
    Case(f"{BARE}, no augmentation", None, 0),
    Case("Encore, no augmentation", "graph", 0),
)


def main() -> None:
    """Measure the rungs, print the tables, and keep them."""
    if not torch.cuda.is_available():
        raise EncoreError("this ladder needs a GPU with CUDA; that of a CPU is benchmarks.cpu_ladder")
    device = torch.device("cuda")
    torch.set_num_threads(1)
    console = Console(width=110, record=True, highlight=False)
    ready = climb(RUNGS, device, console)
    console.print(ladder(ready))
    for made in ready:
        if made.case.name == WHOLE:
            console.print(longest_kernels(made.work))
    title = "One iteration of ER-RAR on a GPU, rung by rung"
    keep_printed("gpu_ladder", title, console.export_text(), device=device)


def climb(cases: Sequence[Case], device: torch.device, console: Console) -> list[Contestant]:
    """Make every case ready that works here, and time all of them by turns."""
    ready: list[Contestant] = []
    shape = (3, SETTINGS.image_size, SETTINGS.image_size)
    for case in cases:
        try:
            without = {AUGMENTED: only_augmentation, QUEUED: in_one_queue}.get(case.name, nullcontext)
            with without():
                ready.append(prepare(case, SETTINGS, shape, device))
        except Exception as error:  # torch's compiler fails in ways of its own
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            console.print(f"without {case.name}: {reason}")
    for number in range(ROUNDS):
        first = number % len(ready)
        for made in ready[first:] + ready[:first]:
            made.seconds.append(measure_time(made.work, device))
    return ready


def ladder(ready: Sequence[Contestant]) -> Table:
    """Return a table of the rungs."""
    table = make_table("", "ms", "times the\nbare loop", "times the\neager engine", "peak\nMiB")
    taken = {
        made.case.name: [1000 * seconds / (SETTINGS.repeats * made.case.runs) for seconds in made.seconds]
        for made in ready
    }
    for made in ready:
        ours = taken[made.case.name]
        ratios = [
            median(theirs / our for theirs, our in zip(taken[other], ours, strict=True))
            for other in (BASE, EAGER)
        ]
        cells = [f"{median(ours):.3f}", *(f"{ratio:.2f}" for ratio in ratios)]
        table.add_row(made.case.name, *cells, f"{made.peak_bytes / 2**20:,.0f}")
    return table


def longest_kernels(work: Callable[[], None]) -> Table:
    """Return a table of what takes most of an iteration on the GPU."""
    work()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(PROFILED):
            work()
        torch.cuda.synchronize()
    taken: dict[str, list[float]] = defaultdict(list)
    for event in profiled.events() or ():
        if event.device_type == DeviceType.CUDA:
            taken[event.name].append(event.time_range.elapsed_us())
    ordered = sorted(taken.items(), key=lambda item: -sum(item[1]))
    others = [value for _, each in ordered[LISTED:] for value in each]
    whole = [value for _, each in ordered for value in each]
    table = make_table("where the time of Encore's iteration goes", "us", "times", "us each")
    for name, each in [*ordered[:LISTED], ("all others", others), ("together", whole)]:
        if each:
            cells = (value / (PROFILED * SETTINGS.repeats) for value in (sum(each), len(each)))
            table.add_row(name[:70], *(f"{cell:.1f}" for cell in cells), f"{sum(each) / len(each):.1f}")
    return table


@contextmanager
def only_augmentation() -> Iterator[None]:
    """Leave the convolutions of what is recorded meanwhile to cuDNN."""
    usual = own_kernels.in_use

    def in_use(where: Tensor, *, adds_up: bool) -> bool:
        return not adds_up and usual(where, adds_up=adds_up)

    own_kernels.in_use = in_use
    try:
        yield
    finally:
        own_kernels.in_use = usual


@contextmanager
def in_one_queue() -> Iterator[None]:
    """Let nothing that is recorded meanwhile go beside the rest."""
    usual = side_stream.side_stream_of
    side_stream.side_stream_of = lambda device: SameStream()  # type: ignore[assignment]
    try:
        yield
    finally:
        side_stream.side_stream_of = usual


class SameStream(SideStream):
    """No second queue."""

    @contextmanager
    def begin(self, device: torch.device) -> Iterator[None]:
        """Go on in the current one."""
        yield


if __name__ == "__main__":
    carry_out(main)
