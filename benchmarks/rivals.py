"""Encore's RAR beside CapyMOA's and Avalanche's, and beside the loop without a library: `--help` says how.

The two libraries are installed apart, each into a virtual environment of its own in build/rivals, with the
torch that constraints.txt names. Every contestant is a process (benchmarks/rival_worker.py); they take turns,
so that whatever else the machine does falls on all, and each round gives a ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from encore.errors import EncoreError
from encore.files import write_json
from encore.processor import multiplies_bfloat16
from encore.record import describe_machine, find_commit
from encore.tables import make_table
from encore.version import VERSION

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "rivals"
PACKAGES = {"capymoa": "capymoa==0.15.1", "avalanche": "avalanche-lib==0.6.0"}
TITLES = {
    "bare": "bare PyTorch loop",
    "capymoa": "CapyMOA",
    "avalanche": "Avalanche",
    "encore": "Encore",
    "encore-bfloat16": "Encore, bfloat16",
}
WHAT_RUNS = """\
What each one runs is in `benchmarks/rival_worker.py`: CapyMOA's `RAR` around its `Finetune`, without the
prediction of each batch that its own loop adds; Avalanche's `Naive` with `ReplayPlugin`, a reservoir, and K
epochs over experiences of one batch; both with torchvision's RandAugment for each image. The bare loop uses
Pillow's operations. The compiled half of the torchvision on PyPI does not fit torch's build for CPUs, so two
operators of object detection are declared without a body for its Python half to be imported; nothing here
calls them.
"""


class Contestant:
    """A process that learns batches when it is told to."""

    def __init__(self, name: str, python: Path, sizes: dict[str, Any]) -> None:
        self.name = name
        self.rounds: list[dict[str, float]] = []
        sizes = sizes | {"precision": "bfloat16" if name.endswith("bfloat16") else "float32"}
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "OMP_NUM_THREADS": str(sizes["threads"]),
            "PYTHONWARNINGS": "ignore",
        }
        self.log = ENVIRONMENTS / f"{name}.log"
        with self.log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", "benchmarks.rival_worker", name.partition("-")[0], json.dumps(sizes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
            )
        self.versions: dict[str, str] = self._answer()["versions"]

    def learn(self, num_batches: int) -> None:
        """Learn so many incoming batches, and note the milliseconds for an iteration."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{num_batches}\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.rounds.append({kind: 1000 * answer[kind] / answer["steps"] for kind in ("wall", "processor")})

    def close(self) -> None:
        """End the process."""
        with suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self._process.communicate(timeout=30)
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return answer
        self.close()
        last = self.log.read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"]
        raise EncoreError(f"{TITLES[self.name]} stopped: {last[-1]} (see {self.log})")


def install(name: str) -> Path:
    """Make the environment of a library, unless it is there; return its Python."""
    folder = ENVIRONMENTS / name
    python, done = folder / "bin" / "python", folder / "installed"
    pinned = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    wanted = f"{pinned} torchvision {PACKAGES[name]}"
    if done.exists() and done.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted.split()], check=True)
    done.write_text(wanted)
    return python


def measure(sizes: dict[str, Any], num_rounds: int, num_batches: int, console: Console) -> dict[str, Any]:
    """Let all learn by turns; return what each took, and who could not take part."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    names = [name for name in TITLES if name != "encore-bfloat16" or multiplies_bfloat16()]
    contestants, absent, loads = [], {}, [os.getloadavg()[0]]
    for name in names:
        console.print(f"making {TITLES[name]} ready", style="dim")
        try:
            if name == "capymoa" and shutil.which("java") is None:
                raise EncoreError("CapyMOA needs Java, and there is none: install default-jre-headless")
            python = install(name) if name in PACKAGES else Path(sys.executable)
            contestants.append(Contestant(name, python, sizes))
        except (EncoreError, subprocess.CalledProcessError) as error:
            absent[TITLES[name]] = str(error)
    for number in range(num_rounds):
        first = number % len(contestants)
        for contestant in contestants[first:] + contestants[:first]:
            contestant.learn(num_batches)
        loads.append(os.getloadavg()[0])
    for contestant in contestants:
        contestant.close()
    bare = next(contestant for contestant in contestants if contestant.name == "bare")
    rows = []
    for contestant in contestants:
        row: dict[str, Any] = {"name": TITLES[contestant.name], "versions": contestant.versions}
        for kind in ("wall", "processor"):
            own, theirs = ([each[kind] for each in made.rounds] for made in (contestant, bare))
            row[f"{kind}_milliseconds"] = median(own)
            row[f"{kind}_times_bare"] = median(b / a for a, b in zip(own, theirs, strict=True))
        rows.append(row)
    return {
        "encore": VERSION,
        "commit": find_commit(),
        "machine": describe_machine(torch.device("cpu")) | {"threads": sizes["threads"]},
        "load": loads,
        "sizes": sizes,
        "rounds": num_rounds,
        "batches_in_a_round": num_batches,
        "rows": rows,
        "absent": absent,
    }


def show(console: Console, measured: dict[str, Any]) -> None:
    """Print the table, and who is not in it."""
    sizes = measured["sizes"]
    headings = ("iteration\nms", "times the\nbare loop", "of processor\nms", "times the\nbare loop")
    table = make_table("RAR of", *headings)
    for row in measured["rows"]:
        table.add_row(
            row["name"],
            *(
                f"{row[f'{kind}_{what}']:.{digits}f}"
                for kind in ("wall", "processor")
                for what, digits in (("milliseconds", 1), ("times_bare", 2))
            ),
        )
    console.print(
        f"one iteration: {sizes['batch']} + {sizes['batch']} images of 3x32x32, width {sizes['width']}, "
        f"K = {sizes['repeats']}, P = 1,\nmemory 2,000, {sizes['threads']} thread(s)\n"
    )
    console.print(table)
    loads = measured["load"]
    console.print(
        f"\nmedians of {measured['rounds']} rounds of {measured['batches_in_a_round'] * sizes['repeats']} "
        f"iterations by turns; load {min(loads):.1f} to {max(loads):.1f}, of which 1 is this"
    )
    for name, reason in measured["absent"].items():
        console.print(f"{name} is absent: {reason}")


def keep(folder: Path, printed: str, measured: dict[str, Any], chosen_folder: Path | None = None) -> None:
    """Write the numbers, and a page with the table, the versions and the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "rivals.json", measured)
    machine = measured["machine"]
    versions: dict[str, str] = {}
    for row in measured["rows"]:
        versions |= row["versions"]
    options = [word for word in sys.argv[1:] if word != str(chosen_folder)]
    command = ["python", "-m", "benchmarks.rivals", *options]
    table = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    (folder / "README.md").write_text(
        "# RAR in Encore, CapyMOA and Avalanche\n\n"
        f"    {shlex.join(command)}\n\n"
        f"```\n{table}\n```\n\n{WHAT_RUNS}\n"
        f"- commit {measured['commit']}\n"
        f"- {machine['processor']}, {machine['cores']} cores, {machine['system']}\n"
        f"- encore {VERSION}, {', '.join(f'{name} {version}' for name, version in versions.items())}\n",
        encoding="utf-8",
    )


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to keep the numbers; else in results/")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batches", type=int, default=2, help="incoming batches in a round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=10)
    chosen = parser.parse_args()
    sizes = {"width": chosen.width, "batch": 10, "repeats": chosen.repeats, "threads": chosen.threads}
    measured = measure(sizes, chosen.rounds, chosen.batches, Console())
    console = Console(record=True, width=100, highlight=False)
    show(console, measured)
    folder = chosen.folder or ROOT / "benchmarks" / "results" / f"{date.today():%Y-%m-%d}_rivals"
    keep(folder, console.export_text(), measured, chosen.folder)
    print(f"\nkept in {folder}")


if __name__ == "__main__":
    main()
