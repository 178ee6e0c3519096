"""Digits: what accuracy costs in steps, and what boundaries are worth: docs/controllers/budget.md.

    python -m benchmarks.digits_compute                     all groups over three seeds
    python -m benchmarks.digits_compute --seeds 0 --groups fixed-01 budget-05

The table and the records are kept as those of all comparisons, with the picture compute.svg beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evidence import carry_out, choose, compare, draw_costs
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings
from encore.tuning.grid import make_grid

SEEDS = (0, 1, 2)
MEMORY = RehearsalSettings(memory_size=50)
REPEATS = (1, 2, 5, 10, 20)
FIXED = {
    f"fixed-{repeats:02d}": RunSettings(rehearsal=MEMORY, plan=PlanSettings(repeats=repeats, num_ops=1))
    for repeats in REPEATS
}
BUDGETED = {
    f"budget-{steps:02d}": RunSettings(
        rehearsal=MEMORY,
        plan=PlanSettings(num_ops=1, controller="budget"),
        part_options={"controller.steps": float(steps)},
    )
    for steps in (2, 5, 10)
}
BANDITS = {
    name.replace("_", "-"): RunSettings(rehearsal=MEMORY, plan=PlanSettings(controller=name))
    for name in ("bpg", "bpg_drift")
}
WITHOUT_RESETS = {
    "bpg-never": RunSettings(
        rehearsal=MEMORY,
        plan=PlanSettings(controller="bpg"),
        part_options={"controller.without_resets": True},
    )
}
TUNED = {"tuned": RunSettings(rehearsal=MEMORY)}
GRID = make_grid(REPEATS, (0, 1, 2, 3), (5, 14))  # the 35 settings of the published code
COMPUTE = {**FIXED, **BUDGETED, **BANDITS, **WITHOUT_RESETS, **TUNED}
BLURRY = {
    f"blurry-{name}": RunSettings(
        StreamSettings(kind="blurry"), group.rehearsal, group.plan, part_options=group.part_options
    )
    for name, group in {"fixed-10": FIXED["fixed-10"], **BANDITS, **WITHOUT_RESETS}.items()
}
GROUPS = {**COMPUTE, **BLURRY}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the groups, or some of them, and draw those of the usual stream."""
    groups, seeds = choose("digits_compute", GROUPS, SEEDS, arguments)
    grids = {name: GRID for name in TUNED if name in groups}
    folder = compare("digits_compute", "Digits: accuracy and steps", groups, seeds, grids=grids)
    subtitles = [
        f"class-incremental, a memory of {MEMORY.memory_size}: mean and deviation over {len(seeds)} seeds",
        "without the steps of the search where the plan was tuned",
    ]
    drawn = [name for name in groups if name in COMPUTE]
    draw_costs(folder, drawn, list(FIXED), "Digits: what accuracy costs", subtitles)


if __name__ == "__main__":
    carry_out(main)
