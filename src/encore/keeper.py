"""Keeping a run safe while it goes: its checkpoints, its final files, and what to do when asked to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Protocol, Self

from encore import checkpoint
from encore.errors import EncoreError
from encore.files import leftovers, remove, write_json
from encore.interfaces import Feedback
from encore.record import describe_controller, describe_process, make_record, peak_memory
from encore.run import Run


class Display(Protocol):
    """Shows runs to a person, from when it is entered to when it is left."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...

    def note(self, sentence: str) -> None: ...

    def start(self, run: Run) -> None: ...

    def after_batch(self, run: Run, feedback: Feedback) -> None: ...

    def after_task(self, run: Run) -> None: ...

    def finish(self, run: Run) -> None: ...

    def skip(self, seed: int) -> None: ...


LEAST_BETWEEN = 1.0  # seconds
SHARE_FOR_SAVING = 0.02  # of the time, at most


class Interrupted(Exception):  # noqa: N818 - what happened is no error
    """A signal asked to stop, and the run has been saved."""

    def __init__(self, signal_number: int, run: Run, directory: Path) -> None:
        super().__init__(signal_number, run, directory)
        self.signal_number = signal_number
        self.run = run
        self.directory = directory


def is_finished(folder: Path) -> bool:
    """Whether the run of a folder has left its record, which comes last."""
    return (folder / "record.json").is_file()


def clear_leftovers(folder: Path) -> None:
    """Remove what a kill left half written, and the checkpoint of a run that is finished."""
    for leftover in leftovers(folder):
        remove(leftover)
    if is_finished(folder):
        (folder / "checkpoint.encore").unlink(missing_ok=True)


class Keeper:
    """Saves one run as it goes, and stops it when a signal has asked for that."""

    def __init__(self, run: Run, folder: Path, directory: Path, display: Display, signals: list[int]) -> None:
        self.run, self.folder, self.directory = run, folder, directory
        self.display, self.signals = display, signals
        self.checkpoint = folder / "checkpoint.encore"
        self.described = {"settings": run.settings.to_json(), "seed": run.seed}
        self.every = run.settings.training.checkpoint_every
        self.due = 0.0  # when to save again, where it is not counted in batches

    def restore(self) -> None:
        """Bring the run to its last checkpoint, if it has one."""
        if self.checkpoint.is_file():
            described, state = checkpoint.load(self.checkpoint, "run")
            if described != self.described:
                raise EncoreError(
                    f"{self.checkpoint} belongs to another configuration than {self.directory}/config.json: "
                    f"{_name_difference(described, self.described)}; put the right one back, or delete it"
                )
            with checkpoint.understood(self.checkpoint):
                self.run.load_state_dict(state)
        self.run.processes.append(describe_process(self.run))
        self.run.start_clock()
        self.due = monotonic() + LEAST_BETWEEN

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        """Show the batch; save when it is time, or when asked to stop."""
        self.display.after_batch(run, feedback)
        if self._is_time(self.every is not None and run.batch % self.every == 0):
            self._save()

    def before_evaluation(self, run: Run) -> None:
        """Save, as an evaluation may take longer than whoever asked to stop is ready to wait."""
        if self._is_time(self.every is not None):
            self._save()

    def after_task(self, run: Run) -> None:
        """Show the task and save."""
        self.display.after_task(run)
        if self._is_time(self.every is not None):
            self._save()

    def finish(self, keeps_learner: bool = True) -> None:
        """Leave the learner, the actions and the record; the checkpoint has done its work."""
        self.run.processes[-1].update(peak_memory(self.run.learner.device))
        if keeps_learner:
            self.run.learner.save(self.folder / "learner.encore")
        self.run.actions.save(self.folder, describe_controller(self.run))
        write_json(self.folder / "record.json", make_record(self.run))
        clear_leftovers(self.folder)

    def _is_time(self, is_counted: bool) -> bool:
        """Whether to save now: it is counted so, or long enough ago, or somebody waits for it."""
        return is_counted or bool(self.signals) or (self.every is None and monotonic() >= self.due)

    def _save(self) -> None:
        begun = monotonic()
        self.run.processes[-1].update(peak_memory(self.run.learner.device))
        checkpoint.save(self.checkpoint, "run", self.described, self.run.state_dict())
        self.run.count_seconds("saving")
        # While one of several runs by turns is saved, the others wait.
        took, sharing = monotonic() - begun, self.run.side_by_side
        self.due = begun + max(LEAST_BETWEEN, took * sharing / SHARE_FOR_SAVING)
        if self.signals and not self.run.is_finished:
            raise Interrupted(self.signals[0], self.run, self.directory)


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one is obeyed at once."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted  # only the main thread may handle signals
        return

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


def _name_difference(found: Any, wanted: Any, name: str = "") -> str:
    """Say where two descriptions differ first, in a few words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*wanted, *found]:
            if found.get(key) != wanted.get(key):
                return _name_difference(found.get(key), wanted.get(key), f"{name}.{key}".lstrip("."))
    return f"{name} is {found!r} there and {wanted!r} here"
