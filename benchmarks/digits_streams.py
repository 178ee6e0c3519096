"""Digits as several kinds of stream: what ER and ER-RAR make of each.

The table of docs/streams.md.
"""

from __future__ import annotations

from benchmarks.evidence import carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings

SEEDS = (0, 1, 2)
KINDS = ("class_incremental", "blurry", "gradual", "imbalanced", "shuffled")  # each with its own defaults
PLANS = {"er": PlanSettings(), "er-rar": PlanSettings(repeats=5, num_ops=1, magnitude=14)}


def main() -> None:
    """Run every kind with both plans."""
    groups = {
        f"{kind}-{name}": RunSettings(StreamSettings(kind=kind), RehearsalSettings(memory_size=50), plan)
        for kind in KINDS
        for name, plan in PLANS.items()
    }
    compare("digits_streams", "Digits: kinds of stream, with a memory of 50", groups, SEEDS)


if __name__ == "__main__":
    carry_out(main)
