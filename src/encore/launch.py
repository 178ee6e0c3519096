"""Starting and resuming the runs of a directory, so that they survive whatever stops the process.

DIR/config.json              the settings and the seeds
DIR/seed-0/checkpoint.encore where the run stands, while it is unfinished
DIR/seed-0/learner.encore    the learner at the end: `Learner.load` reads it
DIR/seed-0/record.json       what came out
"""

from __future__ import annotations

import fcntl
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from encore import checkpoint, registry
from encore.checks import check_count
from encore.config import choose_run_part
from encore.device import choose_threads, resolve_device
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Feedback
from encore.record import describe_process, make_record, peak_memory
from encore.run import Run, run_one
from encore.settings import RunSettings
from encore.version import VERSION


class Display(Protocol):
    """Shows runs to a person."""

    def start(self, run: Run) -> None: ...

    def after_batch(self, run: Run, feedback: Feedback) -> None: ...

    def after_task(self, run: Run) -> None: ...

    def finish(self, run: Run) -> None: ...

    def skip(self, seed: int) -> None: ...


class Interrupted(Exception):  # noqa: N818 - what happened is no error
    """A signal asked to stop, and the run has been saved."""

    def __init__(self, signal_number: int, run: Run, directory: Path) -> None:
        super().__init__(signal_number, run, directory)
        self.signal_number = signal_number
        self.run = run
        self.directory = directory


def start(settings: RunSettings, seeds: Sequence[int], directory: Path, display: Display) -> None:
    """Train one run for each seed into a directory that does not exist yet, or is empty."""
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise EncoreError(f"seeds must be one or more different numbers, got {list(seeds)}")
    if directory.exists() and not _is_as_good_as_empty(directory):
        raise EncoreError(
            f"{directory} exists already: choose another --out, or go on with `encore resume {directory}`"
        )
    workshop = _Workshop(settings)
    for seed in seeds:
        workshop.make_run(seed)  # so that wrong settings are refused before anything is written
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EncoreError(f"{directory} cannot be created: {error.strerror}; choose another --out") from error
    described = {"encore": VERSION, "settings": settings.to_json(), "seeds": list(seeds)}
    checkpoint.write_json(directory / "config.json", described)
    _run_all(workshop, seeds, directory, display)


def resume(directory: Path, display: Display) -> None:
    """Finish whatever in a directory is unfinished."""
    settings, seeds = read_directory(directory)
    _run_all(_Workshop(settings), seeds, directory, display)


def read_directory(directory: Path) -> tuple[RunSettings, list[int]]:
    """Return the settings and the seeds of a directory of runs."""
    path = directory / "config.json"
    if not path.is_file():
        raise EncoreError(
            f"{directory} holds no runs: there is no {path}; name the directory that was given as --out"
        )
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        return RunSettings.from_json(described["settings"]), [int(seed) for seed in described["seeds"]]
    except (ValueError, KeyError, TypeError) as error:
        raise EncoreError(
            f"{path} is damaged or of another version of Encore ({error}); restore it, or start a new run"
        ) from error


def _is_as_good_as_empty(directory: Path) -> bool:
    """Whether a directory holds nothing, or only what a killed process had not finished writing."""
    return directory.is_dir() and all(path.name.startswith(".") for path in directory.iterdir())


class _Workshop:
    """What all runs of a directory share: the device, the benchmark and its images, read once."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.device = resolve_device(settings.training.device)
        check_count("checkpoint_every", settings.training.checkpoint_every)
        chosen = choose_run_part(settings, "benchmark")
        self.benchmark = registry.make("benchmark", chosen.name, **chosen.options)
        threads = settings.training.threads
        if threads is not None:
            check_count("the number of threads", threads)
        torch.set_num_threads(threads or choose_threads(self.benchmark.image_shape))
        data_dir = settings.stream.data_dir
        images = self.benchmark.load(Path(data_dir) if data_dir is not None else None)
        self.store = ImageStore.from_image_set(images, self.device)

    def make_run(self, seed: int) -> Run:
        """Return a seed's run, at its beginning."""
        return Run(self.settings, seed, self.benchmark, self.store, self.device)


def _run_all(workshop: _Workshop, seeds: Sequence[int], directory: Path, display: Display) -> None:
    with _signals_noted() as signals:
        for seed in seeds:
            folder = directory / f"seed-{seed}"
            folder.mkdir(exist_ok=True)
            with _locked(folder):
                if (folder / "record.json").is_file():
                    display.skip(seed)
                else:
                    run = workshop.make_run(seed)
                    keeper = _Keeper(run, folder, directory, display, signals)
                    keeper.restore()
                    display.start(run)
                    run_one(run, keeper)
                    keeper.finish()
                    display.finish(run)


class _Keeper:
    """Saves one run as it goes, and stops it when a signal has asked for that."""

    def __init__(self, run: Run, folder: Path, directory: Path, display: Display, signals: list[int]) -> None:
        self.run, self.folder, self.directory = run, folder, directory
        self.display, self.signals = display, signals
        self.checkpoint = folder / "checkpoint.encore"
        self.described = {"settings": run.settings.to_json(), "seed": run.seed}

    def restore(self) -> None:
        """Bring the run to its last checkpoint, if it has one; clear away what a kill left half written."""
        for leftover in self.folder.glob(".*.part"):
            leftover.unlink()
        if self.checkpoint.is_file():
            described, state = checkpoint.load(self.checkpoint, "run")
            if described != self.described:
                raise EncoreError(
                    f"{self.checkpoint} belongs to another configuration than {self.directory}/config.json: "
                    f"{_name_difference(described, self.described)}; put the right one back, or delete it"
                )
            self.run.load_state_dict(state)
        self.run.processes.append(describe_process(self.run))
        self.run.start_clock()

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        """Show the batch; save when it is time, or when asked to stop."""
        self.display.after_batch(run, feedback)
        if self.signals or run.batch % run.settings.training.checkpoint_every == 0:
            self._save()

    def after_task(self, run: Run) -> None:
        """Show the task and save."""
        self.display.after_task(run)
        self._save()

    def finish(self) -> None:
        """Leave the learner and the record; the checkpoint has done its work."""
        self.run.learner.save(self.folder / "learner.encore")
        checkpoint.write_json(self.folder / "record.json", make_record(self.run))
        self.checkpoint.unlink(missing_ok=True)

    def _save(self) -> None:
        self.run.processes[-1]["peak_memory_bytes"] = peak_memory()
        checkpoint.save(self.checkpoint, "run", self.described, self.run.state_dict())
        self.run.count_seconds("saving")
        if self.signals and not self.run.is_finished:
            raise Interrupted(self.signals[0], self.run, self.directory)


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one is obeyed at once."""
    noted: list[int] = []

    def note(signal_number: int, frame: FrameType | None) -> None:
        noted.append(signal_number)
        put_back()

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        put_back()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a run's directory, so that two processes never write to it; released even by a kill."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EncoreError(f"another process is working on {folder}: wait for it or stop it") from error
        yield


def _name_difference(found: Any, wanted: Any, name: str = "") -> str:
    """Say where two descriptions differ first, in a few words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*wanted, *found]:
            if found.get(key) != wanted.get(key):
                return _name_difference(found.get(key), wanted.get(key), f"{name}.{key}".lstrip("."))
    return f"{name} is {found!r} there and {wanted!r} here"
