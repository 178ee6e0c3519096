"""Digits: fixed numbers of repeats beside controllers that choose them: docs/controllers.md.

python -m benchmarks.digits_controllers                     all groups over three seeds
python -m benchmarks.digits_controllers --seeds 0 --groups fixed-01 bpg
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evidence import carry_out, choose, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings

SEEDS = (0, 1, 2)
MEMORY = RehearsalSettings(memory_size=50)
WIDE = RehearsalSettings(memory_size=50, memory_batch_size=100)  # as the published bandit was run
GROUPS = {
    **{
        f"fixed-{repeats:02d}": RunSettings(rehearsal=MEMORY, plan=PlanSettings(repeats=repeats, num_ops=1))
        for repeats in (1, 2, 5, 10, 20)
    },
    "bpg": RunSettings(rehearsal=MEMORY, plan=PlanSettings(controller="bpg")),
    "bpg-published": RunSettings(rehearsal=WIDE, plan=PlanSettings(controller="bpg_published")),
    "fixed-10-wide": RunSettings(rehearsal=WIDE, plan=PlanSettings(repeats=10, num_ops=1)),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the groups, or some of them."""
    groups, seeds = choose("digits_controllers", GROUPS, SEEDS, arguments)
    compare("digits_controllers", "Digits: who chooses K, P and Q", groups, seeds)


if __name__ == "__main__":
    carry_out(main)
