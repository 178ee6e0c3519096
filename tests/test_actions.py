"""Every choice of a run is noted, survives what stops it, and is shown as it was."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.helpers import NoHostSynchronisation, make_batch, make_learner
from torch import Generator

from encore.action_chart import draw_actions, find_lowest
from encore.action_picture import WIDTH, draw_action_picture
from encore.action_shares import divide, list_augmentations, measure
from encore.actions import Actions, Recorded, read_actions
from encore.cli import main
from encore.controllers.bpg import BootstrappedPolicyGradient
from encore.controllers.fixed import Fixed
from encore.errors import EncoreError
from encore.interfaces import Feedback, FeedbackValues, Plan
from encore.show_actions import show_actions

SVG = "{http://www.w3.org/2000/svg}"
SMALL = ["--benchmark", "digits", "--memory-size", "20", "--model.width", "2", "--first-tasks", "2"]
SMALL += ["--device", "cpu", "--batch-size", "40", "--quiet", "--controller.repeats", "1-4"]


def make_recorded(
    num_tasks: int = 3, size: int = 40, controller: str = "bpg", seed: int = 0, with_arms: bool = True
) -> Recorded:
    """Return the actions of a run: in task t only K = t + 1 and the arm t, and the accuracy 0.7 + t / 10."""
    tasks = np.repeat(np.arange(num_tasks), size)
    pairs = np.array([(1, 5), (1, 14), (2, 14)])[tasks % 3]
    feedback = np.full((len(tasks), 4), np.nan, dtype=np.float32)
    feedback[1:, 0] = np.minimum(0.7 + tasks / 10, 1.0)[
        1:
    ]  # nothing is remembered when the first batch comes
    arms = {"repeats": ["1", "2", "3", "4"], "augmentations": ["2x14", "1x14", "1x5"]} if with_arms else {}
    targets = {"repeats": [0.9, 0.9], "augmentations": [0.9, 0.9]} if with_arms else {}
    probabilities = np.full((len(tasks), 7 if with_arms else 0), 0.25, dtype=np.float32)
    plans = np.column_stack([tasks + 1, pairs])
    return Recorded(controller, seed, arms, targets, tasks, plans, feedback, probabilities)


def feedback_of(accuracy: float) -> Feedback:
    return Feedback(torch.tensor([accuracy, 0.5, 1.0, 2.0]))


def note_some(actions: Actions, controller: BootstrappedPolicyGradient, count: int) -> list[list[Any]]:
    """Play, and return what should have been noted."""
    generator, rows = Generator().manual_seed(count), []
    for number in range(count):
        probabilities = controller.probabilities
        plan, feedback = controller.choose(generator), feedback_of(number / 10)
        actions.note(number // 3, plan, feedback)
        controller.learn_from(feedback.read())
        choice = [number // 3, plan.repeats, plan.num_ops, plan.magnitude]
        rows.append([choice, feedback.values.tolist(), torch.tensor(probabilities).tolist()])
    return rows


def rows_of(actions: Actions) -> list[list[Any]]:
    state = actions.state_dict()
    names = ("choices", "feedback", "probabilities")
    return [list(row) for row in zip(*(state[name].tolist() for name in names), strict=True)]


def test_what_was_chosen_is_what_is_noted() -> None:
    controller = BootstrappedPolicyGradient(Plan())
    actions = Actions(controller)
    assert rows_of(actions) == []
    expected = note_some(actions, controller, 5)
    assert rows_of(actions) == expected
    assert rows_of(actions) == expected, "looking changes nothing"
    expected += note_some(actions, controller, 3)
    assert rows_of(actions) == expected
    assert len(actions) == 8
    state = actions.state_dict()
    assert (state["choices"].dtype, state["feedback"].dtype) == (torch.int32, torch.float32)


def test_state_takes_the_place_of_what_was_noted() -> None:
    controller = BootstrappedPolicyGradient(Plan())
    actions, other = Actions(controller), Actions(controller)
    expected = note_some(actions, controller, 4)
    state = actions.state_dict()
    note_some(actions, controller, 6)
    note_some(other, controller, 9)
    other.load_state_dict(state)
    assert rows_of(other) == expected
    assert rows_of(other) + note_some(other, controller, 2) == rows_of(other)


def test_nothing_waits_for_the_device_until_the_state_is_asked_for() -> None:
    learner, controller = make_learner(), Fixed(Plan(repeats=2))
    actions, generator = Actions(controller), Generator()
    for number in range(3):
        plan = controller.choose(generator)
        incoming = make_batch(4, seed=number)
        with NoHostSynchronisation():
            feedback = learner.learn(incoming, plan)
            actions.note(0, plan, feedback)
    seen = actions.state_dict()["feedback"]
    assert seen[0, 0].isnan()
    assert torch.equal(seen[2], feedback.values)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_noting_does_not_wait_for_a_gpu() -> None:
    actions = Actions(Fixed(Plan()))
    feedback = Feedback(torch.tensor([0.5, 0.25, 1.0, 2.0], device="cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(100):
            actions.note(number, Plan(), feedback)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert actions.state_dict()["feedback"].tolist() == [[0.5, 0.25, 1.0, 2.0]] * 100


def test_means_are_those_of_the_plans() -> None:
    actions = Actions(Fixed(Plan()))
    for plan in (Plan(1, 0, 30), Plan(2, 1, 5), Plan(6, 2, 14)):
        actions.note(0, plan, feedback_of(0.5))
    assert actions.means() == {"repeats": 3.0, "num_ops": 1.0, "magnitude": 9.5}
    without = Actions(Fixed(Plan()))
    without.note(0, Plan(), feedback_of(0.5))
    assert without.means() == {"repeats": 1.0, "num_ops": 0.0, "magnitude": None}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "bpg"
    chosen = ["--controller", "bpg", "--seeds", "0", "1", "--out", str(directory)]
    assert main(["run", *SMALL, *chosen]) == 0
    return directory


def test_file_of_a_run_holds_what_happened(runs: Path) -> None:
    recorded = read_actions(runs / "seed-1" / "actions.encore")
    assert (recorded.controller, recorded.seed) == ("bpg", 1)
    num_batches = len(recorded.tasks)
    assert recorded.probabilities.shape == (num_batches, 4 + 5)
    np.testing.assert_allclose(recorded.probabilities[:, :4].sum(axis=1), 1, atol=1e-6)
    assert recorded.probabilities[0, :4].tolist() == [0.25] * 4
    assert np.isnan(recorded.feedback[0, 0])
    assert not np.isnan(recorded.feedback[1:]).any()
    assert recorded.tasks.tolist() == sorted(recorded.tasks.tolist())
    # The controller is played once more: from the same feedback it must make the same choices.
    from encore.randomness import Randomness

    again, generator = (
        BootstrappedPolicyGradient(Plan(), repeats="1-4"),
        Randomness(1).host_generator("controller"),
    )
    for number in range(num_batches):
        if number == 0 or recorded.tasks[number] > recorded.tasks[number - 1]:
            again.start_task(int(recorded.tasks[number]))
        np.testing.assert_allclose(again.probabilities, recorded.probabilities[number], rtol=1e-6)
        assert again.choose(generator) == Plan(*recorded.plans[number].tolist())
        again.learn_from(FeedbackValues(*recorded.feedback[number].tolist()))


def test_table_of_results_shows_the_mean_plan(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(runs)]) == 0
    recorded = [read_actions(runs / f"seed-{seed}" / "actions.encore") for seed in (0, 1)]
    shown = capsys.readouterr().out
    mean = np.mean([run.plans[:, 0].mean() for run in recorded])
    assert re.search(rf"^bpg +{mean:.1f} ", shown.replace("ER-RAR, bpg", "bpg"), flags=re.MULTILINE)


def test_show_draws_the_actions_and_writes_the_picture(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "actions.svg"
    assert main(["show", str(runs), "--actions", "--out", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "digits, er, bpg\nmean over seeds 0 1: " in shown
    assert "the target is a memory accuracy of 90 %" in shown
    assert f"written to {picture}" in shown
    ElementTree.parse(picture)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--actions", "--out", "picture.png"], "a picture is written as SVG: name a file that ends in .svg"),
        (["--out", "picture.svg"], "a picture can be written of the actions only: add --actions"),
    ],
)
def test_mistake_gets_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["show", str(runs), *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_runs_without_actions_are_named(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "seed-0").mkdir(parents=True)
    (copy / "config.json").write_bytes((runs / "config.json").read_bytes())
    console = Console(file=io.StringIO())
    with pytest.raises(EncoreError, match="is finished yet"):
        show_actions(console, [copy], None)
    (copy / "seed-0" / "record.json").write_bytes((runs / "seed-0" / "record.json").read_bytes())
    with pytest.raises(
        EncoreError, match=r"seed-0 has no actions.encore: it was removed, or the run is older"
    ):
        show_actions(console, [copy], None)
    with pytest.raises(EncoreError, match="of one directory of runs at a time, and there are 2 here"):
        show_actions(console, [runs, runs], None)


def test_each_task_is_measured_by_itself() -> None:
    run = make_recorded()
    augmentations = list_augmentations([run])
    assert augmentations == [(1, 5), (1, 14), (2, 14)]
    shares = measure([run, run], [run.tasks, run.tasks], augmentations)
    assert shares.repeats.tolist() == [1, 2, 3]
    assert shares.augmentations.tolist() == np.eye(3).tolist()
    np.testing.assert_allclose(shares.accuracy, [0.7, 0.8, 0.9], rtol=1e-6)
    assert shares.chances.tolist() == [[0.25] * 3] * 4


def test_chances_without_arms_are_the_shares_of_what_was_chosen() -> None:
    run = make_recorded(with_arms=False)
    assert list_augmentations([run]) == [(1, 5), (1, 14), (2, 14)]
    shares = measure([run], [run.tasks], [])
    assert shares.chances.tolist() == np.eye(3).tolist()


def test_augmentation_without_operations_is_one_whatever_its_magnitude() -> None:
    run = make_recorded(with_arms=False)
    run.plans[:5, 1] = 0
    run.plans[5:9, 1:] = (0, 3)
    assert list_augmentations([run]) == [(0, 0), (1, 5), (1, 14), (2, 14)]


@pytest.mark.parametrize(
    ("num_tasks", "size", "num_cells"), [(3, 40, 60), (5, 3, 60), (90, 30, 60), (1, 1, 60)]
)
def test_parts_fill_the_cells_and_hold_batches_enough(num_tasks: int, size: int, num_cells: int) -> None:
    runs = [make_recorded(num_tasks, size, seed=seed) for seed in range(2)]
    parts = divide(runs, num_cells)
    assert sum(parts.widths) <= num_cells
    assert [begin for begin, _ in parts.edges[1:]] == [end for _, end in parts.edges[:-1]]
    assert (parts.edges[0][0], parts.edges[-1][1]) == (0, sum(parts.widths))
    counts = np.bincount(np.concatenate(parts.of_batches))
    assert len(counts) == len(parts.edges) == len(parts.homes)
    assert counts.min() >= min(8, 2 * size * parts.step)
    for run, of_batches in zip(runs, parts.of_batches, strict=True):
        assert [parts.homes[part] for part in of_batches] == (run.tasks // parts.step).tolist()


@pytest.mark.parametrize("width", [40, 80, 150])
def test_chart_has_rows_of_the_width_and_bars_of_the_height(width: int) -> None:
    run = make_recorded(num_tasks=3)
    lines = [line.plain for line in draw_actions([run], width)]
    assert max(map(len, lines)) <= width
    heading = lines.index("repeats K, the mean")
    columns = [line[13:] for line in lines[heading + 1 : heading + 7]]
    of_task = len(columns[-1]) // 3
    heights = [sum(row[cell : cell + 1] not in ("", " ") for row in columns) for cell in (0, of_task, -1)]
    assert heights[:2] == [2, 3]  # of 6, for K = 1 and 2 of 4
    assert columns[-1][-1] == "█"
    assert any(line.lstrip().startswith("90 % ┄ │") for line in lines)


def test_axis_begins_below_all_that_is_shown() -> None:
    run = make_recorded()
    assert find_lowest(np.array([0.93, 0.95, np.nan]), run) == pytest.approx(0.8)
    assert find_lowest(np.array([0.42]), run) == pytest.approx(0.4)
    assert find_lowest(np.array([0.0]), run) == 0
    assert find_lowest(np.array([np.nan]), make_recorded(with_arms=False)) == pytest.approx(0.9)


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[0-9.]+", text)]


def test_picture_shows_means_shares_and_the_target_where_they_are() -> None:
    run = make_recorded()
    root = ElementTree.fromstring(draw_action_picture([run], "a <title>", ["below it"]))
    assert root.findtext(f"{SVG}title") == "a <title>"
    lines = [line for line in root.iter(f"{SVG}polyline") if line.get("stroke") == "#0b2a66"]
    heights = [numbers_in(line.get("points", ""))[1] for line in lines]
    assert heights == pytest.approx([190 * (1 - (k - 0.5) / 4) for k in (1, 2, 3)], abs=0.1)
    shares = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("class") == "share"]
    begins = [min(numbers_in(shape)[0::5]) for shape in shares]
    assert begins == [0, WIDTH / 3, 2 * WIDTH / 3]
    (target,) = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("class") == "target"]
    assert numbers_in(target)[1] == pytest.approx(150 * (1 - 0.3 / 0.4))  # 90 % of an axis from 60 %
    assert len([path for path in root.iter(f"{SVG}path") if path.get("class") == "boundary"]) == 3 * 2
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a <title>", "below it", "90 % target", "P 1, Q 5", "P 2, Q 14", "100 %", "60 %"} <= set(words)


@pytest.mark.parametrize(("num_tasks", "size"), [(1, 1), (1, 30), (300, 10)])
@pytest.mark.parametrize("with_arms", [True, False])
def test_picture_of_any_stream_stays_in_its_frame(num_tasks: int, size: int, with_arms: bool) -> None:
    run = make_recorded(num_tasks, size, with_arms=with_arms)
    run = run._replace(plans=np.minimum(run.plans, [4, 4, 30]))
    root = ElementTree.fromstring(draw_action_picture([run], "title", []))
    assert "nan" not in ElementTree.tostring(root, encoding="unicode")
    for line in root.iter(f"{SVG}polyline"):
        numbers = numbers_in(line.get("points", ""))
        assert all(0 <= place <= WIDTH for place in numbers[0::2])
        assert all(-0.1 <= height <= 190.1 for height in numbers[1::2])
