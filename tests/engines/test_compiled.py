"""The compiled encoder beside the plain one, and what it refuses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers import flatten, make_batch, make_learner
from torch import Tensor

from encore import registry
from encore.engines import compiled
from encore.errors import EncoreError
from encore.interfaces import Plan
from encore.learner import Learner
from encore.randomness import Randomness

SHAPE = (3, 12, 12)


@pytest.fixture
def compiled_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Note the shape of whatever goes through a compiled encoder."""
    shapes: list[tuple[int, ...]] = []
    real = compiled._compile

    def spied(work: Any) -> Any:
        made = real(work)

        def call(model: Any, images: Tensor) -> Tensor:
            shapes.append(tuple(images.shape))
            features: Tensor = made(model, images)
            return features

        return call

    monkeypatch.setattr(compiled, "_compile", spied)
    return shapes


def make(engine: str, **changes: Any) -> Learner:
    try:
        parts = {"engine": engine, "model.width": 4}
        return make_learner(image_shape=SHAPE, parts=parts, learning_rate=1e-3, **changes)
    except EncoreError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("method", registry.names("method"))
def test_compiled_steps_are_the_eager_ones(method: str, compiled_shapes: list[tuple[int, ...]]) -> None:
    eager, fast = make("eager", method=method), make("compiled", method=method)
    for number in range(4):
        batch = make_batch(4, seed=number, shape=SHAPE)
        expected, feedback = eager.observe(*batch), fast.observe(*batch)
        torch.testing.assert_close(feedback.values, expected.values, rtol=1e-3, atol=1e-3, equal_nan=True)
    theirs = flatten(eager.model.state_dict())
    for name, value in flatten(fast.model.state_dict()).items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-4, msg=name)
    assert compiled_shapes


def test_only_shapes_that_come_again_are_compiled(compiled_shapes: list[tuple[int, ...]]) -> None:
    learner = make("compiled")
    for number, (repeats, num_ops, magnitude) in enumerate([(3, 1, 14), (2, 0, 5), (5, 2, 30), (1, 1, 0)]):
        plan = Plan(repeats=repeats, num_ops=num_ops, magnitude=magnitude)
        learner.observe(*make_batch(4, seed=number, shape=SHAPE), plan=plan)
    assert compiled_shapes == [(8, *SHAPE)] * 6  # neither the first batch nor the first with a memory


def test_shapes_above_the_limit_are_done_eagerly(compiled_shapes: list[tuple[int, ...]]) -> None:
    learner = make("compiled")
    engine: Any = learner.engine
    engine.most_shapes = 1
    for number in range(4):
        learner.observe(*make_batch(4, seed=number, shape=SHAPE))
    assert compiled_shapes == []  # the one shape was that of the first batch


def test_answers_are_not_compiled(compiled_shapes: list[tuple[int, ...]]) -> None:
    learner = make("compiled")
    for number in range(3):
        learner.observe(*make_batch(4, seed=number, shape=SHAPE))
    before = len(compiled_shapes)
    learner.predict(make_batch(8, shape=SHAPE).images)
    assert len(compiled_shapes) == before > 0


def test_missing_compiler_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        EncoreError, match=r"needs a C\+\+ compiler, and there is no no-such-compiler; install"
    ):
        registry.make("engine", "compiled", Randomness(0))
    monkeypatch.setenv("CXX", "true")  # a program that is there
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(EncoreError, match=r"needs Python's own headers"):
        registry.make("engine", "compiled", Randomness(0))


def test_failure_to_compile_is_said_in_a_sentence(tmp_path: Path) -> None:
    make("compiled")  # or there is no compiler here, and this is skipped
    number = time.time()  # so that it was never compiled before
    encode = compiled._compile(lambda model, images: images * number + 1)
    from torch._inductor import config

    broken = tmp_path / "compiler"
    broken.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    broken.chmod(0o700)
    with (
        config.patch({"cpp.cxx": (str(broken),)}),
        pytest.raises(EncoreError, match=r"could not be compiled \(.*\): use the engine eager"),
    ):
        encode(None, torch.ones(5, 3))
