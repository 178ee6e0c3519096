"""The command line: one function for each verb.

What is heavy is imported inside the verbs, so that `encore --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from encore.cli_bench import add_bench_verb
from encore.cli_data import make_data_app
from encore.cli_streams import add_stream_verbs
from encore.cli_training import Out, Parallel, Quietly, Seeds, chosen_options, console, directory_for, train
from encore.cli_tune import add_tune_verb
from encore.errors import EncoreError
from encore.settings import (
    PlanSettings,
    RehearsalSettings,
    RunSettings,
    StreamSettings,
    TrainingSettings,
)
from encore.version import VERSION

HELP = """Learn from a stream that never repeats, and do not forget.

For each small incoming batch, rehearse K times against a fixed-size memory, with a fresh random
augmentation each time: repeated augmented rehearsal (RAR)."""


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
        options = chosen_options(tokens)
        run.__annotations__["part_options"] = Annotated[options, Parameter(name="*")]
        assert run.__kwdefaults__ is not None
        run.__kwdefaults__["part_options"] = options()
    for verb in (run_verb, resume, show, list_parts):
        app.command(verb, name="list" if verb is list_parts else None)
    add_tune_verb(app, tokens)
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
    seeds: Seeds = (0,),
    out: Out = None,
    parallel: Parallel = None,
    quiet: Quietly = False,
) -> None:
    """Train over a stream, one run for each seed, and write a record of each."""
    from encore import launch
    from encore.cli_options import values_of

    settings = RunSettings(stream, rehearsal, plan, training, values_of(part_options))
    with directory_for(out, f"{stream.benchmark}-{rehearsal.method}") as directory:
        train(lambda display: launch.start(settings, seeds, directory, display, parallel), directory, quiet)


def resume(directory: Path, *, parallel: Parallel = None, quiet: Quietly = False) -> None:
    """Finish whatever in a directory is unfinished, with the same bits as without the interruption.

    Parameters
    ----------
    directory
        What was given to `encore run` or `encore tune` as --out.

    """
    from encore.tuning import first_tasks

    train(lambda display: first_tasks.resume(directory, display, parallel), directory, quiet)


def show(
    *directories: Path,
    actions: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    out: Path | None = None,
) -> None:
    """Show the results of runs: one directory in detail, several side by side.

    Parameters
    ----------
    directories
        Directories of runs, or directories that hold such directories.
    actions
        Draw what was chosen along the stream instead: K, augmentations, and what memory accuracy came of it.
    out
        Write that into this .svg, too.

    """
    found = [Path(directory) for directory in directories]
    if not actions:
        if out is not None:
            raise EncoreError("a picture can be written of the actions only: add --actions")
        from encore.results import show_results

        show_results(console(), found)
        return
    from encore.show_actions import show_actions

    show_actions(console(), found, out)


def list_parts(kind: str | None = None) -> None:
    """List what can be chosen, with a line each: benchmarks, methods, controllers, and all other parts.

    Parameters
    ----------
    kind
        For example `methods`; else every kind is listed.

    """
    from encore.results import list_kinds

    list_kinds(console(), kind)


def _refuse(sentence: str) -> int:
    print(f"encore: error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def _with_usual(tokens: list[str]) -> list[str]:
    """Return what was typed, with what is usual for the benchmark where nothing else was given."""
    if tokens[:1] not in (["run"], ["tune"]):
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
