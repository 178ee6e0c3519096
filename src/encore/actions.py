"""What a run chooses for each incoming batch, and what comes of it: noted as it goes, read afterwards.

DIR/seed-0/actions.encore, a safetensors file, holds a row for each incoming batch:

choices       int32 [N, 4], the task from 0, then K, P and Q
feedback      float32 [N, 4], the last iteration's memory and incoming accuracy, memory and incoming loss
probabilities float32 [N, A], with which each arm could have been drawn; A is 0 where nothing is drawn
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encore import checkpoint
from encore.errors import EncoreError
from encore.interfaces import Controller, Feedback, Plan

FILE = "actions.encore"
KIND = "actions"  # as the file says of itself
WIDTH = 4  # of choices and of feedback


class Actions:
    """Notes what the controller of a run chooses. The feedback stays on the device until it is asked for."""

    def __init__(self, controller: Controller) -> None:
        self._controller: Any = controller
        self.arms: dict[str, list[str]] = dict(getattr(controller, "arms", {}))
        self.targets = {name: list(band) for name, band in getattr(controller, "targets", {}).items()}
        self._num_arms = sum(map(len, self.arms.values()))
        self._choices = array("i")
        self._feedback = array("f")
        self._probabilities = array("f")
        self._on_device: list[Tensor] = []  # feedback that has not been copied to the host

    def __len__(self) -> int:
        return len(self._choices) // WIDTH

    def note(self, task: int, plan: Plan, feedback: Feedback) -> None:
        """Note a plan and what came of it, before the controller learns from that."""
        self._choices.extend((task, plan.repeats, plan.num_ops, plan.magnitude))
        self._on_device.append(feedback.values)
        if self._num_arms:
            self._probabilities.extend(self._controller.probabilities)

    def means(self) -> dict[str, float | None]:
        """Return the mean K and P, and the mean Q of the batches that were augmented, if any were."""
        _, repeats, num_ops, magnitude = self._numbers()
        augmented = magnitude[num_ops > 0]
        return {
            "repeats": float(repeats.mean()),
            "num_ops": float(num_ops.mean()),
            "magnitude": float(augmented.mean()) if len(augmented) else None,
        }

    def save(self, folder: Path, described: dict[str, Any]) -> None:
        """Write the file, atomically, with a description of the run."""
        described = {**described, "arms": self.arms, "targets": self.targets}
        checkpoint.save(folder / FILE, KIND, described, self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return all that was noted; it waits for the device."""
        if self._on_device:
            self._feedback.extend(torch.stack(self._on_device).flatten().tolist())
            self._on_device.clear()
        return {
            "choices": _as_tensor(self._choices, len(self), WIDTH),
            "feedback": _as_tensor(self._feedback, len(self), WIDTH),
            "probabilities": _as_tensor(self._probabilities, len(self), self._num_arms),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what the state describes: what was noted since is forgotten."""
        self._on_device.clear()
        self._choices = array("i", state["choices"].flatten().tolist())
        self._feedback = array("f", state["feedback"].flatten().tolist())
        self._probabilities = array("f", state["probabilities"].flatten().tolist())

    def _numbers(self) -> NDArray[np.int32]:
        return np.array(self._choices, dtype=np.int32).reshape(-1, WIDTH).T


class Recorded(NamedTuple):
    """The actions of a run, an entry for each incoming batch."""

    controller: str
    seed: int
    arms: dict[str, list[str]]
    targets: dict[str, list[float]]
    tasks: NDArray[np.int64]  # [N], from 0
    plans: NDArray[np.int64]  # [N, 3]: K, P and Q
    feedback: NDArray[np.float32]  # [N, 4]
    probabilities: NDArray[np.float32]  # [N, A]


def read_actions(path: Path) -> Recorded:
    """Read the file of a run that is finished."""
    if not path.is_file():
        raise EncoreError(f"there is no {path}: it is there once a run is finished")
    described, state = checkpoint.load(path, KIND)
    with checkpoint.understood(path):
        choices = state["choices"].numpy().astype(np.int64)
        return Recorded(
            controller=described["controller"]["name"],
            seed=described["seed"],
            arms=described["arms"],
            targets=described["targets"],
            tasks=choices[:, 0],
            plans=choices[:, 1:],
            feedback=state["feedback"].numpy(),
            probabilities=state["probabilities"].numpy(),
        )


def _as_tensor(numbers: array[Any], num_rows: int, num_columns: int) -> Tensor:
    """Return a copy, as the array cannot grow while something looks at its place."""
    kind = np.int32 if numbers.typecode == "i" else np.float32
    return torch.from_numpy(np.array(numbers, dtype=kind).reshape(num_rows, num_columns))
