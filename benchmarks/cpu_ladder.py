"""The rungs from the bare loop to Encore on a CPU, one change at a time, measured by turns in one process.

What concerns the whole process cannot take turns, and is measured in processes of its own: memory that is
kept, and denormal numbers that are taken for zero.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from rich.console import Console

from benchmarks.evidence import keep_printed
from benchmarks.speed.rehearsal_step import make_bare_loop, make_batch, make_learner
from encore.engines.compiled import Compiled
from encore.errors import EncoreError
from encore.interfaces import Joint, Plan
from encore.learner import Learner
from encore.processor import keep_freed_memory, multiplies_bfloat16
from encore.randomness import Randomness
from encore.tables import make_table

PLAN = Plan(repeats=1, num_ops=1, magnitude=14)
ROUNDS = 40
PROCESSES = 5  # for what concerns the whole process


def main() -> None:
    """Measure the rungs, and print a table of each kind."""
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    keep_freed_memory()
    console = Console(width=100, record=True, highlight=False)
    rungs = make_rungs()
    milliseconds: dict[str, list[tuple[float, float]]] = {name: [] for name in rungs}
    for number in range(ROUNDS + 3):
        names = [*rungs]
        first = number % len(names)
        for name in names[first:] + names[:first]:
            wall, processor = time.perf_counter(), time.process_time()
            rungs[name]()
            took = (1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - processor))
            if number >= 3:
                milliseconds[name].append(took)
    table = make_table("rung", "ms", "times the\nbare loop", "of processor\nms", "times the\nbare loop")
    bare = milliseconds[next(iter(rungs))]
    for name, taken in milliseconds.items():
        cells = []
        for kind in (0, 1):
            cells.append(f"{median(took[kind] for took in taken):.1f}")
            cells.append(f"{median(b[kind] / a[kind] for a, b in zip(taken, bare, strict=True)):.2f}")
        table.add_row(name, *cells)
    console.print(f"{torch.get_num_threads()} thread(s), medians of {ROUNDS} rounds")
    console.print(table)
    show_processes(console)
    keep_printed("cpu_ladder", "One iteration of ER-RAR on a CPU, rung by rung", console.export_text())


def make_rungs() -> dict[str, Callable[[], Any]]:
    """Return the rungs: each does one iteration."""
    incoming = make_batch(10)
    bare = make_bare_loop(torch.contiguous_format)

    def rehearsing(learner: Learner) -> Callable[[], Any]:
        return lambda: learner.learn(incoming, PLAN)

    def fused_sgd() -> Learner:
        learner = make_learner()
        rate = learner.config.learning_rate
        fused: Any = torch.optim.SGD(learner.model.parameters(), lr=rate, fused=True)
        learner.optimizer = fused
        return learner

    def default_layout() -> Learner:
        learner = make_learner()
        learner.model = learner.model.to(memory_format=torch.contiguous_format)
        augment = learner._augment

        def contiguous(*arguments: Any) -> Joint:
            joint = augment(*arguments)
            return joint._replace(images=joint.images.contiguous())

        learner._augment = contiguous  # type: ignore[method-assign, assignment]
        return learner

    rungs: dict[str, Callable[[], Any]] = {
        "bare loop, Pillow": lambda: bare.step(*incoming, num_ops=1, magnitude=14),
        "RandAugment in NumPy": rehearsing(default_layout()),
        "and channels last: Encore": rehearsing(make_learner()),
        "Encore, fused SGD": rehearsing(fused_sgd()),
    }
    try:
        Compiled(Randomness(0))
        rungs["Encore, compiled"] = rehearsing(make_learner(engine="compiled"))
    except EncoreError as error:
        print(f"without the engine compiled: {error}")
    if multiplies_bfloat16():
        rungs["Encore, bfloat16"] = rehearsing(make_learner(precision="bfloat16"))
    return rungs


def show_processes(console: Console) -> None:
    """Print what kept memory and flushed denormals change: medians over processes, and the extremes."""
    table = make_table(
        "in processes of their own", "ms\nmedian", "least", "most", "page faults\nan iteration", "most"
    )
    ways = ("neither", "kept memory", "denormals flushed")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(PROCESSES):
        for way in ways:
            program = "import sys\nfrom benchmarks.cpu_ladder import answer\nanswer(sys.argv[1])"
            printed = subprocess.run(
                [sys.executable, "-c", program, way], capture_output=True, text=True, check=True
            )
            found[way].append(json.loads(printed.stdout))
    for way, each in found.items():
        took, faults = ([answered[key] for answered in each] for key in ("milliseconds", "faults"))
        table.add_row(
            way,
            *(f"{value:.1f}" for value in (median(took), min(took), max(took))),
            *(f"{value:,.0f}" for value in (median(faults), max(faults))),
        )
    console.print(table)


def answer(way: str) -> None:
    """Take some steps in this process, and print what one took."""
    torch.set_num_threads(1)
    if way == "kept memory":
        keep_freed_memory()
    if way == "denormals flushed":
        torch.set_flush_denormal(True)
    learner, incoming = make_learner(), make_batch(10)
    for _ in range(10):
        learner.learn(incoming, PLAN)
    faults, begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
    for _ in range(ROUNDS):
        learner.learn(incoming, PLAN)
    took = 1000 * (time.process_time() - begun) / ROUNDS
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    print(json.dumps({"milliseconds": took, "faults": faults / ROUNDS}))


if __name__ == "__main__":
    main()
