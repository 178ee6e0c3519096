"""What the verbs that train have in common: their options, and how they show and end their work."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from encore.settings import RunSettings, to_whole_number, to_whole_numbers

if TYPE_CHECKING:
    from rich.console import Console

    from encore.keeper import Display

_OUTPUT = Group("The runs", sort_key=5)
Seeds = Annotated[
    tuple[int, ...],
    Parameter(
        help="One run for each. [default: 0]",
        consume_multiple=True,
        negative=(),
        group=_OUTPUT,
        show_default=False,
        converter=to_whole_numbers,
    ),
]
Out = Annotated[
    Path | None,
    Parameter(help="Directory to write, new or empty; else one in runs/, named by the time.", group=_OUTPUT),
]
Quietly = Annotated[
    bool, Parameter(help="Show nothing but errors.", negative=(), group=_OUTPUT, show_default=False)
]
Parallel = Annotated[
    int | None,
    Parameter(
        help="Runs at a time on one device; else 8 on a GPU if images are small, else 1.",
        group=_OUTPUT,
        converter=to_whole_number,
    ),
]


def chosen_options(tokens: Sequence[str]) -> type[Any]:
    """Return a class whose fields are the options of the parts that the tokens choose."""
    from encore import registry
    from encore.cli_options import make_options_class, value_of
    from encore.config import DEFAULT_PARTS, own_options

    defaults = RunSettings()
    recipe = registry.recipe(value_of("--method", tokens) or defaults.rehearsal.method)
    names = defaults.named_parts() | recipe.parts() | DEFAULT_PARTS
    chosen = {kind: value_of(f"--{kind}", tokens) or str(name) for kind, name in names.items()}
    return make_options_class(chosen, own_options(recipe, chosen))


@contextmanager
def directory_for(out: Path | None, name: str) -> Iterator[Path]:
    """Give the directory that was named, or a new one, which is removed if nothing was written."""
    directory = out or _new_directory(name)
    try:
        yield directory
    finally:
        if out is None:
            _remove_if_empty(directory)  # after a mistake


def train(work: Callable[[Display], object], directory: Path, quiet: bool) -> None:
    """Do work that trains, show it, and show its results or how to go on."""
    from encore.display import display_for
    from encore.keeper import Interrupted
    from encore.results import show_results

    shown = console()
    try:
        with display_for(shown, quiet) as display:
            work(display)
    except Interrupted as interrupted:
        run = interrupted.run
        print(
            f"encore: stopped and saved: {run.name}, task {run.task + 1}, batch {run.batch}; "
            f"go on with\n  encore resume {quote(str(interrupted.directory))}",
            file=sys.stderr,
        )
        raise SystemExit(128 + interrupted.signal_number) from None
    if not quiet:
        show_results(shown, [directory])
        shown.print(f"written to {directory}", highlight=False, soft_wrap=True)


def console() -> Console:
    """Return what is written to; no markup, as paths and names may hold brackets."""
    from rich.console import Console

    return Console(markup=False)


def _new_directory(name: str) -> Path:
    """Create a directory in runs/ that no other process has, named by the time."""
    started = f"{datetime.now():%Y-%m-%d-%H%M%S}-{name}"
    for number in itertools.count(1):
        directory = Path("runs") / (started if number == 1 else f"{started}-{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        return directory
    raise AssertionError("counting does not end")


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        if not any((directory / name).exists() for name in ("config.json", "search.json")):
            (directory / ".lock").unlink(missing_ok=True)
        directory.rmdir()
        directory.parent.rmdir()
