"""CIFAR-100 on a CPU: ER and ER-RAR over the first five tasks, with a memory of 500."""

from __future__ import annotations

from benchmarks.evidence import carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings

SEEDS = (0,)


def main() -> None:
    """Run both."""
    stream = StreamSettings(benchmark="cifar100", first_tasks=5)
    rehearsal = RehearsalSettings(memory_size=500)
    groups = {
        "er": RunSettings(stream, rehearsal),
        "er-rar": RunSettings(stream, rehearsal, PlanSettings(repeats=10, num_ops=1, magnitude=14)),
    }
    compare("cifar100_first_tasks", "CIFAR-100, first five tasks, memory 500, on a CPU", groups, SEEDS)


if __name__ == "__main__":
    carry_out(main)
