"""When a run is saved: by count if that was asked for, else in a fiftieth of the time."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from encore import checkpoint, keeper, registry
from encore.data.opening import Choice, open_images
from encore.display import Quiet
from encore.image_store import ImageStore
from encore.interfaces import Feedback
from encore.keeper import Interrupted, Keeper
from encore.run import Run, run_one
from encore.settings import RehearsalSettings, RunSettings, StreamSettings, TrainingSettings

STEP = 0.4  # seconds of the clock for each incoming batch


class Clock(Quiet):
    """Goes on by a step with each batch that is shown, and by more when something is saved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, saving_takes: float) -> None:
        self.now = 0.0
        self.saved_at: list[float] = []
        self.saving_takes = saving_takes
        monkeypatch.setattr(keeper, "monotonic", lambda: self.now)
        monkeypatch.setattr(checkpoint, "save", self.save)

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        self.now += STEP

    def save(self, path: Path, *described: object) -> None:
        self.saved_at.append(self.now)
        self.now += self.saving_takes


def make_run(every: int | None) -> Run:
    settings = RunSettings(
        StreamSettings(batch_size=40, first_tasks=2),
        RehearsalSettings(memory_size=20, memory_batch_size=5),
        training=TrainingSettings(device="cpu", checkpoint_every=every),
        part_options={"model.width": 2},
    )
    benchmark = registry.make("benchmark", "digits")
    images = open_images(Choice(benchmark, {}, None), 0, print)
    return Run(settings, 0, benchmark, ImageStore(images, torch.device("cpu")), torch.device("cpu"))


def train(run: Run, folder: Path, clock: Clock, signals: Sequence[int] = ()) -> None:
    kept = Keeper(run, folder, folder, clock, list(signals))
    kept.restore()
    for _ in run_one(run, kept):
        pass


@pytest.mark.parametrize(("saving_takes", "side_by_side"), [(0.001, 1), (0.05, 1), (0.01, 8)])
def test_saving_takes_a_fiftieth_of_the_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saving_takes: float, side_by_side: int
) -> None:
    run, clock = make_run(every=None), Clock(monkeypatch, saving_takes)
    run.side_by_side = side_by_side
    train(run, tmp_path, clock)
    between = max(1.0, 50 * side_by_side * saving_takes)
    gaps = [later - earlier for earlier, later in zip(clock.saved_at, clock.saved_at[1:], strict=False)]
    assert all(between <= gap <= between + saving_takes + STEP for gap in gaps)
    assert 1.0 <= clock.saved_at[0] <= 1.0 + STEP
    assert clock.saved_at[-1] + between + STEP > clock.now


def test_counted_batches_are_kept_to_and_ends_of_tasks_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, clock = make_run(every=3), Clock(monkeypatch, 1000.0)
    train(run, tmp_path, clock)
    per_task = [len(task.train) // 40 + (len(task.train) % 40 > 0) for task in run.stream.tasks]
    assert len(clock.saved_at) == sum(count // 3 + 2 for count in per_task)


def test_who_asks_to_stop_is_not_kept_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, clock = make_run(every=None), Clock(monkeypatch, 1000.0)
    with pytest.raises(Interrupted):
        train(run, tmp_path, clock, [signal.SIGTERM])
    assert (run.batch, len(clock.saved_at)) == (1, 1)
