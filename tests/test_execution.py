"""Training in bfloat16: where it holds, where it does not, and that it survives saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.helpers import SHAPE, assert_same_state, make_batch, make_learner

from encore import execution
from encore.errors import EncoreError
from encore.execution import in_precision, resolve_precision
from encore.learner import Learner
from encore.models.reduced_resnet18 import ReducedResNet18

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_convolutions_alone_are_in_bfloat16() -> None:
    torch.manual_seed(0)
    model, types = ReducedResNet18(SHAPE, 5, width=4), []
    model.stages.register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    images = torch.rand(4, *SHAPE)
    plain = model(images)
    with in_precision("bfloat16"):
        logits = model(images)
        logits.sum().backward()
        with torch.no_grad():
            model(images)
        model.eval()
        model(images)
    assert types == [torch.float32, torch.bfloat16, torch.float32, torch.float32]
    assert logits.dtype == torch.float32
    assert model.stem.weight.grad is not None
    assert model.stem.weight.grad.dtype == torch.float32
    difference = (logits - plain).abs().max() / plain.abs().max()
    assert 0 < difference < 0.05  # bfloat16 has 8 bits


def test_gradient_points_where_that_of_float32_does() -> None:
    torch.manual_seed(0)
    model = ReducedResNet18((3, 16, 16), 5, width=8)
    images, labels = torch.rand(24, 3, 16, 16), torch.arange(24) % 5
    gradients = []
    for precision in ("float32", "bfloat16"):
        model.zero_grad()
        with in_precision(precision):
            F.cross_entropy(model(images), labels).backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))  # type: ignore[union-attr]
    exact, rounded = gradients
    assert 0.9 < F.cosine_similarity(exact, rounded, dim=0) < 0.9999


def test_precision_ends_with_its_block() -> None:
    with in_precision("bfloat16"):
        with pytest.raises(ZeroDivisionError), in_precision("float32"):
            raise ZeroDivisionError
        assert execution._now.precision == "bfloat16"
    assert execution._now.precision == "float32"


def test_saved_learner_goes_on_in_its_precision_with_the_same_bits(tmp_path: Path) -> None:
    learner = make_learner(precision="bfloat16", parts={"model.width": 4})
    learner.observe(*make_batch(4))
    learner.save(tmp_path / "learner.encore")
    again = Learner.load(tmp_path / "learner.encore")
    for number in range(2):
        learner.observe(*make_batch(4, seed=number))
        again.observe(*make_batch(4, seed=number))
    assert again.config.precision == "bfloat16"
    assert_same_state(again.state_dict(), learner.state_dict())
    other = make_learner(parts={"model.width": 4})
    for number in (0, 0, 1):
        other.observe(*make_batch(4, seed=number))
    assert not torch.equal(other.model.stem.weight, learner.model.stem.weight)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 15, 17])
def test_narrow_networks_train_in_bfloat16(width: int) -> None:
    learner = make_learner(precision="bfloat16", image_shape=(3, 17, 13), parts={"model.width": width})
    for number in range(3):
        learner.observe(*make_batch(4, seed=number, shape=(3, 17, 13)))
    assert learner.is_finite


def test_auto_takes_bfloat16_where_the_cpu_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for able, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(execution, "multiplies_bfloat16", lambda able=able: able)
        assert resolve_precision("auto", CPU) == expected
        assert resolve_precision("auto", GPU) == "float32"


def test_other_precisions_are_refused() -> None:
    with pytest.raises(EncoreError, match="there is no precision 'float16'"):
        make_learner(precision="float16")
    with pytest.raises(EncoreError, match="bfloat16 is there for CPUs only, and the device is cuda"):
        resolve_precision("bfloat16", GPU)
