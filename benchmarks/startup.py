"""How long a run waits for its images: from files, and from what was prepared of them.

CIFAR-100 is looked for where $ENCORE_DATA says; what is prepared here goes into a temporary folder, which
must have room for 2.5 GB and is removed at the end.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from benchmarks.evidence import keep_printed
from encore.config import choose_part
from encore.data.image_set import ImageSet
from encore.data.opening import Choice, look, open_images, prepare, verify
from encore.data.places import places
from encore.data.prepared import in_words, read_prepared
from encore.datasets.cifar100 import Cifar100
from encore.datasets.image_folder import ImageFolder
from encore.device import resolve_device
from encore.image_store import ImageStore
from encore.tables import make_table

NUM_CLASSES, PER_CLASS = 100, 1000
BATCH = 1000
ROUNDS = 3  # of which the fastest counts: the others waited for something else


def main() -> None:
    """Measure, and print a table."""
    device = resolve_device("auto")
    table = make_table("what a run waits for", "seconds", "of a processor")
    found = places(None)[0].folder
    with tempfile.TemporaryDirectory() as made:
        os.environ["ENCORE_DATA"] = made
        cifar = Choice(Cifar100(), data_dir=found)
        if found.is_dir():
            _add(table, "CIFAR-100 from its files, verified", lambda: _load(cifar, device))
            _add(table, "preparing it", lambda: prepare(cifar), rounds=1)
            _add(
                table,
                f"from the prepared file, every image verified, on {device}",
                lambda: _open(cifar, device),
            )
            _add(table, "the same as a process: Python and torch besides", lambda: _open_in_process(found))
        folder = Path(made) / "pictures"
        _write_pictures(folder)
        options = choose_part("benchmark", "image_folder", {"side": 84}).options
        pictures = Choice(ImageFolder(side=84), options, folder)
        _add(table, "100,000 pictures: preparing them at 84x84", lambda: prepare(pictures), rounds=1)
        size = in_words(pictures.path.stat().st_size)
        _add(table, f"opening what was prepared ({size})", lambda: read_prepared(pictures.path, ""))
        _add(table, "comparing it with the 100,000 files besides", lambda: look(pictures))
        _add(table, "verifying all of it besides", lambda: verify(read_prepared(pictures.path, "")))
    console = Console(record=True, width=100)
    console.print(table)
    keep_printed("startup", "How long a run waits for its images", console.export_text())


def _load(choice: Choice, device: torch.device) -> ImageStore:
    return ImageStore(choice.benchmark.load(choice.data_dir), device)


def _open(choice: Choice, device: torch.device) -> None:
    """Open what was prepared and bring every image to the device once, through its checksum."""
    images: ImageSet = open_images(choice, skip_broken=0, tell=print)
    for _ in ImageStore(images, device).batches(torch.arange(len(images.images)), BATCH):
        pass


def _open_in_process(found: Path) -> None:
    """Do what `_open` does, from starting Python on."""
    program = (
        "from pathlib import Path; from benchmarks import startup as s; "
        f"s._open(s.Choice(s.Cifar100(), data_dir=Path({str(found)!r})), s.resolve_device('auto'))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def _write_pictures(folder: Path) -> None:
    """Write many small pictures, each of its own colour."""
    draws = np.random.default_rng(0)
    for label in range(NUM_CLASSES):
        (folder / f"{label}").mkdir(parents=True)
        for number in range(PER_CLASS):
            content = io.BytesIO()
            colour = tuple(draws.integers(0, 256, 3).tolist())
            Image.new("RGB", (16, 16), colour).save(content, "PNG", compress_level=1)
            (folder / f"{label}" / f"{number}.png").write_bytes(content.getvalue())


def _processor_seconds() -> float:
    """Return the processor's time that this process and those it waited for have had."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def _add(table: Any, name: str, work: Callable[[], object], rounds: int = ROUNDS) -> None:
    taken = []
    for _ in range(rounds):
        begun, processor = time.perf_counter(), _processor_seconds()
        work()
        taken.append((time.perf_counter() - begun, _processor_seconds() - processor))
    table.add_row(name, *(f"{value:.2f}" if value >= 0.1 else f"{value:.4f}" for value in min(taken)))


if __name__ == "__main__":
    main()
