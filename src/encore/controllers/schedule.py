"""Plans from a table, or those of an earlier run once more."""

from __future__ import annotations

import csv
import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from torch import Generator

from encore.actions import FILE, read_actions
from encore.errors import EncoreError
from encore.interfaces import FeedbackValues, Plan

COUNTED = ("task", "batch")  # what the first column may count
COLUMNS = ("repeats", "num_ops", "magnitude")


class Schedule:
    """Follows a table of plans by task or by batch, or repeats the plans of a finished run.

    A row's plan holds from its task or batch until the next row's; the last row's holds to the end.
    """

    needs_feedback = False

    def __init__(
        self,
        plan: Plan,
        file: Annotated[str, f"Table of plans (.csv), or the {FILE} of a run to repeat."] = "",
        digest: Annotated[str, "SHA-256 that the file must have: found when a run is started."] = "",
    ) -> None:
        path = _find(file)
        if digest not in ("", _digest(path)):
            raise EncoreError(
                f"{path} is not what it was when the run was started (SHA-256 {digest}): put that file back"
            )
        read = _read_table if path.suffix.lower() == ".csv" else _read_run
        self.counted, self.starts, self.plans = read(path, plan)
        self.count = {"task": 0, "batch": 0}  # those that have begun

    @staticmethod
    def settle(options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with what would turn out otherwise where a run is resumed."""
        path = _find(options["file"]).absolute()
        return {"file": str(path), "digest": options["digest"] or _digest(path)}

    def start_task(self, task: int) -> None:
        """Take notice of the task."""
        self.count["task"] = task + 1

    def choose(self, generator: Generator) -> Plan:
        """Return the plan of the last row that has begun."""
        self.count["batch"] += 1
        return self.plans[bisect_right(self.starts, self.count[self.counted]) - 1]

    def learn_from(self, feedback: FeedbackValues) -> None:
        """Learn nothing: the plans are given."""

    def state_dict(self) -> dict[str, Any]:
        """Return how far it is."""
        return dict(self.count)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.count = dict(state)


class _Table(NamedTuple):
    counted: str  # task or batch
    starts: Sequence[int]  # from which one on each plan holds, ascending, the first 1
    plans: Sequence[Plan]


def _find(file: str) -> Path:
    if not file:
        raise EncoreError(
            "the controller schedule needs a table of plans, such as --controller.file plans.csv, or the "
            f"{FILE} of a finished run"
        )
    path = Path(file)
    if path.suffix.lower() not in (".csv", Path(FILE).suffix):
        raise EncoreError(f"controller.file must end in .csv or be the {FILE} of a run, got {file!r}")
    if not path.is_file():
        raise EncoreError(f"there is no file {file}: name a table of plans, or the {FILE} of a finished run")
    return path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_run(path: Path, plan: Plan) -> _Table:
    plans = [Plan(*map(int, row)) for row in read_actions(path).plans]
    if not plans:
        raise EncoreError(f"{path} holds no plans")
    return _Table("batch", range(1, len(plans) + 1), plans)


def _read_table(path: Path, plan: Plan) -> _Table:
    """Read a table; a column that is missing has the value of the run's own settings."""
    usual = {"repeats": plan.repeats, "num_ops": plan.num_ops, "magnitude": plan.magnitude}
    header: list[str] = []
    starts: list[int] = []
    plans: list[Plan] = []
    for number, cells in _read_lines(path):
        if not header:
            header = _check_header(cells, f"{path}, line {number}")
            continue
        try:
            start, values = _read_row(header, cells)
            if start <= (starts[-1] if starts else 0) or (not starts and start != 1):
                wanted = f"above {starts[-1]}, as rows ascend" if starts else "1 in the first row"
                raise EncoreError(f"{header[0]} must be {wanted}, got {start}")
            plans.append(Plan(**usual | values))
        except EncoreError as error:
            raise EncoreError(f"{path}, line {number}: {error}") from None
        starts.append(start)
    if not plans:
        raise EncoreError(f"{path} holds no plans: write a line such as task,repeats and below it 1,10")
    return _Table(header[0], starts, plans)


def _read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the cells of each line that is not empty, with its number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise EncoreError(
            f"{path} is no table of plans in UTF-8 with commas between cells: {error}"
        ) from error
    return [(number, cells) for number, cells in lines if any(cells)]


def _check_header(cells: Sequence[str], place: str) -> list[str]:
    known = set(cells[1:]) <= set(COLUMNS) and len(set(cells)) == len(cells) > 1
    if cells[0] not in COUNTED or not known:
        raise EncoreError(
            f"{place}: the first line must name task or batch, then repeats, num_ops, magnitude or some of "
            f"them, got {','.join(cells)!r}"
        )
    return list(cells)


def _read_row(header: Sequence[str], cells: Sequence[str]) -> tuple[int, dict[str, int]]:
    if len(cells) != len(header):
        raise EncoreError(f"there are {len(cells)} cells below {len(header)} names")
    values = {}
    for name, cell in zip(header, cells, strict=True):
        if not (cell.isascii() and cell.isdigit() and len(cell) < 10):
            raise EncoreError(f"{name} must be a whole number, got {cell!r}")
        values[name] = int(cell)
    return values.pop(header[0]), values
