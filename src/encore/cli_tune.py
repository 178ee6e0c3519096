"""The verb that chooses K, P and Q on the first tasks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from encore.cli_training import Out, Parallel, Quietly, Seeds, chosen_options, directory_for, train
from encore.settings import (
    PlanSettings,
    RehearsalSettings,
    RunSettings,
    StreamSettings,
    TrainingSettings,
    to_whole_number,
    to_whole_numbers,
)

_SEARCH = Group("The search", sort_key=0)
# Options of `encore run` that this verb does not have: what the search chooses, and what it has itself.
NOT_TO_TUNE = ("repeats", "num_ops", "magnitude", "controller")
NOT_OF_STREAM = ("hold_out",)


def _values(text: str) -> Any:
    return Parameter(help=text, group=_SEARCH, consume_multiple=True, negative=(), converter=to_whole_numbers)


def tune(
    *,
    repeats_grid: Annotated[
        tuple[int, ...] | None, _values("Rehearsal iterations to try (K); else the paper's 1 to 20.")
    ] = None,
    num_ops_grid: Annotated[
        tuple[int, ...] | None,
        _values(
            "Augmentation operations to try (P), with each magnitude; if neither is given, the paper's five "
            "pairs P,Q: 1,5 1,14 2,14 3,14 4,14."
        ),
    ] = None,
    magnitude_grid: Annotated[
        tuple[int, ...] | None, _values("Magnitudes to try (Q), with each number of operations.")
    ] = None,
    trials: Annotated[
        int | None,
        Parameter(
            help="Try only so many settings, drawn from the grid by the first seed.",
            group=_SEARCH,
            converter=to_whole_number,
        ),
    ] = None,
    tune_tasks: Annotated[
        int, Parameter(help="How many tasks count as the first.", group=_SEARCH, converter=to_whole_number)
    ] = 2,
    hold_out: Annotated[
        float,
        Parameter(
            help="Share of their training images that is kept from training, to be tested on.", group=_SEARCH
        ),
    ] = 0.2,
    stream: Any = None,
    rehearsal: RehearsalSettings = RehearsalSettings(),  # noqa: B008 - frozen
    plan: Any = None,
    training: TrainingSettings = TrainingSettings(),  # noqa: B008
    part_options: Any = None,
    seeds: Seeds = (0,),
    out: Out = None,
    parallel: Parallel = None,
    quiet: Quietly = False,
) -> None:
    """Choose K, P and Q on the first tasks (HTOCL), then train over the whole stream with the choice.

    Every setting of a grid learns the first tasks, as the run itself will, and is tested on images held out
    of their training sets. The best is taken; of equal ones the cheapest. Each seed chooses for itself.
    """
    from encore.cli_options import values_of
    from encore.tuning import first_tasks
    from encore.tuning.grid import make_grid

    settings = RunSettings(
        StreamSettings(**values_of(stream)),
        rehearsal,
        PlanSettings(**values_of(plan)),
        training,
        values_of(part_options),
    )
    grid = make_grid(repeats_grid, num_ops_grid, magnitude_grid)
    with directory_for(out, f"{settings.stream.benchmark}-{rehearsal.method}-tuned") as directory:
        train(
            lambda display: first_tasks.tune(
                settings,
                seeds,
                directory,
                display,
                grid=grid,
                num_trials=trials,
                num_tasks=tune_tasks,
                share=hold_out,
                parallel=parallel,
            ),
            directory,
            quiet,
        )


def add_tune_verb(app: App, tokens: Sequence[str]) -> None:
    """Add the verb, with the options of just those parts that the tokens choose."""
    verb: Any = tune
    groups: dict[str, Any] = {"stream": Any, "plan": Any, "part_options": Any}
    if tokens[:1] == ["tune"]:
        from encore.cli_options import leave_out

        groups = {
            "stream": leave_out(StreamSettings, NOT_OF_STREAM),
            "plan": leave_out(PlanSettings, NOT_TO_TUNE),
            "part_options": chosen_options(tokens),
        }
    titles = {
        "stream": Group("The stream", sort_key=1),
        "plan": Group("Repeated augmented rehearsal", sort_key=3),
        "part_options": None,
    }
    for name, options in groups.items():
        shown = Parameter(parse=False) if options is Any else Parameter(name="*", group=titles[name])
        verb.__annotations__[name] = Annotated[options, shown]
        verb.__kwdefaults__[name] = None if options is Any else options()
    app.command(verb)
