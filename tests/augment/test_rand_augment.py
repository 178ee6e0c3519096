"""What is drawn, how it is applied in a row, and that the way on an accelerator looks at no value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.reference.pillow_rand_augment import pillow_operation, pillow_rand_augment
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from encore.augment.image_ops import DeviceTables, augment, device_tables
from encore.augment.rand_augment import Draws, RandAugment
from encore.augment.tables import CENTRE_BITS
from encore.errors import EncoreError

SPACES = ("paper", "authors")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(1))


def with_pillow(space: str, images: Tensor, draws: Draws, magnitude: int) -> Tensor:
    names = RandAugment(space).operations
    height, width = images.shape[2:]
    centres = draws.centres.transpose(0, 1).double() / 2**CENTRE_BITS * torch.tensor([height, width])
    operations = [
        [pillow_operation(space, names[choice // 2], magnitude, 1 - 2 * (choice % 2)) for choice in choices]
        for choices in draws.choices.T.tolist()
    ]
    return pillow_rand_augment(images, operations, centres.tolist())


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (12, 3, 84, 84), (64, 1, 8, 8), (24, 3, 20, 33)])
@pytest.mark.parametrize("num_ops", [1, 2, 3, 4])
@pytest.mark.parametrize("magnitude", [5, 14, 30])
@pytest.mark.parametrize("space", SPACES)
def test_chains_are_pillows(space: str, magnitude: int, num_ops: int, shape: tuple[int, ...]) -> None:
    rand_augment, images = RandAugment(space), noise(*shape)
    draws = rand_augment.draw(len(images), num_ops, seeded())
    expected = with_pillow(space, images, draws, magnitude)
    assert torch.equal(rand_augment.apply(images, draws, magnitude), expected)
    assert torch.equal(rand_augment.apply(images, draws, magnitude, fixed_shapes=True), expected)


def test_the_operations_of_a_space_are_known_by_name() -> None:
    paper = "AutoContrast Equalize Rotate ShearX ShearY TranslateX TranslateY Posterize Solarize Identity"
    authors = (
        "AutoContrast Equalize Rotate ShearX ShearY TranslateXabs TranslateYabs Posterize Solarize "
        "SolarizeAdd Invert CutoutAbs"
    )
    enhancers = ["Brightness", "Contrast", "Color", "Sharpness"]
    assert sorted(RandAugment().operations) == sorted(paper.split() + enhancers)
    assert sorted(RandAugment("authors").operations) == sorted(authors.split() + enhancers)


@pytest.mark.parametrize("space", SPACES)
def test_a_call_is_a_draw_and_its_application(space: str) -> None:
    rand_augment, images = RandAugment(space), noise(20, 3, 32, 32)
    before = images.clone()
    augmented = rand_augment(images, 3, 14, seeded(3))
    assert augmented.dtype == torch.float32
    assert augmented.shape == images.shape
    assert torch.equal(augmented, rand_augment.apply(images, rand_augment.draw(20, 3, seeded(3)), 14))
    assert torch.equal(augmented, augmented.mul(255).round().div(255))
    assert not torch.equal(augmented, rand_augment(images, 3, 14, seeded(4)))
    assert torch.equal(images, before)


def test_no_operations_change_nothing_and_draw_nothing() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    generator = seeded()
    state = generator.get_state()
    assert torch.equal(RandAugment()(images, 0, 14, generator), images.to(torch.float32) / 255)
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize("space", SPACES)
def test_what_is_taken_from_the_generator_depends_on_the_counts_only(space: str) -> None:
    rand_augment = RandAugment(space)
    for seed in range(5):
        alone = seeded(seed)
        torch.randint(2 * len(rand_augment.operations), (2, 8), generator=alone)
        torch.randint(2**31, (2, 8, 2), generator=alone)
        for shape, magnitude in (((8, 3, 32, 32), 14), ((8, 1, 8, 9), 0)):
            generator = seeded(seed)
            rand_augment(noise(*shape), 2, magnitude, generator)
            assert torch.equal(generator.get_state(), alone.get_state())


def chi_square(counts: Tensor) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


# Exceeded with probability .001, for 14, 16, 28 and 32 classes.
LIMITS = {14: 34.5, 16: 37.7, 28: 55.5, 32: 61.1}


@pytest.mark.parametrize("space", SPACES)
def test_operations_and_signs_are_uniform_for_each_image_and_step(space: str) -> None:
    rand_augment = RandAugment(space)
    num_operations = len(rand_augment.operations)
    generator = seeded(6)
    choices = torch.stack([rand_augment.draw(4, 3, generator).choices for _ in range(4000)])  # [4000, 3, 4]
    for step in range(3):
        for image in range(4):
            counts = torch.bincount(choices[:, step, image], minlength=2 * num_operations)
            assert chi_square(counts) < LIMITS[2 * num_operations]
            assert chi_square(counts.view(-1, 2).sum(1)) < LIMITS[num_operations]
            assert abs(float(counts.view(-1, 2).sum(0)[0]) - 2000) < 3.3 * (4000 / 4) ** 0.5


@pytest.mark.parametrize("space", SPACES)
def test_images_and_steps_are_independent(space: str) -> None:
    rand_augment = RandAugment(space)
    num_choices = 2 * len(rand_augment.operations)
    generator = seeded(7)
    choices = torch.stack([rand_augment.draw(2, 2, generator).choices for _ in range(8000)])
    deviation = (8000 / num_choices * (1 - 1 / num_choices)) ** 0.5
    for first, second in (((0, 0), (0, 1)), ((1, 0), (1, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0))):
        num_equal = int((choices[:, *first] == choices[:, *second]).sum())
        assert abs(num_equal - 8000 / num_choices) < 3.3 * deviation


def test_centres_are_uniform() -> None:
    centres = RandAugment("authors").draw(8000, 1, seeded(8)).centres[0].double() / 2**CENTRE_BITS
    for axis in (0, 1):
        assert chi_square(torch.histc(centres[:, axis], bins=16, min=0, max=1)) < LIMITS[16]
    assert abs(float(torch.corrcoef(centres.T)[0, 1])) < 3.3 / 8000**0.5


def is_constant(images: Tensor) -> Tensor:
    planes = images.flatten(2)
    return (planes.amax(2) == planes.amin(2)).all(1)


@pytest.mark.parametrize(("num_ops", "expected"), [(1, 0.125), (2, 0.227), (3, 0.309)])
def test_how_many_images_the_published_operations_wipe_out(num_ops: int, expected: float) -> None:
    # 2 of 16 operations leave one colour of 32 pixels; 13 of 16 leave one colour as it is or make it another.
    images = noise(4000, 3, 32, 32)
    share = float(is_constant(RandAugment("authors")(images, num_ops, 14, seeded(9))).float().mean())
    assert abs(share - expected) < 3.3 * (expected * (1 - expected) / 4000) ** 0.5


def test_nothing_is_wiped_out_in_the_papers_space() -> None:
    assert not is_constant(RandAugment()(noise(1000, 3, 32, 32), 3, 14, seeded(10))).any()


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("magnitude", [0, 14, 30])
def test_a_magnitude_may_be_a_tensor(space: str, magnitude: int) -> None:
    rand_augment, images = RandAugment(space), noise(30, 3, 32, 32)
    draws = rand_augment.draw(30, 2, seeded(11))
    expected = rand_augment.apply(images, draws, magnitude)
    for fixed_shapes in (False, True):
        augmented = rand_augment.apply(images, draws, torch.tensor(magnitude), fixed_shapes=fixed_shapes)
        assert torch.equal(augmented, expected)


def test_images_need_not_be_contiguous() -> None:
    images = noise(20, 32, 32, 3).permute(0, 3, 1, 2)
    rand_augment = RandAugment()
    draws = rand_augment.draw(20, 2, seeded(12))
    expected = rand_augment.apply(images.contiguous(), draws, 14)
    for fixed_shapes in (False, True):
        augmented = rand_augment.apply(images, draws, 14, fixed_shapes=fixed_shapes)
        assert torch.equal(augmented, expected)
        assert augmented.is_contiguous()


class Recorder(TorchDispatchMode):
    """Keeps the names of all operators that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def record(rand_augment: RandAugment, images: Tensor, *, fixed_shapes: bool) -> set[str]:
    draws = rand_augment.draw(len(images), 2, seeded(13))
    magnitude = torch.tensor(14)
    rand_augment.apply(images, draws, magnitude, fixed_shapes=fixed_shapes)  # makes the tables
    recorder = Recorder()
    with recorder:
        rand_augment.apply(images, draws, magnitude, fixed_shapes=fixed_shapes)
    return recorder.names


@pytest.mark.parametrize("space", SPACES)
def test_fixed_shapes_ask_for_no_value_and_bring_none_along(space: str) -> None:
    rand_augment, images = RandAugment(space), noise(20, 3, 32, 32)
    # To read a value, to make shapes of values, to index by a mask, to copy a constant to the device.
    forbidden = {
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "index",
        "index_put",
        "unique",
        "lift_fresh",
    }
    assert record(rand_augment, images, fixed_shapes=True).isdisjoint(forbidden)
    assert "_local_scalar_dense" in record(rand_augment, images, fixed_shapes=False)


@pytest.mark.parametrize("space", SPACES)
def test_fixed_shapes_work_without_values(space: str) -> None:
    def shape_only(tensor: Any) -> Any:
        return None if tensor is None else tensor.to("meta")

    images = noise(20, 3, 32, 32)
    draws = RandAugment(space).draw(20, 1, seeded(14))
    tables = device_tables(space, images.shape[1:], images.device)
    augmented = augment(
        shape_only(images),
        shape_only(draws.choices[0]),
        shape_only(draws.centres[0]),
        shape_only(tables.settings[14]),
        DeviceTables(*map(shape_only, tables)),
    )
    assert (augmented.shape, augmented.dtype) == (images.shape, torch.uint8)


@pytest.mark.parametrize("space", SPACES)
def test_fixed_shapes_compile_into_one_graph(space: str) -> None:
    rand_augment, images = RandAugment(space), noise(20, 3, 32, 32)
    magnitude = torch.tensor(14)

    def apply(images: Tensor, draws: Draws, magnitude: Tensor) -> Tensor:
        return rand_augment.apply(images, draws, magnitude, fixed_shapes=True)

    apply(images, rand_augment.draw(20, 2, seeded()), magnitude)  # makes the tables
    torch.compiler.reset()
    compiled = torch.compile(apply, backend="eager", fullgraph=True)
    for seed in (15, 16):
        draws = rand_augment.draw(20, 2, seeded(seed))
        for number in (14, 5):
            expected = rand_augment.apply(images, draws, number)
            assert torch.equal(compiled(images, draws, magnitude.fill_(number)), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("space", SPACES)
def test_cuda_gives_the_same_without_waiting(space: str) -> None:
    rand_augment, images = RandAugment(space), noise(200, 3, 32, 32)
    draws = rand_augment.draw(200, 3, seeded(17))
    on_device = Draws(draws.choices.cuda(), draws.centres.cuda())
    magnitude = torch.tensor(14, device="cuda")
    there = images.cuda()
    rand_augment.apply(there, on_device, magnitude)  # makes the tables
    torch.cuda.set_sync_debug_mode("error")
    try:
        augmented = rand_augment.apply(there, on_device, magnitude)
        rand_augment(there, 3, magnitude, torch.Generator("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(augmented.cpu(), rand_augment.apply(images, draws, 14))


@pytest.mark.parametrize(
    ("images", "num_ops", "magnitude", "sentence"),
    [
        (torch.zeros(2, 3, 8, 8), 1, 14, r"must be uint8 \[N, C, H, W\] .* got float32 \[2, 3, 8, 8\]"),
        (noise(3, 8, 8), 1, 14, r"got uint8 \[3, 8, 8\]"),
        (noise(2, 4, 8, 8), 1, 14, r"with 1 or 3 channels, got uint8 \[2, 4, 8, 8\]"),
        (noise(2, 3, 8, 8), 5, 14, r"num_ops \(P\) must be a whole number from 0 to 4, got 5"),
        (noise(2, 3, 8, 8), -1, 14, r"num_ops \(P\) .* got -1"),
        (noise(2, 3, 8, 8), 5, torch.tensor(14), r"num_ops \(P\) .* got 5"),
        (noise(2, 3, 8, 8), 1, 31, r"magnitude \(Q\) must be a whole number from 0 to 30, got 31"),
        (noise(2, 3, 8, 8), 1, -1, r"magnitude \(Q\) .* got -1"),
        (noise(2, 3, 8, 8), 1, 1.5, r"magnitude \(Q\) .* got 1.5"),
        (
            noise(2, 3, 8, 8).to("meta"),
            1,
            14,
            "the generator must be on the images' device, meta, but .* cpu",
        ),
    ],
)
def test_mistakes_are_named_in_one_sentence(
    images: Tensor, num_ops: int, magnitude: Any, sentence: str
) -> None:
    with pytest.raises(EncoreError, match=sentence):
        RandAugment()(images, num_ops, magnitude, seeded())


def test_an_unknown_space_is_named() -> None:
    with pytest.raises(EncoreError, match="there is no operation space 'author'; did you mean 'authors'"):
        RandAugment("author")
