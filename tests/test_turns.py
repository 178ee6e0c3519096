from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers import assert_same_state

from encore import checkpoint, launch
from encore.display import Quiet
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Feedback
from encore.keeper import Interrupted
from encore.run import Run
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings
from encore.turns import take_turns

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]


def read_records(directory: Path) -> list[dict[str, Any]]:
    paths = sorted(directory.glob("seed-*/record.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def settings(device: str = "cpu", **rehearsal: Any) -> RunSettings:
    return RunSettings(
        StreamSettings(first_tasks=2),
        RehearsalSettings(memory_size=20, **rehearsal),
        PlanSettings(repeats=2, num_ops=1),
        TrainingSettings(device=device, checkpoint_every=7),
        {"model.width": 2},
    )


@pytest.fixture
def same_bits() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("same_bits")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_run_alone_is_the_same_run_among_eight(tmp_path: Path, device: str) -> None:
    launch.start(settings(device), [5], tmp_path / "alone", Quiet())
    launch.start(settings(device), range(8), tmp_path / "among", Quiet(), parallel=8)
    alone, among = (
        checkpoint.load(tmp_path / name / "seed-5" / "learner.encore", "learner")[1]
        for name in ("alone", "among")
    )
    assert_same_state(alone, among)
    records = {record["seed"]: record for record in read_records(tmp_path / "among")}
    assert records[5]["accuracy_matrix"] == read_records(tmp_path / "alone")[0]["accuracy_matrix"]
    assert records[5]["processes"][0]["side_by_side"] == 8
    assert len({str(record["accuracy_matrix"]) for record in records.values()}) == 8, "seeds differ"


def test_different_settings_take_turns_over_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores: list[ImageStore] = []

    def note(*arguments: Any) -> ImageStore:
        stores.append(ImageStore(*arguments))
        return stores[-1]

    monkeypatch.setattr(launch, "ImageStore", note)
    groups = [
        launch.Group(settings(), [0, 1], tmp_path / "half"),
        launch.Group(settings(retrieval="uniform", memory_batch_size=3), [0], tmp_path / "small"),
    ]
    launch.start_all(groups, Quiet(), parallel=3)
    assert len(stores) == 1
    assert [len(read_records(group.directory)) for group in groups] == [2, 1]


def test_runs_take_turns_and_the_next_begins_when_one_ends() -> None:
    order: list[str] = []

    def run(name: str, length: int) -> Iterator[bool]:
        for _ in range(length):
            order.append(name)
            yield False

    take_turns((run(name, length) for name, length in (("a", 3), ("b", 1), ("c", 2))), torch.device("cpu"), 2)
    assert "".join(order) == "abaacc"


class SlowStream:
    """Stands for a GPU's stream: a batch is done when it has been asked after so many times."""

    def __init__(self, questions_per_batch: int) -> None:
        self.questions_per_batch = questions_per_batch

    def record_event(self) -> Any:
        return SlowStream(self.questions_per_batch)

    def query(self) -> bool:
        self.questions_per_batch -= 1
        return self.questions_per_batch < 0


def test_run_ahead_of_the_gpu_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def run(name: str, length: int, needs_last: bool = False) -> Iterator[bool]:
        for _ in range(length):
            order.append(name)
            yield needs_last

    streams = iter((SlowStream(5), SlowStream(0)))
    monkeypatch.setattr("encore.turns._own_stream", lambda device, at_once: next(streams))
    monkeypatch.setattr("torch.cuda.stream", lambda stream: nullcontext())
    take_turns(iter((run("a", 4), run("b", 9))), torch.device("cpu"), 2)
    assert "".join(order) == "ababbbbbabbba", "two of a's batches lie on the GPU before it waits"

    order.clear()
    streams = iter((SlowStream(2), SlowStream(0)))
    take_turns(iter((run("a", 3, needs_last=True), run("b", 6))), torch.device("cpu"), 2)
    assert "".join(order) == "abbbabbba", "a needs what its last batch gave"


def test_all_runs_are_saved_when_asked_to_stop(tmp_path: Path) -> None:
    class Impatient(Quiet):
        batches = 0

        def after_batch(self, run: Run, feedback: Feedback) -> None:
            self.batches += 1
            if self.batches == 30:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        launch.start(settings(), [0, 1, 2], tmp_path / "runs", Impatient(), parallel=3)
    for seed in (0, 1, 2):
        state = checkpoint.load(tmp_path / "runs" / f"seed-{seed}" / "checkpoint.encore", "run")[1]
        assert state["batch"] in (10, 11)
    launch.resume(tmp_path / "runs", Quiet(), parallel=2)
    launch.start(settings(), [1], tmp_path / "whole", Quiet())
    whole, resumed = read_records(tmp_path / "whole")[0], read_records(tmp_path / "runs")[1]
    assert resumed["accuracy_matrix"] == whole["accuracy_matrix"]


def test_number_of_runs_at_a_time_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match="--parallel"):
        launch.start(settings(), [0], tmp_path / "runs", Quiet(), parallel=0)
    assert not (tmp_path / "runs").exists()
