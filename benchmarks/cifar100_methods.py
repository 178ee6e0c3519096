"""CIFAR-100, 20 tasks, memory 2,000: every method alone and the rehearsal methods with RAR, beside the paper.

For a GPU: on one H200 all runs together take some minutes. The classes come in the order of the paper's
first seed. Table 1 of the paper was made with one operation of the space `authors`, so the methods with RAR
use that; ER-RAR is also run with one operation of `paper`, and with the three of `authors` that the published
code applies now, over two seeds each.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.evidence import Published, carry_out, compare
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings

FIRST, SECOND = 1259051, 1259052
AT_ONCE = 16
STREAM = StreamSettings(benchmark="cifar100")
AUTHORS = PlanSettings(repeats=10, num_ops=1, magnitude=14, operation_space="authors")
RAR = {
    "scr-rar": ("scr", AUTHORS),
    "mir-rar": ("mir", AUTHORS),
    "aser-rar": ("aser", AUTHORS),
    "der-rar": ("der", AUTHORS),
    "der-rar-crop-flip": ("der", replace(AUTHORS, operation_space="crop_flip")),
    "er-rar-paper": ("er", replace(AUTHORS, operation_space="paper")),
    "er-rar": ("er", AUTHORS),
    "er-rar-three": ("er", replace(AUTHORS, num_ops=3)),
}
TWO_SEEDS = ("er-rar-paper", "er-rar", "er-rar-three")
ALONE = {
    "finetune": "finetune",
    "lwf": "lwf",
    "agem": "agem",
    "er": "er",
    "er-rw": "er_rw",
    "mir": "mir",
    "aser": "aser",
    "scr": "scr",
    "der": "der",
    "der++": "derpp",
    "er-ace": "er_ace",
    "pcr": "pcr",
    "mkd": "mkd",
}
EPOCHS = 10  # of offline ER here; its usual 50 would take as long as all other runs together
PUBLISHED = {
    "finetune": Published(paper=3.2),
    "lwf": Published(paper=8.7),
    "agem": Published(paper=8.5),
    "er": Published(18.2, 37.1, 19.0),
    "mir": Published(17.2, 37.2, 18.4),
    "aser": Published(20.5, 40.5, 20.9),
    "scr": Published(33.5, 44.3, 32.0),
    "der": Published(paper=8.4),
    "er-rar": Published(27.7, 65.7, 27.8),
    "er-rar-three": Published(29.5, 54.5),  # of a run of the published code, not of its notebook
    "mir-rar": Published(27.5, 68.3, 27.5),
    "aser-rar": Published(28.4, 64.5, 28.1),
    "scr-rar": Published(37.0, 62.9, 37.1),
    "der-rar-crop-flip": Published(paper=30.0),  # with 50 repeats
}


def main() -> None:
    """Run all, the longest first."""
    groups = {
        name: RunSettings(STREAM, RehearsalSettings(method=method), plan)
        for name, (method, plan) in RAR.items()
    }
    groups["er-offline-10"] = RunSettings(
        replace(STREAM, epochs=EPOCHS), RehearsalSettings(method="er_offline")
    )
    groups["agem-softmax"] = RunSettings(STREAM, RehearsalSettings(method="agem", classifier="softmax"))
    groups |= {name: RunSettings(STREAM, RehearsalSettings(method=method)) for name, method in ALONE.items()}
    seeds = {name: (FIRST, SECOND) if name in TWO_SEEDS else (FIRST,) for name in groups}
    compare(
        "cifar100_methods",
        "CIFAR-100, 20 tasks, memory 2,000: every method",
        groups,
        seeds,
        published=PUBLISHED,
        parallel=AT_ONCE,
    )


if __name__ == "__main__":
    carry_out(main)
