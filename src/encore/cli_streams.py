"""The verbs that look at a stream without training on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from encore.settings import RunSettings, StreamSettings, to_whole_number, to_whole_numbers

if TYPE_CHECKING:
    from rich.console import Console

# Options of `encore run`'s streams that these verbs do not have: they would change nothing.
NOT_TO_SHOW = ("skip_broken",)
NOT_FOR_THEORY = ("hold_out", "skip_broken", "epochs", "batch_size")

_OUTPUT = Group("What is shown", sort_key=5)
Seed = Annotated[
    int,
    Parameter(help="The run whose stream it is.", group=_OUTPUT, converter=to_whole_number),
]


def add_stream_verbs(app: App, tokens: Sequence[str]) -> None:
    """Add the verbs, with the options of just the benchmark and the kind of stream that the tokens choose."""
    if tokens[:1] == ["show-stream"]:
        _offer_options(show_stream, tokens, "digits", NOT_TO_SHOW)
    elif tokens[:1] == ["theory"]:
        _offer_options(theory, tokens, "cifar100", NOT_FOR_THEORY)
    for verb in (show_stream, theory):
        app.command(verb)


def show_stream(
    *,
    stream: Any = None,
    part_options: Any = None,
    seed: Seed = 0,
    memory_size: Annotated[
        int | None,
        Parameter(
            help="Show lambda, the size of each task over that of such a memory (M).",
            group=_OUTPUT,
            converter=to_whole_number,
        ),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Write a picture into this .svg, too.", group=_OUTPUT)] = None,
) -> None:
    """Draw which classes come when, as a run with the same options and seed would see them."""
    from encore.show_stream import show_stream as show

    show(_console(), _settings_of(stream, part_options), seed, memory_size, out)


def theory(
    *,
    stream: Any = None,
    part_options: Any = None,
    memory_size: Annotated[
        int, Parameter(help="Examples the memory holds (M).", group=_OUTPUT, converter=to_whole_number)
    ] = 2000,
    task_sizes: Annotated[
        tuple[int, ...] | None,
        Parameter(
            help="Sizes of the tasks of a stream of your own, instead of a benchmark.",
            consume_multiple=True,
            negative=(),
            group=_OUTPUT,
            converter=to_whole_numbers,
        ),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Show how much a stream and a memory risk overfitting: lambda, beta_t and the memory's weight.

    By the paper's Proposition 1, experience replay minimises the loss on the current task plus
    beta_t * lambda times the loss on the memory: the larger that weight, the more the memory is overfitted.
    """
    from encore.results import show_theory

    show_theory(_console(), _settings_of(stream, part_options), memory_size, task_sizes, seed)


def _offer_options(verb: Any, tokens: Sequence[str], benchmark: str, left_out: Sequence[str]) -> None:
    """Give a verb the options of a stream, and those of the parts that are chosen."""
    from encore import registry
    from encore.cli_options import leave_out, make_options_class, value_of

    chosen = value_of("--benchmark", tokens) or benchmark
    usual = registry.find("benchmark", chosen).usual
    defaults: dict[str, Any] = {"benchmark": benchmark}
    if "--batch-size" in usual:
        defaults["batch_size"] = int(usual["--batch-size"])
    stream_options = leave_out(StreamSettings, left_out, defaults)
    kind = value_of("--stream", tokens) or StreamSettings().kind
    part_options = make_options_class({"benchmark": chosen, "stream": kind})
    group = Group("The stream", sort_key=1)
    verb.__annotations__["stream"] = Annotated[stream_options, Parameter(name="*", group=group)]
    shown = Parameter(name="*") if dataclasses.fields(part_options) else Parameter(parse=False)
    verb.__annotations__["part_options"] = Annotated[part_options, shown]
    verb.__kwdefaults__ |= {"stream": stream_options(), "part_options": part_options()}


def _settings_of(stream: Any, part_options: Any) -> RunSettings:
    from encore.cli_options import values_of

    return RunSettings(StreamSettings(**values_of(stream)), part_options=values_of(part_options))


def _console() -> Console:
    from rich.console import Console

    return Console(markup=False)  # paths and names may hold brackets
