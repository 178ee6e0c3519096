"""Whatever the engine, the numbers are the eager engine's: every rule, objective and controller on each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

# What cuBLAS asks for before it promises the same bits; it must be there before CUDA starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
from tests.helpers import assert_same_state, flatten, make_batch, make_controller, make_learner
from torch import Tensor

from encore import registry
from encore.errors import EncoreError
from encore.interfaces import Batch, Feedback, Plan
from encore.learner import Learner
from encore.randomness import Randomness

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]
SHAPE = (3, 12, 12)
FAST = [name for name in registry.names("engine") if name != "eager"]
PARTS = [
    *(("method", name) for name in registry.names("method")),
    *((kind, name) for kind in ("retrieval", "retention", "objective") for name in registry.names(kind)),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def same_bits() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def make(engine: str, device: str, kind: str = "method", name: str = "er", **changes: Any) -> Learner:
    parts = {"engine": engine, "model.width": 4}
    chosen: dict[str, Any] = {"method": name} if kind == "method" else {}
    if kind != "method":
        parts |= {"classifier": "softmax", kind: name}  # one that goes with any retention
    try:
        return make_learner(image_shape=SHAPE, device=device, parts=parts, **chosen, **changes)
    except EncoreError as error:
        pytest.skip(str(error))


def teach(learner: Learner, num_batches: int = 14) -> list[Feedback]:
    """Show batches of several sizes, with a plan that changes, over the end of two tasks."""
    seen = []
    for number in range(num_batches):
        size = 3 if number == 9 else 4
        plan = Plan(repeats=1 + number % 3, num_ops=number // 3 % 3, magnitude=3 + number)
        images, labels = make_batch(size, seed=number, shape=SHAPE)
        seen.append(learner.observe(images, labels, plan=plan))
        if number in (5, 10):
            learner.end_task()
    return seen


@pytest.mark.usefixtures("same_bits")
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_engine_gives_the_eager_one_s_bits(engine: str, kind: str, name: str, device: str) -> None:
    eager, fast = make("eager", device, kind, name), make(engine, device, kind, name)
    if engine == "compiled":
        pytest.skip("a compiler may reorder sums; the next test compares with a tolerance")
    for expected, feedback in zip(teach(eager), teach(fast), strict=True):
        torch.testing.assert_close(feedback.values, expected.values, rtol=0, atol=0, equal_nan=True)
    assert_same_state(fast.state_dict(), eager.state_dict())


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_engine_takes_the_eager_one_s_steps(
    engine: str, kind: str, name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # whose rounding soon grows
    eager, fast = make("eager", device, kind, name), make(engine, device, kind, name)
    teach(eager, num_batches=2)
    teach(fast, num_batches=2)
    ours, theirs = flatten(fast.model.state_dict()), flatten(eager.model.state_dict())
    for key, value in ours.items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-2, atol=1e-3, msg=key)


@pytest.mark.usefixtures("same_bits")
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", registry.names("controller"))
def test_controller_works_under_the_engine(engine: str, name: str, device: str) -> None:
    def taught_with(used: str) -> tuple[Learner, list[Plan]]:
        learner = make(used, device)
        controller = make_controller(name, repeats="1-3")
        generator, plans = torch.Generator().manual_seed(0), []
        for number in range(12):
            if number % 6 == 0:
                controller.start_task(number // 6)
            plans.append(controller.choose(generator))
            feedback = learner.observe(*make_batch(4, seed=number, shape=SHAPE), plan=plans[-1])
            if controller.needs_feedback:
                controller.learn_from(feedback.read())
        return learner, plans

    (eager, expected), (fast, plans) = taught_with("eager"), taught_with(engine)
    if engine == "compiled":
        pytest.skip("a compiler may reorder sums, and a controller then chooses otherwise")
    assert plans == expected
    assert_same_state(fast.state_dict(), eager.state_dict())


@pytest.mark.usefixtures("same_bits")
@pytest.mark.parametrize("engine", FAST)
def test_learner_goes_on_from_a_state_in_the_middle(engine: str, device: str) -> None:
    whole, first, second = (make(engine, device) for _ in range(3))
    batches = [make_batch(4, seed=number, shape=SHAPE) for number in range(12)]
    for batch in batches:
        whole.observe(*batch)
    for batch in batches[:7]:
        first.observe(*batch)
        second.observe(*make_batch(4, seed=99, shape=SHAPE))  # what it has recorded must not matter
    second.load_state_dict(first.state_dict())
    for batch in batches[7:]:
        second.observe(*batch)
    assert_same_state(second.state_dict(), whole.state_dict())


@pytest.mark.parametrize("engine", registry.names("engine"))
@pytest.mark.parametrize("name", registry.names("method"))
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_gpu_is_never_waited_for(engine: str, name: str) -> None:
    learner = make(engine, "cuda", name=name, plan=Plan(repeats=2, num_ops=1))
    batches = [
        Batch(images.cuda(), labels.cuda())
        for images, labels in (make_batch(4, seed=number, shape=SHAPE) for number in range(8))
    ]
    for batch in batches[:6]:
        learner.learn(batch, learner.plan)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches[6:]:
            learner.learn(batch, learner.plan)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_graph_is_recorded_once_for_each_number_of_operations() -> None:
    learner = make("graph", "cuda")
    for number in range(40):
        plan = Plan(repeats=1 + number % 5, num_ops=number % 3, magnitude=number % 31)
        learner.observe(*make_batch(4, seed=number, shape=SHAPE), plan=plan)
    engine: Any = learner.engine
    rehearsals = [kind for kind in engine._recordings if kind[0] == learner.rehearse_once]
    assert len(rehearsals) == 3  # and none for the batches that came before the memory was full
    assert not any(isinstance(value, Tensor) for kind in engine._recordings for value in kind[1])


def test_graph_says_that_it_needs_a_gpu() -> None:
    with pytest.raises(EncoreError, match="needs a GPU with CUDA, and the device is cpu"):
        registry.make("engine", "graph", Randomness(0))
