"""Options of the parts that were chosen, as the command line takes them."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from encore import registry
from encore.interfaces import NOTHING
from encore.settings import to_whole_number


def make_options_class(parts: Mapping[str, str], own: Mapping[str, Any] = NOTHING) -> type[Any]:
    """Return a class whose fields are the options of parts, given by kind and name.

    Their defaults are the parts', but for the method's own, such as `{"objective.memory_weight": 0.5}`.

    >>> make_options_class({"model": "reduced_resnet18"})().model__width
    20
    """
    fields: list[tuple[str, Any, Any]] = []
    for kind, name in parts.items():
        group = Group(f"Options of the {kind} {name}", sort_key=9)
        for option, choice in registry.options(kind, name).items():
            shown = Parameter(
                name=f"--{kind}.{option.replace('_', '-')}",
                group=group,
                negative=(),
                help=choice.help,
                converter=to_whole_number if choice.types == (int,) else None,
            )
            default = own.get(f"{kind}.{option}", choice.default)
            annotation: Any = Annotated[functools.reduce(operator.or_, choice.types), shown]
            fields.append((f"{kind}__{option}", annotation, dataclasses.field(default=default)))
    made = dataclasses.make_dataclass("PartOptions", fields, frozen=True)
    made.__module__ = __name__  # else it passes for one of Python's own types, which have no options
    return made


def leave_out(
    settings: type[Any], left_out: Sequence[str], defaults: Mapping[str, Any] = NOTHING
) -> type[Any]:
    """Return a class with the fields of settings, but for some, and with some other defaults."""
    hints = get_type_hints(settings, include_extras=True)
    fields: list[tuple[str, Any, Any]] = [
        (field.name, hints[field.name], dataclasses.field(default=defaults.get(field.name, field.default)))
        for field in dataclasses.fields(settings)
        if field.name not in left_out
    ]
    made = dataclasses.make_dataclass(f"Some{settings.__name__}", fields, frozen=True)
    made.__module__ = __name__  # else it passes for one of Python's own types, which have no options
    return made


def values_of(part_options: Any) -> dict[str, Any]:
    """Return the options that were given, such as `{"model.width": 20}`."""
    return {key.replace("__", "."): value for key, value in dataclasses.asdict(part_options).items()}


def value_of(flag: str, tokens: Sequence[str]) -> str | None:
    """Return what follows a flag among the words that were typed.

    >>> value_of("--stream", ["show-stream", "--stream", "blurry"]), value_of("--seed", ["--seed=3"])
    ('blurry', '3')
    """
    for number, token in enumerate(tokens):
        if token.startswith(f"{flag}="):
            return token.partition("=")[2]
        if token == flag and number + 1 < len(tokens):
            return tokens[number + 1]
    return None
