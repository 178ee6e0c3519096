from __future__ import annotations

import numpy as np
import torch
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize
from tests.helpers import NUM_CLASSES, SHAPE, make_batch

from encore.classifiers.nearest_class_mean import NearestClassMean
from encore.classifiers.softmax import Softmax
from encore.interfaces import Batch
from encore.memory import Memory
from encore.models.reduced_resnet18 import ReducedResNet18


def make_model() -> ReducedResNet18:
    torch.manual_seed(0)
    return ReducedResNet18(SHAPE, NUM_CLASSES, width=2).eval()


def make_memory(batch: Batch, capacity: int = 400) -> Memory:
    memory = Memory(capacity, SHAPE)
    memory.write(torch.arange(len(batch.labels)), batch)
    return memory


@torch.no_grad()
def test_nearest_class_mean_agrees_with_scikit_learn() -> None:
    model, remembered, asked = make_model(), make_batch(300), make_batch(60, seed=1)
    classifier = NearestClassMean()
    classifier.fit(model, make_memory(remembered))  # more than one chunk of exemplars
    ours = classifier.scores(model, asked.images / 255).argmax(dim=1).numpy()

    features = normalize(model.features(remembered.images / 255).numpy())
    judge = NearestCentroid().fit(features, remembered.labels.numpy())
    judge.centroids_ = normalize(judge.centroids_)
    theirs = judge.predict(normalize(model.features(asked.images / 255).numpy()))
    assert (ours == theirs).all()
    assert len(np.unique(ours)) > 1


@torch.no_grad()
def test_score_is_minus_the_squared_distance() -> None:
    model, remembered, asked = make_model(), make_batch(40), make_batch(5, seed=1)
    classifier = NearestClassMean()
    classifier.fit(model, make_memory(remembered))
    scores = classifier.scores(model, asked.images / 255)
    features = normalize(model.features(remembered.images / 255).numpy())
    for label in range(NUM_CLASSES):
        prototype = features[remembered.labels.numpy() == label].mean(axis=0)
        prototype /= np.linalg.norm(prototype)
        answers = normalize(model.features(asked.images / 255).numpy())
        expected = -((answers - prototype) ** 2).sum(axis=1)
        np.testing.assert_allclose(scores[:, label].numpy(), expected, atol=1e-5)


@torch.no_grad()
def test_class_without_exemplar_is_never_predicted() -> None:
    model, batch = make_model(), make_batch(30)
    labels = batch.labels.clone().clamp(max=3)
    classifier = NearestClassMean()
    classifier.fit(model, make_memory(Batch(batch.images, labels)))
    scores = classifier.scores(model, make_batch(20, seed=5).images / 255)
    assert scores[:, 4:].isneginf().all()
    assert scores[:, :4].isfinite().all()


@torch.no_grad()
def test_scratch_row_is_no_exemplar() -> None:
    model, batch = make_model(), make_batch(4)
    memory = make_memory(Batch(batch.images, torch.tensor([0, 0, 1, 1])), capacity=4)
    memory.write(torch.tensor([memory.scratch]), Batch(batch.images[:1], torch.tensor([5])))
    classifier = NearestClassMean()
    classifier.fit(model, memory)
    assert classifier.scores(model, batch.images / 255)[:, 2:].isneginf().all()


@torch.no_grad()
def test_softmax_is_the_head() -> None:
    model, batch = make_model(), make_batch(9)
    classifier = Softmax()
    classifier.fit(model, make_memory(batch))
    assert torch.equal(classifier.scores(model, batch.images / 255), model(batch.images / 255))
