"""From a name to a part, by looking into the part's folder: a new file is a new part, and no list is edited.

A file holds one part: its only public class, or, for a method, its `RECIPE`. The part is called like its
file; where the literature writes a hyphen (`er-rw`), an underscore stands in the file name and either is
understood.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from encore.errors import EncoreError, unknown_name
from encore.interfaces import Recipe

FOLDERS = {
    "benchmark": "datasets",
    "stream": "streams",
    "method": "methods",
    "retrieval": "retrieval",
    "retention": "retention",
    "objective": "objectives",
    "classifier": "classifiers",
    "controller": "controllers",
    "model": "models",
    "engine": "engines",
}


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the names of all parts of a kind, in alphabetical order.

    >>> "reservoir" in names("retention")
    True
    """
    folder = importlib.import_module(f"encore.{FOLDERS[kind]}")
    return tuple(
        sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if module.name[0] != "_")
    )


def resolve(kind: str, name: str) -> str:
    """Return the part's name as its file has it, or refuse with the nearest known names."""
    if not isinstance(name, str):
        raise EncoreError(f"the name of a {kind} must be a text, got {name!r}")
    resolved = name.replace("-", "_")
    if resolved not in names(kind):
        raise unknown_name(kind, name, names(kind))
    return resolved


def find(kind: str, name: str) -> type[Any]:
    """Return the class of a part.

    >>> find("retention", "reservoir").__name__
    'Reservoir'
    """
    module = _module(kind, name)
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__ and value.__name__[0] != "_"
    ]
    if len(found) != 1:
        raise EncoreError(
            f"{module.__name__} must define exactly one public class, the {kind}, and has {len(found)}"
        )
    part: type[Any] = found[0]
    return part


def recipe(method: str) -> Recipe:
    """Return the parts that a method is made of."""
    found = getattr(_module("method", method), "RECIPE", None)
    if not isinstance(found, Recipe):
        raise EncoreError(f"methods/{method}.py must define RECIPE, an encore.interfaces.Recipe")
    return found


def title(method: str) -> str:
    """Return what the literature calls a method: one that is not known here, by its name in capitals.

    >>> title("er"), title("agem"), title("of_a_later_version")
    ('ER', 'A-GEM', 'OF-A-LATER-VERSION')
    """
    name = method.replace("-", "_")
    own = recipe(name).title if name in names("method") else ""
    return own or name.upper().replace("_", "-")


def describe(kind: str, name: str) -> str:
    """Return the first line of a part's docstring."""
    documented = _module(kind, name) if kind == "method" else find(kind, name)
    return (inspect.getdoc(documented) or "").partition("\n")[0]


class Option(NamedTuple):
    """An argument of a part's constructor that has a default, and so can be set by name."""

    types: tuple[type[Any], ...]  # what it may be: several for `int | None`
    default: Any
    help: str  # the text in `Annotated[float, "text"]`


@cache
def options(kind: str, name: str) -> Mapping[str, Option]:
    """Return a part's options: the arguments of its constructor that have a default.

    >>> options("model", "reduced_resnet18")["width"].default
    20
    """
    if kind == "method":
        return {}
    found = {}
    for key, parameter in inspect.signature(find(kind, name), eval_str=True).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            annotation, text = parameter.annotation, ""
            if get_origin(annotation) is Annotated:
                annotation, text = get_args(annotation)
            found[key] = Option(get_args(annotation) or (annotation,), parameter.default, text)
    return found


def make(kind: str, name: str, *arguments: Any, **chosen: Any) -> Any:
    """Construct a part, refusing options it does not have."""
    known = options(kind, name)
    for option in chosen:
        if option not in known:
            raise unknown_name(f"option of {kind} {name!r} called", option, known)
    return find(kind, name)(*arguments, **chosen)


def _module(kind: str, name: str) -> ModuleType:
    return importlib.import_module(f"encore.{FOLDERS[kind]}.{resolve(kind, name)}")
