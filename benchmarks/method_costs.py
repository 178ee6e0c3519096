"""What one incoming batch costs with each method, relative to ER: K = 1, 10 images of 3x32x32, a full memory.

The retention is counted in, and nothing is augmented. ER is timed anew beside each method, by turns, so that
both meet the same machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from encore import registry
from encore.files import write_json
from encore.interfaces import Batch, Plan
from encore.learner import Learner
from encore.record import describe_machine, find_commit
from encore.tables import make_table
from encore.version import VERSION

SHAPE, NUM_CLASSES, MEMORY, BATCH = (3, 32, 32), 100, 500, 10
ROUNDS = 9


def main() -> None:
    """Measure every method, print the table, and keep it in a folder if one is named."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    batches_per_round = 30 if on_gpu else 3
    if not on_gpu:
        torch.set_num_threads(1)
    base = prepared("er", device)
    rows: list[dict[str, Any]] = []
    for name in registry.names("method"):
        learner = prepared(name, device)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(milliseconds(base, device, batches_per_round))
            ours.append(milliseconds(learner, device, batches_per_round))
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        rows.append(
            {
                "method": name,
                "milliseconds": statistics.median(ours),
                "er": statistics.median(theirs),
                "ratio": ratio,
            }
        )
        print(f"{name:12s} {ratio:.2f}", flush=True)
    keep(rows, device)


def prepared(method: str, device: torch.device) -> Learner:
    """Return a learner whose memory is full and whose recordings are made, in the middle of a stream."""
    learner = Learner(
        method, image_shape=SHAPE, num_classes=NUM_CLASSES, memory_size=MEMORY, seed=0, device=str(device)
    )
    for number in range(MEMORY // BATCH + 6):
        learner.learn(make_batch(number, device), Plan())
        if number == MEMORY // BATCH:
            learner.end_task()
    return learner


def make_batch(number: int, device: torch.device) -> Batch:
    """Return a batch of noise."""
    generator = torch.Generator().manual_seed(number)
    images = torch.randint(0, 256, (BATCH, *SHAPE), generator=generator, dtype=torch.uint8)
    return Batch(images.to(device), torch.randint(NUM_CLASSES, (BATCH,), generator=generator).to(device))


def milliseconds(learner: Learner, device: torch.device, num_batches: int) -> float:
    """Return how long an incoming batch takes."""
    batches = [make_batch(number, device) for number in range(num_batches)]
    wait(device)
    start = time.perf_counter()
    for batch in batches:
        learner.learn(batch, Plan())
    wait(device)
    return 1000 * (time.perf_counter() - start) / num_batches


def wait(device: torch.device) -> None:
    """Let the device finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def keep(rows: list[dict[str, Any]], device: torch.device) -> None:
    """Print the table, and write it with the machine and the versions."""
    console, machine = Console(record=True, width=100), describe_machine(device)
    table = make_table("method", "ms a batch", "ER beside it", "ratio")
    for row in rows:
        table.add_row(row["method"], f"{row['milliseconds']:.2f}", f"{row['er']:.2f}", f"{row['ratio']:.2f}")
    console.print(table)
    if len(sys.argv) < 2:
        return
    folder, commit = Path(sys.argv[1]), find_commit()
    folder.mkdir(parents=True, exist_ok=True)
    versions = {"encore": VERSION, "torch": torch.__version__}
    measured = {"commit": commit, "machine": machine, "versions": versions, "rows": rows}
    write_json(folder / f"{device.type}.json", measured)
    lines = "\n".join(line.rstrip() for line in console.export_text().splitlines())
    (folder / f"{device.type}.md").write_text(
        f"# What a batch costs with each method: {machine.get('gpu', machine['processor'])}\n\n"
        f"    python -m benchmarks.method_costs\n\n```\n{lines}\n```\n\n"
        f"Ten incoming images of 3x32x32, K = 1, no augmentation, a full memory of {MEMORY}, retention "
        f"counted in; medians of {ROUNDS} rounds by turns with ER.\n\n"
        f"- commit {commit}\n- {machine['processor']}, {machine['threads']} threads, {machine['system']}\n"
        f"- encore {VERSION}, torch {torch.__version__}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
