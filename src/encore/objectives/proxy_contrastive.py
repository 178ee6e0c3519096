"""The objective of proxy-based contrastive replay (PCR)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from encore.interfaces import Joint, Model, Objective, Outputs
from encore.objectives._passes import pass_apart
from encore.pixels import as_floats
from encore.values import positive_number

SHORTEST = 1e-6  # by which features and proxies are divided at least


class ProxyContrastive(Objective):
    """Contrast each example with the proxies of the other examples in its batch, one proxy a class.

    The mean over all rows i, remembered and incoming, of

        -log( exp(<h_i, w_{y_i}> / T) / sum over all rows j of exp(<h_i, w_{y_j}> / T) )

    where h is an example's features and w a class's proxy, both of unit length. Only classes that are there
    compete, each as often as it is there: with n_c rows of class c, the sum is that over c of n_c exp(...).
    Where the images were augmented, those without augmentation are further rows. Remembered and incoming
    rows go through the network apart. The proxies take the place of the network's head, also in answers.
    """

    proxies: nn.Parameter  # [num_classes, num_features]

    def __init__(
        self,
        temperature: Annotated[float, "By which all cosines are divided (T)."] = 0.09,
        single_view: Annotated[bool, "Leave out the images without augmentation."] = False,
        together: Annotated[bool, "One forward pass for remembered and incoming, as ER has it."] = False,
    ) -> None:
        super().__init__()
        self.temperature = positive_number("temperature", temperature)
        self.single_view = single_view
        self.together = together

    def prepare(self, model: Model) -> None:
        """Draw the proxies, as the weights of a linear layer are drawn."""
        head = nn.Linear(model.num_features, model.num_classes, bias=False)
        self.proxies = nn.Parameter(head.weight.detach().to(next(model.parameters()).dtype))

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradient of the mean on the model and on the proxies."""
        rows = joint if joint.raw is None or self.single_view else _with_raw_rows(joint, joint.raw)
        if self.together:
            features = model.features(rows.images)
        else:
            features = pass_apart(model.features, rows.images, rows.num_remembered, model.smallest_batch)
        scores = score(features, self.proxies, self.temperature)
        classes = torch.arange(model.num_classes, device=scores.device)
        is_of = rows.labels.unsqueeze(1) == classes  # [rows, num_classes]
        counts = is_of.sum(dim=0).to(scores.dtype)
        # The log of a class that is not there is minus infinity, and takes it out of the sum.
        sums = (scores + counts.log()).logsumexp(dim=1)
        losses = sums - scores.masked_fill(~is_of, 0.0).sum(dim=1)
        torch.autograd.backward(losses.mean())
        right = (scores.detach().argmax(dim=1) == rows.labels).float()
        remembered, incoming = slice(None, rows.num_remembered), slice(rows.num_remembered, None)
        return Outputs(
            right[remembered].mean(),
            right[incoming].mean(),
            losses[remembered].mean(),
            losses[incoming].mean(),
        )

    def answering_model(self, model: Model) -> Model:
        """Return the network with the proxies as its head."""
        return _WithProxies(model, self.proxies, self.temperature)


def score(features: Tensor, proxies: Tensor, temperature: float) -> Tensor:
    """Return the cosines of features [N, F] and proxies [C, F], over the temperature, as [N, C]."""
    cosines = F.normalize(features, dim=1, eps=SHORTEST) @ F.normalize(proxies, dim=1, eps=SHORTEST).T
    return cosines / temperature


def _with_raw_rows(joint: Joint, raw: Tensor) -> Joint:
    """Return a batch with each example twice, augmented and not, the remembered ones still first."""

    def interleave(augmented: Tensor, plain: Tensor) -> Tensor:
        pairs = zip(augmented.tensor_split([num]), plain.tensor_split([num]), strict=True)
        return torch.cat([view for pair in pairs for view in pair])

    num = joint.num_remembered
    images = interleave(joint.images, as_floats(raw).to(joint.images.dtype))
    return Joint(
        images.contiguous(memory_format=torch.channels_last),
        interleave(joint.labels, joint.labels),
        num_remembered=2 * num,
    )


class _WithProxies(Model):
    """A network whose head are the proxies."""

    def __init__(self, model: Model, proxies: Tensor, temperature: float) -> None:
        super().__init__()
        self.num_features, self.num_classes = model.num_features, model.num_classes
        self.smallest_batch = model.smallest_batch
        self._model = model
        self._proxies = proxies
        self._temperature = temperature

    def features(self, images: Tensor) -> Tensor:
        """Encode float images [N, C, H, W] as [N, num_features]."""
        return self._model.features(images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of float images [N, C, H, W] as [N, num_classes]."""
        return score(self.features(images), self._proxies, self._temperature)
