"""Whatever stops a run between the last batch of a task and its evaluation, the task ends once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.helpers import assert_same_state

from encore import registry
from encore.data.opening import Choice, open_images
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.interfaces import Feedback
from encore.run import Run, run_one
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings


def make_run(method: str, controller: str = "fixed") -> Run:
    settings = RunSettings(
        StreamSettings(batch_size=60, first_tasks=3, epochs=1),
        RehearsalSettings(method=method, memory_size=20, memory_batch_size=5),
        PlanSettings(controller=controller),
        TrainingSettings(device="cpu"),
        {"model.width": 2},
    )
    benchmark = registry.make("benchmark", "digits")
    images = open_images(Choice(benchmark, {}, None), 0, print)
    return Run(settings, 0, benchmark, ImageStore(images, torch.device("cpu")), torch.device("cpu"))


class Watching:
    """Keeps the state that would be saved before the second evaluation."""

    state: Any = None

    def after_batch(self, run: Run, feedback: Feedback) -> None:
        pass

    def before_evaluation(self, run: Run) -> None:
        if run.task == 1:
            self.state = copy.deepcopy(run.state_dict())

    def after_task(self, run: Run) -> None:
        pass


@pytest.mark.parametrize("method", registry.names("method"))
def test_run_resumed_from_before_an_evaluation_ends_the_same(method: str) -> None:
    whole, resumed, watching = make_run(method), make_run(method), Watching()
    for _ in run_one(whole, watching):
        pass
    resumed.load_state_dict(watching.state)
    for _ in run_one(resumed, Watching()):
        pass
    assert resumed.accuracy == whole.accuracy
    assert_same_state(resumed.learner.state_dict(), whole.learner.state_dict())


@pytest.mark.parametrize("method", ["finetune", "lwf"])
@pytest.mark.parametrize("controller", ["bpg", "bpg_published"])
def test_bandit_is_refused_where_nothing_is_remembered(method: str, controller: str) -> None:
    sentence = f"the controller {controller} watches how well .* retention nothing keeps nothing: use"
    with pytest.raises(EncoreError, match=sentence):
        make_run(method, controller)
