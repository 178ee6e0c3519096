"""What threads do while they wait for each other, and what it costs: alone, and on a machine that is busy.

Each way of waiting is tried in processes of its own, as torch reads it when it is imported; they take turns.
A busy machine is one on which as many processes as there are cores compute at the same time. From this table
`encore.processor.ENVIRONMENT` takes its setting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from rich.console import Console

from encore.tables import make_table

WAYS = {
    "spin: the default": {},
    "spin 1,000 times, then sleep": {"GOMP_SPINCOUNT": "1000"},
    "spin 10,000 times, then sleep": {"GOMP_SPINCOUNT": "10000"},
    "sleep: OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
}
ROUNDS = 3
STEPS = 15


def main() -> None:
    """Measure by turns, and print the medians."""
    num_cores = len(os.sched_getaffinity(0))
    taken: dict[tuple[str, bool], list[float]] = {}
    for _ in range(ROUNDS):
        for is_busy in (False, True):
            others = [
                subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(num_cores * is_busy)
            ]
            try:
                for name, environment in WAYS.items():
                    taken.setdefault((name, is_busy), []).append(measure(num_cores, environment))
                taken.setdefault(("one thread", is_busy), []).append(measure(1, {}))
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    table = make_table(f"while {num_cores} threads wait", "alone\nms", "ratio", "busy\nms", "ratio")
    for name in [*WAYS, "one thread"]:
        cells = []
        for is_busy in (False, True):
            now, usual = (median(taken[each, is_busy]) for each in (name, next(iter(WAYS))))
            cells += [f"{now:.1f}", f"{now / usual:.2f}"]
        table.add_row(name, *cells)
    Console().print(table)


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
    milliseconds = []
    for number in range(STEPS + 3):
        begun = time.perf_counter()
        learner.rehearse_once(learner.prepare(incoming, Plan(num_ops=1)))
        if number >= 3:
            milliseconds.append(1000 * (time.perf_counter() - begun))
    print(json.dumps({"milliseconds": sum(milliseconds) / len(milliseconds)}))


if __name__ == "__main__":
    main()
