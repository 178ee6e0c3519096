"""Starting and resuming the runs of a directory, so that they survive whatever stops the process.

DIR/config.json              the settings and the seeds
DIR/seed-0/checkpoint.encore where the run stands, while it is unfinished
DIR/seed-0/learner.encore    the learner at the end: `Learner.load` reads it
DIR/seed-0/record.json       what came out
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

import torch

from encore import registry
from encore.config import choose_run_part, settle_usual
from encore.data.benchmark import Benchmark
from encore.data.opening import Choice, open_images
from encore.device import MOST_THREADS, choose_threads, resolve_device
from encore.errors import EncoreError
from encore.files import locked, write_json
from encore.image_store import ImageStore
from encore.keeper import Display, Keeper, clear_leftovers, is_finished, signals_noted
from encore.randomness import Randomness
from encore.run import Run, run_one
from encore.settings import RunSettings
from encore.values import whole_number
from encore.version import VERSION


def start(settings: RunSettings, seeds: Sequence[int], directory: Path, display: Display) -> None:
    """Train one run for each seed into a directory that does not exist yet, or is empty."""
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise EncoreError(f"seeds must be one or more different numbers, got {list(seeds)}")
    _refuse_what_is_there(directory)
    workshop = _Workshop(settings, display)
    settings = workshop.settings
    for seed in seeds:
        Randomness(seed)
    workshop.make_run(seeds[0])  # so that wrong settings are refused before anything is written
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EncoreError(f"{directory} cannot be created: {error.strerror}; choose another --out") from error
    described = {"encore": VERSION, "settings": settings.to_json(), "seeds": list(seeds)}
    busy = f"another process is starting runs in {directory}: choose another --out"
    with locked(directory / ".lock", busy):
        _refuse_what_is_there(directory)  # again: another process may have been faster
        write_json(directory / "config.json", described)
    _run_all(workshop, seeds, directory, display)


def resume(directory: Path, display: Display) -> None:
    """Finish whatever in a directory is unfinished: one with runs, or one that holds such directories."""
    for group in find_groups(directory):
        settings, seeds = read_directory(group)
        folders = {seed: group / f"seed-{seed}" for seed in seeds}
        if all(is_finished(folder) for folder in folders.values()):
            for seed, folder in folders.items():
                clear_leftovers(folder)
                display.skip(seed)
        else:
            _run_all(_Workshop(settings, display), seeds, group, display)


def find_groups(directory: Path) -> list[Path]:
    """Return the directories of runs that a directory is or holds."""
    if (directory / "config.json").is_file():
        return [directory]
    if (directory.parent / "config.json").is_file() and directory.name.startswith("seed-"):
        raise EncoreError(f"{directory} is one run of several: name the directory above, {directory.parent}")
    held = sorted(path.parent for path in directory.glob("*/config.json"))
    if not held:
        raise EncoreError(f"{directory} holds no runs; name the directory that was given as --out")
    return held


def read_directory(directory: Path) -> tuple[RunSettings, list[int]]:
    """Return the settings and the seeds of a directory of runs."""
    path = directory / "config.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        return RunSettings.from_json(described["settings"]), [
            whole_number("a seed", seed, 0, 2**63 - 1) for seed in described["seeds"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise EncoreError(
            f"{path} is damaged or of another version of Encore ({error}); restore it, or start a new run"
        ) from error


def _refuse_what_is_there(directory: Path) -> None:
    """Refuse a place that holds anything but what a killed process had not finished writing."""
    if not directory.exists():
        return
    if not directory.is_dir() or any(not path.name.startswith(".") for path in directory.iterdir()):
        resumable = (directory / "config.json").is_file()
        advice = f", or go on with `encore resume {quote(str(directory))}`" if resumable else ""
        raise EncoreError(f"{directory} exists already: choose another --out{advice}")


class _Workshop:
    """What all runs of a directory share: the device, the benchmark and its images, read once."""

    def __init__(self, settings: RunSettings, display: Display) -> None:
        self.device = resolve_device(settings.training.device)
        whole_number("checkpoint_every", settings.training.checkpoint_every, lowest=1)
        chosen = choose_run_part(settings, "benchmark")
        self.benchmark: Benchmark = registry.make("benchmark", chosen.name, **chosen.options)
        data_dir = Path(settings.stream.data_dir) if settings.stream.data_dir is not None else None
        skip_broken = whole_number("skip_broken", settings.stream.skip_broken, lowest=0)
        choice = Choice(self.benchmark, chosen.options, data_dir)
        images = open_images(choice, skip_broken, display.note)
        self.store = ImageStore(images, self.device, skip_broken)
        threads = settings.training.threads
        if threads is None:
            threads = choose_threads(self.store.image_shape)
        torch.set_num_threads(whole_number("the number of threads", threads, 1, MOST_THREADS))
        self.settings = _settle(settings, self.device, threads)

    def make_run(self, seed: int) -> Run:
        """Return a seed's run, at its beginning."""
        return Run(self.settings, seed, self.benchmark, self.store, self.device)


def _settle(settings: RunSettings, device: torch.device, threads: int) -> RunSettings:
    """Return the settings with what would turn out otherwise where a run is resumed."""
    settings = settle_usual(settings)
    data_dir = settings.stream.data_dir
    if data_dir is not None:
        data_dir = str(Path(data_dir).absolute())
    return replace(
        settings,
        stream=replace(settings.stream, data_dir=data_dir),
        training=replace(settings.training, device=str(device), threads=threads),
    )


def _run_all(workshop: _Workshop, seeds: Sequence[int], directory: Path, display: Display) -> None:
    with signals_noted() as signals:
        for seed in seeds:
            folder = directory / f"seed-{seed}"
            folder.mkdir(exist_ok=True)
            with locked(folder / ".lock", f"another process is working on {folder}: wait for it or stop it"):
                clear_leftovers(folder)
                if is_finished(folder):
                    display.skip(seed)
                else:
                    run = workshop.make_run(seed)
                    keeper = Keeper(run, folder, directory, display, signals)
                    keeper.restore()
                    display.start(run)
                    run_one(run, keeper)
                    keeper.finish()
                    display.finish(run)
