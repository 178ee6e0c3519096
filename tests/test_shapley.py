"""KNN-Shapley values against their definition: what each point adds to every subset of the others."""

from __future__ import annotations

import copy
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
import torch
from tests.helpers import SHAPE, NoHostSynchronisation, assert_same_state, make_batch, make_learner
from torch import Generator, Tensor

from encore.memory import Memory
from encore.pixels import as_floats
from encore.shapley import Points, look_up, shapley_values


def utility(
    subset: tuple[int, ...], distances: list[float], matches: list[bool], neighbours: int
) -> Fraction:
    """Return the share of the k nearest that have the right label; fewer than k leave places empty."""
    nearest = sorted(subset, key=lambda candidate: distances[candidate])[:neighbours]
    return Fraction(sum(matches[candidate] for candidate in nearest), neighbours)


def by_definition(distances: list[float], matches: list[bool], neighbours: int) -> list[Fraction]:
    everyone = range(len(distances))
    values = []
    for candidate in everyone:
        others = [other for other in everyone if other != candidate]
        total = Fraction(0)
        for size in range(len(others) + 1):
            for subset in combinations(others, size):
                added = utility((*subset, candidate), distances, matches, neighbours)
                added -= utility(subset, distances, matches, neighbours)
                total += added / comb(len(others), size)
        values.append(total / len(distances))
    return values


def make_points(num: int, num_classes: int, seed: int, missing: float = 0.0) -> Points:
    generator = Generator().manual_seed(seed)
    features = torch.rand(num, 5, generator=generator)
    labels = torch.randint(num_classes, (num,), generator=generator)
    return Points(features, labels, torch.rand(num, generator=generator) >= missing)


def expected(evaluation: Points, candidates: Points, neighbours: int) -> Tensor:
    values = torch.zeros(len(evaluation.labels), len(candidates.labels), dtype=torch.float64)
    there = candidates.are_there.nonzero().squeeze(1).tolist()
    for row, (point, label, is_there) in enumerate(zip(*evaluation, strict=True)):
        if not is_there:
            continue
        distances = [float((candidates.features[slot] - point).square().sum()) for slot in there]
        matches = [bool(candidates.labels[slot] == label) for slot in there]
        for slot, value in zip(there, by_definition(distances, matches, neighbours), strict=True):
            values[row, slot] = float(value)
    return values


@pytest.mark.parametrize("neighbours", [1, 3, 5])
@pytest.mark.parametrize("num_candidates", [1, 2, 3, 7])
def test_values_are_those_of_the_definition(num_candidates: int, neighbours: int) -> None:
    for seed in range(4):
        evaluation, candidates = make_points(4, 3, seed), make_points(num_candidates, 3, 50 + seed)
        with NoHostSynchronisation():
            values = shapley_values(evaluation, candidates, neighbours)
        torch.testing.assert_close(values, expected(evaluation, candidates, neighbours), rtol=0, atol=1e-10)


def test_rows_that_are_not_there_count_for_nothing() -> None:
    for seed in range(10):
        evaluation = make_points(5, 2, seed, missing=0.4)
        candidates = make_points(9, 2, 50 + seed, missing=0.4)
        values = shapley_values(evaluation, candidates, 3)
        torch.testing.assert_close(values, expected(evaluation, candidates, 3), rtol=0, atol=1e-10)
        assert (values[~evaluation.are_there] == 0).all()
        assert (values[:, ~candidates.are_there] == 0).all()


def test_values_of_a_point_add_up_to_the_utility_of_all() -> None:
    evaluation, candidates = make_points(20, 4, 0), make_points(60, 4, 1)
    distances = torch.cdist(evaluation.features.double(), candidates.features.double())
    nearest = candidates.labels[distances.argsort(dim=1)[:, :3]]
    right = (nearest == evaluation.labels.unsqueeze(1)).double().mean(dim=1)
    torch.testing.assert_close(shapley_values(evaluation, candidates, 3).sum(dim=1), right, rtol=0, atol=1e-9)


def test_sums_have_the_same_bits_in_every_order() -> None:
    values = shapley_values(make_points(40, 4, 0), make_points(60, 4, 1), 3)
    order = torch.randperm(40, generator=Generator().manual_seed(0))
    assert torch.equal(values.sum(dim=0), values[order].sum(dim=0))
    one_by_one = torch.zeros(60, dtype=torch.float64)
    for row in values:
        one_by_one += row
    assert torch.equal(values.sum(dim=0), one_by_one)


def test_points_are_encoded_by_running_statistics_and_nothing_changes() -> None:
    learner = make_learner()
    for number in range(3):
        learner.observe(*make_batch(4, seed=number))
    model, memory, incoming = learner.model, learner.memory, make_batch(5, seed=9)
    model.stages.eval()  # what somebody has frozen must stay so
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    first, last = torch.tensor([3, memory.scratch, 0]), torch.tensor([11, 5])
    with NoHostSynchronisation():
        points = look_up(model, memory, first, incoming, last)
    assert_same_state(model.state_dict(), state)
    assert [module.training for module in model.modules()] == modes
    assert points.are_there.tolist() == [True, False, *[True] * 8]

    twin = copy.deepcopy(model).eval()
    rows = [(0, 3), (2, 0), (8, 11), (9, 5)]
    images = torch.stack([memory.images[slot] for _, slot in rows])
    labels = torch.stack([memory.labels[slot] for _, slot in rows])
    images, labels = torch.cat([images, incoming.images]), torch.cat([labels, incoming.labels])
    places = [*(row for row, _ in rows), *range(3, 8)]
    assert torch.equal(points.labels[places], labels)
    for place, image in zip(places, images, strict=True):
        feature = twin.features(as_floats(image.unsqueeze(0)))[0]
        torch.testing.assert_close(points.features[place], feature)


def test_memory_of_one_slot_can_be_looked_up() -> None:
    memory = Memory(1, SHAPE)
    memory.write(torch.tensor([0]), make_batch(1))
    points = look_up(make_learner().model, memory, torch.tensor([1]), make_batch(2), torch.tensor([0]))
    assert points.are_there.tolist() == [False, True, True, True]
