"""Experience replay with and without repeated augmented rehearsal, on real handwritten digits.

Run by `make demo`. Three seeds each, a memory of 50 examples; why just that: docs/benchmarks/digits.md.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from encore import launch
from encore.display import display_for
from encore.errors import EncoreError
from encore.keeper import Interrupted
from encore.results import show_results
from encore.settings import PlanSettings, RehearsalSettings, RunSettings

SEEDS = (0, 1, 2)
REHEARSAL = RehearsalSettings(method="er", memory_size=50)
PLANS = {
    "er": ("ER: every incoming batch is rehearsed once", PlanSettings()),
    "er-rar": (
        "ER-RAR: ten times, with a fresh augmentation each time",
        PlanSettings(repeats=10, num_ops=1, magnitude=14),
    ),
}


def run_demo(console: Console, directory: Path) -> None:
    """Train both, and compare them."""
    console.print("Handwritten digits: two new classes at a time, ten images at a time, each once.")
    for name, (title, plan) in PLANS.items():
        console.print(f"\n[bold]{title}[/bold]")
        with display_for(console, quiet=False) as display:
            launch.start(RunSettings(rehearsal=REHEARSAL, plan=plan), SEEDS, directory / name, display)
    show_results(console, [directory])
    console.print(f"written to {directory}", highlight=False, soft_wrap=True)


def main() -> int:
    """Run the demo in the terminal; with a path, keep a picture of its output there, as SVG."""
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    # A picture holds what is printed, and so no bar that moves.
    console = Console(record=True, width=100, force_terminal=False) if picture else Console()
    try:
        run_demo(console, Path("runs") / f"demo-{datetime.now():%Y-%m-%d-%H%M%S}")
    except EncoreError as error:
        print(f"encore: error: {error}", file=sys.stderr)
        return 2
    except Interrupted as interrupted:
        print(f"\nstopped; go on with: encore resume {interrupted.directory}", file=sys.stderr)
        return 128 + interrupted.signal_number
    if picture:
        drawn = console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")
        # Without rich's web fonts: a picture should not fetch anything.
        picture.write_text(re.sub(r"@font-face {.*?}", "", drawn, flags=re.DOTALL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
