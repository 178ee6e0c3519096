"""Starting and resuming the runs of a directory, so that they survive whatever stops the process.

DIR/config.json              the settings and the seeds
DIR/seed-0/checkpoint.encore where the run stands, while it is unfinished
DIR/seed-0/actions.encore    what was chosen for each incoming batch, and what came of it
DIR/seed-0/learner.encore    the learner at the end: `Learner.load` reads it
DIR/seed-0/record.json       what came out
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import torch

from encore import registry
from encore.config import choose_run_part, settle_controller, settle_usual
from encore.data.benchmark import Benchmark
from encore.data.opening import Choice, open_images
from encore.device import MOST_THREADS, choose_threads, resolve_device
from encore.errors import EncoreError
from encore.execution import resolve_precision
from encore.files import locked, write_json
from encore.image_store import ImageStore
from encore.interfaces import Plan
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


Shelf = dict[str, ImageStore]  # the images of a benchmark, read once for all runs


@dataclass(frozen=True)
class Group:
    """Runs of the same settings, one for each seed, in a directory."""

    settings: RunSettings
    seeds: Sequence[int]
    directory: Path
    plans: Mapping[int, Plan] = field(default_factory=dict)  # of seeds that have another than the settings'
    keeps_learners: bool = True  # whether the learner stays beside the record at the end


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
    check_parallel(parallel)
    jobs = []
    shelf: Shelf = {}
    for group in groups:
        jobs += _prepare(group, display, shelf, num_groups=len(groups))
    _run_all(jobs, display, parallel)


def finish_all(groups: Sequence[Group], display: Display, parallel: int | None, shelf: Shelf) -> None:
    """Bring groups of runs to their end, wherever they stand: those that were not begun are begun."""
    check_parallel(parallel)
    jobs = []
    for group in groups:
        directory, keeps_learners = group.directory, group.keeps_learners
        is_begun = (directory / "config.json").is_file()
        group = replace(read_group(directory), keeps_learners=keeps_learners) if is_begun else group
        if not all(is_finished(directory / f"seed-{seed}") for seed in group.seeds):
            workshop = _Workshop(group.settings, display, shelf)
            if not is_begun:
                directory.mkdir(parents=True, exist_ok=True)
                _describe(workshop, group)
            jobs += _jobs(workshop, group, len(groups))
    _run_all(jobs, display, parallel)


def make_run(settings: RunSettings, seed: int, display: Display, shelf: Shelf) -> Run:
    """Return a run at its beginning, whose settings are as they would be written: wrong ones are refused."""
    return _Workshop(settings, display, shelf).make_run(seed)


def create_directory(directory: Path) -> None:
    """Create a directory for runs, or refuse one that holds something."""
    refuse_what_is_there(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EncoreError(f"{directory} cannot be created: {error.strerror}; choose another --out") from error


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that are none, or of which two are the same."""
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise EncoreError(f"seeds must be one or more different numbers, got {list(seeds)}")
    for seed in seeds:
        Randomness(seed)


def _prepare(group: Group, display: Display, shelf: Shelf, num_groups: int) -> list[_Job]:
    seeds, directory = group.seeds, group.directory
    check_seeds(seeds)
    refuse_what_is_there(directory)
    workshop = _Workshop(group.settings, display, shelf)
    workshop.make_run(seeds[0])  # so that wrong settings are refused before anything is written
    create_directory(directory)
    busy = f"another process is starting runs in {directory}: choose another --out"
    with locked(directory / ".lock", busy):
        refuse_what_is_there(directory)  # again: another process may have been faster
        _describe(workshop, group)
    return _jobs(workshop, group, num_groups)


def _describe(workshop: _Workshop, group: Group) -> None:
    """Write what is needed to go on."""
    described = {"encore": VERSION, "settings": workshop.settings.to_json(), "seeds": list(group.seeds)}
    if group.plans:
        described["plans"] = {str(seed): asdict(plan) for seed, plan in group.plans.items()}
    write_json(group.directory / "config.json", described)


def resume(directory: Path, display: Display, parallel: int | None = None) -> None:
    """Finish whatever in a directory is unfinished: one with runs, or one that holds such directories."""
    resume_all(find_groups(directory), display, parallel)


def resume_all(directories: Sequence[Path], display: Display, parallel: int | None = None) -> None:
    """Finish whatever in these directories of runs is unfinished."""
    check_parallel(parallel)
    jobs: list[_Job] = []
    shelf: Shelf = {}
    for directory in directories:
        group = read_group(directory)
        folders = {seed: directory / f"seed-{seed}" for seed in group.seeds}
        if all(is_finished(folder) for folder in folders.values()):
            for seed, folder in folders.items():
                clear_leftovers(folder)
                display.skip(seed)
        else:
            jobs += _jobs(_Workshop(group.settings, display, shelf), group, len(directories))
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
    group = read_group(directory)
    return group.settings, list(group.seeds)


def read_group(directory: Path) -> Group:
    """Return what the runs of a directory are."""
    path = directory / "config.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        seeds = [whole_number("a seed", seed, 0, 2**63 - 1) for seed in described["seeds"]]
        plans = {int(seed): Plan(**plan) for seed, plan in described.get("plans", {}).items()}
        return Group(RunSettings.from_json(described["settings"]), seeds, directory, plans)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EncoreError(
            f"{path} is damaged or of another version of Encore ({error}); restore it, or start a new run"
        ) from error


def refuse_what_is_there(directory: Path) -> None:
    """Refuse a place that holds anything but what a killed process had not finished writing."""
    if not directory.exists():
        return
    if not directory.is_dir() or any(not path.name.startswith(".") for path in directory.iterdir()):
        resumable = any((directory / name).is_file() for name in ("config.json", "search.json"))
        advice = f", or go on with `encore resume {quote(str(directory))}`" if resumable else ""
        raise EncoreError(f"{directory} exists already: choose another --out{advice}")


class _Workshop:
    """What all runs of a directory share: the device, the benchmark and its images, read once."""

    def __init__(self, settings: RunSettings, display: Display, shelf: Shelf) -> None:
        self.device = resolve_device(settings.training.device)
        keep_freed_memory()
        if settings.training.checkpoint_every is not None:
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

    def make_run(self, seed: int, plan: Plan | None = None) -> Run:
        """Return a seed's run, at its beginning, with the settings' plan or another."""
        settings = self.settings if plan is None else with_plan(self.settings, plan)
        return Run(settings, seed, self.benchmark, self.store, self.device)


class _Job(NamedTuple):
    """One run that is to be done."""

    workshop: _Workshop
    seed: int
    name: str
    folder: Path
    group: Group


def _jobs(workshop: _Workshop, group: Group, num_groups: int) -> list[_Job]:
    directory = group.directory
    prefix = f"{directory.name}  " if num_groups > 1 else ""
    return [
        _Job(workshop, seed, f"{prefix}seed {seed}", directory / f"seed-{seed}", group)
        for seed in group.seeds
    ]


def with_plan(settings: RunSettings, plan: Plan) -> RunSettings:
    """Return the settings with another plan."""
    return replace(settings, plan=replace(settings.plan, **asdict(plan)))


def _settle(settings: RunSettings, device: torch.device, threads: int) -> RunSettings:
    """Return the settings with what would turn out otherwise where a run is resumed."""
    settings = settle_controller(settle_usual(settings))
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


def check_parallel(parallel: int | None) -> None:
    """Refuse a number of runs at a time that is none."""
    if parallel is not None:
        whole_number("the number of runs at a time (--parallel)", parallel, lowest=1)


def choose_parallel(device: torch.device, image_shape: tuple[int, int, int]) -> int:
    """Return how many runs share a device unasked: several where the work of one does not fill it.

    >>> choose_parallel(torch.device("cpu"), (3, 32, 32)), choose_parallel(torch.device("cuda"), (3, 32, 32))
    (1, 8)
    """
    is_small = image_shape[1] * image_shape[2] <= LARGEST_SHARED
    return MOST_PARALLEL_UNASKED if device.type == "cuda" and is_small else 1


def _work(job: _Job, display: Display, signals: list[int], at_once: int) -> Iterator[bool]:
    """Bring one run to its end, unless it is there already."""
    folder = job.folder
    folder.mkdir(exist_ok=True)
    with locked(folder / ".lock", f"another process is working on {folder}: wait for it or stop it"):
        clear_leftovers(folder)
        if is_finished(folder):
            display.skip(job.seed)
            return
        run = job.workshop.make_run(job.seed, job.group.plans.get(job.seed))
        run.name, run.side_by_side = job.name, at_once
        keeper = Keeper(run, folder, job.group.directory, display, signals)
        keeper.restore()
        display.start(run)
        yield from run_one(run, keeper)
        keeper.finish(job.group.keeps_learners)
        display.finish(run)
