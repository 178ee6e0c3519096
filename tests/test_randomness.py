from __future__ import annotations

import pytest
import torch

from encore.errors import EncoreError
from encore.randomness import Randomness


def test_one_part_does_not_shift_another() -> None:
    quiet, busy = Randomness(1), Randomness(1)
    torch.rand(100, generator=busy.generator("augmentation"))
    assert torch.equal(
        torch.rand(5, generator=quiet.generator("retrieval")),
        torch.rand(5, generator=busy.generator("retrieval")),
    )


def test_seeds_and_names_give_different_numbers() -> None:
    drawn = [
        tuple(torch.rand(4, generator=Randomness(seed).generator(name)).tolist())
        for seed in (0, 1, 2**62)
        for name in ("retrieval", "retention")
    ]
    assert len(set(drawn)) == 6


def test_host_and_device_generators_are_different_ones() -> None:
    draws = Randomness(0)
    on_device = torch.rand(3, generator=draws.generator("stream"))
    assert not torch.equal(on_device, torch.rand(3, generator=draws.host_generator("stream")))


def test_state_comes_back() -> None:
    draws, other = Randomness(3), Randomness(3)
    torch.rand(7, generator=draws.generator("retrieval"))
    torch.rand(9, generator=draws.host_generator("controller"))
    other.load_state_dict(draws.state_dict())
    for name in ("retrieval", "retention"):
        assert torch.equal(
            torch.rand(3, generator=draws.generator(name)), torch.rand(3, generator=other.generator(name))
        )
    assert torch.equal(
        torch.rand(3, generator=draws.host_generator("controller")),
        torch.rand(3, generator=other.host_generator("controller")),
    )


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True])
def test_wrong_seed_is_refused(seed: int) -> None:
    with pytest.raises(EncoreError, match="a seed must be a whole number"):
        Randomness(seed)
