"""Typed settings of a learner and of a run, and their way to JSON and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from encore import registry
from encore.augment.augmentation import OPERATION_SPACES
from encore.errors import EncoreError, unknown_name
from encore.interfaces import Recipe
from encore.randomness import Randomness
from encore.settings import RunSettings
from encore.values import not_negative_number, positive_number, whole_number

AUGMENT_TARGETS = ("both", "memory", "incoming", "none")
LEARNER_PARTS = ("model", "retrieval", "retention", "objective", "classifier", "engine")
USUAL = {"memory_batch_size": 10, "learning_rate": 0.1, "epochs": 1}  # where the method has no own
DEFAULT_PARTS = {"model": "reduced_resnet18", "engine": "auto"}  # the others are the method's


@dataclass(frozen=True)
class PartChoice:
    """A part by name, with all its options."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class LearnerConfig:
    """All that decides how a learner learns, but for the plans: see `Learner` for each field."""

    method: str
    image_shape: tuple[int, int, int]
    num_classes: int
    memory_size: int
    memory_batch_size: int
    learning_rate: float
    weight_decay: float
    augment_target: str
    operation_space: str
    parts: Mapping[str, PartChoice]
    seed: int
    precision: str = "float32"  # as resolved: never `auto`

    def __post_init__(self) -> None:
        settle = object.__setattr__  # the way around frozen, for lists and NumPy's numbers to become Python's
        settle(self, "image_shape", _check_image_shape(self.image_shape))
        for field, name in (
            ("num_classes", "the number of classes"),
            ("memory_size", "the memory size"),
            ("memory_batch_size", "the memory batch size"),
        ):
            settle(self, field, whole_number(name, getattr(self, field), lowest=1))
        settle(self, "learning_rate", positive_number("the learning rate", self.learning_rate))
        settle(self, "weight_decay", not_negative_number("the weight decay", self.weight_decay))
        settle(self, "seed", Randomness(self.seed).seed)
        for kind, name, known in (
            ("augmentation target", self.augment_target, AUGMENT_TARGETS),
            ("operation space", self.operation_space, OPERATION_SPACES),
        ):
            if name not in known:
                raise unknown_name(kind, name, known)
        _check_together(self.parts["classifier"].name, self.parts["retention"].name)

    def make_part(self, kind: str, *arguments: Any) -> Any:
        """Construct the chosen part of a kind."""
        choice = self.parts[kind]
        return registry.make(kind, choice.name, *arguments, **choice.options)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return dataclasses.asdict(self) | {"image_shape": list(self.image_shape)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LearnerConfig:
        """Return the settings that `to_json` described."""
        parts = {kind: PartChoice(**choice) for kind, choice in value["parts"].items()}
        return cls(**{**value, "parts": parts, "image_shape": tuple(value["image_shape"])})


def resolve_run(
    settings: RunSettings, image_shape: tuple[int, int, int], num_classes: int, seed: int
) -> LearnerConfig:
    """Return the learner that a run's settings describe, for one seed of a benchmark."""
    rehearsal, plan, training = settings.rehearsal, settings.plan, settings.training
    chosen = {kind: name for kind, name in settings.named_parts().items() if kind in LEARNER_PARTS}
    options = {key: value for key, value in settings.part_options.items() if kind_of(key) in LEARNER_PARTS}
    return LearnerConfig(
        method=registry.resolve("method", rehearsal.method),
        image_shape=image_shape,
        num_classes=num_classes,
        memory_size=rehearsal.memory_size,
        memory_batch_size=usual(rehearsal.method, "memory_batch_size", rehearsal.memory_batch_size),
        learning_rate=usual(rehearsal.method, "learning_rate", training.learning_rate),
        weight_decay=training.weight_decay,
        augment_target=plan.augment_target,
        operation_space=plan.operation_space,
        parts=resolve_parts(rehearsal.method, chosen | options),
        seed=seed,
        precision=training.precision,
    )


def usual(method: str, name: str, given: Any = None) -> Any:
    """Return what was given, else what is usual for the method, else what is usual.

    >>> usual("er", "learning_rate"), usual("er", "learning_rate", 0.5)
    (0.1, 0.5)
    """
    if given is not None:
        return given
    return registry.recipe(method).usual.get(name, USUAL[name])


def settle_usual(settings: RunSettings) -> RunSettings:
    """Return the settings with the method's usual numbers where none were given."""
    stream, rehearsal, training = settings.stream, settings.rehearsal, settings.training
    method = rehearsal.method
    return dataclasses.replace(
        settings,
        stream=dataclasses.replace(stream, epochs=usual(method, "epochs", stream.epochs)),
        rehearsal=dataclasses.replace(
            rehearsal, memory_batch_size=usual(method, "memory_batch_size", rehearsal.memory_batch_size)
        ),
        training=dataclasses.replace(
            training, learning_rate=usual(method, "learning_rate", training.learning_rate)
        ),
    )


def settle_controller(settings: RunSettings) -> RunSettings:
    """Return the settings with what the controller fixes when a run starts, such as a file's digest."""
    chosen = choose_run_part(settings, "controller")
    settle = getattr(registry.find("controller", chosen.name), "settle", None)
    if settle is None:
        return settings
    settled = {f"controller.{option}": value for option, value in settle(chosen.options).items()}
    return dataclasses.replace(settings, part_options={**settings.part_options, **settled})


def choose_run_part(settings: RunSettings, kind: str) -> PartChoice:
    """Return a part that belongs to the run and not to its learner: benchmark, stream or controller."""
    return choose_part(kind, str(settings.named_parts()[kind]), _options_of(kind, settings.part_options))


def _check_image_shape(shape: Any) -> tuple[int, int, int]:
    try:
        channels, height, width = (whole_number("a side", side, lowest=1) for side in shape)
    except (TypeError, ValueError):
        raise EncoreError(f"image_shape must be (channels, height, width), got {shape!r}") from None
    if channels not in (1, 3):
        raise EncoreError(f"images must have 1 channel (grey) or 3 (colour), got {channels}")
    return channels, height, width


def resolve_parts(method: str, choices: Mapping[str, Any]) -> dict[str, PartChoice]:
    """Return a learner's parts with all their options: the method's own, but for what is chosen here.

    >>> parts = resolve_parts("er", {"classifier": "softmax", "objective.memory_weight": 0.5})
    >>> parts["classifier"].name
    'softmax'
    >>> parts["objective"].options
    {'memory_weight': 0.5, 'incoming_weight': 1.0}
    """
    if not isinstance(choices, Mapping):
        raise EncoreError(f"parts must be a dictionary such as {{'classifier': 'softmax'}}, got {choices!r}")
    recipe = registry.recipe(method)
    named = {**DEFAULT_PARTS, **recipe.parts()}
    for key, name in choices.items():
        kind = kind_of(str(key))
        if kind not in LEARNER_PARTS:
            raise unknown_name("kind of part", kind, LEARNER_PARTS)
        if "." not in key and name is not None:
            named[kind] = name
    own = own_options(recipe, named)
    return {
        kind: choose_part(kind, named[kind], _options_of(kind, {**own, **choices})) for kind in LEARNER_PARTS
    }


def choose_part(kind: str, name: str, options: Mapping[str, Any]) -> PartChoice:
    """Return a part with all its options, refusing those it does not have or of a wrong type."""
    resolved = registry.resolve(kind, name)
    known = registry.options(kind, resolved)
    chosen = {option: choice.default for option, choice in known.items()}
    for option, value in options.items():
        if option not in known:
            if not known:
                raise EncoreError(f"the {kind} {name!r} has no options, so {kind}.{option} cannot be set")
            raise unknown_name(f"option of the {kind} {name!r} called", option, known)
        chosen[option] = _check_type(f"{kind}.{option}", value, known[option])
    return PartChoice(resolved, chosen)


def _check_together(classifier: str, retention: str) -> None:
    needs_memory = getattr(registry.find("classifier", classifier), "needs_memory", False)
    if needs_memory and not getattr(registry.find("retention", retention), "keeps", True):
        raise EncoreError(
            f"the classifier {classifier} answers from remembered examples, and the retention {retention} "
            "keeps none: use the classifier softmax, or another retention, such as reservoir"
        )


def own_options(recipe: Recipe, named: Mapping[str, str]) -> dict[str, Any]:
    """Return the method's options of its own parts: of others that were chosen instead they are not."""
    parts = recipe.parts()
    return {key: value for key, value in recipe.options.items() if named[kind_of(key)] == parts[kind_of(key)]}


def kind_of(key: str) -> str:
    """Return the kind of part of an option such as `objective.memory_weight`."""
    return key.partition(".")[0]


def _options_of(kind: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    return {key.partition(".")[2]: value for key, value in choices.items() if key.startswith(f"{kind}.")}


def _check_type(name: str, value: Any, option: registry.Option) -> Any:
    """Return the value as the option's type; a whole number will do for a float, NumPy's for Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if float in option.types and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) not in option.types:
        names = " or ".join(kind.__name__ for kind in option.types)
        raise EncoreError(f"{name} must be of type {names}, got {value!r}")
    return value
