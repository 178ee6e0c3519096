"""The objective of learning without forgetting."""

from __future__ import annotations

import copy
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from encore.errors import unknown_name
from encore.interfaces import Joint, Model, Objective, Outputs
from encore.objectives._measures import measure, parts_of
from encore.values import positive_number

STATISTICS = ("batch", "running")


class LearningWithoutForgetting(Objective):
    """Cross-entropy, and likeness to a teacher: the network as it was at the end of the last task.

    1 / (t + 1) * CE + (1 - 1 / (t + 1)) * KD after t tasks, where KD is T^2 times the mean cross-entropy of
    softmax(logits / T) against softmax(teacher's logits / T), over all classes. Should there be remembered
    examples, CE is the sum of two means, as in experience replay, and KD the mean over all examples.
    """

    num_tasks: Tensor  # float32 [], finished: the t above
    teacher: Model

    def __init__(
        self,
        temperature: Annotated[float, "What logits are divided by before they are compared (T)."] = 2.0,
        teacher_statistics: Annotated[
            str, "What the teacher normalises with: those of the batch, or its own running ones."
        ] = "batch",
    ) -> None:
        super().__init__()
        self.temperature = positive_number("temperature", temperature)
        if teacher_statistics not in STATISTICS:
            raise unknown_name("teacher_statistics", teacher_statistics, STATISTICS)
        self.teacher_statistics = teacher_statistics
        self.register_buffer("num_tasks", torch.zeros(()))

    def prepare(self, model: Model) -> None:
        """Make a teacher, which has nothing to say before the first task has ended."""
        self.teacher = copy.deepcopy(model).requires_grad_(False).eval()
        if self.teacher_statistics == "batch":
            for module in self.teacher.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.train()
                    module.track_running_stats = False  # so that it leaves its running ones as they are

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradient of the weighted sum on the model."""
        logits = model(joint.images)
        with torch.no_grad():
            targets = (self.teacher(joint.images) / self.temperature).softmax(dim=1)
        likeness = self.temperature**2 * F.cross_entropy(logits / self.temperature, targets)
        split = parts_of(logits, joint.num_remembered), parts_of(joint.labels, joint.num_remembered)
        remembered, incoming = map(measure, *split)
        total = incoming.loss + remembered.loss if joint.num_remembered else incoming.loss
        new = 1 / (self.num_tasks + 1)
        torch.autograd.backward(new * total + (1 - new) * likeness)
        return Outputs(remembered.accuracy, incoming.accuracy, remembered.loss, incoming.loss)

    @torch.no_grad()
    def end_task(self, model: Model) -> None:
        """Make the network as it is now the teacher; in place, as iterations may be recorded with it."""
        self.teacher.load_state_dict(model.state_dict())
        self.num_tasks += 1
