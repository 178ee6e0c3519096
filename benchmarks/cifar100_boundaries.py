"""CIFAR-100 with sharp and blurry boundaries, and what bandits make of them: docs/controllers/bpg_drift.md.

    python -m benchmarks.cifar100_boundaries                     all groups over two seeds, on a GPU
    python -m benchmarks.cifar100_boundaries --groups sharp-bpg sharp-bpg-drift

`bpg` is told where a task starts and begins anew there, `bpg-drift` finds out where the stream changes, and
`bpg-never` goes on with what it has learnt. The threshold of `bpg_drift` was chosen on digits.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evidence import carry_out, choose, compare
from encore.settings import PlanSettings, RunSettings, StreamSettings

SEEDS = (1259051, 1259052)
AT_ONCE = 16
STREAMS = {
    "sharp": StreamSettings(benchmark="cifar100"),
    "blurry": StreamSettings(benchmark="cifar100", kind="blurry"),
}
GROUPS = {
    f"{kind}-{name}": RunSettings(stream, plan=plan, part_options=options)
    for kind, stream in STREAMS.items()
    for name, plan, options in (
        ("fixed-10", PlanSettings(repeats=10, num_ops=1), {}),
        ("bpg", PlanSettings(controller="bpg"), {}),
        ("bpg-drift", PlanSettings(controller="bpg_drift"), {}),
        ("bpg-never", PlanSettings(controller="bpg"), {"controller.without_resets": True}),
    )
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the groups, or some of them."""
    groups, seeds = choose("cifar100_boundaries", GROUPS, SEEDS, arguments)
    title = "CIFAR-100, 20 tasks, memory 2,000: bandits with and without boundaries"
    compare("cifar100_boundaries", title, groups, seeds, parallel=AT_ONCE)


if __name__ == "__main__":
    carry_out(main)
