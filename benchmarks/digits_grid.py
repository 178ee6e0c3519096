"""Digits: how repeats, augmentation and the size of the memory work together.

The table from which the settings of `make demo` were chosen: docs/benchmarks/digits.md.
"""

from __future__ import annotations

from benchmarks.evidence import carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings

SEEDS = (0, 1, 2, 3, 4)
PLANS = {
    "er": PlanSettings(),
    "er-aug": PlanSettings(num_ops=1),
    "r-er": PlanSettings(repeats=10),
    "er-rar": PlanSettings(repeats=10, num_ops=1),
    "er-rar-authors": PlanSettings(repeats=10, num_ops=1, operation_space="authors"),
}


def main() -> None:
    """Run the grid."""
    groups = {
        f"memory-{size:03d}-{name}": RunSettings(rehearsal=RehearsalSettings(memory_size=size), plan=plan)
        for size in (20, 50, 200)
        for name, plan in PLANS.items()
    }
    compare("digits_grid", "Digits: repeats, augmentation and memory", groups, SEEDS)


if __name__ == "__main__":
    carry_out(main)
