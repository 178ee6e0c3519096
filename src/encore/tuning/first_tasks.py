"""HTOCL: K, P and Q are chosen on the first tasks of a stream, then the whole of it is learnt with them.

DIR/search.json           the settings, the seeds, the grid, how many tasks, and which share is held out
DIR/search/K10-P1-Q14/    the runs of one setting over the first tasks, as `encore run` leaves them
DIR/choice.json           what each seed chose, from which accuracies, and what that cost
DIR/config.json, seed-0/  the runs over the whole stream, as `encore run` leaves them

Each seed is a stream of its own and chooses for itself. The tuning runs are tested on images held out of the
training sets of those tasks; a test image is not looked at before the choice is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from encore import launch, registry
from encore.data.held_out import check_share
from encore.errors import EncoreError
from encore.files import locked, write_json
from encore.interfaces import Plan
from encore.keeper import Display, Interrupted, is_finished
from encore.launch import Group, Shelf, with_plan
from encore.settings import RunSettings
from encore.tuning.grid import check_grid, draw_trials, make_grid, name_plan
from encore.values import whole_number
from encore.version import VERSION

TASKS = 2
SHARE = 0.2


class Trial(NamedTuple):
    """What came of a plan on the first tasks."""

    plan: Plan
    accuracy: float  # at the end, on what was held out, over the first tasks
    sgd_steps: int
    images_trained: int
    seconds: float
    diverged: bool


class Choice(NamedTuple):
    """What one seed chose, and from what."""

    best: Trial
    trials: Sequence[Trial]

    @property
    def sgd_steps(self) -> int:
        """What the search cost, in steps of SGD."""
        return sum(trial.sgd_steps for trial in self.trials)

    @property
    def seconds(self) -> float:
        """What the search cost, in seconds of its runs."""
        return sum(trial.seconds for trial in self.trials)


@dataclass(frozen=True)
class Search:
    """What is searched, and for which runs."""

    settings: RunSettings  # of the runs over the whole stream, but for K, P and Q
    seeds: Sequence[int]
    grid: Sequence[Plan]
    num_tasks: int
    share: float

    @property
    def tuning_settings(self) -> RunSettings:
        """The settings of the tuning runs, but for K, P and Q."""
        stream = replace(self.settings.stream, first_tasks=self.num_tasks, hold_out=self.share)
        return replace(self.settings, stream=stream)

    def groups(self, directory: Path) -> list[Group]:
        """Return the tuning runs; their learners are of no use once they have been tested."""
        return [
            Group(
                with_plan(self.tuning_settings, plan),
                self.seeds,
                directory / "search" / name_plan(plan),
                keeps_learners=False,
            )
            for plan in self.grid
        ]


def tune(
    settings: RunSettings,
    seeds: Sequence[int],
    directory: Path,
    display: Display,
    *,
    grid: Sequence[Plan] | None = None,
    num_trials: int | None = None,
    num_tasks: int = TASKS,
    share: float = SHARE,
    parallel: int | None = None,
) -> dict[int, Choice]:
    """Choose a plan for each seed on the first tasks, then run the whole stream with it.

    Args:
        settings: of the runs over the whole stream; their K, P and Q are not looked at.
        seeds: one search and one run for each.
        directory: where all is written; it does not exist yet, or is empty.
        display: shows the runs; `encore.display.Quiet()` shows nothing.
        grid: the plans to try; else the paper's 100.
        num_trials: try only so many of them, drawn at random from the first seed.
        num_tasks: how many tasks count as the first.
        share: of their training images, what is held out of training to be tested on.
        parallel: runs at a time on one device.

    """
    search = _check(settings, seeds, grid, num_trials, num_tasks, share)
    launch.check_parallel(parallel)
    launch.refuse_what_is_there(directory)
    shelf: Shelf = {}
    whole = launch.make_run(settings, seeds[0], display, shelf)
    if search.num_tasks > len(whole.stream.tasks):
        raise EncoreError(
            f"the stream has {count_tasks(len(whole.stream.tasks))}, so it cannot be tuned on the first "
            f"{search.num_tasks}: choose a smaller --tune-tasks"
        )
    search = replace(search, settings=whole.settings)
    for seed in seeds:  # so that what cannot be done is refused before anything is written
        launch.make_run(search.tuning_settings, seed, display, shelf)
    launch.create_directory(directory)
    busy = f"another process is starting runs in {directory}: choose another --out"
    with locked(directory / ".lock", busy):
        launch.refuse_what_is_there(directory)
        _write_search(directory, search)
    return finish(directory, display, parallel, shelf)


def resume(directory: Path, display: Display, parallel: int | None = None) -> None:
    """Finish whatever in a directory is unfinished: searches, and runs of any kind."""
    searches = find_searches(directory)
    for found in searches:
        finish(found, display, parallel)
    if searches != [directory]:
        launch.resume(directory, display, parallel)


def finish(
    directory: Path, display: Display, parallel: int | None = None, shelf: Shelf | None = None
) -> dict[int, Choice]:
    """Bring a search and the runs after it to their end, wherever they stand."""
    search, shelf = read_search(directory), {} if shelf is None else shelf
    try:
        if not (directory / "choice.json").is_file():
            launch.finish_all(search.groups(directory), display, parallel, shelf)
            choices = {seed: choose(read_trials(directory, search, seed)) for seed in search.seeds}
            _write_choices(directory, choices)
            for seed, choice in choices.items():
                display.note(f"seed {seed}  chose {describe(choice)}")
        choices = read_choices(directory)
        plans = {seed: choice.best.plan for seed, choice in choices.items()}
        whole = Group(search.settings, search.seeds, directory, plans)
        launch.finish_all([whole], display, parallel, shelf)
    except Interrupted as interrupted:
        raise Interrupted(interrupted.signal_number, interrupted.run, directory) from None
    return choices


def choose(trials: Sequence[Trial]) -> Choice:
    """Return the trial with the highest accuracy; of equal ones the cheapest, the first of the grid.

    What has diverged is not chosen, however well its last weights do by chance.
    """
    sound = [trial for trial in trials if not trial.diverged]
    if not sound:
        raise EncoreError("training diverged with every setting of the grid: choose a smaller learning rate")
    return Choice(max(sound, key=lambda trial: trial.accuracy), trials)  # max returns the first of equals


def describe(choice: Choice) -> str:
    """Return in a few words what was chosen and what it cost."""
    best, tried = choice.best, len(choice.trials)
    return (
        f"{name_plan(best.plan)}, {best.accuracy:.1%} on what was held out: the best of {tried} "
        f"setting{'s' * (tried > 1)}, found in {choice.sgd_steps:,} SGD steps"
    )


def count_tasks(number: int) -> str:
    """Return a number of tasks in words.

    >>> count_tasks(1), count_tasks(2)
    ('1 task', '2 tasks')
    """
    return f"{number} task{'s' * (number > 1)}"


def is_search(directory: Path) -> bool:
    """Whether a directory is one of `encore tune`."""
    return (directory / "search.json").is_file()


def find_searches(directory: Path) -> list[Path]:
    """Return the directories of searches that a directory is or holds."""
    if is_search(directory):
        return [directory]
    return sorted(path.parent for path in directory.glob("*/search.json"))


def count_runs(directory: Path) -> tuple[int, int]:
    """Return how many tuning runs are finished, and how many there are to be."""
    folders = [
        group.directory / f"seed-{seed}"
        for group in read_search(directory).groups(directory)
        for seed in group.seeds
    ]
    return sum(map(is_finished, folders)), len(folders)


def read_search(directory: Path) -> Search:
    """Return what is searched in a directory."""
    described = _read(directory / "search.json")
    try:
        return Search(
            RunSettings.from_json(described["settings"]),
            [whole_number("a seed", seed, 0, 2**63 - 1) for seed in described["seeds"]],
            check_grid([Plan(**plan) for plan in described["grid"]]),
            whole_number("tune_tasks", described["tune_tasks"], lowest=1),
            check_share("hold_out", described["hold_out"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(directory / "search.json", error) from error


def read_trials(directory: Path, search: Search, seed: int) -> list[Trial]:
    """Return what came of each plan of the grid for a seed."""
    trials = []
    for plan in search.grid:
        path = directory / "search" / name_plan(plan) / f"seed-{seed}" / "record.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            trials.append(
                Trial(
                    plan,
                    float(record["metrics"]["average_accuracy"]),
                    int(record["sgd_steps"]),
                    int(record["images_trained"]),
                    float(record["seconds"]),
                    bool(record["diverged"]),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise EncoreError(
                f"{path} is damaged; delete it and run `encore resume {quote(str(directory))}`"
            ) from error
    return trials


def read_choices(directory: Path) -> dict[int, Choice]:
    """Return what each seed chose."""
    path = directory / "choice.json"
    described = _read(path)
    try:
        choices = {}
        for seed, choice in described["choices"].items():
            trials = [Trial(**{**trial, "plan": Plan(**trial["plan"])}) for trial in choice["trials"]]
            (best,) = [trial for trial in trials if trial.plan == Plan(**choice["plan"])]
            choices[int(seed)] = Choice(best, trials)
        return choices
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error


def _check(
    settings: RunSettings,
    seeds: Sequence[int],
    grid: Sequence[Plan] | None,
    num_trials: int | None,
    num_tasks: int,
    share: float,
) -> Search:
    launch.check_seeds(seeds)
    if registry.resolve("controller", settings.plan.controller) != "fixed":
        raise EncoreError(
            f"tuning chooses plans that stay as they are, so the controller must be 'fixed', got "
            f"{settings.plan.controller!r}"
        )
    plans = make_grid() if grid is None else check_grid(grid)
    if num_trials is not None:
        plans = draw_trials(plans, num_trials, seeds[0])
    num_tasks = whole_number("the number of tasks to tune on (--tune-tasks)", num_tasks, lowest=1)
    share = check_share("the share that is held out (--hold-out)", share)
    return Search(settings, list(seeds), plans, num_tasks, share)


def _write_search(directory: Path, search: Search) -> None:
    write_json(
        directory / "search.json",
        {
            "encore": VERSION,
            "settings": search.settings.to_json(),
            "seeds": list(search.seeds),
            "grid": [asdict(plan) for plan in search.grid],
            "tune_tasks": search.num_tasks,
            "hold_out": search.share,
        },
    )


def _write_choices(directory: Path, choices: Mapping[int, Choice]) -> None:
    described = {
        str(seed): {
            "plan": asdict(choice.best.plan),
            "accuracy": choice.best.accuracy,
            "search_sgd_steps": choice.sgd_steps,
            "search_images_trained": sum(trial.images_trained for trial in choice.trials),
            "search_seconds": round(choice.seconds, 4),
            "trials": [{**trial._asdict(), "plan": asdict(trial.plan)} for trial in choice.trials],
        }
        for seed, choice in choices.items()
    }
    write_json(directory / "choice.json", {"encore": VERSION, "choices": described})


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> EncoreError:
    return EncoreError(
        f"{path} is damaged or of another version of Encore ({error}); restore it, or start a new search"
    )
