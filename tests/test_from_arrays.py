"""A user's own images from Python: arrays as streams, live streams, teaching with a run's numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.helpers import assert_same_state, make_learner

import encore
from encore.cli import main
from encore.errors import EncoreError
from encore.stream import Stream

NUM = 60
LABELS = np.arange(NUM) % 6
IMAGES = np.random.default_rng(0).integers(0, 256, (NUM, 1, 8, 8), dtype=np.uint8)
NAMES = ("ant", "bee", "cat", "dog", "elk", "fox")


def make(images: Any = IMAGES, labels: Any = LABELS, **options: Any) -> Stream:
    return Stream.from_arrays(images, labels, device="cpu", **options)


def rows_of(stream: Stream) -> list[tuple[Any, list[int], list[int]]]:
    return [(task.classes, task.train.tolist(), task.test.tolist()) for task in stream.tasks]


def refusal(images: Any = IMAGES, labels: Any = LABELS, **options: Any) -> str:
    with pytest.raises(EncoreError) as caught:
        make(images, labels, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Arrays


def test_every_image_is_taught_or_tested_with_its_own_label() -> None:
    stream = make(tasks=3)
    taught: list[tuple[bytes, int]] = []
    for task in range(3):
        for batches in (stream.batches(task, 8), stream.test_batches(task)):
            for images, labels in batches:
                assert set(labels.tolist()) <= set(stream.tasks[task].classes)
                taught += zip(map(bytes, images.numpy()), labels.tolist(), strict=True)
        assert (len(stream.tasks[task].train), len(stream.tasks[task].test)) == (16, 4)
    assert sorted(taught) == sorted(zip(map(bytes, IMAGES), LABELS.tolist(), strict=True))


@pytest.mark.parametrize(
    "images",
    [
        IMAGES.astype(np.float32) / 255,
        IMAGES.astype(np.float64) / 255,
        torch.from_numpy(IMAGES),
        torch.from_numpy(IMAGES).float() / 255,
        np.asfortranarray(IMAGES),
    ],
)
def test_any_form_of_images_gives_the_same_pixels(images: Any) -> None:
    pixels: Any = make(images).store.image_set.images
    assert pixels.array.dtype == np.uint8
    assert np.array_equal(pixels.array, IMAGES)


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.astype(np.uint8),
        LABELS.tolist(),
        torch.from_numpy(LABELS),
        [NAMES[label] for label in LABELS],
        np.array(NAMES)[LABELS],
        np.array(NAMES, dtype=object)[LABELS],
    ],
)
def test_any_form_of_labels_gives_the_same_stream(labels: Any) -> None:
    assert rows_of(make(labels=labels, seed=3)) == rows_of(make(seed=3))
    names = make(labels=labels).store.class_names
    assert names in (NAMES, tuple("012345"))


def test_names_give_an_order() -> None:
    named = make(labels=np.array(NAMES)[LABELS], class_order=NAMES[::-1], tasks=2)
    assert [task.classes for task in named.tasks] == [(5, 4, 3), (2, 1, 0)]
    numbered = make(class_order=np.arange(6)[::-1], tasks=2)
    assert [task.classes for task in numbered.tasks] == [(5, 4, 3), (2, 1, 0)]
    assert [task.classes for task in make(class_order="sorted", tasks=2).tasks] == [(0, 1, 2), (3, 4, 5)]


def test_seeds_differ_and_repeat() -> None:
    assert rows_of(make(seed=1)) == rows_of(make(seed=1))
    assert rows_of(make(seed=1)) != rows_of(make(seed=2))


def test_images_for_testing_of_ones_own() -> None:
    stream = make(test_images=255 - IMAGES[:12], test_labels=LABELS[:12], tasks=2)
    tested = torch.cat([batch.images for task in range(2) for batch in stream.test_batches(task)])
    assert sorted(map(bytes, tested.numpy())) == sorted(map(bytes, 255 - IMAGES[:12]))
    assert sum(len(task.train) for task in stream.tasks) == NUM


def test_five_tasks_or_as_many_as_there_are_classes() -> None:
    assert len(make().tasks) == 5
    assert len(make(IMAGES[:30], LABELS[:30] % 3).tasks) == 3


def test_kinds_of_stream_with_their_options() -> None:
    times = np.arange(NUM)[::-1] / 7
    in_time = torch.cat([task.train for task in make(kind="by_time", times=times, tasks=3).tasks])
    assert (in_time.diff() < 0).all()
    given = make(kind="given", given_tasks=LABELS // 3 + 5)
    assert [set(task.classes) for task in given.tasks] == [{0, 1, 2}, {3, 4, 5}]
    imbalanced = make(kind="imbalanced", options={"ratio": 0.5}, tasks=2)
    assert sum(len(task.train) for task in imbalanced.tasks) < 48


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"images": IMAGES.tolist()}, "images must be a NumPy array or a torch tensor, got list"),
    ({"images": IMAGES[:, 0]}, "got [60, 8, 8]: grey images need a dimension for their one"
    " channel, images[:, None]"),
    (
        {"images": np.zeros((60, 32, 32, 3), np.uint8)},
        "got [60, 32, 32, 3]: channels come first, so hand in images.transpose(0, 3, 1, 2)",
    ),
    (
        {"images": torch.zeros(60, 8, 8, 1)},
        "got [60, 8, 8, 1]: channels come first, so hand in images.permute(0, 3, 1, 2)",
    ),
    ({"images": np.zeros((60, 4, 8, 8), np.uint8)}, "images must be [N, C, H, W] with 1 or 3 channels"),
    ({"images": IMAGES[:0]}, "images holds no image"),
    ({"images": IMAGES.astype(np.int64)}, "images must be uint8, or floats from 0 to 1, got int64"),
    ({"images": IMAGES.astype(np.float32)}, "images as floats must lie between 0 and 1"),
    ({"images": IMAGES.astype(object)}, "images must hold numbers"),
    ({"labels": LABELS[:59]}, "labels must be one class for each of the 60 images, got shape [59]"),
    ({"labels": np.eye(6)[LABELS]}, "labels must be one class for each of the 60 images, got shape [60, 6]"),
    ({"labels": [[1], [2, 3]]}, "labels must be one class for each of the 60 images"),
    ({"labels": LABELS / 2}, "labels must be whole numbers or names of classes, got float64"),
    ({"labels": LABELS > 2}, "labels must be whole numbers or names of classes, got bool"),
    ({"labels": [None] * 60}, "labels must be whole numbers or names of classes, got object"),
    ({"labels": LABELS + 1}, "numbers from 0 on with none left out, got 6 different ones from "
    "1 to 6: np.unique("),
    ({"labels": LABELS - 1}, "labels must be numbers from 0 on"),
    ({"labels": LABELS * 2}, "labels must be numbers from 0 on"),
    ({"test_images": IMAGES}, "test_images and test_labels belong together"),
    ({"test_images": np.zeros((2, 1, 9, 9), np.uint8), "test_labels": [0, 1]}, "test_images of the same"),
    ({"test_images": IMAGES[:2], "test_labels": ["ant", "bee"]}, "must both be numbers or both be names"),
    ({"test_images": IMAGES[:2], "test_labels": [0, 6]}, "6: there are images to test on, but none"),
    ({"test_share": 1}, "test_share must be above 0 and below 1, such as 0.2, got 1"),
    ({"tasks": 7}, "6 classes make from 1 to 6 tasks"),
    ({"tasks": 2.5}, "the number of tasks must be a whole number"),
    ({"kind": "class-incrementel"}, "there is no stream 'class-incrementel'"),
    ({"kind": "by_time"}, "when"),
    ({"kind": "by_time", "times": LABELS[:5]}, "times must be one for each of the 60 images, got [5]"),
    ({"kind": "by_time", "times": ["noon"] * 60}, "times must be numbers, one for each image"),
    ({"kind": "given", "given_tasks": LABELS / 2}, "given_tasks must be whole numbers, one for each image"),
    ({"options": {"speed": 3}}, "has no options"),
    ({"class_order": [0, 1]}, "a class order must name each class from 0 to 5 once"),
    ({"class_order": "random"}, "there is no class order 'random'"),
    ({"class_order": ["ant", "wasp"]}, "class_order must be seed, sorted, or all classes"),
    ({"seed": -1}, "a seed must be a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(**options)


# Teaching


def write_pictures(folder: Path) -> dict[str, Any]:
    """Write the images as pictures in folders of classes; return the same as arrays, in the same order."""
    parts = {"train": np.arange(NUM) < 48, "test": np.arange(NUM) >= 48}
    arrays = {}
    for part, chosen in parts.items():
        rows = [row for label in range(6) for row in np.flatnonzero(chosen & (label == LABELS))]
        for row in rows:
            path = folder / part / NAMES[LABELS[row]] / f"{row:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(IMAGES[row, 0]).save(path)
        arrays[part] = (IMAGES[rows], LABELS[rows])
    names = {"train": ("images", "labels"), "test": ("test_images", "test_labels")}
    return {name: array for part in parts for name, array in zip(names[part], arrays[part], strict=True)}


def test_teaching_gives_the_numbers_of_a_run(tmp_path: Path) -> None:
    stream = make(**write_pictures(tmp_path / "mine"), tasks=3, seed=2)
    learner = encore.Learner(
        "er", image_shape=stream.store.image_shape, num_classes=stream.store.num_classes, memory_size=30,
        plan=encore.Plan(2, 1, 14), parts={"model.width": 2}, seed=2, device="cpu",
    )  # fmt: skip
    ours = encore.teach(learner, stream, batch_size=4)
    pictures = ["--benchmark", "image_folder", "--data-dir", str(tmp_path / "mine"), "--benchmark.grey"]
    same = ["--benchmark.side", "8", "--tasks", "3", "--batch-size", "4", "--memory-size", "30"]
    plan = ["--repeats", "2", "--num-ops", "1", "--model.width", "2", "--seeds", "2", "--device", "cpu"]
    rest = ["--threads", str(torch.get_num_threads()), "--quiet", "--out", str(tmp_path / "runs")]
    assert main(["run", *pictures, *same, *plan, *rest]) == 0
    record = json.loads((tmp_path / "runs" / "seed-2" / "record.json").read_text())
    assert ours == record["accuracy_matrix"]
    assert record["sgd_steps"] == learner.num_steps == 3 * 4 * 2
    theirs = encore.Learner.load(tmp_path / "runs" / "seed-2" / "learner.encore", device="cpu")
    assert_same_state(learner.state_dict(), theirs.state_dict())


def test_teaching_takes_another_plan() -> None:
    learner = make_learner()
    matrix = encore.teach(learner, make(tasks=2), batch_size=8, plan=encore.Plan(repeats=3))
    assert learner.num_steps == 2 * 3 * 3  # two tasks of three whole batches
    assert [len(row) for row in matrix] == [2, 2]
    assert matrix[0][1] == 0
    assert all(0 <= value <= 1 for row in matrix for value in row)


@pytest.mark.parametrize(
    ("changes", "batch_size", "sentence"),
    [
        ({}, 17, "the batch size must be from 1 to 16, the size of the smallest task, got 17"),
        ({"image_shape": (3, 8, 8)}, 8, r"images are \(1, 8, 8\) and the learner is made for \(3, 8, 8\)"),
        ({"num_classes": 5}, 8, "the stream has 6 classes and the learner 5"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_learnt(
    changes: dict[str, Any], batch_size: int, sentence: str
) -> None:
    stream, learner = make(tasks=3), make_learner(**changes)
    with pytest.raises(EncoreError, match=sentence):
        encore.teach(learner, stream, batch_size)
    assert learner.memory.num_seen == 0
    encore.teach(make_learner(), stream, 8)  # nothing of the stream is gone


# Live streams


def source(sizes: list[int]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    start = 0
    for size in sizes:
        yield IMAGES[start : start + size], LABELS[start : start + size]
        start += size


@pytest.mark.parametrize("size", [1, 4, 10, 100])
@pytest.mark.parametrize("sizes", [[60], [1] * 60, [7, 0, 23, 1, 29], [0, 0], []])
def test_recut_keeps_order_and_all_images(sizes: list[int], size: int) -> None:
    batches = list(encore.recut(source(sizes), size))
    count = sum(sizes)
    whole, rest = divmod(count, size)
    assert [len(batch.labels) for batch in batches] == [size] * whole + [rest] * (rest > 0)
    if count:
        assert np.array_equal(torch.cat([batch.images for batch in batches]).numpy(), IMAGES[:count])
        assert torch.cat([batch.labels for batch in batches]).tolist() == LABELS[:count].tolist()


def test_recut_takes_nothing_before_it_is_needed() -> None:
    taken = []

    def endless() -> Iterator[tuple[NDArray[np.uint8], list[int]]]:
        for number in range(1_000_000):
            taken.append(number)
            yield IMAGES[:3], [0, 1, 2]

    batches = encore.recut(endless(), 5)
    assert taken == []
    next(batches)
    assert taken == [0, 1]
    next(batches)
    assert taken == [0, 1, 2, 3]


def test_recut_copies_what_the_source_may_write_again() -> None:
    buffer = np.zeros((3, 1, 8, 8), dtype=np.uint8)

    def camera() -> Iterator[tuple[NDArray[np.uint8], list[int]]]:
        for number in range(4):
            buffer[:] = number
            yield buffer, [0, 0, 0]

    batches = list(encore.recut(camera(), 2))
    assert (
        torch.cat([batch.images[:, 0, 0, 0] for batch in batches]).tolist()
        == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    )


def test_recut_feeds_a_learner_as_one_would_by_hand() -> None:
    by_hand, live = make_learner(), make_learner()
    for start in range(0, 20, 4):
        by_hand.observe(IMAGES[start : start + 4], LABELS[start : start + 4])
    for images, labels in encore.recut(source([9, 11]), size=4):
        live.observe(images, labels)
    assert_same_state(live.state_dict(), by_hand.state_dict())


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        ([IMAGES], "batch 1 must be a pair of images and labels, got ndarray"),
        ([7], "batch 1 must be a pair of images and labels, got int"),
        ([(IMAGES[0], 3)], r"batch 1 must have images \[B, C, H, W\] in an array, got shape \[1, 8, 8\]"),
        ([("text", 3)], "got str"),
        ([(IMAGES[:2], [1])], r"batch 1 must be one class for each of the 2 images, got shape \[1\]"),
        ([(IMAGES[:2], [0.5, 1])], "the labels of batch 1 must be whole numbers"),
        ([(IMAGES[:2], ["ant", "bee"])], "the labels of batch 1 must be numbers of classes, got 'ant'"),
        ([(IMAGES[:2], [0, 1]), (np.zeros((1, 1, 9, 9), np.uint8), [0])], r"has images of \[1, 9, 9\]"),
    ],
)  # fmt: skip
def test_a_wrong_live_batch_is_refused(batches: Any, sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        list(encore.recut(batches, size=3))


def test_recut_refuses_its_size_at_once() -> None:
    with pytest.raises(EncoreError, match="size must be a whole number of at least 1, got 0"):
        encore.recut([], size=0)


def test_names_are_loaded_again_and_again() -> None:
    """A submodule of the same name would stand in a function's place once it is imported."""
    for _ in range(2):
        assert callable(encore.teach)
        assert callable(encore.recut)
