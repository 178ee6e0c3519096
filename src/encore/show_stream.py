"""What `encore show-stream` shows: which classes come when, without training on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from encore import registry
from encore.config import choose_run_part
from encore.data.benchmark import Benchmark
from encore.data.image_set import ArrayImages, ImageSet
from encore.errors import EncoreError
from encore.files import written_atomically
from encore.layout import lay_out, num_epochs
from encore.randomness import Randomness
from encore.settings import RunSettings
from encore.stream import Task
from encore.stream_chart import draw_chart
from encore.stream_picture import draw_picture
from encore.theory import describe_stream

MOST_LISTED = 12  # tasks whose sizes are all listed


def show_stream(
    console: Console, settings: RunSettings, seed: int, memory_size: int | None, picture: Path | None
) -> None:
    """Draw a seed's stream in the terminal, and into a file if one is named."""
    if picture is not None:
        check_picture(picture)
    images = load_images(settings)
    tasks = tasks_of_seed(settings, seed, images)
    title = name_stream(settings, seed)
    sizes = [len(task.train) // num_epochs(settings) for task in tasks]
    described = [
        _describe(settings, tasks),
        f"images of a task: {_list([f'{size:,}' for size in sizes], sizes)}",
    ]
    if memory_size is not None:
        ratios = [risk.nominal_ratio for risk in describe_stream(sizes, memory_size)]
        shown = _list([f"{ratio:.3g}" for ratio in ratios], ratios)
        described.append(f"lambda with a memory of {memory_size:,}: {shown}")
    for line in (title, *described):
        console.print(line, highlight=False, soft_wrap=True)
    console.print()
    for drawn in draw_chart(tasks, images.labels, images.class_names, console.width):
        console.print(drawn, highlight=False, no_wrap=True, overflow="crop")
    if picture is not None:
        drawing = draw_picture(tasks, images.labels, images.class_names, title, described)
        with written_atomically(picture) as unfinished:
            unfinished.write_text(drawing, encoding="utf-8")
        console.print(f"written to {picture}", highlight=False, soft_wrap=True)


def check_picture(path: Path) -> None:
    """Refuse a name under which nobody would look for an SVG document."""
    if path.suffix.lower() != ".svg":
        raise EncoreError(f"a picture is written as SVG: name a file that ends in .svg, not {path}")


def load_images(settings: RunSettings) -> ImageSet:
    """Return the images that the settings name; those in files of their own are not decoded."""
    data_dir = settings.stream.data_dir
    return make_benchmark(settings).load(Path(data_dir) if data_dir is not None else None)


def make_benchmark(settings: RunSettings) -> Benchmark:
    """Return the benchmark that the settings name."""
    chosen = choose_run_part(settings, "benchmark")
    benchmark: Benchmark = registry.make("benchmark", chosen.name, **chosen.options)
    return benchmark


def tasks_of_seed(settings: RunSettings, seed: int, images: ImageSet) -> list[Task]:
    """Return the tasks that a run with this seed has."""
    generator = Randomness(seed).host_generator("stream")
    return lay_out(settings, seed, make_benchmark(settings), images, generator)


def tasks_for_theory(settings: RunSettings, seed: int) -> tuple[list[Task], bool]:
    """Return a stream's tasks, and whether they rest on the sizes that a benchmark states.

    Which classes make a task and how many images come in it depends only on how many each class has. So
    where a benchmark states that, its files are not needed.
    """
    settings = replace(settings, stream=replace(settings.stream, batch_size=1))  # each image counts
    try:
        images, is_stated = load_images(settings), False
    except EncoreError:
        sizes = make_benchmark(settings).class_sizes
        if not sizes:
            raise
        images, is_stated = _without_pixels(sizes), True
    return tasks_of_seed(settings, seed, images), is_stated


def _without_pixels(sizes: Sequence[int]) -> ImageSet:
    """Return so many training images of each class, and a test image of each, that take no memory."""
    labels = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes))])
    nothing = np.broadcast_to(np.zeros((1, 1, 1, 1), dtype=np.uint8), (len(labels), 1, 1, 1))
    names = tuple(str(label) for label in range(len(sizes)))
    return ImageSet(ArrayImages(nothing), labels, names, is_test=np.arange(len(labels)) >= sum(sizes))


def name_stream(settings: RunSettings, seed: int) -> str:
    """Return what a stream is called.

    >>> name_stream(RunSettings(), seed=3)
    'digits, class_incremental, seed 3'
    """
    kind = choose_run_part(settings, "stream")
    options = ", ".join(f"{name} {value}" for name, value in kind.options.items())
    of_kind = f"{kind.name} ({options})" if options else kind.name
    return f"{choose_run_part(settings, 'benchmark').name}, {of_kind}, seed {seed}"


def _describe(settings: RunSettings, tasks: Sequence[Task]) -> str:
    size, epochs = settings.stream.batch_size, num_epochs(settings)
    num_images = sum(len(task.train) for task in tasks) // epochs
    num_batches = sum(len(task.train) // size for task in tasks)
    often = f" {epochs} times" if epochs > 1 else ""
    num_tested = sum(len(task.test) for task in tasks)
    return (
        f"{len(tasks)} task{'s' * (len(tasks) > 1)}, {num_images:,} images{often} in {num_batches:,} batches "
        f"of {size}, {num_tested:,} to test on"
    )


def _list(shown: Sequence[str], values: Sequence[float]) -> str:
    """Return all of them, or one where all are the same, or the smallest and the largest of many."""
    if len(set(shown)) == 1:
        return shown[0]
    if len(shown) <= MOST_LISTED:
        return " ".join(shown)
    lowest, highest = (shown[values.index(value)] for value in (min(values), max(values)))
    return f"{lowest} to {highest}"
