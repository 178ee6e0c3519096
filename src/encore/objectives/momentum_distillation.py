"""The objective of momentum knowledge distillation (MKD)."""

from __future__ import annotations

import copy
import math
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from encore.errors import EncoreError, unknown_name
from encore.interfaces import Joint, Model, Objective, Outputs
from encore.pixels import as_floats
from encore.values import not_negative_number, positive_number, share

VIEWS = ("teacher", "student", "none")


class MomentumDistillation(Objective):
    """Cross-entropy, and distillation from the running average of the network's own weights.

    Before iteration t = 1, 2, ... the teacher's weights become r * theta_t + (1 - r) * teacher_{t-1}, with
    r = a / (1 - (1 - a)^t): an average with weights that fall by 1 - a with each step back, and sum to one.
    An example x that was augmented to x' costs

        CE(s(x'), y) + w / 2 * KL(s(x') from teacher(x)) + w / 2 * KL(s(x') from teacher(x'))

    with KL(s from t) = T^2 * sum over classes of p_t log(p_t / p_s), p the softmax of logits over T. Without
    augmentation both terms are the same. The total is the sum of the means over remembered and over
    incoming examples, from one joint pass; what is shown as loss is the cross-entropy alone. Questions
    are answered with the average of student and teacher.
    """

    teacher: Model
    num_steps: Tensor  # float32 [], how often the teacher has followed

    def __init__(
        self,
        memory_weight: Annotated[float, "Weight of the remembered examples' mean loss."] = 1.0,
        incoming_weight: Annotated[float, "Weight of the incoming examples' mean loss."] = 1.0,
        distillation_weight: Annotated[float, "Weight of distillation beside cross-entropy (w)."] = 5.5,
        temperature: Annotated[float, "By which logits are divided for distillation (T)."] = 4.0,
        teacher_rate: Annotated[float, "Share of the student that enters the teacher at a step (a)."] = 0.01,
        teacher_share: Annotated[float, "Share of the teacher in the answering network."] = 0.5,
        raw_view: Annotated[
            str, "Who sees the images without augmentation, too: teacher, student or none."
        ] = "teacher",
    ) -> None:
        super().__init__()
        self.memory_weight = not_negative_number("memory_weight", memory_weight)
        self.incoming_weight = not_negative_number("incoming_weight", incoming_weight)
        self.distillation_weight = not_negative_number("distillation_weight", distillation_weight)
        self.temperature = positive_number("temperature", temperature)
        self.teacher_rate = share("teacher_rate", teacher_rate)
        if self.teacher_rate == 0:
            raise EncoreError("teacher_rate must be above 0, as the teacher would be nobody's average")
        self.teacher_share = share("teacher_share", teacher_share)
        self.log_keep = math.log1p(-self.teacher_rate) if self.teacher_rate < 1 else -math.inf
        if raw_view not in VIEWS:
            raise unknown_name("raw_view", raw_view, VIEWS)
        self.raw_view = raw_view

    def prepare(self, model: Model) -> None:
        """Begin with a teacher that is the student."""
        self.register_buffer("num_steps", torch.zeros(()))
        self.teacher = copy.deepcopy(model).requires_grad_(False)
        for module in self.teacher.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                # It normalises by the batch at hand, as the student does, and so needs no statistics.
                module.track_running_stats = False
                module.running_mean = module.running_var = module.num_batches_tracked = None

    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Let the teacher follow the last step, and leave the gradient of the weighted sum on the model."""
        self._follow(model)
        logits = model(joint.images)
        entropies = F.cross_entropy(logits, joint.labels, reduction="none")
        losses = entropies + self.distillation_weight * self._distill(model, joint, logits)
        right = (logits.detach().argmax(dim=1) == joint.labels).float()
        remembered, incoming = slice(None, joint.num_remembered), slice(joint.num_remembered, None)
        total = self.incoming_weight * losses[incoming].mean()
        if joint.num_remembered:
            total = total + self.memory_weight * losses[remembered].mean()
        torch.autograd.backward(total)
        return Outputs(
            right[remembered].mean(),
            right[incoming].mean(),
            entropies[remembered].mean(),
            entropies[incoming].mean(),
        )

    @torch.no_grad()
    def _follow(self, model: Model) -> None:
        """Move the teacher's weights towards the student's, as they are since the last step."""
        teacher: list[Tensor] = list(self.teacher.parameters())
        student: list[Tensor] = list(model.parameters())
        moves = torch._foreach_sub(student, teacher)
        torch._foreach_mul_(moves, self._next_rate())
        torch._foreach_add_(teacher, moves)
        self.num_steps += 1

    def _next_rate(self) -> Tensor:
        """Return the share r of the student in the teacher when it follows the next time."""
        return self.teacher_rate / -torch.expm1((self.num_steps + 1) * self.log_keep)

    def _distill(self, model: Model, joint: Joint, logits: Tensor) -> Tensor:
        """Return each row's mean divergence from the teacher, over the pairs of views [R + B]."""
        with torch.no_grad():
            taught = self.teacher(joint.images)
        divergence = self._diverge(taught, logits)
        if joint.raw is None or self.raw_view == "none":
            return divergence
        raw = as_floats(joint.raw).to(joint.images.dtype)
        if self.raw_view == "student":
            return (divergence + self._diverge(taught, model(raw))) / 2
        with torch.no_grad():
            taught = self.teacher(raw)
        return (divergence + self._diverge(taught, logits)) / 2

    def _diverge(self, taught: Tensor, learnt: Tensor) -> Tensor:
        teacher, student = ((logits / self.temperature).log_softmax(dim=1) for logits in (taught, learnt))
        divergences = F.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=1)
        return self.temperature**2 * divergences

    @torch.no_grad()
    def answering_model(self, model: Model) -> Model:
        """Return the average of student and teacher, with the student's batch-norm statistics."""
        average, rate = copy.deepcopy(model), self._next_rate()
        for student, teacher in zip(average.parameters(), self.teacher.parameters(), strict=True):
            followed = teacher + rate * (student - teacher)  # the step since the teacher last did so
            student.lerp_(followed, self.teacher_share)
        return average
