from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from tests.helpers import NUM_CLASSES, SHAPE, assert_same_state

from encore.interfaces import Model
from encore.models.reduced_resnet18 import ReducedResNet18
from encore.normalisation import as_in_training, batch_statistics, running_statistics


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    made = ReducedResNet18(SHAPE, NUM_CLASSES, width=2)
    made(torch.rand(4, *SHAPE))  # so that running statistics are not those of the beginning
    made.stages[1].eval()  # a part that somebody has frozen
    return made


@pytest.mark.parametrize(("context", "training"), [(batch_statistics, True), (running_statistics, False)])
def test_numbers_are_the_mode_s_and_nothing_is_left(
    context: Callable[[Model], AbstractContextManager[None]], training: bool, model: Model
) -> None:
    images = torch.rand(6, *SHAPE)
    state, twin = copy.deepcopy(model.state_dict()), copy.deepcopy(model)
    expected = twin.train(training)(images)
    modes = [(module.training, getattr(module, "track_running_stats", None)) for module in model.modules()]
    with context(model):
        torch.testing.assert_close(model(images), expected)
    assert_same_state(model.state_dict(), state)
    after = [(module.training, getattr(module, "track_running_stats", None)) for module in model.modules()]
    assert after == modes
    model.train()(images)
    assert int(model.get_buffer("stem_norm.num_batches_tracked")) == 2, "and statistics run again"


@pytest.mark.parametrize("context", [batch_statistics, running_statistics])
def test_modes_come_back_after_an_error(
    context: Callable[[Model], AbstractContextManager[None]], model: Model
) -> None:
    modes = [(module.training, getattr(module, "track_running_stats", None)) for module in model.modules()]
    with pytest.raises(RuntimeError), context(model):
        model(torch.rand(6, 7, 8, 8))  # which has too many channels
    after = [(module.training, getattr(module, "track_running_stats", None)) for module in model.modules()]
    assert after == modes


def test_image_without_variance_is_normalised_by_running_statistics(model: Model) -> None:
    image = torch.rand(1, *SHAPE)
    assert model.smallest_batch == 2
    expected = copy.deepcopy(model).eval()(image)
    with as_in_training(model, 1):
        torch.testing.assert_close(model(image), expected)
    two = torch.rand(2, *SHAPE)
    expected = copy.deepcopy(model).train()(two)
    with as_in_training(model, 2):
        torch.testing.assert_close(model(two), expected)
