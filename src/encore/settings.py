"""The settings of a run: these classes are its command line, its help text and its JSON.

The paper's symbols stand beside our names in the help. Nothing heavy is imported here, so that the help
comes at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

CLASS_ORDERS = ("seed", "official", "sorted")


def to_whole_number(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert what was typed, and refuse what is no whole number: 2.5 is not meant to become 2."""
    return to_whole_numbers(kind, tokens)[0]


def to_whole_numbers(kind: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    """Convert all that was typed for an option."""
    for token in tokens:
        if not re.fullmatch(r"[+-]?[0-9]+", token.value):
            raise ValueError(f"{token.value!r} is not a whole number; several are separated by spaces")
    return tuple(int(token.value) for token in tokens)


def to_class_order(kind: Any, tokens: Sequence[Token]) -> tuple[int | str, ...]:
    """Convert the numbers of classes, or the one word that says where their order comes from."""
    if len(tokens) == 1 and tokens[0].value.isalpha():
        return (tokens[0].value,)
    return to_whole_numbers(kind, tokens)


_STREAM = Group("The stream", sort_key=1)
_REHEARSAL = Group("The method", sort_key=2)
_PLAN = Group("Repeated augmented rehearsal", sort_key=3)
_TRAINING = Group("Training", sort_key=4)


def _says(text: str, **more: Any) -> Parameter:
    return Parameter(help=text, negative=(), **more)


def _counts(text: str) -> Parameter:
    return _says(text, converter=to_whole_number)


@Parameter(name="*", group=_STREAM)
@dataclass(frozen=True)
class StreamSettings:
    """What comes, in which order."""

    benchmark: Annotated[str, _says("Data set and its tasks: `encore list benchmarks`.")] = "digits"
    data_dir: Annotated[
        str | None, _says("Where its files are; else $ENCORE_DATA, else the user's cache directory.")
    ] = None
    kind: Annotated[str, _says("How it is laid out in time: `encore list streams`.", name="--stream")] = (
        "class_incremental"
    )
    class_order: Annotated[
        tuple[int | str, ...] | None,
        _says(
            "Classes in the order in which they come, or: seed (drawn from it), official (where there is "
            "one), sorted; else the benchmark's usual one.",
            consume_multiple=True,
            converter=to_class_order,
        ),
    ] = None
    tasks: Annotated[int | None, _counts("How many tasks to cut it into; else the usual number (T).")] = None
    first_tasks: Annotated[int | None, _counts("Stop after this many tasks; else all.")] = None
    epochs: Annotated[
        int | None,
        _counts(
            "How often the examples of a task come: above 1 it is offline; else the method's own, else 1."
        ),
    ] = None
    split: Annotated[
        str | None,
        _says("How images without an official split are parted: seed or fixed; else the benchmark's own."),
    ] = None
    hold_out: Annotated[
        float | None,
        _says(
            "Test on such a share of each task's training images, and do not train on it; else on the test "
            "images."
        ),
    ] = None
    skip_broken: Annotated[int, _counts("Go on past up to so many images that cannot be read.")] = 0
    batch_size: Annotated[int, _counts("Images in an incoming batch (|B|).")] = 10


@Parameter(name="*", group=_REHEARSAL)
@dataclass(frozen=True)
class RehearsalSettings:
    """What is remembered, and how it is used."""

    method: Annotated[str, _says("Recipe of parts: `encore list methods`.")] = "er"
    memory_size: Annotated[int, _counts("Examples the memory holds (M).")] = 2000
    memory_batch_size: Annotated[
        int | None, _counts("Remembered images in each iteration (|B^M|); else the method's own, else 10.")
    ] = None
    retrieval: Annotated[str | None, _says("What to rehearse; else the method's own.")] = None
    retention: Annotated[str | None, _says("What to keep; else the method's own.")] = None
    objective: Annotated[str | None, _says("What to minimise; else the method's own.")] = None
    classifier: Annotated[str | None, _says("How to predict; else the method's own.")] = None


@Parameter(name="*", group=_PLAN)
@dataclass(frozen=True)
class PlanSettings:
    """How hard each incoming batch is rehearsed. The paper's RAR is 10, 1 and 14."""

    repeats: Annotated[int, _counts("Rehearsal iterations for each incoming batch (K).")] = 1
    num_ops: Annotated[int, _counts("Augmentation operations on each image, 0 to 4 (P).")] = 0
    magnitude: Annotated[int, _counts("Strength of each operation, 0 to 30 (Q).")] = 14
    controller: Annotated[str, _says("What chooses K, P and Q: `encore list controllers`.")] = "fixed"
    augment_target: Annotated[str, _says("What is augmented: both, memory, incoming or none.")] = "both"
    operation_space: Annotated[
        str,
        _says(
            "What is drawn from: paper, RandAugment's 14 operations; authors, the 16 of the paper's code; or "
            "crop_flip, shifts by up to 4 pixels and mirror images."
        ),
    ] = "paper"


@Parameter(name="*", group=_TRAINING)
@dataclass(frozen=True)
class TrainingSettings:
    """How the network learns, and on what."""

    model: Annotated[str, _says("Network: `encore list models`.")] = "reduced_resnet18"
    learning_rate: Annotated[float | None, _says("Of plain SGD (eta); else the method's own, else 0.1.")] = (
        None
    )
    weight_decay: Annotated[float, _says("Of plain SGD.")] = 0.0
    engine: Annotated[str, _says("How an iteration is executed: `encore list engines`.")] = "auto"
    device: Annotated[str, _says("auto, cpu, cuda or cuda:N.")] = "auto"
    precision: Annotated[
        str, _says("Of the convolutions in training, on a CPU: float32, bfloat16 or auto (the faster one).")
    ] = "float32"
    threads: Annotated[int | None, _counts("CPU threads; else chosen by the size of the images.")] = None
    checkpoint_every: Annotated[
        int | None,
        _counts(
            "Incoming batches from one checkpoint to the next, with two more at the end of each task; else "
            "as often as a fiftieth of the time allows."
        ),
    ] = None


@dataclass(frozen=True)
class RunSettings:
    """All settings of a run but its seed."""

    stream: StreamSettings = field(default_factory=StreamSettings)
    rehearsal: RehearsalSettings = field(default_factory=RehearsalSettings)
    plan: PlanSettings = field(default_factory=PlanSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    part_options: Mapping[str, Any] = field(default_factory=dict)  # {"objective.memory_weight": 0.5}

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values.

        >>> RunSettings.from_json(RunSettings().to_json()) == RunSettings()
        True
        """
        described = dataclasses.asdict(self)
        if self.stream.class_order is not None:
            described["stream"]["class_order"] = list(self.stream.class_order)
        return described

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunSettings:
        """Return the settings that `to_json` described."""
        stream = dict(value["stream"])
        if stream["class_order"] is not None:
            stream["class_order"] = tuple(stream["class_order"])
        return cls(
            StreamSettings(**stream),
            RehearsalSettings(**value["rehearsal"]),
            PlanSettings(**value["plan"]),
            TrainingSettings(**value["training"]),
            value["part_options"],
        )

    def named_parts(self) -> dict[str, str | None]:
        """Return the name given for each kind of part; None where the method decides."""
        return {
            "benchmark": self.stream.benchmark,
            "stream": self.stream.kind,
            "controller": self.plan.controller,
            "model": self.training.model,
            "engine": self.training.engine,
            "retrieval": self.rehearsal.retrieval,
            "retention": self.rehearsal.retention,
            "objective": self.rehearsal.objective,
            "classifier": self.rehearsal.classifier,
        }
