"""Images decoded ahead: the same batches as from memory, whatever the threads do, and no more of them."""

from __future__ import annotations

import copy
import io
import random
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import decoding
from numpy.typing import NDArray
from PIL import Image
from tests.helpers import SHAPE, assert_same_state, make_learner

from encore import image_store
from encore.data import reading
from encore.data.image_set import ArrayImages, BrokenImagesError, Images, ImageSet, Rows
from encore.errors import EncoreError
from encore.evaluate import evaluate
from encore.image_store import ImageStore
from encore.interfaces import Batch, Plan
from encore.stream import Stream, Task

NUM_IMAGES = 60
PIXELS = np.random.default_rng(0).integers(0, 256, (NUM_IMAGES, *SHAPE), dtype=np.uint8)
LABELS = np.arange(NUM_IMAGES) % 6
CPU = torch.device("cpu")


class SlowImages:
    """Images that take a while to read, each read another, and of which some are broken."""

    reads_at_once = False
    shape = SHAPE

    def __init__(self, broken: Collection[int] = (), seed: int = 0) -> None:
        self.broken = frozenset(broken)
        self.rows_read: list[int] = []
        self._numbers = random.Random(seed)

    def __len__(self) -> int:
        return NUM_IMAGES

    def read(self, rows: Rows) -> NDArray[np.uint8]:
        time.sleep(self._numbers.choice([0, 0, 0.003]))
        self.rows_read.extend(rows.tolist())
        if reasons := {row: f"{row}.png is broken" for row in rows.tolist() if row in self.broken}:
            raise BrokenImagesError(reasons)
        return PIXELS[rows]


@pytest.fixture(autouse=True)
def _several_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "num_readers", lambda: 4)


@pytest.fixture
def read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no images stay in memory."""
    monkeypatch.setattr(image_store, "LARGEST_SHARE", 0)


def make_store(images: Images, skip_broken: int = 0) -> ImageStore:
    names = tuple("abcdef")
    return ImageStore(ImageSet(images, LABELS, names), CPU, skip_broken)


def make_stream(store: ImageStore) -> Stream:
    train, test = torch.arange(40).flip(0), torch.arange(40, 60)
    return Stream(store, [Task(tuple(range(6)), train, test)])


def assert_same_batches(ours: Iterator[Batch], theirs: Iterator[Batch]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "encore-reader" in thread.name]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("read_ahead")
def test_batches_come_in_their_order(seed: int) -> None:
    rows = torch.randperm(NUM_IMAGES, generator=torch.Generator().manual_seed(seed))
    store = make_store(SlowImages(seed=seed))
    assert not store.is_resident
    in_memory = make_store(ArrayImages(PIXELS))
    assert_same_batches(store.batches(rows, 7), in_memory.batches(rows, 7))


@pytest.mark.parametrize("broken", [(), (3,), (0, 1, 2, 3, 4, 30, 59), tuple(range(10, 20))])
def test_it_does_not_matter_where_images_are_kept(
    broken: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = make_store(SlowImages(broken), skip_broken=len(broken))
    monkeypatch.setattr(image_store, "LARGEST_SHARE", 0)
    elsewhere = make_store(SlowImages(broken), skip_broken=len(broken))
    assert (resident.is_resident, elsewhere.is_resident) == (True, False)
    rows = torch.arange(NUM_IMAGES).repeat(2)  # so that broken ones come when they are known, too
    assert_same_batches(elsewhere.batches(rows, 5), resident.batches(rows, 5))
    assert_same_batches(iter([elsewhere.read(rows)]), iter([resident.read(rows)]))
    assert elsewhere.skipped == resident.skipped == {row: f"{row}.png is broken" for row in broken}
    left = [row for row in range(NUM_IMAGES) if row not in broken]
    batches = list(elsewhere.batches(torch.arange(NUM_IMAGES), 5))
    assert torch.equal(torch.cat([batch.images for batch in batches]), torch.from_numpy(PIXELS[left]))
    assert len(batches) == 12


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("read_ahead")
def test_it_stops_at_the_same_batch_however_the_threads_go(seed: int) -> None:
    """Rows 12 and 22 are broken, in batches 2 and 4, and one may be: batches 0 to 3 come."""
    store = make_store(SlowImages((12, 22), seed), skip_broken=1)
    batches = store.batches(torch.arange(NUM_IMAGES), 5)
    assert [len(next(batches).labels) for _ in range(4)] == [5, 5, 4, 5]
    with pytest.raises(EncoreError) as caught:
        next(batches)
    assert (
        str(caught.value)
        == "2 images are broken, and --skip-broken allows 1: 12.png is broken; 22.png is broken"
    )
    assert list(batches) == []
    assert readers() == []


@pytest.mark.usefixtures("read_ahead")
def test_what_is_broken_is_said_without_end_of_the_list() -> None:
    store = make_store(SlowImages(range(50)), skip_broken=0)
    with pytest.raises(EncoreError) as caught:
        store.read(torch.arange(NUM_IMAGES))
    assert "19.png is broken; and 30 more: mend or remove them, or allow N such images" in str(caught.value)
    assert "20.png" not in str(caught.value)


@pytest.mark.usefixtures("read_ahead")
def test_no_more_is_read_ahead_than_memory_is_set_aside_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_AHEAD", 3 * 5 * 64)  # three batches of five images
    images = SlowImages()
    batches = make_store(images).batches(torch.arange(NUM_IMAGES), 5)
    for num_rows in (20, 25):
        next(batches)
        for _ in range(3000):  # a slow machine is waited for
            if len(images.rows_read) >= num_rows:
                break
            time.sleep(0.01)
        time.sleep(0.1)  # in which more would come
        assert sorted(images.rows_read) == list(range(num_rows))


class StoppedError(Exception):
    """Somebody asked to stop."""


@pytest.mark.parametrize("reason", [KeyboardInterrupt, StoppedError])
@pytest.mark.usefixtures("read_ahead")
def test_stopping_in_the_middle_leaves_no_thread(reason: type[BaseException]) -> None:
    images = SlowImages()
    stream = make_stream(make_store(images))

    def train() -> None:
        for number, _ in enumerate(stream.batches(0, 2)):
            assert readers()
            if number == 3:
                raise reason

    with pytest.raises(reason):
        train()
    assert readers() == []
    assert len(images.rows_read) < 40, "what was not asked for is not read"
    assert len(list(stream.batches(0, 2, start=4))) == 16


@pytest.mark.usefixtures("read_ahead")
def test_stopping_waits_for_what_is_being_read_and_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = threading.Event(), threading.Event()

    class GatedImages(SlowImages):
        def read(self, rows: Rows) -> NDArray[np.uint8]:
            if rows.min() > 0:
                begun.set()
                gate.wait()
            return super().read(rows)

    monkeypatch.setattr(reading, "num_readers", lambda: 1)  # so that it has two batches to read ahead
    images = GatedImages()
    batches = make_store(images).batches(torch.arange(NUM_IMAGES), 5)
    next(batches)
    begun.wait()
    threading.Timer(0.2, gate.set).start()
    batches.close()  # type: ignore[attr-defined]
    assert images.rows_read == list(range(10))
    assert readers() == []


@pytest.mark.usefixtures("read_ahead")
def test_error_of_a_thread_is_raised_once_where_its_batch_would_come() -> None:
    class FailingImages(SlowImages):
        def read(self, rows: Rows) -> NDArray[np.uint8]:
            if rows.min() >= 10:
                raise OSError(f"no connection at {rows.min()}")
            return super().read(rows)

    batches = make_store(FailingImages()).batches(torch.arange(NUM_IMAGES), 5)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(OSError, match=r"^no connection at 10$"):
        next(batches)
    assert list(batches) == []
    assert readers() == []


@pytest.mark.usefixtures("read_ahead")
def test_wholly_broken_batch_is_counted_and_nothing_is_learnt_from_it() -> None:
    stream = make_stream(make_store(SlowImages(range(20, 30)), skip_broken=10))  # the second batch
    learner = make_learner()
    for number, batch in enumerate(stream.batches(0, 10)):
        before = copy.deepcopy(learner.state_dict())
        feedback = learner.learn(batch, Plan())
        if number == 1:
            assert len(batch.labels) == 0
            assert feedback.values.isnan().all()
            assert_same_state(learner.state_dict(), before)
        else:
            assert feedback.read().incoming_loss > 0
    assert number == 3
    assert learner.is_finite
    assert (learner.num_steps, learner.memory.num_seen) == (3, 30)


@pytest.mark.usefixtures("read_ahead")
def test_broken_test_images_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("encore.stream.TEST_BYTES", 5 * 64)
    stream = make_stream(make_store(SlowImages([*range(40, 45), 51]), skip_broken=6))
    assert [len(batch.labels) for batch in stream.test_batches(0)] == [5, 4, 5]
    learner = make_learner()
    learner.observe(torch.from_numpy(PIXELS[:10]), torch.from_numpy(LABELS[:10]))
    rows = [row for row in range(45, 60) if row != 51]
    right = learner.predict(torch.from_numpy(PIXELS[rows])).numpy() == LABELS[rows]
    assert evaluate(learner, stream, num_seen=1) == [pytest.approx(right.mean())]


@pytest.mark.usefixtures("read_ahead")
def test_task_without_a_test_image_left_is_refused() -> None:
    stream = make_stream(make_store(SlowImages(range(40, 60)), skip_broken=20))
    with pytest.raises(
        EncoreError, match="all test images of task 1 are broken, so that it cannot be tested"
    ):
        list(stream.test_batches(0))


def test_both_sides_of_the_comparison_do_the_same_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("NUM_FILES", 6), ("NUM_DIFFERENT", 2), ("BATCH", 3)):
        monkeypatch.setattr(decoding, name, value)
    paths = decoding.write_photographs(tmp_path)
    assert Image.open(io.BytesIO(paths[0].read_bytes())).size == (500, 375)
    assert 40_000 < paths[0].stat().st_size < 160_000
    theirs = decoding.Photographs(paths)
    store = decoding.make_store(tmp_path, paths)
    ours = list(decoding.batches_of(store))
    assert [batch.images.shape for batch in ours] == [(3, 3, 224, 224)] * 2
    assert (theirs[0].shape, theirs[0].dtype) == (ours[0].images[0].shape, torch.uint8)
    # The middle of their whole picture is what we keep of it.
    square = store.read(torch.tensor([0])).images[0].float()
    whole = Image.open(io.BytesIO(paths[0].read_bytes())).resize((341, 256), Image.Resampling.BILINEAR)
    middle = torch.from_numpy(np.array(whole)[:, 42:298]).permute(2, 0, 1).float()
    assert (square - middle).abs().mean() < 4
    assert decoding.measure(lambda: decoding.batches_of(store)).rate > 0
