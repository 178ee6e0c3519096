"""The learner as a program uses it: it checks what it is given, answers, and is saved.

How it learns is in rehearsal.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from encore import checkpoint, registry
from encore.checks import Array, check_batch, check_images
from encore.config import LearnerConfig, resolve_parts, usual
from encore.device import images_at_a_time, resolve_device
from encore.errors import EncoreError
from encore.execution import resolve_precision
from encore.interfaces import (
    Batch,
    Feedback,
    Model,
    Plan,
)
from encore.pixels import as_floats
from encore.rehearsal import Rehearsal


class Learner(Rehearsal):
    """A network and its memory, which learn from a stream and answer at any time.

    Images are uint8 [B, C, H, W], or floats from 0 to 1; labels are whole numbers [B]; both torch or
    NumPy, in batches of any size, classes in any order, without task labels. One thread at a time may use
    a learner; several learners may be used in several threads.

    >>> import numpy as np
    >>> numbers = np.random.default_rng(0)
    >>> images = numbers.integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    >>> labels = numbers.integers(0, 10, 20)
    >>> learner = Learner("er", image_shape=(1, 8, 8), num_classes=10, memory_size=50,
    ...                   plan=Plan(repeats=2, num_ops=1, magnitude=14), seed=0, device="cpu")
    >>> for start in range(0, 20, 10):
    ...     feedback = learner.observe(images[start : start + 10], labels[start : start + 10])
    >>> learner.num_steps, learner.memory.num_filled
    (4, 20)
    >>> learner.predict(images[:3]).shape
    torch.Size([3])
    """

    def __init__(
        self,
        method: str = "er",
        *,
        image_shape: tuple[int, int, int],
        num_classes: int,
        memory_size: int = 2000,
        plan: Plan | None = None,
        seed: int = 0,
        memory_batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        augment_target: str = "both",
        operation_space: str = "paper",
        parts: Mapping[str, Any] | None = None,
        device: str = "auto",
        precision: str = "float32",
    ) -> None:
        """Make an untrained learner.

        Args:
            method: a name from `encore list methods`.
            image_shape: channels, height and width.
            num_classes: how many classes there will ever be; all have a logit from the start.
            memory_size: how many examples the memory holds (M).
            plan: repeats (K), operations (P) and magnitude (Q); by default one repeat, no augmentation.
            seed: everything random is derived from it.
            memory_batch_size: how many remembered examples join each iteration; else the method's own.
            learning_rate: of plain SGD; else the method's own.
            weight_decay: of plain SGD.
            augment_target: `both`, `memory`, `incoming` or `none`.
            operation_space: what is drawn from: RandAugment's `paper` or `authors`, or `crop_flip`.
            parts: other parts than the method's own, and options of parts, for example
                `{"classifier": "softmax", "objective.memory_weight": 0.5}`.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            precision: of the convolutions in training: `float32`, on a CPU also `bfloat16`, or `auto`, the
                faster one.

        """
        on = resolve_device(device)
        config = LearnerConfig(
            method=registry.resolve("method", method),
            image_shape=image_shape,
            num_classes=num_classes,
            memory_size=memory_size,
            memory_batch_size=usual(method, "memory_batch_size", memory_batch_size),
            learning_rate=usual(method, "learning_rate", learning_rate),
            weight_decay=weight_decay,
            augment_target=augment_target,
            operation_space=operation_space,
            parts=resolve_parts(method, parts or {}),
            seed=seed,
            precision=resolve_precision(precision, on),
        )
        plan = _check_plan(Plan() if plan is None else plan)
        self._begin(config, plan, on)

    @classmethod
    def from_config(cls, config: LearnerConfig, plan: Plan, device: torch.device) -> Learner:
        """Make the untrained learner that a configuration describes."""
        learner = cls.__new__(cls)
        learner._begin(config, plan, device)
        return learner

    @property
    def images_at_a_time(self) -> int:
        """How many images are predicted at a time, of all that are given."""
        return images_at_a_time(self.device, self.config.image_shape)

    def _begin(self, config: LearnerConfig, plan: Plan, device: torch.device) -> None:
        super().__init__(config, device)
        self.plan = plan
        self._answering: Model = self.model  # the network that the classifier was fitted to
        self._classifier_is_fitted = False

    def observe(
        self, images: Array, labels: Array, plan: Plan | None = None, *, looks_first: bool = False
    ) -> Feedback:
        """Learn from an incoming batch: rehearse K times, then update the memory.

        Nothing has changed if the batch is refused. The feedback is the last iteration's; with `looks_first`
        it also says how the batch looked at the first, before any step on it.
        """
        config = self.config
        plan = _check_plan(self.plan if plan is None else plan)
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller is in
            incoming = check_batch(images, labels, config.image_shape, config.num_classes, self.device)
            return self.learn(incoming, plan, looks_first)

    def learn(self, incoming: Batch, plan: Plan, looks_first: bool = False) -> Feedback:
        """Do as `observe`, with a batch that is known to be right and on the device."""
        self._classifier_is_fitted = False
        return super().learn(incoming, plan, looks_first)

    def predict(self, images: Array) -> Tensor:
        """Return the most likely class of each image, int64 [N], on the device the images came from."""
        return self.scores(images).argmax(dim=1)

    def predict_proba(self, images: Array) -> Tensor:
        """Return a probability for each class and image, float32 [N, num_classes].

        The softmax of the classifier's scores: of the logits, or, for the nearest class mean, of minus the
        squared distances. The latter are ordered as the predictions are, and not calibrated.
        """
        return self.scores(images).softmax(dim=1)

    @torch.no_grad()
    def scores(self, images: Array) -> Tensor:
        """Return the classifier's score of each class and image, float32 [N, num_classes]."""
        checked = check_images(images, self.config.image_shape, self.device)
        if self.memory.num_seen == 0:
            raise EncoreError("nothing can be predicted yet: observe at least one batch first")
        self.model.eval()
        try:
            if not self._classifier_is_fitted:
                self._answering = self.objective.answering_model(self.model)
                self.classifier.fit(self._answering, self.memory)
                self._classifier_is_fitted = True
            scored = [
                self.classifier.scores(self._answering, as_floats(part))
                for part in checked.split(self.images_at_a_time)
            ]
            return torch.cat(scored).to(images.device if isinstance(images, Tensor) else "cpu")
        finally:
            self.model.train()

    def save(self, path: str | Path) -> None:
        """Write all that the learner is to a file, atomically."""
        checkpoint.save(Path(path), "learner", self._described(), self.state_dict())

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Learner:
        """Read a saved learner; on a CPU it goes on with the same bits."""
        on = resolve_device(device)
        described, state = checkpoint.load(Path(path), "learner")
        with checkpoint.understood(Path(path)):
            config = LearnerConfig.from_json(described["learner"])
            learner = cls.from_config(config, Plan(**described["plan"]), on)
            learner.load_state_dict(state)
        return learner

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        super().load_state_dict(state)
        self._classifier_is_fitted = False

    @property
    def is_finite(self) -> bool:
        """Whether training has not diverged: no weight is infinite or NaN. It waits for the device."""
        learnt = (*self.model.parameters(), *self.objective.parameters())
        return all(bool(parameter.isfinite().all()) for parameter in learnt)

    def _described(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "learner": self.config.to_json(),
            "plan": {"repeats": plan.repeats, "num_ops": plan.num_ops, "magnitude": plan.magnitude},
        }


def _check_plan(plan: Plan) -> Plan:
    if not isinstance(plan, Plan):
        raise EncoreError(f"plan must be an encore.Plan, got {plan!r}")
    return plan
