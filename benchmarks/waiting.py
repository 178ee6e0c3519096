"""What threads do while they wait for each other, and what it costs: alone, and on a machine that is busy.

Each way of waiting is tried in processes of its own, as torch reads it when it is imported; they take turns,
alone and while one process or more compute besides. From this table `encore.processor.ENVIRONMENT` takes its
setting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.evidence import carry_out, keep_printed
from encore.processor import ENVIRONMENT
from encore.tables import make_table

WAYS = {
    "spin: the default": {},
    **{
        f"look {count:,} times, then sleep": {"GOMP_SPINCOUNT": str(count)}
        for count in (30_000, 10_000, 3_000, 1_000, 300)
    },
    "sleep: OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "as Encore sets it": ENVIRONMENT,
}
ROUNDS = 5
STEPS, MOST_SECONDS = 20, 4.0
WARMING_UP = 3
ONE = "one thread"


def main() -> None:
    """Measure by turns, and print the medians."""
    num_cores = len(os.sched_getaffinity(0))
    besides = sorted({0, 1, num_cores, 2 * num_cores})
    taken: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):
        for number in besides:
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
            try:
                for name, environment in WAYS.items():
                    taken.setdefault((name, number), []).append(measure(num_cores, environment))
                taken.setdefault((ONE, number), []).append(measure(1, {}))
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    console = Console(width=100, record=True, highlight=False)
    table = make_table(f"while {num_cores} threads wait", *(f"ms beside\n{number}" for number in besides))
    for name in [*WAYS, ONE]:
        table.add_row(name, *(f"{median(taken[name, number]):.1f}" for number in besides))
    console.print(table)
    console.print(f"Beside so many other processes; one iteration, medians of {ROUNDS} processes each.")
    keep_printed("waiting", "What threads do while they wait", console.export_text())


def measure(num_threads: int, environment: dict[str, str]) -> float:
    """Return the milliseconds of an iteration in a new process, the median over some."""
    unset = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    program = "from benchmarks.waiting import answer\nanswer()"
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | environment | {"OMP_NUM_THREADS": str(num_threads)},
        capture_output=True,
        text=True,
        check=True,
    )
    answered: dict[str, Any] = json.loads(printed.stdout)
    return float(answered["milliseconds"])


def answer() -> None:
    """Take some steps, and print what one took."""
    import time

    import torch

    from benchmarks.speed.rehearsal_step import make_batch, make_learner
    from encore.interfaces import Plan
    from encore.processor import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    learner, incoming = make_learner(), make_batch(10)
    milliseconds: list[float] = []
    for number in range(STEPS + WARMING_UP):
        begun = time.perf_counter()
        learner.rehearse_once(learner.prepare(incoming, Plan(num_ops=1)))
        if number >= WARMING_UP:
            milliseconds.append(1000 * (time.perf_counter() - begun))
            if sum(milliseconds) > 1000 * MOST_SECONDS:
                break
    print(json.dumps({"milliseconds": sum(milliseconds) / len(milliseconds)}))


if __name__ == "__main__":
    carry_out(main)
