"""Whole runs on a GPU, with all evaluations: alone, eight side by side, and what the eager engine learns.

    python -m benchmarks.whole_runs                    all parts, then the tables
    python -m benchmarks.whole_runs ready alone eight  some; the tables hold all that has been measured

ER and ER-RAR (K = 10, one operation) on CIFAR-100, 20 tasks, memory 2,000. Each part starts the command
`encore run`, as a user does, and the clock runs from before it is started until it has ended. The eager runs
are there for their accuracy: they are processes side by side, and their seconds say nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.evidence import WORK, carry_out, describe, folder_of, keep_records
from encore.errors import EncoreError
from encore.files import write_json
from encore.launch import read_group
from encore.metrics import mean_and_deviation
from encore.tables import make_table

STREAM = ["--benchmark", "cifar100", "--memory-size", "2000"]
METHODS = {"er-rar": ["--repeats", "10", "--num-ops", "1", "--magnitude", "14"], "er": []}
AUTHORS = {"er-rar": 1005, "er": 240}  # seconds of a run of the authors' code, on the same kind of GPU
FIRST = 1259051
EIGHT = tuple(range(FIRST, FIRST + 8))
THREE = EIGHT[:3]  # seeds of the eager runs
PARTS = ("ready", "alone", "eight", "eager")


class Started(NamedTuple):
    """A command that is at work."""

    name: str
    process: subprocess.Popen[bytes]
    begun: float
    num_runs: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Do the parts that are asked for, then print and keep the tables of all that is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_runs")
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parts = parser.parse_args(arguments).parts or PARTS
    unknown = sorted({*parts} - {*PARTS})
    if unknown:
        raise EncoreError(f"there is no part {unknown[0]!r} (known: {', '.join(PARTS)})")
    work = WORK / "whole_runs"
    work.mkdir(parents=True, exist_ok=True)
    for part in parts:
        {"ready": make_ready, "alone": alone, "eight": eight, "eager": eager}[part](work)
    show(work)


def make_ready(work: Path) -> None:
    """Have what a machine needs once, such as compiled kernels and prepared images; the first task does."""
    for name, options in METHODS.items():
        wait(work, start(work, f"ready-{name}", [*options, "--first-tasks", "1"], [FIRST]))


def alone(work: Path) -> None:
    """Run each method once, with nothing beside it."""
    for name, options in METHODS.items():
        wait(work, start(work, f"{name}-alone", options, [FIRST]))


def eight(work: Path) -> None:
    """Run eight seeds of each method in one process."""
    for name, options in METHODS.items():
        wait(work, start(work, f"{name}-eight", [*options, "--parallel", "8"], EIGHT))


def eager(work: Path) -> None:
    """Run three seeds of each method with the eager engine, all at once, each in a process of its own."""
    started = [
        start(work, f"{name}-eager-{seed}", [*options, "--engine", "eager"], [seed])
        for name, options in METHODS.items()
        for seed in THREE
    ]
    for one in started:
        wait(work, one)


def start(work: Path, name: str, options: Sequence[str], seeds: Sequence[int]) -> Started:
    """Start `encore run` into a folder of that name; what it prints goes into a file beside it."""
    directory = work / name
    command = [sys.executable, "-m", "encore", "run", *STREAM, *options, "--out", str(directory)]
    command += ["--seeds", *map(str, seeds)]
    if directory.exists():
        raise EncoreError(f"{directory} is there already: remove it to measure anew")
    with (work / f"{name}.log").open("wb") as log:
        return Started(
            name, subprocess.Popen(command, stdout=log, stderr=log), time.perf_counter(), len(seeds)
        )


def wait(work: Path, started: Started) -> None:
    """Wait for a command, and note how long it took."""
    status = started.process.wait()
    seconds = time.perf_counter() - started.begun
    log = work / f"{started.name}.log"
    if status != 0:
        raise EncoreError(f"the run {started.name} ended with {status}: {log} says why")
    write_json(work / f"{started.name}.json", {"seconds": seconds, "runs": started.num_runs})
    print(f"{started.name}: {seconds:.1f} s", flush=True)


def show(work: Path) -> None:
    """Print the tables of what is there, and keep them with records and logs."""
    console = Console(width=110, record=True, highlight=False)
    measured = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(work.glob("*.json"))}
    console.print(speed_table(work, measured))
    console.print(
        "seconds: of the command, from start to end; a run: the same by the number of runs; the shares are "
        f"those of the runs' own time; times: beside {AUTHORS['er-rar']:,} and {AUTHORS['er']} s, which the "
        "authors' code takes."
    )
    for sentence in ready_sentences(measured):
        console.print(sentence)
    accuracies = accuracy_table(work, measured)
    if accuracies.row_count:
        console.print(accuracies)
        console.print("accuracy in %; deviation: between the seeds.")
    folder = folder_of("whole_runs")
    keep_records(folder, {name: read_group(work / name) for name in measured})
    for name in measured:
        (folder / name / "log.txt").write_bytes((work / f"{name}.log").read_bytes())
    lines = "\n".join(line.rstrip() for line in console.export_text().strip("\n").splitlines())
    title = "Whole runs on a GPU: CIFAR-100, 20 tasks, memory 2,000"
    (folder / "README.md").write_text(describe("whole_runs", title, folder, lines), encoding="utf-8")
    print(f"kept in {folder}")


def speed_table(work: Path, measured: dict[str, Any]) -> Any:
    """Return a table of seconds for the runs alone and side by side."""
    table = make_table(
        "", "seconds", "a run", "times", "training\n%", "evaluation\n%", "saving\n%", "accuracy\n%"
    )
    for method, authors in AUTHORS.items():
        for name in (f"{method}-alone", f"{method}-eight"):
            if name not in measured:
                continue
            records = [*_records(work, name)]
            a_run = measured[name]["seconds"] / measured[name]["runs"]
            spent = {
                kind: sum(sum(record["seconds_per_task"][kind]) for record in records)
                for kind in ("training", "evaluation", "saving")
            }
            accuracy = mean_and_deviation([100 * record["metrics"]["average_accuracy"] for record in records])
            table.add_row(
                name,
                f"{measured[name]['seconds']:.1f}",
                f"{a_run:.1f}",
                f"{authors / a_run:.0f}",
                *(f"{100 * seconds / sum(spent.values()):.1f}" for seconds in spent.values()),
                f"{accuracy.mean:.1f}" + (f" ± {accuracy.deviation:.1f}" if len(records) > 1 else ""),
            )
    return table


def ready_sentences(measured: dict[str, Any]) -> Iterator[str]:
    """Yield what the first task of the first run took, which includes what a machine needs once."""
    for method in METHODS:
        if f"ready-{method}" in measured:
            seconds = measured[f"ready-{method}"]["seconds"]
            yield f"{method}: its first task alone, before all else, took {seconds:.1f} s."


def accuracy_table(work: Path, measured: dict[str, Any]) -> Any:
    """Return a table of the eager runs beside those of the same seeds of the eight."""
    table = make_table("", *(str(seed) for seed in THREE), "mean", "deviation")
    for method in METHODS:
        sources = {
            "eager": [f"{method}-eager-{seed}" for seed in THREE],
            "graph": [f"{method}-eight"],
        }
        if not all(name in measured for names in sources.values() for name in names):
            continue
        for engine, names in sources.items():
            found = {record["seed"]: record for name in names for record in _records(work, name)}
            values = [100 * found[seed]["metrics"]["average_accuracy"] for seed in THREE]
            summary = mean_and_deviation(values)
            table.add_row(
                f"{method}, {engine}",
                *(f"{value:.2f}" for value in values),
                f"{summary.mean:.2f}",
                f"{summary.deviation:.2f}",
            )
    return table


def _records(work: Path, name: str) -> Iterator[dict[str, Any]]:
    for path in sorted((work / name).glob("seed-*/record.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    carry_out(main)
