"""The methods as one would write them in a notebook: one step after the other, a list as memory."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from encore.interfaces import Batch, RetentionContext
from encore.learner import Learner
from encore.memory import Memory
from encore.randomness import Randomness
from encore.retention.reservoir import Reservoir


class Kept(NamedTuple):
    """An example in the list, with the logits it had when it came."""

    image: Tensor
    label: Tensor
    logits: Tensor


class Plain(ABC):
    """A network that learns one method."""

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        self.model, self.learning_rate = model, learning_rate
        self.num_tasks = 0

    @abstractmethod
    def step(self, images: Tensor, labels: Tensor, remembered: Sequence[Kept]) -> Tensor:
        """Take a step, and return the logits of the incoming images."""

    def end_task(self) -> None:
        self.num_tasks += 1

    def descend(self, loss: Tensor) -> None:
        self.walk(torch.autograd.grad(loss, list(self.model.parameters())))

    def walk(self, gradients: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                parameter.sub_(self.learning_rate * gradient)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    log_probabilities = logits - logits.exp().sum(dim=1, keepdim=True).log()
    return -log_probabilities[range(len(labels)), labels].mean()


def as_doubles(images: Tensor) -> Tensor:
    return (images.float() / 255).double()  # by way of single precision, in which the learner augments


def pictures(remembered: Sequence[Kept]) -> tuple[Tensor, Tensor]:
    images = as_doubles(torch.stack([kept.image for kept in remembered]))
    return images, torch.stack([kept.label for kept in remembered])


class Finetune(Plain):
    def step(self, images: Tensor, labels: Tensor, remembered: Sequence[Kept]) -> Tensor:
        logits: Tensor = self.model(images)
        self.descend(cross_entropy(logits, labels))
        return logits


class Reweighted(Plain):
    share = 0.3

    def step(self, images: Tensor, labels: Tensor, remembered: Sequence[Kept]) -> Tensor:
        if not remembered:
            logits: Tensor = self.model(images)
            self.descend((1 - self.share) * cross_entropy(logits, labels))
            return logits
        old_images, old_labels = pictures(remembered)
        logits = self.model(torch.cat([old_images, images]))
        old, new = logits[: len(remembered)], logits[len(remembered) :]
        self.descend(
            self.share * cross_entropy(old, old_labels) + (1 - self.share) * cross_entropy(new, labels)
        )
        return new


class WithTeacher(Plain):
    teacher: nn.Module | None = None

    def step(self, images: Tensor, labels: Tensor, remembered: Sequence[Kept]) -> Tensor:
        logits: Tensor = self.model(images)
        loss = cross_entropy(logits, labels) / (self.num_tasks + 1)
        if self.teacher is not None:
            with torch.no_grad():
                wanted = (self.teacher(images) / 2).exp()
                wanted /= wanted.sum(dim=1, keepdim=True)
            found = logits / 2 - (logits / 2).exp().sum(dim=1, keepdim=True).log()
            distillation = 2 * 2 * -(wanted * found).sum() / len(images)
            loss = loss + (1 - 1 / (self.num_tasks + 1)) * distillation
        self.descend(loss)
        return logits

    def end_task(self) -> None:
        super().end_task()
        self.teacher = copy.deepcopy(self.model)  # in train mode, like the model


class Projecting(Plain):
    num_projected = 0

    def step(self, images: Tensor, labels: Tensor, remembered: Sequence[Kept]) -> Tensor:
        parameters = list(self.model.parameters())
        logits: Tensor = self.model(images)
        gradients = torch.autograd.grad(cross_entropy(logits, labels), parameters)
        if self.num_tasks > 0 and remembered:
            old_images, old_labels = pictures(remembered)
            loss = cross_entropy(self.model(old_images), old_labels)
            references = torch.autograd.grad(loss, parameters)
            pairs = list(zip(gradients, references, strict=True))
            product = sum(float((one * other).sum()) for one, other in pairs)
            if product < 0:
                self.num_projected += 1
                factor = product / sum(float((other**2).sum()) for other in references)
                gradients = tuple(one - factor * other for one, other in pairs)
        self.walk(gradients)
        return logits


class Dark(Plain):
    label_weight = 0.0

    def step(self, images: Tensor, labels: Tensor, remembered: Sequence[Kept]) -> Tensor:
        logits: Tensor = self.model(images)
        loss = cross_entropy(logits, labels)
        if remembered:
            old_images, old_labels = pictures(remembered)
            old = self.model(old_images)
            stored = torch.stack([kept.logits for kept in remembered])
            loss = loss + 0.3 * ((old - stored) ** 2).sum() / stored.numel()
            loss = loss + self.label_weight * cross_entropy(old, old_labels)
        self.descend(loss)
        return logits


class DarkWithLabels(Dark):
    label_weight = 0.5


def play(plain: Plain, learner: Learner, tasks: list[list[Batch]], repeats: int) -> None:
    """Show the stream to a plain method, with the draws that the learner makes."""
    draws = Randomness(learner.config.seed)
    capacity = learner.config.memory_size
    kept: dict[int, Kept] = {}
    mirror = Memory(capacity, tuple(tasks[0][0].images.shape[1:]))  # type: ignore[arg-type]
    for task in tasks:
        for batch in task:
            for _ in range(repeats):
                keys = torch.rand(capacity, generator=draws.generator("retrieval"))[: len(kept)]
                chosen = keys.argsort(descending=True)[: learner.config.memory_batch_size].tolist()
                remembered = [kept[slot] for slot in chosen]
                logits = plain.step(as_doubles(batch.images), batch.labels, remembered)
            slots = Reservoir()(
                RetentionContext(mirror, learner.model, batch, draws.generator("retention"))
            ).tolist()
            mirror.write(torch.tensor(slots), batch)
            examples = map(Kept, batch.images, batch.labels, logits.detach().float().double())
            for slot, example in zip(slots, examples, strict=True):
                if slot < capacity:
                    kept[slot] = example
        plain.end_task()


PLAIN: dict[str, Callable[[nn.Module, float], Plain]] = {
    "finetune": Finetune,
    "lwf": WithTeacher,
    "agem": Projecting,
    "er_rw": Reweighted,
    "der": Dark,
    "derpp": DarkWithLabels,
}
