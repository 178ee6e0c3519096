"""Does training in bfloat16 cost accuracy? ER and ER-RAR in both precisions, over the same seeds.

    python -m benchmarks.precision digits     five seeds, K = 10, a memory of 50: a few minutes
    python -m benchmarks.precision cifar100   five seeds, K = 3, two tasks, a memory of 500: 15 minutes

The two differ in rounding alone, but training makes small changes large, as another seed does. After the
table of all runs come the differences, seed by seed, and beside them the deviation between seeds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, pstdev
from typing import NamedTuple

from benchmarks.evidence import carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings

METHODS = ("er", "er-rar")


class Trial(NamedTuple):
    """One data set with what is run on it."""

    title: str
    stream: StreamSettings
    memory_size: int
    seeds: tuple[int, ...]
    repeats: int  # of ER-RAR


TRIALS = {
    "digits": Trial("Digits", StreamSettings(), 50, (0, 1, 2, 3, 4), repeats=10),
    "cifar100": Trial(
        "CIFAR-100, first two tasks",
        StreamSettings(benchmark="cifar100", first_tasks=2),
        500,
        (1259051, 1259052, 1259053, 1259054, 1259055),
        repeats=3,
    ),
}


def main() -> None:
    """Run a trial, and add the differences to its page."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TRIALS:
        sys.exit(f"which trial: {' or '.join(TRIALS)}?")
    trial = TRIALS[name]
    groups = {
        f"{method}-{precision}": RunSettings(
            trial.stream,
            RehearsalSettings(memory_size=trial.memory_size),
            PlanSettings() if method == "er" else PlanSettings(trial.repeats, num_ops=1, magnitude=14),
            TrainingSettings(precision=precision, threads=1, device="cpu"),
        )
        for method in METHODS
        for precision in ("float32", "bfloat16")
    }
    folder = compare(f"precision_{name}", f"{trial.title} in float32 and bfloat16", groups, trial.seeds)
    lines = [describe_differences(folder, method) for method in METHODS]
    print("\n".join(lines))
    page = folder / "README.md"
    text = page.read_text(encoding="utf-8")
    text = text.replace(f"benchmarks.precision_{name}", f"benchmarks.precision {name}")
    page.write_text(f"{text}\n## bfloat16 less float32\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


def describe_differences(folder: Path, method: str) -> str:
    """Return a line with what bfloat16 changes in the mean accuracy of each seed, in points."""
    exact, rounded = (accuracies(folder / f"{method}-{precision}") for precision in ("float32", "bfloat16"))
    differences = [100 * (rounded[seed] - exact[seed]) for seed in exact]
    each = ", ".join(f"{difference:+.1f}" for difference in differences)
    return (
        f"- {method}: {each}; mean {mean(differences):+.2f}, deviation {pstdev(differences):.2f}; "
        f"deviation between seeds in float32 {100 * pstdev(exact.values()):.2f}"
    )


def accuracies(directory: Path) -> dict[int, float]:
    """Return the average accuracy of each seed in a directory of runs."""
    records = [json.loads(path.read_text("utf-8")) for path in sorted(directory.glob("seed-*/record.json"))]
    return {record["seed"]: record["metrics"]["average_accuracy"] for record in records}


if __name__ == "__main__":
    carry_out(main)
