"""Photographs decoded in a second: by Encore's image store, and by PyTorch's DataLoader on the same files.

    python -m benchmarks.decoding

Both decode JPEG files of about 500x375 pixels, which are generated first, make the shorter side 256 long, cut
out 224x224 at random, and hand over uint8 batches of 32 to a consumer that does nothing with them.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.evidence import keep_printed
from encore import image_store
from encore.data.image_set import ImageSet
from encore.data.pictures import PictureFiles
from encore.data.reading import num_readers
from encore.image_store import ImageStore
from encore.stream import Stream, Task
from encore.tables import make_table

NUM_FILES = 2000
NUM_DIFFERENT = 50  # pictures of which the files are copies
ROUNDS = 7
BATCH, SIDE, CROP = 32, 256, 224


class Photographs(Dataset[Tensor]):
    """What a program without Encore would do with each file."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Tensor:
        """Return a photograph as uint8 [3, 224, 224]."""
        with Image.open(self.paths[number]) as opened:
            picture = opened.convert("RGB")
        scale = SIDE / min(picture.size)
        width, height = (round(scale * side) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        left, upper = (int(torch.randint(side - CROP + 1, ())) for side in (width, height))
        picture = picture.crop((left, upper, left + CROP, upper + CROP))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def main() -> None:
    """Measure both by turns, and print how they compare."""
    console = Console(record=True, width=100)
    image_store.LARGEST_SHARE = 0  # nothing stays in memory, as of ImageNet nothing could
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photographs(Path(folder))
        num_bytes = sum(path.stat().st_size for path in paths) / len(paths)
        console.print(
            f"{NUM_FILES:,} files of {num_bytes / 1000:.0f} kB, {ROUNDS} rounds, by turns; "
            f"{num_readers()} threads or processes"
        )
        store = make_store(Path(folder), paths)
        loader: DataLoader[Any] = DataLoader(
            Photographs(paths),
            BATCH,
            shuffle=True,
            num_workers=num_readers(),
            persistent_workers=True,
            drop_last=True,
        )
        ways: dict[str, Callable[[], Iterator[Any]]] = {
            "Encore": lambda: batches_of(store),
            "DataLoader": lambda: iter(loader),
        }
        found: dict[str, list[Measured]] = {name: [] for name in ways}
        for _ in range(ROUNDS + 1):
            for name, make_batches in ways.items():
                found[name].append(measure(make_batches))
    table = make_table("", "images\na second", "lowest", "highest", "CPU ms\nan image", "memory it\nadds, MB")
    for name, (first, *others) in found.items():  # the first starts processes, and reads from the disk
        rates = [measured.rate for measured in others]
        table.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f}",
            f"{max(rates):,.0f}",
            f"{1000 * statistics.median(measured.cpu_seconds for measured in others):.2f}",
            f"{first.added_bytes / 1e6:.0f}",
        )
    console.print(table)
    pairs = list(zip(*found.values(), strict=True))[1:]
    ratios = sorted(ours.rate / theirs.rate for ours, theirs in pairs)
    # The time of the processor depends less on what else the machine is doing.
    cpu_ratio = statistics.median(theirs.cpu_seconds / ours.cpu_seconds for ours, theirs in pairs)
    console.print(
        f"Encore's rate is {statistics.median(ratios):.2f} times the DataLoader's "
        f"(median of {ROUNDS} rounds, {ratios[0]:.2f} to {ratios[-1]:.2f}), "
        f"for an equal share of the processor {cpu_ratio:.2f} times"
    )
    keep_printed("decoding", "Photographs decoded in a second", console.export_text())


def write_photographs(folder: Path) -> list[Path]:
    """Write files that are about as large, and as much work, as photographs of 500x375."""
    numbers = np.random.default_rng(0)
    different: list[bytes] = []
    for _ in range(NUM_DIFFERENT):
        pixels = numbers.normal(scale=8, size=(375, 500, 3))
        for detail, strength in ((6, 60), (40, 30), (120, 20)):
            coarse = Image.fromarray(numbers.integers(0, 256, (detail, detail, 3), dtype=np.uint8))
            pixels += (
                strength / 128 * (np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)) - 128.0)
            )
        picture = Image.fromarray((pixels + 128).clip(0, 255).astype(np.uint8))
        path = folder / f"{len(different)}.JPEG"
        picture.save(path, quality=92)
        different.append(path.read_bytes())
    paths = [folder / f"{number}.JPEG" for number in range(NUM_FILES)]
    for number, path in enumerate(paths):
        path.write_bytes(different[number % NUM_DIFFERENT])
    return paths


def make_store(folder: Path, paths: list[Path]) -> ImageStore:
    """Return the store that a run over the files would use."""
    files = PictureFiles(folder, [path.name for path in paths], (3, SIDE, SIDE), "cover")
    labels = np.zeros(len(paths), dtype=np.int64)
    return ImageStore(ImageSet(files, labels, ("photograph",), crop=CROP), torch.device("cpu"))


def batches_of(store: ImageStore) -> Iterator[Any]:
    """Hand out the batches of a run whose only task has all files."""
    rows = torch.randperm(NUM_FILES)
    return Stream(store, [Task((0,), rows, rows[:1])]).batches(0, BATCH)


class Measured(NamedTuple):
    """What one pass over all files took."""

    rate: float  # images in a second
    cpu_seconds: float  # for an image
    added_bytes: int  # of memory in use on the way, beyond those before


def measure(make_batches: Callable[[], Iterator[Any]]) -> Measured:
    """Take all batches, and look at the memory halfway."""
    before, added = resident_bytes(), 0
    begun, cpu_before, looking = time.perf_counter(), cpu_seconds(), 0.0
    num_batches = 0
    for _ in make_batches():
        num_batches += 1
        if num_batches == NUM_FILES // BATCH // 2:
            halfway = time.perf_counter()
            added = resident_bytes() - before
            looking = time.perf_counter() - halfway
    num_images = num_batches * BATCH
    rate = num_images / (time.perf_counter() - begun - looking)
    return Measured(rate, (cpu_seconds() - cpu_before) / num_images, added)


def cpu_seconds() -> float:
    """Return the processor's time that this process and those it started have had."""
    ticks = 0
    for pid in processes():
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # as user, and in the system
    return ticks / os.sysconf("SC_CLK_TCK")


def processes() -> list[str]:
    """Return the ids of this process and of those it started."""
    return ["self", *(str(child.pid) for child in active_children())]


def resident_bytes() -> int:
    """Return the memory of this process and of those it started; what they share counts once."""
    total = 0
    for pid in processes():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


if __name__ == "__main__":
    main()
