"""The demo and the keeping of evidence, at the smallest size at which they are themselves."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import cifar100_boundaries, cifar100_controllers, demo, digits_compute, evidence
from rich.console import Console

from encore import launch
from encore.cli import main
from encore.config import settle_controller
from encore.display import Quiet
from encore.errors import EncoreError
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings, TrainingSettings
from encore.tuning.grid import make_grid

SMALL = RunSettings(
    StreamSettings(first_tasks=2),
    RehearsalSettings(memory_size=20),
    training=TrainingSettings(device="cpu"),
    part_options={"model.width": 2},
)


def test_demo_ends_with_a_table_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SEEDS", (0,))
    shown = io.StringIO()
    demo.run_demo(Console(file=shown, width=100), tmp_path / "demo")
    lines = shown.getvalue().splitlines()
    er = json.loads((tmp_path / "demo" / "er" / "seed-0" / "record.json").read_text())
    rar = json.loads((tmp_path / "demo" / "er-rar" / "seed-0" / "record.json").read_text())
    assert rar["sgd_steps"] == 10 * er["sgd_steps"]
    for name, record in (("er ", er), ("er-rar ", rar)):
        (row,) = [line for line in lines if line.startswith(name)]
        assert f"{100 * record['metrics']['average_accuracy']:.1f}" in row
        assert f"{record['sgd_steps']:,}" in row
    assert lines[-1] == f"written to {tmp_path / 'demo'}"


def test_evidence_holds_the_table_and_what_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "WORK", tmp_path / "runs")
    evidence.compare("trial", "A trial", {"small": SMALL}, [0, 1])
    (folder,) = (tmp_path / "results").iterdir()
    page = (folder / "README.md").read_text()
    record = json.loads((folder / "small" / "seed-0" / "record.json").read_text())
    assert "python -m benchmarks.trial" in page
    assert f"{100 * record['metrics']['average_accuracy']:.2f}" in page
    assert "- commit" in page
    capsys.readouterr()
    assert main(["show", str(folder)]) == 0
    assert f"{100 * record['metrics']['average_accuracy']:.2f}" in capsys.readouterr().out


def test_groups_have_seeds_of_their_own_and_published_values_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "WORK", tmp_path / "runs")
    groups = {"one": SMALL, "two": replace(SMALL, plan=PlanSettings(num_ops=1))}
    published = {"two": evidence.Published(paper=50.0)}
    folder = evidence.compare(
        "trial", "A trial", groups, {"one": [3], "two": [3, 4]}, published=published, parallel=2
    )
    found = sorted(str(path.parent.relative_to(folder)) for path in folder.glob("*/*/record.json"))
    assert found == ["one/seed-3", "two/seed-3", "two/seed-4"]
    records = [json.loads(path.read_text()) for path in folder.glob("two/*/record.json")]
    assert {record["processes"][0]["side_by_side"] for record in records} == {2}
    mean = 50 * sum(record["metrics"]["average_accuracy"] for record in records)
    beside = (folder / "README.md").read_text().partition("difference")[2]
    (row,) = [line.split() for line in beside.splitlines() if line.startswith("two")]
    assert row == ["two", f"{mean:.1f}", *row[2:4], "-", "-", "50.0", f"{mean - 50:+.1f}"]


def test_evidence_of_other_settings_is_not_passed_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "WORK", tmp_path / "runs")
    evidence.compare("trial", "A trial", {"small": SMALL}, [0])
    other = RunSettings(SMALL.stream, SMALL.rehearsal, PlanSettings(repeats=2), SMALL.training)
    with pytest.raises(EncoreError, match="was made with other settings: remove it to measure anew"):
        evidence.compare("trial", "A trial", {"small": other}, [0])


def test_digits_compute_tunes_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "WORK", tmp_path / "runs")
    monkeypatch.setattr(digits_compute, "GRID", make_grid([1, 2], [0], [14]))
    groups = {
        name: replace(SMALL, plan=group.plan, part_options={**SMALL.part_options, **group.part_options})
        for name, group in digits_compute.GROUPS.items()
        if name in ("fixed-01", "budget-02", "tuned")
    }
    monkeypatch.setattr(digits_compute, "GROUPS", groups)
    digits_compute.main(["--seeds", "0", "--groups", *groups])
    (folder,) = (tmp_path / "results").iterdir()
    drawing = (folder / "compute.svg").read_text()
    assert drawing.count('class="group"') == len(groups)
    capsys.readouterr()
    assert main(["show", str(folder / "tuned")]) == 0
    assert "tuned on the first 2 tasks" in capsys.readouterr().out
    digits_compute.main(["--seeds", "0", "--groups", *groups])  # all is there already
    assert (folder / "compute.svg").read_text() == drawing
    monkeypatch.setattr(digits_compute, "GRID", make_grid([3], [0], [14]))
    with pytest.raises(EncoreError, match="was made with other settings: remove it to measure anew"):
        digits_compute.main(["--seeds", "0", "--groups", "tuned"])
    with pytest.raises(EncoreError, match="there is no group 'fixed-03'"):
        digits_compute.main(["--groups", "fixed-03"])


def test_controllers_are_compared_with_what_the_paper_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "WORK", tmp_path / "runs")
    monkeypatch.setattr(cifar100_controllers, "GRID", make_grid([1, 2], [0], [14]))
    monkeypatch.setattr(cifar100_controllers, "GROUPS", on_digits(cifar100_controllers.GROUPS))
    cifar100_controllers.main(["--seeds", "0", "--groups", "bpg", "bpg-published", "budget-02", "tuned"])
    (folder,) = (tmp_path / "results").iterdir()
    page = (folder / "README.md").read_text()
    beside = page.partition("difference")[2].splitlines()
    named = {line.split()[0]: line.split()[-2] for line in beside if line.startswith(("b", "t"))}
    assert named == {"bpg": "29.6", "bpg-published": "29.6", "budget-02": "-", "tuned": "23.4"}
    # With a memory batch ten times as large a step costs more, so it is not in the picture of steps.
    assert (folder / "compute.svg").read_text().count('class="group"') == 3


def on_digits(groups: Mapping[str, RunSettings]) -> dict[str, RunSettings]:
    """Return the same groups, but small."""
    return {
        name: replace(
            SMALL,
            stream=replace(SMALL.stream, kind=group.stream.kind),
            rehearsal=replace(group.rehearsal, memory_size=20),
            plan=group.plan,
            part_options={**SMALL.part_options, **group.part_options},
        )
        for name, group in groups.items()
    }


@pytest.mark.parametrize("module", [cifar100_controllers, cifar100_boundaries])
def test_every_group_is_one_that_can_be_run(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf: launch.Shelf = {}
    for name, group in on_digits(module.GROUPS).items():
        run = launch.make_run(group, 0, Quiet(), shelf)
        assert run.settings.plan == settle_controller(group).plan, name


def test_mistake_on_the_command_line_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        evidence.carry_out(lambda: cifar100_boundaries.main(["--groups", "sharp"]))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("encore: error: there is no group 'sharp' (known: sharp-fixed-10, ")
    assert said.count("\n") == 1


def test_ctrl_c_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stopped:
        evidence.carry_out(stop)
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "\nstopped\n"


def test_groups_and_seeds_are_chosen_on_the_command_line() -> None:
    groups = {"one": SMALL, "two": SMALL}
    assert evidence.choose("trial", groups, (0, 1), []) == (groups, [0, 1])
    assert evidence.choose("trial", groups, (0, 1), ["--groups", "two", "--seeds", "7"]) == (
        {"two": SMALL},
        [7],
    )
    with pytest.raises(EncoreError, match=r"no group 'tow' \(known: one, two\)"):
        evidence.choose("trial", groups, (0,), ["--groups", "tow"])
