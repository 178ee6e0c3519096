"""Fashion-MNIST on a CPU: ER and ER-RAR over the first two tasks, with a memory of 200."""

from __future__ import annotations

from benchmarks.evidence import carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings

SEEDS = (0, 1, 2)
STREAM = StreamSettings(benchmark="fashion_mnist", first_tasks=2)
REHEARSAL = RehearsalSettings(memory_size=200)
TRAINING = TrainingSettings(threads=1)  # so that it can share a machine
GROUPS = {
    "er": RunSettings(STREAM, REHEARSAL, training=TRAINING),
    "er-rar": RunSettings(STREAM, REHEARSAL, PlanSettings(repeats=5, num_ops=1, magnitude=14), TRAINING),
}


def main() -> None:
    """Run both."""
    compare("fashion_mnist", "Fashion-MNIST, first two tasks, memory 200, on a CPU", GROUPS, SEEDS)


if __name__ == "__main__":
    carry_out(main)
