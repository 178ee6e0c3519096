"""The command line: one function for each verb.

What is heavy is imported inside the verbs, so that `encore --help` answers at once.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

from encore.cli_bench import add_bench_verb
from encore.cli_data import make_data_app
from encore.cli_streams import add_stream_verbs
from encore.errors import EncoreError
from encore.settings import (
    PlanSettings,
    RehearsalSettings,
    RunSettings,
    StreamSettings,
    TrainingSettings,
    to_whole_number,
    to_whole_numbers,
)
from encore.version import VERSION

if TYPE_CHECKING:
    from rich.console import Console

    from encore.keeper import Display

HELP = """Learn from a stream that never repeats, and do not forget.

For each small incoming batch, rehearse K times against a fixed-size memory, with a fresh random
augmentation each time: repeated augmented rehearsal (RAR)."""

_OUTPUT = Group("The runs", sort_key=5)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer a command line; return the exit status: 0, 2 for a mistake, 128 + n for signal n."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        tokens = _with_usual(tokens)
        make_app(tokens)(tokens, exit_on_error=False, print_error=False)
    except UnusedCliTokensError as error:
        unused = " ".join(error.unused_tokens or [])
        return _refuse(
            f"it is not clear what to do with {unused!r}: see `encore {' '.join(tokens[:1])} --help`"
        )
    except (EncoreError, CycloptsError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("\nencore: stopped", file=sys.stderr)
        return 130
    except OSError as error:
        return _refuse(f"{error.filename or 'a file'}: {error.strerror or error}")
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else 0
    return 0


def make_app(tokens: Sequence[str]) -> App:
    """Return the verbs; `run` has the options of just those parts that the tokens choose."""
    app = App(name="encore", help=HELP, version=VERSION, version_flags=["--version"])
    run_verb: Any = run
    if tokens[:1] == ["run"]:
        # The parts' options are the arguments of their constructors: known once the parts are chosen.
        options = _options_class(tokens)
        run.__annotations__["part_options"] = Annotated[options, Parameter(name="*")]
        assert run.__kwdefaults__ is not None
        run.__kwdefaults__["part_options"] = options()
    for verb in (run_verb, resume, show, list_parts):
        app.command(verb, name="list" if verb is list_parts else None)
    add_stream_verbs(app, tokens)
    add_bench_verb(app)
    app.command(make_data_app(tokens))
    return app


def run(
    *,
    stream: StreamSettings = StreamSettings(),  # noqa: B008 - frozen
    rehearsal: RehearsalSettings = RehearsalSettings(),  # noqa: B008
    plan: PlanSettings = PlanSettings(),  # noqa: B008
    training: TrainingSettings = TrainingSettings(),  # noqa: B008
    part_options: Any = None,
    seeds: Annotated[
        tuple[int, ...],
        Parameter(
            help="One run for each. [default: 0]",
            consume_multiple=True,
            negative=(),
            group=_OUTPUT,
            show_default=False,
            converter=to_whole_numbers,
        ),
    ] = (0,),
    out: Annotated[
        Path | None,
        Parameter(
            help="Directory to write, new or empty; else one in runs/, named by the time.", group=_OUTPUT
        ),
    ] = None,
    parallel: Parallel = None,
    quiet: Quietly = False,
) -> None:
    """Train over a stream, one run for each seed, and write a record of each."""
    from encore import launch
    from encore.cli_options import values_of

    settings = RunSettings(stream, rehearsal, plan, training, values_of(part_options))
    directory = out or _new_directory(f"{stream.benchmark}-{rehearsal.method}")
    try:
        _train(lambda display: launch.start(settings, seeds, directory, display, parallel), directory, quiet)
    finally:
        if out is None:
            _remove_if_empty(directory)  # after a mistake


def resume(directory: Path, *, parallel: Parallel = None, quiet: Quietly = False) -> None:
    """Finish whatever in a directory is unfinished, with the same bits as without the interruption.

    Parameters
    ----------
    directory
        What was given to `encore run` as --out.

    """
    from encore import launch

    _train(lambda display: launch.resume(directory, display, parallel), directory, quiet)


def show(*directories: Path) -> None:
    """Show the results of runs: one directory in detail, several side by side.

    Parameters
    ----------
    directories
        Directories of runs, or directories that hold such directories.

    """
    from encore.results import show_results

    show_results(_console(), [Path(directory) for directory in directories])


def list_parts(kind: str | None = None) -> None:
    """List what can be chosen, with a line each: benchmarks, methods, controllers, and all other parts.

    Parameters
    ----------
    kind
        For example `methods`; else every kind is listed.

    """
    from encore.results import list_kinds

    list_kinds(_console(), kind)


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
        if not (directory / "config.json").exists():
            (directory / ".lock").unlink(missing_ok=True)
        directory.rmdir()
        directory.parent.rmdir()


def _train(work: Callable[[Display], None], directory: Path, quiet: bool) -> None:
    from encore.display import display_for
    from encore.keeper import Interrupted
    from encore.results import show_results

    console = _console()
    try:
        with display_for(console, quiet) as display:
            work(display)
    except Interrupted as interrupted:
        run = interrupted.run
        print(
            f"encore: stopped and saved: seed {run.seed}, task {run.task + 1}, batch {run.batch}; "
            f"go on with\n  encore resume {quote(str(interrupted.directory))}",
            file=sys.stderr,
        )
        raise SystemExit(128 + interrupted.signal_number) from None
    if not quiet:
        show_results(console, [directory])
        console.print(f"written to {directory}", highlight=False, soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    return Console(markup=False)  # paths and names may hold brackets


def _refuse(sentence: str) -> int:
    print(f"encore: error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def _options_class(tokens: Sequence[str]) -> type[Any]:
    """Return a class whose fields are the options of the parts that the tokens choose."""
    from encore import registry
    from encore.cli_options import make_options_class, value_of
    from encore.config import DEFAULT_PARTS, own_options

    defaults = RunSettings()
    recipe = registry.recipe(value_of("--method", tokens) or defaults.rehearsal.method)
    names = defaults.named_parts() | recipe.parts() | DEFAULT_PARTS
    chosen = {kind: value_of(f"--{kind}", tokens) or str(name) for kind, name in names.items()}
    return make_options_class(chosen, own_options(recipe, chosen))


def _with_usual(tokens: list[str]) -> list[str]:
    """Return what was typed, with what is usual for the benchmark where nothing else was given."""
    if tokens[:1] != ["run"]:
        return tokens
    from encore import registry
    from encore.cli_options import value_of

    name = value_of("--benchmark", tokens) or RunSettings().stream.benchmark
    given = {token.partition("=")[0].replace("_", "-") for token in tokens}
    usual = registry.find("benchmark", name).usual
    added = [word for flag, value in usual.items() if flag not in given for word in (flag, value)]
    if added and not given & {"--quiet", "--help", "-h"}:
        print(f"as is usual for {name}: {' '.join(added)}")
    return [*tokens, *added]
