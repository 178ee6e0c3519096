"""Each kind of stream follows the law that its docstring states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Generator, Tensor

from encore.errors import EncoreError
from encore.interfaces import Material
from encore.stream import Task
from encore.streams.blurry import Blurry
from encore.streams.by_time import ByTime
from encore.streams.given import Given
from encore.streams.gradual import Gradual
from encore.streams.imbalanced import Imbalanced
from encore.streams.shuffled import Shuffled

UNLIKELY = 1e-4  # seeds are fixed, so a test that passes once passes always


def make_material(
    counts: list[int],
    groups: tuple[tuple[int, ...], ...],
    seed: int = 0,
    num_test: int = 4,
    times: Tensor | None = None,
    given_tasks: Tensor | None = None,
) -> Material:
    """Return so many training images of each class, the classes well mixed, then test images of each."""
    numbers = np.random.default_rng(len(counts))
    train = numbers.permutation(np.repeat(np.arange(len(counts)), counts))
    labels = torch.from_numpy(np.concatenate([train, np.repeat(np.arange(len(counts)), num_test)]))
    rows = torch.arange(len(labels))
    generator = Generator().manual_seed(seed)
    return Material(labels, rows[: len(train)], rows[len(train) :], groups, times, given_tasks, generator)


def class_counts(material: Material, tasks: list[Task]) -> list[list[int]]:
    """Return a row for each task: how many training images of each class it has."""
    num_classes = int(material.labels.max()) + 1
    return [material.labels[task.train].bincount(minlength=num_classes).tolist() for task in tasks]


FOUR = ((0,), (1,), (2,), (3,))


def test_blurry_moves_exact_numbers() -> None:
    material = make_material([50, 45, 4, 100], ((3, 0), (2,), (1,)))
    counts = np.array(class_counts(material, Blurry(share=0.3)(material)))
    # 0.3 of 50, 45, 4 and 100: 15, 13.5 (to the even 14), 1.2 and 30 images.
    assert [counts[0, 0], counts[2, 1], counts[1, 2], counts[0, 3]] == [35, 31, 3, 70]
    assert counts.sum(0).tolist() == [50, 45, 4, 100]
    assert sorted(counts[1:, 0].tolist()) == [7, 8]
    assert counts[:2, 1].tolist() == [7, 7]
    assert sorted(counts[[0, 2], 2].tolist()) == [0, 1]
    assert counts[1:, 3].tolist() == [15, 15]


def test_blurry_gives_every_other_task_the_same_chance() -> None:
    """Five images over three tasks: two of these get two, one gets one, each with probability 1/3."""
    got_one, leaving = np.zeros(3), np.zeros(50)
    for seed in range(600):
        material = make_material([50, 30, 30, 30], FOUR, seed)
        tasks = Blurry(share=0.1)(material)
        others = [row[0] for row in class_counts(material, tasks)][1:]
        assert sorted(others) == [1, 2, 2]
        got_one += np.array(others) == 1
        of_class = material.train[material.labels[material.train] == 0]
        leaving += ~np.isin(of_class, tasks[0].train)
    assert chisquare(got_one).pvalue > UNLIKELY
    # Five of fifty leave each time, so their counts vary less than a chi-square law has it: by a factor 0.9.
    assert chisquare(leaving).statistic / (1 - 5 / 50) < 100


def test_blurry_mixes_what_leaked_with_the_rest_of_a_task() -> None:
    material = make_material([400, 400], ((0,), (1,)))
    first, second = Blurry(share=0.5)(material)
    for task in (first, second):
        position = np.flatnonzero(material.labels[task.train] == 0)
        assert abs(position.mean() - 199.5) < 5 * 400 / np.sqrt(12 * 200)


def test_blurry_with_one_task_or_no_share_is_class_incremental() -> None:
    material = make_material([10, 10], ((0, 1),))
    assert class_counts(material, Blurry(share=0.9)(material)) == [[10, 10]]
    material = make_material([10, 10], ((0,), (1,)))
    assert class_counts(material, Blurry(share=0.0)(material)) == [[10, 0], [0, 10]]
    # 0.99 of 10 is 9.9, rounded to all: then they have changed places.
    assert class_counts(material, Blurry(share=0.99)(material)) == [[0, 10], [10, 0]]


def test_test_images_stay_with_their_classes() -> None:
    for kind in (Blurry(0.5), Gradual(2.0), Imbalanced(ratio=0.2)):
        material = make_material([30, 30, 30], ((2,), (0, 1)))
        for task in kind(material):
            expected = material.test[torch.isin(material.labels[material.test], torch.tensor(task.classes))]
            assert task.test.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("width", "share_before", "share_at_home"),
    [
        # The part of the trapezoid outside its task is, on each side, a triangle of width w/2, height 1/2.
        (1.0, 1 / 8, 3 / 4),
        (0.5, 1 / 16, 7 / 8),
        # Flat over its own task, at 1/2, and then falling over a whole task on each side.
        (2.0, 1 / 4, 1 / 2),
    ],
)
def test_gradual_has_the_shares_of_a_trapezoid(
    width: float, share_before: float, share_at_home: float
) -> None:
    material = make_material([4000] * 5, ((0,), (1,), (2,), (3,), (4,)))
    counts = class_counts(material, Gradual(width)(material))
    in_the_middle = [counts[task][2] for task in (1, 2, 3)]
    shares = np.array([share_before, share_at_home, share_before])
    assert sum(in_the_middle) == 4000
    assert chisquare(in_the_middle, 4000 * shares).pvalue > UNLIKELY
    # What would come before the stream begins comes at its beginning.
    at_the_start = [counts[task][0] for task in (0, 1)]
    assert chisquare(at_the_start, 4000 * np.array([1 - share_before, share_before])).pvalue > UNLIKELY


def test_gradual_rises_and_falls_linearly() -> None:
    material = make_material([6000] * 3, ((0,), (1,), (2,)))
    order = torch.cat([task.train for task in Gradual(1.0)(material)])
    by_tenth = [(material.labels[rows] == 1).sum().item() for rows in order.tensor_split(30)]
    # Zero at 0.5 tasks, highest at 1.5, zero again at 2.5: in tenths of a task, 600 images each, the mean
    # height over a tenth is 0.05, 0.15, .. 0.95 and down again.
    heights = np.array([0.0] * 5 + [0.05 + 0.1 * step for step in range(10)])
    expected = 600 * np.concatenate([heights, heights[::-1]])
    assert by_tenth[:5] == [0] * 5
    assert by_tenth[25:] == [0] * 5
    assert chisquare(by_tenth[5:25], expected[5:25] * 6000 / expected.sum()).pvalue > UNLIKELY


def test_gradual_with_tasks_of_unequal_size_keeps_their_sizes() -> None:
    material = make_material([3000, 1000, 1000, 1000], ((0, 1), (2,), (3,)))
    tasks = Gradual(0.5)(material)
    assert [len(task.train) for task in tasks] == [4000, 1000, 1000]
    counts = np.array(class_counts(material, tasks))
    # A mean task has 2,000 images, so fading takes 1,000: the part of a task that crosses a border is a
    # triangle of 500 with height 1/2, 125 images each way, of which 3/4 from the class of 3,000 at the first.
    assert abs(counts[0, 2] - 125) < 5 * np.sqrt(125)
    assert abs(counts[1, :2].sum() - 125) < 5 * np.sqrt(125)
    assert abs(counts[1, 0] - 0.75 * 125) < 5 * np.sqrt(94)
    assert abs(counts[1, 3] - 125) < 5 * np.sqrt(125)


def test_gradual_without_width_is_class_incremental_and_with_much_is_shuffled() -> None:
    material = make_material([300] * 4, FOUR)
    sharp = class_counts(material, Gradual(0.0)(material))
    assert sharp == [[300, 0, 0, 0], [0, 300, 0, 0], [0, 0, 300, 0], [0, 0, 0, 300]]
    flat = np.array(class_counts(material, Gradual(1000.0)(material)))
    assert chisquare(flat.ravel()).pvalue > UNLIKELY


def test_exponential_sizes() -> None:
    material = make_material([1000] * 5, ((4, 1), (0, 2), (3,)))
    counts = class_counts(material, Imbalanced("exponential", 0.01, "first")(material))
    # 1000 * 0.01^(0, 1/4, 2/4, 3/4, 1) = 1000, 316.2, 100, 31.6, 10 in the order 4 1 0 2 3.
    assert counts == [[0, 316, 0, 0, 1000], [100, 0, 32, 0, 0], [0, 0, 0, 10, 0]]
    counts = class_counts(material, Imbalanced("exponential", 0.01, "last")(material))
    assert counts == [[0, 32, 0, 0, 10], [100, 0, 316, 0, 0], [0, 0, 0, 1000, 0]]


def test_step_sizes_and_the_least_there_is() -> None:
    material = make_material([100, 100, 3, 100, 100], ((0, 1), (3, 2), (4,)))
    counts = class_counts(material, Imbalanced("step", 0.1, "first")(material))
    # The first three of five keep all; a tenth of 3 images would be none, so one is kept.
    assert counts == [[100, 100, 0, 0, 0], [0, 0, 1, 100, 0], [0, 0, 0, 0, 10]]


def test_ranks_are_drawn_and_so_is_what_is_kept() -> None:
    first_is_largest, kept = np.zeros(3), np.zeros(20)
    for seed in range(300):
        material = make_material([20, 20, 20], ((0,), (1,), (2,)), seed)
        tasks = Imbalanced("exponential", 0.25)(material)
        sizes = [len(task.train) for task in tasks]
        assert sorted(sizes) == [5, 10, 20]
        first_is_largest += np.array(sizes) == 20
        if sizes[0] == 5:
            of_class = material.train[material.labels[material.train] == 0]
            kept += np.isin(of_class, tasks[0].train)
    assert chisquare(first_is_largest).pvalue > UNLIKELY
    assert chisquare(kept).statistic / (1 - 5 / 20) < 60  # 19 degrees of freedom: 47 at one in 3,000


def test_ratio_one_keeps_everything() -> None:
    material = make_material([7, 9], ((0,), (1,)))
    for law in ("exponential", "step"):
        assert class_counts(material, Imbalanced(law, 1.0)(material)) == [[7, 0], [0, 9]]


def test_time_orders_whatever_the_rows() -> None:
    times = torch.tensor([5.0, 1.0, 1.0, 9.0, 0.0, 4.0, 0.5, 1.0, 4.5, 99.0, -1.0])
    labels = torch.tensor([0, 1, 0, 2, 1, 1, 0, 0, 0, 0, 0])
    train, test = torch.arange(6), torch.arange(6, 11)
    tasks = ByTime()(Material(labels, train, test, ((0,), (1,), (2,)), times, None, Generator()))
    assert [task.train.tolist() for task in tasks] == [[4, 1], [2, 5], [0, 3]]  # 0 1 | 1 4 | 5 9
    # Periods begin at the start of the world, at 1 and at 5.
    assert [task.test.tolist() for task in tasks] == [[6, 10], [7, 8], [9]]
    assert [task.classes for task in tasks] == [(1,), (0, 1), (0, 2)]


def test_time_gives_equal_sizes() -> None:
    times = torch.rand(47, generator=Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(47) % 3
    material = Material(labels, torch.arange(40), torch.arange(40, 47), ((0,),) * 7, times, None, Generator())
    tasks = ByTime()(material)
    assert [len(task.train) for task in tasks] == [6, 6, 6, 6, 6, 5, 5]
    in_order = times[torch.cat([task.train for task in tasks])]
    assert torch.equal(in_order, times[:40].sort().values)


def test_given_tasks_come_by_their_numbers() -> None:
    numbers = torch.tensor([12, -3, 5, 5, 12, -3, 5, 12, -3])
    labels = torch.tensor([0, 1, 2, 0, 0, 1, 2, 1, 1])
    material = Material(labels, torch.arange(6), torch.arange(6, 9), ((0, 1, 2),), None, numbers, Generator())
    tasks = Given()(material)
    assert [sorted(task.train.tolist()) for task in tasks] == [[1, 5], [2, 3], [0, 4]]
    assert [task.test.tolist() for task in tasks] == [[8], [6], [7]]
    assert [set(task.classes) for task in tasks] == [{1}, {0, 2}, {0}]
    assert tasks[1].classes == tuple(labels[tasks[1].train].tolist()), "in order of first appearance"


def test_given_tasks_come_in_random_order_within() -> None:
    first = np.zeros(4)
    for seed in range(200):
        material = make_material([8], ((0,),), seed, given_tasks=torch.arange(12) % 2)
        first[int(Given()(material)[0].train[0]) // 2] += 1
    assert chisquare(first).pvalue > UNLIKELY


def test_shuffled_puts_any_image_anywhere() -> None:
    where, tested = np.zeros(4), np.zeros(4)
    for seed in range(400):
        material = make_material([9, 3], FOUR, seed, num_test=4)
        tasks = Shuffled()(material)
        assert [len(task.train) for task in tasks] == [3, 3, 3, 3]
        assert [len(task.test) for task in tasks] == [2, 2, 2, 2]
        where += [0 in task.train for task in tasks]
        tested += [12 in task.test for task in tasks]
    assert chisquare(where).pvalue > UNLIKELY
    assert chisquare(tested).pvalue > UNLIKELY


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Blurry(share=-0.1), "share must be a number of at least 0, got -0.1"),
        (lambda: Blurry(share=1.0), "share must be below 1, for something of a class to stay, got 1.0"),
        (lambda: Blurry(share=float("nan")), "share must be a number of at least 0, got nan"),
        (lambda: Gradual(width=-1.0), "width must be a number of at least 0, got -1.0"),
        (lambda: Gradual(width=float("inf")), "width must be a number of at least 0, got inf"),
        (lambda: Imbalanced(ratio=0.0), "ratio must be a number above 0, got 0.0"),
        (lambda: Imbalanced(ratio=1.5), "ratio must be at most 1, as the smallest over the largest class"),
        (lambda: Imbalanced("exponentially"), "there is no law 'exponentially'; did you mean 'exponential'?"),
        (lambda: Imbalanced(largest="fist"), "there is no place for the largest classes 'fist'; did you"),
    ],
)
def test_wrong_options_are_refused(make: type[Blurry], sentence: str) -> None:
    with pytest.raises(EncoreError) as refused:
        make()
    assert str(refused.value).startswith(sentence)


def test_what_the_data_do_not_say_is_not_made_up() -> None:
    material = make_material([6, 6], ((0,), (1,)))
    with pytest.raises(
        EncoreError, match="does not know when its images were taken: choose another --stream"
    ):
        ByTime()(material)
    with pytest.raises(EncoreError, match="does not say which image belongs to which task"):
        Given()(material)
    times = torch.zeros(20)
    times[[3, 7]] = torch.nan
    with pytest.raises(EncoreError, match="it is not known when 2 of the images were taken"):
        ByTime()(material._replace(times=times))
    numbers = torch.zeros(20, dtype=torch.int64)
    numbers[15] = 3
    with pytest.raises(EncoreError, match="task 3 of this benchmark has test images and no training images"):
        Given()(material._replace(given_tasks=numbers))
