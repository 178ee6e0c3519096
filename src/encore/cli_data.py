"""The verbs of `encore data`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from encore.settings import to_whole_number

if TYPE_CHECKING:
    from rich.console import Console

SWITCHES = ("--quiet", "--help", "-h")  # what takes no value

Quietly = Annotated[bool, Parameter(help="Show nothing but errors.", negative=(), show_default=False)]


def make_data_app(tokens: Sequence[str]) -> App:
    """Return the verbs; two of them have the options of just the benchmark that the tokens name."""
    app = App(name="data", help="Benchmarks' files: what there is, getting, checking and preparing it.")
    if tokens[:1] == ["data"]:
        _offer_options(tokens[2:] if tokens[1:2] in (["prepare"], ["check"]) else ())
    for verb in (list_files, fetch, check, prepare, forget):
        app.command(verb, name="list" if verb is list_files else None)
    return app


def list_files(benchmark: str | None = None, *, data_dir: Path | None = None) -> None:
    """List the benchmarks and whether their files are there, or all that is known of one.

    Parameters
    ----------
    benchmark
        Say of this one what it is, from where, how large, on what terms, and how to get it.
    data_dir
        Where to look first.

    """
    from encore.data_tables import list_data

    list_data(_console(), benchmark, data_dir)


def fetch(
    benchmark: str,
    *,
    data_dir: Path | None = None,
    mirror: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    quiet: Quietly = False,
) -> None:
    """Download a benchmark's files, resuming what was begun, and verify them.

    Parameters
    ----------
    benchmark
        A name from `encore list benchmarks`.
    data_dir
        Where to put them; else $ENCORE_DATA, else the user's cache directory.
    mirror
        Address of a folder to try first; may be given more than once. Those in $ENCORE_MIRRORS, separated
        by commas, are tried next, and the benchmark's home last.

    """
    from encore.data_tables import fetch_data

    with _stopped("what came is kept, and the same command goes on from there"):
        fetch_data(_console(), benchmark, data_dir, mirror, quiet)


def check(
    benchmark: str,
    *,
    data_dir: Path | None = None,
    sheet: Path | None = None,
    part_options: Any = None,
) -> None:
    """Verify a benchmark's files again, count its images, and decode every one.

    Parameters
    ----------
    benchmark
        A name from `encore list benchmarks`.
    data_dir
        Where to look first.
    sheet
        Write a picture of some images of each class, with the classes' names, into this .png.

    """
    from encore.cli_options import values_of
    from encore.data_tables import check_data

    check_data(_console(), benchmark, values_of(part_options), data_dir, sheet)


def prepare(
    benchmark: str,
    *,
    data_dir: Path | None = None,
    skip_broken: Annotated[int, Parameter(converter=to_whole_number)] = 0,
    quiet: Quietly = False,
    part_options: Any = None,
) -> None:
    """Decode a benchmark once, into a file that later runs use by themselves.

    Parameters
    ----------
    benchmark
        A name from `encore list benchmarks`.
    data_dir
        Where its files are; else $ENCORE_DATA, else the user's cache directory.
    skip_broken
        Go on past up to so many images that cannot be read.

    """
    from encore.cli_options import values_of
    from encore.data_tables import prepare_data

    with _stopped("what was begun is removed, and runs decode the files as before"):
        prepare_data(_console(), benchmark, values_of(part_options), data_dir, skip_broken, quiet)


def forget(benchmark: str) -> None:
    """Delete what was prepared from a benchmark; its own files stay.

    Parameters
    ----------
    benchmark
        A name from `encore list benchmarks`.

    """
    from encore.data_tables import forget_data

    forget_data(_console(), benchmark)


def _offer_options(tokens: Sequence[str]) -> None:
    """Give the verbs the options of the benchmark that is named, if there is such a one."""
    from encore import registry
    from encore.cli_options import make_options_class

    name = _find_name(tokens).replace("-", "_")
    known = name in registry.names("benchmark")
    options = make_options_class({"benchmark": name} if known else {})
    shown = Parameter(name="*") if dataclasses.fields(options) else Parameter(parse=False)
    for verb in (check, prepare):
        verb.__annotations__["part_options"] = Annotated[options, shown]
        assert verb.__kwdefaults__ is not None
        verb.__kwdefaults__["part_options"] = options()


def _find_name(tokens: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the value of one.

    >>> _find_name(["--quiet", "--data-dir", "pictures", "--skip-broken=3", "image_folder"])
    'image_folder'
    """
    is_value = False
    for token in tokens:
        if not is_value and not token.startswith("-"):
            return token
        is_value = token.startswith("-") and token not in SWITCHES and "=" not in token
    return ""


@contextmanager
def _stopped(how_it_is_left: str) -> Iterator[None]:
    """Say how things are left where the user stops what takes long."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nencore: stopped; {how_it_is_left}", file=sys.stderr)
        raise SystemExit(130) from None


def _console() -> Console:
    from rich.console import Console

    return Console(markup=False)  # paths and names may hold brackets
