"""The objective of supervised contrastive replay."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from encore.augment.contrastive_view import ContrastiveView
from encore.interfaces import Joint, Model, Objective, Outputs
from encore.values import positive_number, whole_number


class SupervisedContrastive(Objective):
    """The supervised contrastive loss of two views of each example, in the space of a projection head.

    With z the unit vectors normalise(head(features(view))) of both views of all R + B examples, 2 (R + B) of
    them, and P(i) the others with the label of i, of which its other view is one:

        p(j | i) = exp(z_i z_j / T) / sum over a != i of exp(z_i z_a / T)
        loss = mean over i of -1 / |P(i)| * sum over j in P(i) of log p(j | i)

    The first view is the example as it comes, augmented or not; the second is a `ContrastiveView` of the
    first. Each goes through the network by itself, so that batch normalisation sees one at a time. The
    projection head is Linear - ReLU - Linear, and serves nothing but this loss; the network's own linear head
    gets no gradient and stays as it was made.

    There is no softmax whose right answers could be counted. The accuracies are those of the nearest class
    mean: fitted to the features of all second views, it is tested on the features of the first views,
    remembered and incoming apart. It chooses among the classes of this iteration, and the mean of a class
    has the example's own other view in it: an easier task than the classifier's.
    """

    def __init__(
        self,
        temperature: Annotated[float, "What similarities are divided by (T)."] = 0.07,
        projection_size: Annotated[int, "Numbers that the projection head returns for an image."] = 128,
    ) -> None:
        super().__init__()
        self.temperature = positive_number("temperature", temperature)
        self.projection_size = whole_number("projection_size", projection_size, lowest=1)
        self.view = ContrastiveView()

    def prepare(self, model: Model) -> None:
        """Make the projection head, which is trained with the network."""
        size = model.num_features
        self.projection = nn.Sequential(
            nn.Linear(size, size), nn.ReLU(inplace=True), nn.Linear(size, self.projection_size)
        )

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradient of the mean over both views of all examples."""
        second = self.view(joint.images, generator)
        features = torch.cat([model.features(joint.images), model.features(second)])
        embeddings = F.normalize(self.projection(features), dim=1)
        losses = contrastive_losses(embeddings, joint.labels.repeat(2), self.temperature)
        torch.autograd.backward(losses.mean())

        losses = losses.detach().view(2, -1)
        first_features, second_features = features.detach().chunk(2)
        right = _recognised(first_features, second_features, joint.labels).to(losses.dtype)
        remembered, incoming = slice(None, joint.num_remembered), slice(joint.num_remembered, None)
        return Outputs(
            right[remembered].mean(),
            right[incoming].mean(),
            losses[:, remembered].mean(),
            losses[:, incoming].mean(),
        )


def contrastive_losses(embeddings: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of each of the unit vectors [N, D] with labels [N], as [N].

    Each must have another of its label.
    """
    similarities = embeddings @ embeddings.T / temperature
    log_probabilities = similarities.fill_diagonal_(-torch.inf).log_softmax(dim=1)
    is_no_positive = (labels.unsqueeze(1) != labels).fill_diagonal_(True)
    sums = log_probabilities.masked_fill(is_no_positive, 0).sum(dim=1)
    return sums / (is_no_positive.sum(dim=1) - len(labels))


def _recognised(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Return whether the class mean of second views [N, F] nearest to each first view is its own, bool [N].

    As in the nearest class mean, a mean has the direction of the sum of its features of unit length. Each
    example stands for its class, so a class may be there several times.
    """
    same = (labels.unsqueeze(1) == labels).to(second.dtype)
    means = F.normalize(same @ F.normalize(second, dim=1), dim=1)
    nearest = (first @ means.T).argmax(dim=1)  # the length of a first view does not matter
    return labels.index_select(0, nearest) == labels
