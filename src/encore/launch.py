"""Starting and resuming the runs of a directory, so that they survive whatever stops the process.

DIR/config.json              the settings and the seeds
DIR/seed-0/checkpoint.encore where the run stands, while it is unfinished
DIR/seed-0/learner.encore    the learner at the end: `Learner.load` reads it
DIR/seed-0/record.json       what came out
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import torch

from encore import registry
from encore.config import choose_run_part, settle_usual
from encore.data.benchmark import Benchmark
from encore.data.opening import Choice, open_images
from encore.device import MOST_THREADS, choose_threads, resolve_device
from encore.errors import EncoreError
from encore.execution import resolve_precision
from encore.files import locked, write_json
from encore.image_store import ImageStore
from encore.keeper import Display, Keeper, clear_leftovers, is_finished, signals_noted
from encore.processor import keep_freed_memory
from encore.randomness import Randomness
from encore.run import Run, run_one
from encore.settings import RunSettings
from encore.turns import take_turns
from encore.values import whole_number
from encore.version import VERSION

MOST_PARALLEL_UNASKED = 8  # runs that share a GPU; nothing above that has been measured
LARGEST_SHARED = 84 * 84  # pixels of an image, above which one run may fill a GPU


class Group(NamedTuple):
    """Runs of the same settings, one for each seed, in a directory."""

    settings: RunSettings
    seeds: Sequence[int]
    directory: Path


def start(
    settings: RunSettings,
    seeds: Sequence[int],
    directory: Path,
    display: Display,
    parallel: int | None = None,
) -> None:
    """Train one run for each seed into a directory that does not exist yet, or is empty."""
    start_all([Group(settings, seeds, directory)], display, parallel)


def start_all(groups: Sequence[Group], display: Display, parallel: int | None = None) -> None:
    """Train several groups of runs, each into a directory of its own, so many runs at a time."""
    _check_parallel(parallel)
    jobs = []
    shelf: dict[str, ImageStore] = {}
    for group in groups:
        jobs += _prepare(group, display, shelf, num_groups=len(groups))
    _run_all(jobs, display, parallel)


def _prepare(group: Group, display: Display, shelf: dict[str, ImageStore], num_groups: int) -> list[_Job]:
    settings, seeds, directory = group
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise EncoreError(f"seeds must be one or more different numbers, got {list(seeds)}")
    _refuse_what_is_there(directory)
    workshop = _Workshop(settings, display, shelf)
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
    return _jobs(workshop, seeds, directory, num_groups)


def resume(directory: Path, display: Display, parallel: int | None = None) -> None:
    """Finish whatever in a directory is unfinished: one with runs, or one that holds such directories."""
    resume_all(find_groups(directory), display, parallel)


def resume_all(directories: Sequence[Path], display: Display, parallel: int | None = None) -> None:
    """Finish whatever in these directories of runs is unfinished."""
    _check_parallel(parallel)
    jobs: list[_Job] = []
    shelf: dict[str, ImageStore] = {}
    for directory in directories:
        settings, seeds = read_directory(directory)
        folders = {seed: directory / f"seed-{seed}" for seed in seeds}
        if all(is_finished(folder) for folder in folders.values()):
            for seed, folder in folders.items():
                clear_leftovers(folder)
                display.skip(seed)
        else:
            jobs += _jobs(_Workshop(settings, display, shelf), seeds, directory, len(directories))
    _run_all(jobs, display, parallel)


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

    def __init__(self, settings: RunSettings, display: Display, shelf: dict[str, ImageStore]) -> None:
        self.device = resolve_device(settings.training.device)
        keep_freed_memory()
        whole_number("checkpoint_every", settings.training.checkpoint_every, lowest=1)
        chosen = choose_run_part(settings, "benchmark")
        self.benchmark: Benchmark = registry.make("benchmark", chosen.name, **chosen.options)
        data_dir = Path(settings.stream.data_dir) if settings.stream.data_dir is not None else None
        skip_broken = whole_number("skip_broken", settings.stream.skip_broken, lowest=0)
        same_images = repr((chosen, data_dir, skip_broken, self.device))
        if same_images not in shelf:
            images = open_images(Choice(self.benchmark, chosen.options, data_dir), skip_broken, display.note)
            shelf[same_images] = ImageStore(images, self.device, skip_broken)
        self.store = shelf[same_images]
        threads = settings.training.threads
        if threads is None:
            threads = choose_threads(self.store.image_shape)
        torch.set_num_threads(whole_number("the number of threads", threads, 1, MOST_THREADS))
        self.settings = _settle(settings, self.device, threads)

    def make_run(self, seed: int) -> Run:
        """Return a seed's run, at its beginning."""
        return Run(self.settings, seed, self.benchmark, self.store, self.device)


class _Job(NamedTuple):
    """One run that is to be done."""

    workshop: _Workshop
    seed: int
    name: str
    directory: Path
    folder: Path


def _jobs(workshop: _Workshop, seeds: Sequence[int], directory: Path, num_groups: int) -> list[_Job]:
    prefix = f"{directory.name}  " if num_groups > 1 else ""
    return [
        _Job(workshop, seed, f"{prefix}seed {seed}", directory, directory / f"seed-{seed}") for seed in seeds
    ]


def _settle(settings: RunSettings, device: torch.device, threads: int) -> RunSettings:
    """Return the settings with what would turn out otherwise where a run is resumed."""
    settings = settle_usual(settings)
    data_dir = settings.stream.data_dir
    if data_dir is not None:
        data_dir = str(Path(data_dir).absolute())
    return replace(
        settings,
        stream=replace(settings.stream, data_dir=data_dir),
        training=replace(
            settings.training,
            device=str(device),
            threads=threads,
            precision=resolve_precision(settings.training.precision, device),
        ),
    )


def _run_all(jobs: Sequence[_Job], display: Display, parallel: int | None) -> None:
    if not jobs:
        return
    first = jobs[0].workshop
    if parallel is None:
        parallel = choose_parallel(first.device, first.store.image_shape)
    at_once = min(parallel, len(jobs))
    with signals_noted() as signals:
        runs = (_work(job, display, signals, at_once) for job in jobs)
        take_turns(runs, first.device, at_once)


def _check_parallel(parallel: int | None) -> None:
    if parallel is not None:
        whole_number("the number of runs at a time (--parallel)", parallel, lowest=1)


def choose_parallel(device: torch.device, image_shape: tuple[int, int, int]) -> int:
    """Return how many runs share a device unasked: several where the work of one does not fill it.

    >>> choose_parallel(torch.device("cpu"), (3, 32, 32)), choose_parallel(torch.device("cuda"), (3, 32, 32))
    (1, 8)
    """
    is_small = image_shape[1] * image_shape[2] <= LARGEST_SHARED
    return MOST_PARALLEL_UNASKED if device.type == "cuda" and is_small else 1


def _work(job: _Job, display: Display, signals: list[int], at_once: int) -> Iterator[None]:
    """Bring one run to its end, unless it is there already."""
    folder = job.folder
    folder.mkdir(exist_ok=True)
    with locked(folder / ".lock", f"another process is working on {folder}: wait for it or stop it"):
        clear_leftovers(folder)
        if is_finished(folder):
            display.skip(job.seed)
            return
        run = job.workshop.make_run(job.seed)
        run.name, run.side_by_side = job.name, at_once
        keeper = Keeper(run, folder, job.directory, display, signals)
        keeper.restore()
        display.start(run)
        yield from run_one(run, keeper)
        keeper.finish()
        display.finish(run)
