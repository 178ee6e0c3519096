"""What must hold for the streams of every data set, however its files are made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from encore.data.benchmark import Benchmark
from encore.errors import EncoreError
from encore.image_store import ImageStore
from encore.layout import make_stream
from encore.randomness import Randomness
from encore.settings import RunSettings, StreamSettings
from encore.stream import Stream


def check_seeds(benchmark: Benchmark, data_dir: Path | None) -> None:
    """The same seed, the same stream; two seeds differ; each image comes once, and none is tested on."""
    images = benchmark.load(data_dir)
    store = ImageStore(images, torch.device("cpu"))

    def stream_of(seed: int) -> Stream:
        settings = RunSettings(StreamSettings(batch_size=1))
        return make_stream(settings, seed, benchmark, store, Randomness(seed).host_generator("stream"))

    one, again, other = (stream_of(seed) for seed in (3, 3, 4))
    rows = [[task.train.tolist() for task in stream.tasks] for stream in (one, again, other)]
    assert rows[0] == rows[1] != rows[2]
    for stream in (one, other):
        parts = [part for task in stream.tasks for part in (task.train, task.test)]
        assert sorted(torch.cat(parts).tolist()) == list(range(len(images.labels)))
        for task in stream.tasks:
            assert set(images.labels[task.train].tolist()) == set(task.classes)
            assert set(images.labels[task.test].tolist()) == set(task.classes)

    first, same = next(one.batches(0, 1)), next(again.batches(0, 1))
    assert first.images.shape == (1, *store.image_shape)
    assert torch.equal(first.images, same.images)
    assert torch.equal(first.labels, same.labels)
    with pytest.raises(EncoreError, match="this stream passes once: task 1 was already asked for"):
        next(one.batches(0, 1))
