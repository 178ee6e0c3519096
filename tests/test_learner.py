from __future__ import annotations

import copy
import functools
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.helpers import (
    NUM_CLASSES,
    SHAPE,
    NoHostSynchronisation,
    assert_same_state,
    make_batch,
    make_learner,
    make_stream,
)
from torch import Tensor

from encore import checkpoint
from encore.errors import EncoreError
from encore.interfaces import Batch, Iteration, Plan, Remembered, RetentionContext
from encore.learner import Learner
from encore.memory import Memory
from encore.randomness import Randomness
from encore.retention.reservoir import Reservoir


def rehearse_plainly(learner: Learner, stream: list[Batch], repeats: int) -> None:
    """Do experience replay as one would write it in a notebook, with the learner's draws."""
    draws = Randomness(learner.config.seed)
    model, capacity = learner.model, learner.config.memory_size
    kept: list[tuple[Tensor, int]] = []
    mirror = Memory(capacity, SHAPE)
    for batch in stream:
        for _ in range(repeats):
            keys = torch.rand(capacity, generator=draws.generator("retrieval"))[: len(kept)]
            chosen = keys.argsort(descending=True)[: learner.config.memory_batch_size].tolist()
            remembered = [kept[slot] for slot in chosen]
            images = torch.stack([image for image, _ in remembered] + list(batch.images)).float() / 255
            labels = torch.tensor([label for _, label in remembered] + batch.labels.tolist())
            logits = model(images)
            loss = F.cross_entropy(logits[len(chosen) :], labels[len(chosen) :])
            if chosen:
                loss = loss + F.cross_entropy(logits[: len(chosen)], labels[: len(chosen)])
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter -= learner.config.learning_rate * parameter.grad
        slots = Reservoir()(RetentionContext(mirror, model, batch, draws.generator("retention")))
        mirror.write(slots, batch)
        kept = list(zip(mirror.filled().images, mirror.filled().labels.tolist(), strict=True))


@pytest.mark.parametrize("repeats", [1, 3])
def test_without_augmentation_it_is_plain_experience_replay(repeats: int) -> None:
    learner, plain = make_learner(plan=Plan(repeats=repeats)), make_learner()
    for each in (learner, plain):
        # In double precision: batch normalisation of so few values makes differences grow tenfold a step.
        each.model.double().register_forward_pre_hook(lambda _, images: (images[0].double(),))
    stream = list(make_stream(8))
    for images, labels in stream:
        learner.observe(images, labels)
    rehearse_plainly(plain, stream, repeats)
    for ours, theirs in zip(learner.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    for mine, other in zip(learner.model.buffers(), plain.model.buffers(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


def test_repeats_take_steps_and_memory_is_written_once() -> None:
    learner = make_learner(plan=Plan(repeats=5))
    learner.observe(*make_batch(4))
    assert learner.num_steps == 5
    assert learner.memory.num_seen == 4
    assert learner.num_images_trained == 5 * 4
    learner.observe(*make_batch(4, seed=1))
    assert learner.num_images_trained == 5 * 4 + 5 * 8


def test_incoming_batch_is_not_retrieved_during_its_own_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(plan=Plan(repeats=4), memory_size=50)
    seen: list[Tensor] = []
    retrieve = learner._retrieve

    def spy(iteration: Iteration) -> Tensor:
        slots = retrieve(iteration)
        seen.append(learner.memory.read(slots).images)
        return slots

    monkeypatch.setattr(learner, "_retrieve", spy)
    for batch in make_stream(5):
        seen.clear()
        learner.observe(*batch)
        ours = {image.numpy().tobytes() for image in batch.images}
        assert len(seen) == 4
        assert not any(image.numpy().tobytes() in ours for images in seen for image in images)


def test_every_iteration_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(plan=Plan(repeats=6, num_ops=1), memory_size=50)
    for batch in make_stream(6):
        learner.observe(*batch)
    batches: list[Tensor] = []
    backward = learner.objective.backward

    def spy(model: Any, joint: Any, generator: Any) -> Any:
        batches.append(joint.images.clone())
        return backward(model, joint, generator)

    monkeypatch.setattr(learner.objective, "backward", spy)
    learner.observe(*make_batch(4, seed=99))
    remembered = {batch[:4].numpy().tobytes() for batch in batches}
    incoming = {batch[4:].numpy().tobytes() for batch in batches}
    assert len(remembered) == 6
    assert len(incoming) == 6


@pytest.mark.parametrize(
    ("target", "memory_changes", "incoming_changes"),
    [("both", True, True), ("memory", True, False), ("incoming", False, True), ("none", False, False)],
)
def test_augmentation_target(target: str, memory_changes: bool, incoming_changes: bool) -> None:
    learner = make_learner(augment_target=target)
    remembered, incoming = make_batch(30, seed=1), make_batch(30, seed=2)
    iteration = learner.prepare(incoming, Plan(repeats=1, num_ops=4, magnitude=30))
    joint = learner._augment(Remembered(*remembered), iteration)
    assert joint.num_remembered == 30
    assert joint.images.shape == (60, *SHAPE)
    assert torch.equal(joint.images[:30], remembered.images / 255) != memory_changes
    assert torch.equal(joint.images[30:], incoming.images / 255) != incoming_changes
    assert torch.equal(joint.labels, torch.cat([remembered.labels, incoming.labels]))
    assert (joint.raw is None) == (target == "none")
    if joint.raw is not None:
        assert torch.equal(joint.raw, torch.cat([remembered.images, incoming.images]))
    iteration = learner.prepare(incoming, Plan(repeats=1, num_ops=0))
    assert learner._augment(Remembered(*remembered), iteration).raw is None


@pytest.mark.parametrize("sizes", [[1, 1, 1, 7], [3, 1, 20, 2], [30], [13, 1]])
def test_batches_of_any_size(sizes: list[int]) -> None:
    learner = make_learner()
    for number, size in enumerate(sizes):
        learner.observe(*make_batch(size, seed=number))
    assert learner.memory.num_seen == sum(sizes)
    assert learner.predict(make_batch(5).images).shape == (5,)
    for parameter in learner.model.parameters():
        assert parameter.isfinite().all()


def test_single_first_image_of_8x8_is_only_remembered() -> None:
    learner = make_learner()  # its last map is 1x1, of which batch normalisation can learn nothing
    feedback = learner.observe(*make_batch(1))
    assert learner.num_steps == 0
    assert learner.memory.num_filled == 1
    assert all(value != value for value in feedback.read())
    learner.observe(*make_batch(1, seed=1))
    assert learner.num_steps == 2


def test_batch_of_one_class_and_class_seen_once() -> None:
    learner = make_learner()
    images = make_batch(6).images
    learner.observe(images, torch.zeros(6, dtype=torch.int64))
    assert (learner.predict(images) == 0).all()
    learner.observe(images[:1], torch.tensor([3]))
    assert set(learner.predict(make_batch(40).images).tolist()) <= {0, 3}


def test_numpy_torch_and_floats_are_the_same() -> None:
    batch = make_batch(6)
    learners = [make_learner() for _ in range(4)]
    learners[0].observe(batch.images, batch.labels)
    learners[1].observe(batch.images.numpy(), batch.labels.numpy())
    learners[2].observe(batch.images.float() / 255, batch.labels.int())
    learners[3].observe(batch.images.numpy().astype(np.float64) / 255, batch.labels.numpy().astype(np.uint8))
    for other in learners[1:]:
        assert_same_state(learners[0].state_dict(), other.state_dict())


def test_prediction_changes_nothing() -> None:
    learner, other = make_learner(), make_learner()
    for batch in make_stream(5):
        learner.observe(*batch)
        learner.predict(make_batch(9).images)
        learner.predict_proba(make_batch(9).images)
        assert learner.model.training
        other.observe(*batch)
    assert_same_state(learner.state_dict(), other.state_dict())


def test_prediction_follows_what_was_observed_since() -> None:
    learner = make_learner(memory_size=40)
    asked = make_batch(20, seed=7).images
    learner.observe(*make_batch(8, seed=0))
    learner.predict(asked)
    learner.observe(*make_batch(8, seed=1))
    after = learner.scores(asked)
    learner._classifier_is_fitted = False
    assert torch.equal(after, learner.scores(asked))


@pytest.mark.parametrize("classifier", ["nearest_class_mean", "softmax"])
def test_probabilities(classifier: str) -> None:
    learner = make_learner(parts={"model.width": 2, "classifier": classifier})
    learner.observe(*make_batch(20))
    asked = make_batch(300, seed=1).images  # more than one chunk
    probabilities = learner.predict_proba(asked)
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(300))
    assert torch.equal(probabilities.argmax(dim=1), learner.predict(asked))


def test_nothing_is_predicted_before_the_first_batch() -> None:
    with pytest.raises(EncoreError, match="observe at least one batch first"):
        make_learner().predict(make_batch(1).images)


def test_refused_batch_changes_nothing() -> None:
    learner, other = make_learner(), make_learner()
    for each in (learner, other):
        each.observe(*make_batch(5))
    with pytest.raises(EncoreError):
        learner.observe(make_batch(2).images, np.array([0, NUM_CLASSES]))
    assert_same_state(learner.state_dict(), other.state_dict())


def test_saved_learner_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    learner = make_learner(plan=Plan(repeats=3, num_ops=2, magnitude=9))
    stream = list(make_stream(10))
    for batch in stream[:5]:
        learner.observe(*batch)
    learner.save(tmp_path / "model.encore")
    loaded = Learner.load(tmp_path / "model.encore", device="cpu")
    assert loaded.plan == learner.plan
    assert loaded.config == learner.config
    for batch in stream[5:]:
        learner.observe(*batch)
        loaded.observe(*batch)
    assert_same_state(learner.state_dict(), loaded.state_dict())
    asked = make_batch(30, seed=3).images
    assert torch.equal(learner.scores(asked), loaded.scores(asked))


def test_seed_decides_everything() -> None:
    learners = [make_learner(seed=seed) for seed in (4, 4, 5)]
    torch.manual_seed(1)  # torch's own generator must play no part
    for learner in learners:
        torch.rand(3)
        for batch in make_stream(5):
            learner.observe(*batch)
    assert_same_state(learners[0].state_dict(), learners[1].state_dict())
    for name in ("stem.weight", "head.bias"):
        assert not torch.equal(learners[0].model.state_dict()[name], learners[2].model.state_dict()[name])


def test_making_a_learner_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    make_learner()
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("target", ["both", "memory", "incoming", "none"])
def test_hot_step_never_waits_for_the_device(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(plan=Plan(repeats=2, num_ops=2), augment_target=target)
    # As on an accelerator: on the host the augmentation looks at what was drawn, which costs nothing there.
    rand_augment: Any = learner.rand_augment
    monkeypatch.setattr(rand_augment, "apply", functools.partial(rand_augment.apply, fixed_shapes=True))
    for batch in make_stream(4):
        learner.observe(*batch)
    with NoHostSynchronisation():
        learner.learn(make_batch(4, seed=9), learner.plan)


def test_whole_numbers_may_be_numpy_s_and_the_shape_a_list() -> None:
    images, labels = make_batch(6)
    learner = make_learner(
        image_shape=[1, np.int64(8), 8],
        num_classes=np.int64(6),
        memory_size=np.int32(12),
        seed=np.uint8(0),
        learning_rate=np.float32(0.1),
        plan=Plan(repeats=np.int64(2), num_ops=np.int64(1)),  # type: ignore[arg-type]
    )
    learner.observe(images, labels)
    json.dumps(learner.config.to_json())
    assert learner.plan == Plan(repeats=2, num_ops=1)


def test_state_of_a_new_learner_makes_a_trained_one_new() -> None:
    fresh, used = make_learner(), make_learner()
    state = copy.deepcopy(used.state_dict())
    for batch in make_stream(3):
        used.observe(*batch)
    used.load_state_dict(state)
    for batch in make_stream(3, seed=7):
        fresh.observe(*batch)
        used.observe(*batch)
    assert_same_state(fresh.state_dict(), used.state_dict())


def test_learner_of_another_kind_of_device_goes_on() -> None:
    learner = make_learner()
    for batch in make_stream(4):
        learner.observe(*batch)
    state = learner.state_dict()
    # As a GPU saves it: its generators' states have sixteen bytes.
    names = state["generators"]["generators"]
    state["generators"] = {"device": "cuda", "generators": dict.fromkeys(names, torch.zeros(16).byte())}
    other = make_learner()
    other.load_state_dict(state)
    asked = make_batch(9, seed=5).images
    assert torch.equal(other.scores(asked), learner.scores(asked))
    other.observe(*make_batch(4, seed=6))


def test_file_of_another_version_gets_one_sentence(tmp_path: Path) -> None:
    learner = make_learner()
    described, state = learner._described(), learner.state_dict()
    described["learner"]["temperature"] = 1.0
    checkpoint.save(tmp_path / "later.encore", "learner", described, state)
    with pytest.raises(EncoreError, match=r"later\.encore does not fit Encore .* may be of another version"):
        Learner.load(tmp_path / "later.encore")
    del state["memory"]
    checkpoint.save(tmp_path / "earlier.encore", "learner", learner._described(), state)
    with pytest.raises(EncoreError, match=r"earlier\.encore does not fit Encore"):
        Learner.load(tmp_path / "earlier.encore")


def test_large_batch_is_remembered_without_a_table_of_its_pairs() -> None:
    learner = make_learner(plan=Plan(), memory_size=100)
    learner.observe(*make_batch(3000))
    assert learner.memory.num_seen == 3000


def test_feedback_is_of_the_last_iteration() -> None:
    learner, other = make_learner(plan=Plan(repeats=3)), make_learner(plan=Plan(repeats=1))
    for batch in make_stream(4):
        learner.observe(*batch, plan=Plan(repeats=1))
        other.observe(*batch)
    batch = make_batch(4, seed=50)
    values = [other.rehearse_once(other.prepare(batch, Plan()))[0] for _ in range(3)]
    assert learner.observe(*batch).read()[:4] == tuple(values[-1].tolist())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "agemm"}, "there is no method 'agemm'; did you mean 'agem'"),
        ({"memory_size": 0}, "memory size must be a whole number of at least 1, got 0"),
        ({"memory_batch_size": 0}, "memory batch size must be a whole number of at least 1, got 0"),
        ({"num_classes": 0}, "number of classes must be a whole number of at least 1, got 0"),
        ({"image_shape": (8, 8)}, "image_shape must be \\(channels, height, width\\)"),
        ({"image_shape": (2, 8, 8)}, "1 channel \\(grey\\) or 3 \\(colour\\), got 2"),
        ({"learning_rate": float("nan")}, "learning rate must be a number above 0"),
        ({"weight_decay": -1.0}, "weight decay must be a number of at least 0"),
        ({"augment_target": "memmory"}, "there is no augmentation target 'memmory'; did you mean 'memory'"),
        (
            {"method": "lwf", "parts": {"classifier": "nearest_class_mean"}},
            "the classifier nearest_class_mean answers from remembered examples, and the retention nothing",
        ),
        ({"operation_space": "papers"}, "there is no operation space 'papers'; did you mean 'paper'"),
        ({"parts": {"classifer": "softmax"}}, "there is no kind of part 'classifer'; did you mean"),
        ({"parts": {"classifier": "softmaxx"}}, "there is no classifier 'softmaxx'; did you mean 'softmax'"),
        ({"parts": {"objective.weight": 1.0}}, "option of the objective 'cross_entropy' called 'weight'"),
        ({"parts": {"retrieval.size": 1}}, "the retrieval 'uniform' has no options"),
        ({"parts": {"model.width": "2"}}, "model.width must be of type int, got '2'"),
        ({"device": "gpu"}, "there is no device 'gpu': use auto, cpu, cuda or cuda:N"),
        ({"seed": -1}, "a seed must be a whole number from 0"),
        ({"image_shape": 8}, "image_shape must be \\(channels, height, width\\), got 8"),
        ({"plan": (1, 2, 3)}, "plan must be an encore.Plan, got \\(1, 2, 3\\)"),
        ({"parts": ["softmax"]}, "parts must be a dictionary such as"),
        ({"parts": {"classifier": 3}}, "the name of a classifier must be a text, got 3"),
        ({"method": None}, "the name of a method must be a text, got None"),
        (
            {"parts": {"objective.memory_weight": float("nan")}},
            "memory_weight must be a number of at least 0",
        ),
        ({"memory_size": 10**20}, "memory size must be a whole number of at least 1 and below 2\\*\\*31"),
        ({"learning_rate": 10**400}, "learning rate must be a number above 0"),
        ({"device": None}, "a device must be named auto, cpu, cuda or cuda:N, got None"),
        ({"augment_target": None}, "there is no augmentation target 'None'"),
        ({"parts": {3: "x"}}, "there is no kind of part '3'"),
        ({"memory_size": 2 * 10**9}, "it does not fit: .*; choose a smaller memory or network"),
    ],
)
def test_wrong_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EncoreError, match=sentence):
        make_learner(**changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="only where there is no CUDA device")
def test_absent_cuda_is_said() -> None:
    with pytest.raises(EncoreError, match="cuda was asked for, and torch finds no CUDA device"):
        make_learner(device="cuda")


def test_plan_of_a_batch_is_checked_before_anything_changes() -> None:
    learner, other = make_learner(), make_learner()
    for wrong in ((2, 1, 14), 3, 0):
        with pytest.raises(EncoreError, match=r"plan must be an encore\.Plan"):
            learner.observe(*make_batch(4), plan=wrong)  # type: ignore[arg-type]
    assert_same_state(learner.state_dict(), other.state_dict())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_learning_does_not_mind_the_caller_s_gradient_mode(mode: Any) -> None:
    learner, other = make_learner(), make_learner()
    for batch in make_stream(4):
        other.observe(*batch)
    with mode():
        for batch in make_stream(4):
            learner.observe(*batch)
    assert_same_state(learner.state_dict(), other.state_dict())


def test_learners_made_in_threads_are_their_seed_s() -> None:
    alone = make_learner(seed=5).state_dict()
    before = torch.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_learner(seed=5).state_dict(), range(16)))
    for state in made:
        assert_same_state(alone, state)
    assert torch.equal(before, torch.get_rng_state())


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match=r"there is no folder .*absent; create it first"):
        make_learner().save(tmp_path / "absent" / "model.encore")


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_first_look_shows_the_batch_before_any_step_on_it_and_changes_nothing(repeats: int) -> None:
    plan = Plan(repeats=repeats, num_ops=1, magnitude=14)
    plain, looking, once = (make_learner() for _ in range(3))
    for number, batch in enumerate(make_stream(5)):
        state = copy.deepcopy(plain.state_dict())
        without = plain.observe(*batch, plan)
        with_look = looking.observe(*batch, plan, looks_first=True)
        assert torch.equal(without.values, with_look.values) or number == 0  # NaN: nothing remembered yet
        assert_same_state(plain.state_dict(), looking.state_dict())
        once.load_state_dict(state)
        alone = once.observe(*batch, Plan(repeats=1, num_ops=1, magnitude=14)).read()
        seen = with_look.read()
        assert (seen.first_incoming_accuracy, seen.first_incoming_loss) == (
            alone.incoming_accuracy,
            alone.incoming_loss,
        )
        assert seen[:4] == pytest.approx(tuple(without.read())[:4], nan_ok=True)
        assert math.isnan(without.read().first_incoming_loss)
