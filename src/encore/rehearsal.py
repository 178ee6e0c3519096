"""Rehearsal: K augmented iterations for each incoming batch, then the memory is updated.

`Rehearsal.learn` is Algorithm 1 of the paper from line 3 on, and `Rehearsal.rehearse_once` its loop's body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from encore.augment.augmentation import make_augmentation
from encore.config import LearnerConfig
from encore.descent import GradientDescent
from encore.device import enough_memory
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
from encore.randomness import Randomness


class Rehearsal:
    """A network, its memory and the parts of a method, put together; all that changes is its state."""

    def __init__(self, config: LearnerConfig, device: torch.device) -> None:
        self.config, self.device = config, device
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
        self.optimizer = GradientDescent(learnt, config.learning_rate, config.weight_decay)
        self.classifier: Classifier = config.make_part("classifier")
        self.engine = self._make_engine()
        self.rand_augment = make_augmentation(config.operation_space)
        self.num_steps = 0  # of SGD
        self.num_images_trained = 0  # that went through the network for them, remembered and incoming
        self._magnitudes: tuple[int | Tensor, ...] = tuple(range(MAX_MAGNITUDE + 1))
        if device.type != "cpu":  # there they are looked up without the host
            self._magnitudes = torch.arange(MAX_MAGNITUDE + 1, device=device).unbind()

    def learn(self, incoming: Batch, plan: Plan, looks_first: bool = False) -> Feedback:
        """Rehearse an incoming batch on the device K times, then update the memory: lines 3 to 9."""
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

    def state_dict(self) -> dict[str, Any]:
        """Return all that has changed since the learner was made."""
        return {
            "model": self.model.state_dict(),
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
        self.memory.load_state_dict(state["memory"])
        self.draws.load_state_dict(state["generators"])
        parts = self._parts()
        for kind, part_state in state["parts"].items():
            parts[kind].load_state_dict(part_state)
        self.num_steps = state["num_steps"]
        self.num_images_trained = state["num_images_trained"]

    def _parts(self) -> dict[str, Any]:
        return {
            "retrieval": self.retrieval,
            "retention": self.retention,
            "objective": self.objective,
            "classifier": self.classifier,
            "engine": self.engine,
        }
