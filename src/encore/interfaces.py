"""The design on one page: what flows between the parts, and what each kind of part must do.

Data walks one way. A stream hands out a `Batch`; a `Controller` answers with a `Plan`; for each of the
plan's repeats a `Retrieval` picks slots of the memory, both batches are augmented into a `Joint`, and an
`Objective` leaves gradients on the `Model`; then a `Retention` decides what the memory keeps, and the
`Feedback` of the last iteration goes back to the controller. A `Classifier` answers questions meanwhile.

Every kind of part lives in a folder of its own, one file per part, found by its file name (registry.py).
A part's options are the arguments of its constructor. A part that changes while it works is a
`torch.nn.Module` or has `state_dict` and `load_state_dict`, and is then saved and resumed by itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Generator, Tensor, nn

from encore.values import whole_number

if TYPE_CHECKING:
    from encore.memory import Memory
    from encore.stream import Task

NOTHING: Mapping[str, Any] = MappingProxyType({})
MAX_REPEATS = 100
MAX_NUM_OPS = 4
MAX_MAGNITUDE = 30


class Batch(NamedTuple):
    """Images with their labels, on the training device."""

    images: Tensor  # uint8 [B, C, H, W]
    labels: Tensor  # int64 [B]


@dataclass(frozen=True)
class Plan:
    """How hard to rehearse one incoming batch: the paper's K, P and Q.

    >>> Plan(repeats=10, num_ops=1, magnitude=14)
    Plan(repeats=10, num_ops=1, magnitude=14)
    """

    repeats: int = 1  # K: rehearsal iterations for each incoming batch
    num_ops: int = 0  # P: augmentation operations for each image; 0 is no augmentation
    magnitude: int = 14  # Q: strength of each operation, 0 to 30

    def __post_init__(self) -> None:
        settle = object.__setattr__  # the way around frozen, for NumPy's whole numbers to become Python's
        settle(self, "repeats", whole_number("repeats (K)", self.repeats, 1, MAX_REPEATS))
        settle(self, "num_ops", whole_number("num_ops (P)", self.num_ops, 0, MAX_NUM_OPS))
        settle(self, "magnitude", whole_number("magnitude (Q)", self.magnitude, 0, MAX_MAGNITUDE))


class Remembered(NamedTuple):
    """Examples out of the memory, with what an objective has stored beside them."""

    images: Tensor  # uint8 [R, C, H, W]
    labels: Tensor  # int64 [R]
    stored: Mapping[str, Tensor] = NOTHING  # float32 [R, ...] by name


class Iteration(NamedTuple):
    """What one rehearsal iteration starts from. Where a number here changes, so do shapes or branches."""

    incoming: Batch
    num_remembered: int  # R; 0 while the memory is empty
    num_ops: int  # P
    magnitude: int | Tensor  # Q; on an accelerator 0-d and there, so that it may change between replays
    memory_is_full: bool
    slots: Tensor | None = None  # what to rehearse, where it was chosen before; int64 [R]


class Joint(NamedTuple):
    """One rehearsal iteration's examples, augmented: the remembered rows first, then the incoming."""

    images: Tensor  # float32 [R + B, C, H, W], in [0, 1]
    labels: Tensor  # int64 [R + B]
    num_remembered: int  # R; 0 while the memory is empty
    stored: Mapping[str, Tensor] = NOTHING  # float32 [R, ...], of the remembered rows
    raw: Tensor | None = None  # uint8 [R + B, C, H, W], before augmentation; None if nothing was augmented


class Outputs(NamedTuple):
    """What an iteration showed before its step, as 0-d tensors; NaN where there is no such example."""

    memory_accuracy: Tensor
    incoming_accuracy: Tensor
    memory_loss: Tensor
    incoming_loss: Tensor
    stored: Mapping[str, Tensor] = NOTHING  # float32 [B, ...], what to keep beside the incoming examples


class Offer(NamedTuple):
    """What the memory is offered after the last iteration."""

    incoming: Batch
    stored: Mapping[str, Tensor]
    memory_is_full: bool


class FeedbackValues(NamedTuple):
    """`Outputs` as numbers on the host: the last iteration's, and on the incoming batch the first one's.

    The first iteration meets the incoming examples before any step on them. What it shows tells what is new
    from what is known; with many repeats the last one's is good whatever comes.
    """

    memory_accuracy: float
    incoming_accuracy: float
    memory_loss: float
    incoming_loss: float
    first_incoming_accuracy: float = math.nan  # NaN where nobody has looked at the first iteration
    first_incoming_loss: float = math.nan


class Feedback(NamedTuple):
    """The last iteration's `Outputs`, stacked and still on the device, and the first one's if asked for."""

    values: Tensor  # float32 [4]
    first: Tensor | None = None  # float32 [4]

    def read(self) -> FeedbackValues:
        """Copy the numbers to the host: the one synchronisation of an incoming batch."""
        if self.first is None:
            return FeedbackValues(*self.values.tolist())
        last, first = torch.stack([self.values, self.first]).tolist()
        return FeedbackValues(*last)._replace(first_incoming_accuracy=first[1], first_incoming_loss=first[3])


class Model(nn.Module):
    """A network in two halves: an encoder, and a linear head over all classes from the start."""

    num_features: int
    num_classes: int
    smallest_batch: int  # the fewest images batch normalisation can train on

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """Encode float images [N, C, H, W] as [N, num_features]."""

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of float images [N, C, H, W] as [N, num_classes]."""


class RetrievalContext(NamedTuple):
    """All that a retrieval rule may look at."""

    memory: Memory
    model: Model
    incoming: Batch
    size: int  # how many slots to return, at most memory.num_filled
    generator: Generator
    learning_rate: float


class Retrieval(Protocol):
    """Chooses which slots to rehearse: int64 [size], all different, all filled.

    It may branch on `memory.is_full`, and on no other count of the host: what was captured is replayed while
    the counts go on. A rule that cannot do without says `capturable = False`, and is called each time. A rule
    that never picks anything says `retrieves = False`.
    """

    def __call__(self, context: RetrievalContext) -> Tensor: ...


class RetentionContext(NamedTuple):
    """All that a retention rule may look at."""

    memory: Memory
    model: Model
    incoming: Batch
    generator: Generator


class Retention(Protocol):
    """Chooses a slot for each incoming example: int64 [B]; `memory.scratch` means it is not kept.

    No slot but scratch is named twice. Free slots are filled in order before anything is overwritten,
    so that the number of filled slots is known without asking the device. A rule that keeps nothing at all
    says `keeps = False`. Branches: as for `Retrieval`.
    """

    def __call__(self, context: RetentionContext) -> Tensor: ...


class Objective(nn.Module):
    """Leaves the gradient of one rehearsal iteration on the model, and on its own parameters if it has any.

    What it keeps from one iteration to another are buffers, changed in place.
    """

    rehearses = True  # whether it wants remembered examples; this may change when a task ends, and only then

    def prepare(self, model: Model) -> None:
        """Make what depends on the network: called once, before anything is learnt."""

    def stored_shapes(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each thing that is stored beside a remembered example, by name."""
        return NOTHING

    @abstractmethod
    def backward(self, model: Model, joint: Joint, generator: Generator) -> Outputs:
        """Leave the gradients."""

    def end_task(self, model: Model) -> None:
        """Take notice that a task has ended; most objectives need no boundaries."""

    def answering_model(self, model: Model) -> Model:
        """Return the network that answers questions: the one that learns, given in evaluation mode.

        Or another made of it, such as an average over time, which changes neither. It is asked for anew when
        anything was learnt.
        """
        return model


class Classifier(Protocol):
    """Answers from a model and a memory; refitted whenever either has changed.

    One that has no answers without remembered examples says `needs_memory = True`.
    """

    def fit(self, model: Model, memory: Memory) -> None: ...

    def scores(self, model: Model, images: Tensor) -> Tensor:
        """Score float images [N, C, H, W] as [N, num_classes]; minus infinity: cannot be predicted."""


class Controller(Protocol):
    """Chooses the plan of every incoming batch, and learns from what came of it.

    One that draws among arms may name them, as `arms`, texts by policy, and say as `probabilities` how likely
    each is to be drawn next; one that aims at memory accuracies may name their bounds, as `targets`, by
    policy, too. They are recorded. One that wants to know how an incoming batch looked before any step on it
    says `looks_first = True`. A static method `settle` may fix options when a run starts, so that a
    resumed one is the same.
    """

    needs_feedback: bool  # False spares the host synchronisation

    def start_task(self, task: int) -> None: ...

    def choose(self, generator: Generator) -> Plan: ...  # the generator is on the host

    def learn_from(self, feedback: FeedbackValues) -> None: ...


Inputs = TypeVar("Inputs", Iteration, Offer)
Result = TypeVar("Result")


class Engine(Protocol):
    """Executes the work of a learner: by calling it, or in any way that gives the same result.

    It is made with the learner's `Randomness`, as whatever is drawn is part of the result.
    """

    def run(self, work: Callable[[Inputs], Result], inputs: Inputs, times: int = 1) -> Result:
        """Do the work so many times, and return the last result, which holds until the next call."""


class Material(NamedTuple):
    """All that a kind of stream may look at; rows are numbers of images, in ascending order."""

    labels: Tensor  # int64 [N], of all images
    train: Tensor  # int64, the rows to learn from
    test: Tensor  # int64, the rows to test on
    class_groups: tuple[tuple[int, ...], ...]  # the classes of each task, in the order chosen
    times: Tensor | None  # float64 [N], when each image was taken, if the data say so
    given_tasks: Tensor | None  # int64 [N], to which task each belongs, if the data say so
    generator: Generator  # on the host


class StreamKind(Protocol):
    """Lays a data set out in time: which examples come when, and what each task is tested on."""

    def __call__(self, material: Material) -> list[Task]: ...


@dataclass(frozen=True)
class Recipe:
    """A method as a choice of parts: what it rehearses, keeps, minimises and classifies with.

    What nobody sets otherwise is set as the method has it: options of its parts, such as
    `{"objective.memory_weight": 0.5}`, and usual numbers, such as `{"learning_rate": 0.2}`.
    """

    retrieval: str
    retention: str
    objective: str
    classifier: str
    options: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)  # learning_rate, memory_batch_size, epochs
    title: str = ""  # what the literature calls it, if not its name in capitals

    def parts(self) -> dict[str, str]:
        """Return the name of each part, by its kind."""
        return {
            "retrieval": self.retrieval,
            "retention": self.retention,
            "objective": self.objective,
            "classifier": self.classifier,
        }
