"""CIFAR-100, 20 tasks, memory 2,000: who chooses K, P and Q, and what accuracy costs: docs/controllers.md.

    python -m benchmarks.cifar100_controllers                     all groups over two seeds, on a GPU
    python -m benchmarks.cifar100_controllers --groups bpg tuned

The paper's figures were made with one operation of the space `authors` where the plan is fixed, so all
groups draw from that space. The published bandit goes with a memory batch of 100, and stands beside a fixed
plan with the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evidence import Published, carry_out, choose, compare, draw_costs
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings
from encore.tuning.grid import make_grid

SEEDS = (1259051, 1259052)
AT_ONCE = 16
STREAM = StreamSettings(benchmark="cifar100")
WIDE = RehearsalSettings(memory_batch_size=100)
REPEATS = (20, 10, 5, 2, 1)  # the longest runs begin first
FIXED = {
    f"fixed-{repeats:02d}": RunSettings(
        STREAM, plan=PlanSettings(repeats=repeats, num_ops=1, operation_space="authors")
    )
    for repeats in REPEATS
}
BANDIT = PlanSettings(controller="bpg", operation_space="authors")
BANDITS = {
    "bpg": RunSettings(STREAM, plan=BANDIT),
    "bpg-wide": RunSettings(STREAM, WIDE, BANDIT),
    "bpg-published": RunSettings(
        STREAM, WIDE, PlanSettings(controller="bpg_published", operation_space="authors")
    ),
    "fixed-10-wide": RunSettings(STREAM, WIDE, FIXED["fixed-10"].plan),
}
BUDGETED = {
    f"budget-{steps:02d}": RunSettings(
        STREAM,
        plan=PlanSettings(num_ops=1, controller="budget", operation_space="authors"),
        part_options={"controller.steps": float(steps)},
    )
    for steps in (10, 5, 2)
}
TUNED = {"tuned": RunSettings(STREAM, plan=PlanSettings(operation_space="authors"))}
GRID = make_grid((1, 2, 5, 10, 20), (0, 1, 2, 3), (5, 14))  # the 35 settings of the published code
GROUPS = {**BANDITS, **FIXED, **BUDGETED, **TUNED}
PUBLISHED = {
    "fixed-10": Published(paper=27.8),
    "bpg": Published(paper=29.6),
    "bpg-wide": Published(paper=29.6),
    "bpg-published": Published(paper=29.6),
    "tuned": Published(paper=23.4),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the groups, or some of them, and draw those with the usual memory batch."""
    groups, seeds = choose("cifar100_controllers", GROUPS, SEEDS, arguments)
    folder = compare(
        "cifar100_controllers",
        "CIFAR-100, 20 tasks, memory 2,000: who chooses K, P and Q",
        groups,
        seeds,
        published=PUBLISHED,
        grids={name: GRID for name in TUNED if name in groups},
        parallel=AT_ONCE,
    )
    drawn = [name for name, group in groups.items() if group.rehearsal.memory_batch_size is None]
    subtitles = [
        f"20 tasks, a memory of 2,000: mean and deviation over {len(seeds)} seeds",
        "without the steps of the search where the plan was tuned",
    ]
    draw_costs(folder, drawn, list(FIXED), "CIFAR-100: what accuracy costs", subtitles)


if __name__ == "__main__":
    carry_out(main)
