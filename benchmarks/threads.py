"""How many CPU threads are worth it for images of a size: one rehearsal step, with one thread and with all.

From this table `encore.device.choose_threads` takes its rule.
"""

from __future__ import annotations

import os
import statistics
import time

import torch
from rich.console import Console

from encore.interfaces import Batch, Plan
from encore.learner import Learner
from encore.tables import make_table

SHAPES = ((1, 8, 8), (1, 16, 16), (1, 28, 28), (3, 32, 32))
ROUNDS = 40


def main() -> None:
    """Measure by turns, and print medians with their ratio."""
    most = max(2, len(os.sched_getaffinity(0)))
    table = make_table("image", "1 thread, ms", f"{most} threads, ms", "ratio")
    for shape in SHAPES:
        seconds: dict[int, list[float]] = {1: [], most: []}
        learner = Learner("er", image_shape=shape, num_classes=10, memory_size=200, device="cpu")
        incoming = Batch(torch.randint(0, 256, (10, *shape), dtype=torch.uint8), torch.arange(10))
        learner.learn(incoming, Plan())
        for number in range(ROUNDS + 3):
            for threads, taken in seconds.items():
                torch.set_num_threads(threads)
                begun = time.perf_counter()
                learner.rehearse_once(learner.prepare(incoming, Plan()))
                if number >= 3:
                    taken.append(time.perf_counter() - begun)
        one, all_of_them = (1000 * statistics.median(taken) for taken in seconds.values())
        size = "x".join(map(str, shape))
        table.add_row(size, f"{one:.1f}", f"{all_of_them:.1f}", f"{all_of_them / one:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
