"""The learner: K augmented rehearsals for each incoming batch, then the memory is updated.

`Learner.learn` is Algorithm 1 of the paper from line 3 on, and `Learner.rehearse_once` is its loop's body.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from encore import checkpoint, registry
from encore.augment.augmentation import make_augmentation
from encore.checks import Array, check_batch, check_images
from encore.config import LearnerConfig, resolve_parts, usual
from encore.device import enough_memory, resolve_device
from encore.engines.eager import Eager
from encore.errors import EncoreError
from encore.execution import in_precision, resolve_precision
from encore.interfaces import (
    MAX_MAGNITUDE,
    Batch,
    Classifier,
    Engine,
    Feedback,
    Iteration,
    Joint,
    Model,
    Objective,
    Offer,
    Plan,
    Remembered,
    Retention,
    RetentionContext,
    Retrieval,
    RetrievalContext,
)
from encore.memory import Memory
from encore.pixels import as_floats
from encore.randomness import Randomness

CHUNK = 256  # images predicted at a time


class Learner:
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
        self._set_up(config, plan, on)

    @classmethod
    def from_config(cls, config: LearnerConfig, plan: Plan, device: torch.device) -> Learner:
        """Make the untrained learner that a configuration describes."""
        learner = cls.__new__(cls)
        learner._set_up(config, plan, device)
        return learner

    def _set_up(self, config: LearnerConfig, plan: Plan, device: torch.device) -> None:
        self.config, self.plan, self.device = config, plan, device
        # What was trained in bfloat16 on a CPU goes on in float32 on a GPU.
        on_cpu = device.type == "cpu"
        self._precision = resolve_precision(config.precision, device) if on_cpu else "float32"
        self.draws = Randomness(config.seed, device)
        self.retrieval: Retrieval = config.make_part("retrieval")
        self.retention: Retention = config.make_part("retention")
        num_slots = config.memory_size if getattr(self.retention, "keeps", True) else 1
        with enough_memory(), self.draws.seeded_initialisation():
            model: Model = config.make_part("model", config.image_shape, config.num_classes)
            # With the channels innermost, a step on a CPU takes about three quarters of the time.
            self.model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.objective: Objective = config.make_part("objective")
            self.objective.prepare(self.model)
            self.objective.to(device)
            self._stored_shapes = self.objective.stored_shapes(self.model)
            self.memory = Memory(num_slots, config.image_shape, device, self._stored_shapes)
        learnt = (*self.model.parameters(), *self.objective.parameters())
        self.optimizer = torch.optim.SGD(
            [parameter for parameter in learnt if parameter.requires_grad],
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
        )
        self.classifier: Classifier = config.make_part("classifier")
        self._answering = self.model  # the network that the classifier was fitted to
        self.engine = self._make_engine()
        self.rand_augment = make_augmentation(config.operation_space)
        self.num_steps = 0  # of SGD
        self.num_images_trained = 0  # that went through the network for them, remembered and incoming
        self._classifier_is_fitted = False
        self._magnitudes: tuple[int | Tensor, ...] = tuple(range(MAX_MAGNITUDE + 1))
        if device.type != "cpu":  # there they are looked up without the host
            self._magnitudes = torch.arange(MAX_MAGNITUDE + 1, device=device).unbind()

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
        first: Tensor | None = None
        values = torch.full((4,), torch.nan, device=self.device)
        size = len(incoming.labels)
        if size == 0:  # all its images are broken
            return Feedback(values, values if looks_first else None)
        iteration = self.prepare(incoming, plan)
        num_rows = iteration.num_remembered + size
        stored: Mapping[str, Tensor] = {
            name: values.new_zeros(size, *shape) for name, shape in self._stored_shapes.items()
        }
        if num_rows >= self.model.smallest_batch:
            num_left = plan.repeats
            with in_precision(self._precision):
                if looks_first and num_left > 1:
                    first = self._rehearse(iteration, 1)[0].clone()  # the engine uses the place again
                    num_left -= 1
                values, stored = self._rehearse(iteration, num_left)
            self.num_steps += plan.repeats
            self.num_images_trained += plan.repeats * num_rows
        self._remember(Offer(incoming, stored, self.memory.is_full))  # line 9: MemUpdate
        self._classifier_is_fitted = False
        values = values.clone()  # the engine may use the place again
        return Feedback(values, (values if first is None else first) if looks_first else None)

    def prepare(self, incoming: Batch, plan: Plan) -> Iteration:
        """Return what each of the plan's iterations starts from."""
        rehearses = self.objective.rehearses and getattr(self.retrieval, "retrieves", True)
        num_remembered = min(self.config.memory_batch_size, self.memory.num_filled) if rehearses else 0
        magnitude = self._magnitudes[plan.magnitude]
        return Iteration(incoming, num_remembered, plan.num_ops, magnitude, self.memory.is_full)

    def _rehearse(self, iteration: Iteration, repeats: int) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Do lines 3 to 7: `rehearse_once` for k = 1, ..., K."""
        if getattr(self.retrieval, "capturable", True):
            return self.engine.run(self.rehearse_once, iteration, repeats)
        for _ in range(repeats):  # such a rule looks at the host, so it must be asked before each iteration
            chosen = iteration._replace(slots=self._retrieve(iteration))
            result = self.engine.run(self.rehearse_once, chosen)
        return result

    def rehearse_once(self, iteration: Iteration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Take one SGD step on remembered and incoming examples: lines 4 to 7 of Algorithm 1."""
        slots = self._retrieve(iteration) if iteration.slots is None else iteration.slots
        remembered = self.memory.read(slots)  # line 4: MemRetrieval
        joint = self._augment(remembered, iteration)  # line 5: aug
        self.optimizer.zero_grad()
        outputs = self.objective.backward(self.model, joint, self.draws.generator("objective"))
        self.optimizer.step()  # line 7: SGD
        *shown, stored = outputs  # line 6: what a reward is made of
        return torch.stack(shown).detach(), stored

    def end_task(self) -> None:
        """Say that a task has ended: it matters to those few methods that cannot do without boundaries."""
        self.objective.end_task(self.model)

    def _retrieve(self, iteration: Iteration) -> Tensor:
        return self.retrieval(
            RetrievalContext(
                self.memory,
                self.model,
                iteration.incoming,
                iteration.num_remembered,
                self.draws.generator("retrieval"),
                self.config.learning_rate,
            )
        )

    def _augment(self, remembered: Remembered, iteration: Iteration) -> Joint:
        target, draws = self.config.augment_target, self.draws.generator("augmentation")
        incoming, num_ops, magnitude = iteration.incoming, iteration.num_ops, iteration.magnitude
        images = torch.cat([remembered.images, incoming.images])
        if target == "both":
            augmented = self.rand_augment(images, num_ops, magnitude, draws)
        else:
            parts = [
                self.rand_augment(part, num_ops if name == target else 0, magnitude, draws)
                for name, part in (("memory", remembered.images), ("incoming", incoming.images))
            ]
            augmented = torch.cat(parts)
        return Joint(
            augmented.contiguous(memory_format=torch.channels_last),
            torch.cat([remembered.labels, incoming.labels]),
            len(remembered.labels),
            remembered.stored,
            images if num_ops > 0 and target != "none" else None,
        )

    def _remember(self, offer: Offer) -> None:
        num_incoming = len(offer.incoming.labels)
        if not getattr(self.retention, "keeps", True):
            self.memory.pass_by(num_incoming)
            return
        if getattr(self.retention, "capturable", True):
            self.engine.run(self._keep, offer)
        else:
            self._keep(offer)
        self.memory.count(num_incoming)

    def _keep(self, offer: Offer) -> None:
        context = RetentionContext(self.memory, self.model, offer.incoming, self.draws.generator("retention"))
        self.memory.put(self.retention(context), offer.incoming, offer.stored)

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
                self.classifier.scores(self._answering, as_floats(part)) for part in checked.split(CHUNK)
            ]
            return torch.cat(scored).to(images.device if isinstance(images, Tensor) else "cpu")
        finally:
            self.model.train()

    def save(self, path: str | Path) -> None:
        """Write all that the learner is to a file, atomically."""
        checkpoint.save(Path(path), "learner", self._described(), self.state_dict())

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Learner:
        """Read a saved learner; on the same kind of device it goes on with the same bits."""
        on = resolve_device(device)
        described, state = checkpoint.load(Path(path), "learner")
        with checkpoint.understood(Path(path)):
            config = LearnerConfig.from_json(described["learner"])
            learner = cls.from_config(config, Plan(**described["plan"]), on)
            learner.load_state_dict(state)
        return learner

    def _make_engine(self) -> Engine:
        if self.memory.images.device.type == self.device.type:
            engine: Engine = self.config.make_part("engine", self.draws)
            return engine
        if self.config.parts["engine"].name not in ("auto", "eager"):
            raise EncoreError(
                f"a memory of {self.memory.capacity} such images lies on the host, as it would take more "
                "than half of the GPU's free memory, and then nothing can be recorded: use the engine auto "
                "or eager"
            )
        return Eager(self.draws)

    @property
    def is_finite(self) -> bool:
        """Whether training has not diverged: no weight is infinite or NaN. It waits for the device."""
        return all(bool(parameter.isfinite().all()) for parameter in self.model.parameters())

    def _described(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "learner": self.config.to_json(),
            "plan": {"repeats": plan.repeats, "num_ops": plan.num_ops, "magnitude": plan.magnitude},
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed since the learner was made."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": self.memory.state_dict(),
            "generators": self.draws.state_dict(),
            "parts": {
                kind: part.state_dict() for kind, part in self._parts().items() if hasattr(part, "state_dict")
            },
            "num_steps": self.num_steps,
            "num_images_trained": self.num_images_trained,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.memory.load_state_dict(state["memory"])
        self.draws.load_state_dict(state["generators"])
        parts = self._parts()
        for kind, part_state in state["parts"].items():
            parts[kind].load_state_dict(part_state)
        self.num_steps = state["num_steps"]
        self.num_images_trained = state["num_images_trained"]
        self._classifier_is_fitted = False

    def _parts(self) -> dict[str, Any]:
        return {
            "retrieval": self.retrieval,
            "retention": self.retention,
            "objective": self.objective,
            "classifier": self.classifier,
            "engine": self.engine,
        }


def _check_plan(plan: Plan) -> Plan:
    if not isinstance(plan, Plan):
        raise EncoreError(f"plan must be an encore.Plan, got {plan!r}")
    return plan
