from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from tests.helpers import NUM_CLASSES, NoHostSynchronisation
from tests.objectives.test_cross_entropy import make_joint, make_model
from torch import Generator, Tensor

from encore.objectives.gradient_projection import GradientProjection, project

SHAPES = [(4, 3, 3, 3), (7,), (5, 2), ()]
Parts = tuple[Tensor, ...]


def draw(seed: int, against: Parts | None = None) -> Parts:
    """Return a vector in parts, some of them with the channels innermost; or one that points against."""
    generator = Generator().manual_seed(seed)
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    parts[0] = parts[0].contiguous(memory_format=torch.channels_last)
    if against is not None:
        parts = [part - 0.3 * other for part, other in zip(parts, against, strict=True)]
    return tuple(parts)


def flat(parts: Parts) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("seed", range(20))
def test_projection_meets_the_conditions_of_the_optimum(seed: int) -> None:
    # The least |x - g|^2 / 2 with <x, r> >= 0 has x = g + m r, m >= 0, and m <x, r> = 0, and no other has.
    references = draw(1000 + seed)
    gradients = draw(seed, against=references if seed % 2 else None)
    with NoHostSynchronisation():
        projected = project(gradients, references)
    assert [part.shape for part in projected] == [part.shape for part in gradients]
    x, g, r = map(flat, (projected, gradients, references))
    multiplier = (x - g) @ r / (r @ r)
    assert x @ r >= -1e-12
    assert multiplier >= 0
    assert multiplier * (x @ r) == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(x, g + multiplier * r)
    if g @ r >= 0:
        assert torch.equal(x, g)
    else:
        assert multiplier > 0


def test_both_cases_occur() -> None:
    signs = {
        bool(flat(draw(seed, draw(1000 + seed) if seed % 2 else None)) @ flat(draw(1000 + seed)) < 0)
        for seed in range(20)
    }
    assert signs == {True, False}


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_what_a_solver_finds(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    gradient, reference = numbers.normal(size=5), numbers.normal(size=5)
    if seed % 2:
        gradient -= reference
    found = minimize(
        lambda x: ((x - gradient) ** 2).sum() / 2,
        np.zeros(5),
        jac=lambda x: x - gradient,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda x: x @ reference},
        options={"ftol": 1e-14},
    )
    assert found.success
    (projected,) = project((torch.from_numpy(gradient),), (torch.from_numpy(reference),))
    np.testing.assert_allclose(projected.numpy(), found.x, atol=1e-6)


def test_no_gradient_of_the_memory_changes_nothing() -> None:
    gradients = draw(3)
    projected = project(gradients, tuple(torch.zeros_like(part) for part in gradients))
    assert torch.equal(flat(projected), flat(gradients))


def test_gradients_are_of_two_forward_passes() -> None:
    model, joint = make_model(), make_joint(num_remembered=4, num_incoming=5)
    twins = [copy.deepcopy(model) for _ in range(2)]
    outputs = GradientProjection().backward(model, joint, Generator())
    separate = []
    for twin, rows in zip(twins, (slice(4, None), slice(4)), strict=True):
        loss = torch.nn.functional.cross_entropy(twin(joint.images[rows]), joint.labels[rows])
        separate.append(torch.autograd.grad(loss, list(twin.parameters())))
        reported = outputs.incoming_loss if rows.stop is None else outputs.memory_loss
        assert reported.item() == pytest.approx(loss.item())
    expected = project(*separate)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_single_example_goes_with_the_others_where_it_could_not_go_alone() -> None:
    model, joint = make_model(), make_joint(num_remembered=5, num_incoming=1)  # of 8x8: maps of 1x1 at last
    outputs = GradientProjection().backward(model, joint, Generator())
    assert outputs.incoming_loss.isfinite()
    assert model.stem_norm.num_batches_tracked is not None
    assert model.stem_norm.num_batches_tracked.item() == 1  # one pass
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_empty_memory_leaves_the_incoming_gradient() -> None:
    model, joint = make_model(), make_joint(num_remembered=0, num_incoming=5)
    twin = copy.deepcopy(model)
    outputs = GradientProjection(from_start=True).backward(model, joint, Generator())
    loss = torch.nn.functional.cross_entropy(twin(joint.images), joint.labels)
    for parameter, gradient in zip(
        model.parameters(), torch.autograd.grad(loss, list(twin.parameters())), strict=True
    ):
        torch.testing.assert_close(parameter.grad, gradient)
    assert outputs.memory_loss.isnan()
    assert 0 <= outputs.incoming_accuracy.item() <= 1
    assert joint.labels.max() < NUM_CLASSES


def test_whether_a_task_has_ended_is_part_of_the_state() -> None:
    objective, other = GradientProjection(), GradientProjection()
    assert not objective.rehearses
    objective.end_task(make_model())
    assert objective.rehearses
    other.load_state_dict(objective.state_dict())
    assert other.rehearses
    objective.load_state_dict(GradientProjection().state_dict())
    assert not objective.rehearses
