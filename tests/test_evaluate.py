"""Test accuracy on each task, however many images go through the network at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from encore import launch
from encore.display import Quiet
from encore.evaluate import evaluate
from encore.learner import Learner
from encore.run import Run
from encore.settings import RehearsalSettings, RunSettings, StreamSettings, TrainingSettings


@pytest.fixture(scope="module")
def run() -> Run:
    """Return a run in the middle of its third task."""
    settings = RunSettings(
        StreamSettings(batch_size=50),
        RehearsalSettings(memory_size=30),
        training=TrainingSettings(device="cpu"),
        part_options={"model.width": 3},
    )
    run = launch.make_run(settings, 1, Quiet(), {})
    for task in range(3):
        for batch in run.stream.batches(task, 50, start=0):
            run.learner.observe(batch.images, batch.labels)
    return run


@pytest.mark.parametrize("at_a_time", [1, 100, 1000])
def test_equals_what_is_counted_image_by_image(
    run: Run, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "images_at_a_time", at_a_time)
    expected, sizes = [], []
    for task in range(3):
        batches = [*run.stream.test_batches(task)]
        known = [
            int(run.learner.predict(image[None])[0]) == int(label)
            for batch in batches
            for image, label in zip(batch.images, batch.labels, strict=True)
        ]
        sizes.append(len(known))
        expected.append(sum(known) / len(known))
    passes: list[int] = []
    predict = Learner.predict

    def counted(self: Learner, images: Tensor) -> Tensor:
        passes.append(len(images))
        return predict(self, images)

    monkeypatch.setattr(Learner, "predict", counted)
    assert evaluate(run.learner, run.stream, num_seen=3) == [*expected, 0.0, 0.0]
    assert 0 < min(expected) < max(expected) < 1
    together = {1: sizes, 100: [sizes[0] + sizes[1], sizes[2]], 1000: [sum(sizes)]}
    assert passes == together[at_a_time]


def test_only_tasks_that_were_seen_are_tested(run: Run) -> None:
    assert [value > 0 for value in evaluate(run.learner, run.stream, num_seen=1)] == [True, *[False] * 4]
    assert evaluate(run.learner, run.stream, num_seen=0) == [0.0] * 5


def test_learner_is_as_before(run: Run) -> None:
    before = {name: value.clone() for name, value in run.learner.model.state_dict().items()}
    evaluate(run.learner, run.stream, num_seen=2)
    assert run.learner.model.training
    for name, value in run.learner.model.state_dict().items():
        assert torch.equal(value, before[name]), name
