"""Images in memory as a data set: what a caller hands in, checked, and cut like a benchmark."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encore import layout
from encore.checks import Array, check_images
from encore.data.benchmark import Arrangement
from encore.data.held_out import check_share, hold_out, refuse_untaught
from encore.data.image_set import ArrayImages, ImageSet
from encore.device import resolve_device
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.randomness import Randomness
from encore.settings import RunSettings, StreamSettings
from encore.stream import Stream, cut_into_tasks, draw_class_order

USUAL_NUM_TASKS = 5  # or the number of classes, where there are fewer
Labels = Array | Sequence[int] | Sequence[str]


class OwnArrays(NamedTuple):
    """The part of a benchmark that lays a stream out: which images are tested, which classes make a task."""

    test_share: float

    def arrange(self, images: ImageSet, seed: int, split: str | None) -> Arrangement:
        """Return the split that was given or the seed's, and the classes in the seed's order."""
        is_test = images.is_test
        if is_test is None:
            is_test = hold_out(images, check_share("test_share", self.test_share), seed)
        num_classes = len(images.class_names)
        order = draw_class_order(num_classes, seed)
        return Arrangement(is_test, tuple(cut_into_tasks(order, min(USUAL_NUM_TASKS, num_classes))))


def make_pool(
    images: Array,
    labels: Labels,
    test_images: Array | None = None,
    test_labels: Labels | None = None,
    times: Any = None,
    given_tasks: Any = None,
) -> ImageSet:
    """Return arrays as a data set, the images for testing last.

    >>> pool = make_pool(np.zeros((4, 1, 8, 8), dtype=np.uint8), ["dog", "cat", "dog", "cat"])
    >>> pool.class_names, pool.labels.tolist()
    (('cat', 'dog'), [1, 0, 1, 0])
    """
    pixels = [_check_pixels("images", images)]
    given = [check_labels("labels", labels, len(pixels[0]))]
    if (test_images is None) != (test_labels is None):
        raise EncoreError("test_images and test_labels belong together: hand in both or neither")
    if test_images is not None and test_labels is not None:
        pixels.append(_check_pixels("test_images", test_images))
        given.append(check_labels("test_labels", test_labels, len(pixels[1])))
        shapes = [list(part.shape[1:]) for part in pixels]
        if shapes[0] != shapes[1]:
            raise EncoreError(f"images of {shapes[0]} need test_images of the same shape, got {shapes[1]}")
    numbers, names = _number_classes(given)
    is_test = None if test_images is None else np.arange(len(numbers)) >= len(pixels[0])
    if is_test is not None:
        refuse_untaught(numbers, is_test, names)
    return ImageSet(
        ArrayImages(np.concatenate(pixels) if len(pixels) > 1 else pixels[0]),
        numbers,
        names,
        is_test,
        times=_check_column("times", times, len(numbers), np.float64),
        given_tasks=_check_column("given_tasks", given_tasks, len(numbers), np.int64),
    )


def make_stream(
    pool: ImageSet,
    arrays: OwnArrays,
    *,
    tasks: int | None,
    kind: str,
    options: Mapping[str, Any],
    class_order: str | Sequence[Any] | None,
    seed: int,
    device: str,
) -> Stream:
    """Cut a pool into the tasks that a run with these settings would have."""
    settings = RunSettings(
        StreamSettings(
            kind=kind,
            tasks=tasks,
            class_order=_check_class_order(class_order, pool.class_names),
            batch_size=1,  # the smallest: what is right becomes known when batches are asked for
        ),
        part_options={f"stream.{name}": value for name, value in options.items()},
    )
    store = ImageStore(pool, resolve_device(device))
    return layout.make_stream(settings, seed, arrays, store, Randomness(seed).host_generator("stream"))


def _check_class_order(
    order: str | Sequence[Any] | None, names: Sequence[str]
) -> tuple[int | str, ...] | None:
    """Return an order of classes, given by their numbers or names, or as one word, as settings have it."""
    if order is None or isinstance(order, str):
        return None if order is None else (order,)
    numbers = {name: number for number, name in enumerate(names)}
    try:
        return tuple(numbers[label] if isinstance(label, str) else operator.index(label) for label in order)
    except (KeyError, TypeError):
        raise EncoreError(
            f"class_order must be seed, sorted, or all classes by their numbers or names, got {order!r}"
        ) from None


def _check_pixels(name: str, images: Array) -> NDArray[np.uint8]:
    if not isinstance(images, Tensor | np.ndarray):
        raise EncoreError(f"{name} must be a NumPy array or a torch tensor, got {type(images).__name__}")
    shape = tuple(images.shape)
    hint = ""
    if len(shape) == 3:
        hint = f": grey images need a dimension for their one channel, {name}[:, None]"
    elif len(shape) == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3):
        permute = "permute" if isinstance(images, Tensor) else "transpose"
        hint = f": channels come first, so hand in {name}.{permute}(0, 3, 1, 2)"
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise EncoreError(f"{name} must be [N, C, H, W] with 1 or 3 channels, got {list(shape)}{hint}")
    if len(images) == 0:
        raise EncoreError(f"{name} holds no image")
    _, channels, height, width = shape
    return check_images(images, (channels, height, width), torch.device("cpu")).numpy()


def check_labels(name: str, labels: Labels, num_images: int) -> NDArray[Any]:
    """Return labels as int64 or as texts."""
    try:
        given = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError:  # of rows of different lengths
        given = np.empty((0, 0))
    if given.shape != (num_images,):
        raise EncoreError(
            f"{name} must be one class for each of the {num_images} images, got shape {list(given.shape)}"
        )
    if given.dtype.kind == "O" and all(isinstance(label, str) for label in given):
        given = given.astype(np.str_)
    if given.dtype.kind not in "iuU":
        raise EncoreError(f"{name} must be whole numbers or names of classes, got {given.dtype}")
    return given


def _number_classes(given: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each image's class, and what the classes are called."""
    if len({part.dtype.kind == "U" for part in given}) > 1:
        raise EncoreError("labels and test_labels must both be numbers or both be names of classes")
    classes, numbers = np.unique(np.concatenate(given), return_inverse=True)
    if classes.dtype.kind != "U" and classes.tolist() != list(range(len(classes))):
        raise EncoreError(
            f"labels must be numbers from 0 on with none left out, got {len(classes)} different ones from "
            f"{classes[0]} to {classes[-1]}: np.unique(labels, return_inverse=True)[1] numbers them anew"
        )
    return numbers.astype(np.int64), tuple(str(name) for name in classes)


def _check_column(name: str, values: Any, num_images: int, dtype: type[Any]) -> NDArray[Any] | None:
    if values is None:
        return None
    try:
        column = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
        checked = column.astype(dtype, casting="same_kind" if column.dtype.kind == "f" else "safe")
    except (TypeError, ValueError):
        kind = "whole numbers" if dtype is np.int64 else "numbers"
        raise EncoreError(f"{name} must be {kind}, one for each image") from None
    if checked.shape != (num_images,):
        raise EncoreError(
            f"{name} must be one for each of the {num_images} images, got {list(checked.shape)}"
        )
    return checked
