"""Plans from a table, and those of an earlier run once more."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import assert_same_state
from torch import Generator

from encore import launch
from encore.actions import read_actions
from encore.cli import main
from encore.controllers.schedule import Schedule
from encore.display import Quiet
from encore.errors import EncoreError
from encore.interfaces import Plan
from encore.keeper import Interrupted
from encore.learner import Learner

USUAL = Plan(repeats=3, num_ops=1, magnitude=9)
SMALL = ["--benchmark", "digits", "--memory-size", "20", "--model.width", "2", "--first-tasks", "2"]
SMALL += ["--device", "cpu", "--batch-size", "40", "--quiet"]


def follow(path: Path, sizes: list[int]) -> list[Plan]:
    """Return the plans for tasks of so many batches."""
    schedule, generator, plans = Schedule(USUAL, file=str(path)), Generator(), []
    for task, size in enumerate(sizes):
        schedule.start_task(task)
        plans += [schedule.choose(generator) for _ in range(size)]
    return plans


def write(folder: Path, *lines: str, name: str = "plans.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_table_by_task_holds_until_the_next_row_and_to_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, "task,repeats,num_ops,magnitude", "1,10,1,14", "3,5,2,7")
    ten, five = Plan(10, 1, 14), Plan(5, 2, 7)
    assert follow(path, [2, 1, 2, 1, 3]) == [ten, ten, ten, five, five, five, five, five, five]


def test_table_by_batch_counts_over_all_tasks(tmp_path: Path) -> None:
    path = write(tmp_path, "batch,repeats", "1,1", "", "2,4", "5,2")
    assert [plan.repeats for plan in follow(path, [3, 4])] == [1, 4, 4, 4, 2, 2, 2]


def test_missing_columns_are_the_settings_and_spaces_do_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufefftask , magnitude", " 1, 20", name="Plans.CSV")
    assert follow(path, [1]) == [Plan(3, 1, 20)]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([""], r"plans.csv holds no plans: write a line such as task,repeats and below it 1,10"),
        (["task,repeats"], "holds no plans"),
        (["epoch,repeats", "1,2"], "line 1: the first line must name task or batch, .* got 'epoch,repeats'"),
        (["task"], "line 1: the first line must name task or batch"),
        (["task,repeat", "1,2"], "line 1: the first line"),
        (["task,repeats,repeats", "1,2,2"], "line 1: the first line"),
        (["task,repeats", "1,2", "", "2"], r"plans.csv, line 4: there are 1 cells below 2 names"),
        (["task,repeats", "1,ten"], "line 2: repeats must be a whole number, got 'ten'"),
        (["task,repeats", "1,-1"], "line 2: repeats must be a whole number, got '-1'"),
        (["task,repeats", "1,0"], r"line 2: repeats \(K\) must be a whole number from 1 to 100, got 0"),
        (["task,num_ops", "1,5"], r"line 2: num_ops \(P\) must be a whole number from 0 to 4, got 5"),
        (["task,repeats", "2,1"], "line 2: task must be 1 in the first row, got 2"),
        (["batch,repeats", "1,1", "7,2", "7,3"], "line 4: batch must be above 7, as rows ascend, got 7"),
        (['task,repeats', '1,"2'], "is no table of plans in UTF-8 with commas between cells"),
    ],
)  # fmt: skip
def test_mistake_in_a_table_gets_one_sentence_with_its_line(
    tmp_path: Path, lines: list[str], sentence: str
) -> None:
    with pytest.raises(EncoreError, match=sentence):
        Schedule(USUAL, file=str(write(tmp_path, *lines)))


def test_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match="the controller schedule needs a table of plans"):
        Schedule(USUAL)
    with pytest.raises(EncoreError, match=r"controller.file must end in .csv or be the actions.encore"):
        Schedule(USUAL, file="plans.txt")
    with pytest.raises(EncoreError, match=r"there is no file nowhere.csv"):
        Schedule(USUAL, file="nowhere.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EncoreError, match="is no table of plans in UTF-8"):
        Schedule(USUAL, file=str(tmp_path / "bytes.csv"))
    (tmp_path / "actions.encore").write_bytes(b"nothing")
    with pytest.raises(EncoreError, match="is truncated or is not an Encore checkpoint"):
        Schedule(USUAL, file=str(tmp_path / "actions.encore"))


def test_run_is_repeated_exactly(tmp_path: Path) -> None:
    chosen = ["--controller", "bpg", "--controller.repeats", "1-4", "--seeds", "3"]
    assert main(["run", *SMALL, *chosen, "--out", str(tmp_path / "first")]) == 0
    first = tmp_path / "first" / "seed-3"
    replayed = [
        "--controller",
        "schedule",
        "--controller.file",
        str(first / "actions.encore"),
        "--seeds",
        "3",
    ]
    assert main(["run", *SMALL, *replayed, "--out", str(tmp_path / "again")]) == 0
    again = tmp_path / "again" / "seed-3"
    ours, theirs = read_actions(again / "actions.encore"), read_actions(first / "actions.encore")
    assert (ours.plans == theirs.plans).all()
    assert len({tuple(plan) for plan in ours.plans.tolist()}) > 3
    assert ours.feedback.tobytes() == theirs.feedback.tobytes()
    learners = [Learner.load(str(folder / "learner.encore"), "cpu").state_dict() for folder in (first, again)]
    assert_same_state(*learners)


def test_resumed_run_wants_the_table_it_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "batch,repeats", "1,2", "5,1")
    chosen = ["--controller", "schedule", "--controller.file", "plans.csv"]
    assert main(["run", *SMALL, *chosen, "--out", "whole"]) == 0

    def stop(display: Quiet, run: Any, feedback: Any) -> None:
        if run.batch == 3:
            raise Interrupted(2, run, tmp_path)

    with monkeypatch.context() as patched:
        patched.setattr(Quiet, "after_batch", stop)
        assert main(["run", *SMALL, *chosen, "--out", "stopped"]) == 130
    capsys.readouterr()
    write(tmp_path, "batch,repeats", "1,2", "5,3")
    os.chdir("/")  # a relative path was made absolute
    assert main(["resume", str(tmp_path / "stopped"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "plans.csv is not what it was when the run was started (SHA-256 " in error
    assert error.count("\n") == 1
    write(tmp_path, "batch,repeats", "1,2", "5,1")
    launch.resume(tmp_path / "stopped", Quiet())
    records = [
        json.loads((tmp_path / name / "seed-0/record.json").read_text()) for name in ("whole", "stopped")
    ]
    assert records[0]["accuracy_matrix"] == records[1]["accuracy_matrix"]
    assert records[0]["plans"] == records[1]["plans"]
