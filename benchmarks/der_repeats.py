"""DER-RAR and its repeats: CIFAR-100, first four tasks, a narrow network and a small memory, on a CPU.

The paper repeats 50 times with crops and mirror images. Distillation over 100 logits pulls weakly, 0.3 times
the mean square, so it needs many steps; this shows what K = 1, 10 and 50 make of it.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.evidence import carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings

SEEDS = (1259051,)
CROPS = PlanSettings(num_ops=1, operation_space="crop_flip")


def main() -> None:
    """Run all three."""
    groups = {
        f"der-{repeats}": RunSettings(
            StreamSettings(benchmark="cifar100", first_tasks=4),
            RehearsalSettings(method="der", memory_size=400),
            replace(CROPS, repeats=repeats),
            TrainingSettings(device="cpu", threads=1),
            {"model.width": 8},
        )
        for repeats in (1, 10, 50)
    }
    compare(
        "der_repeats",
        "DER with crops and flips over the number of repeats, four tasks, on a CPU",
        groups,
        SEEDS,
    )


if __name__ == "__main__":
    carry_out(main)
