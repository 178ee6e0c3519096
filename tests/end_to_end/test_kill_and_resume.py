"""A run that is killed anywhere and resumed ends with the same bits as one that is left alone."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from encore import launch
from encore.cli import main
from encore.display import Quiet
from encore.settings import RunSettings

RUN = [
    "run", "--benchmark", "digits", "--first-tasks", "3", "--memory-size", "30", "--seeds", "0", "1",
    "--controller", "bpg", "--controller.repeats", "1-3", "--model.width", "4", "--checkpoint-every", "7",
    "--device", "cpu",
]  # fmt: skip
SEEDS = (0, 1)

Results = dict[str, bytes | list[list[float]]]


def start(directory: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "encore", *RUN, "--out", str(directory), *more]
    with directory.with_suffix(".errors").open("w") as errors:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None, "ended too early"
        time.sleep(0.01)


def interrupt(directory: Path, *more: str) -> None:
    """Start a run, and stop it by SIGTERM once it has a checkpoint."""
    process = start(directory, *more)
    wait_for(directory / "seed-0" / "checkpoint.encore", process)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143


def results(directory: Path) -> Results:
    found: Results = {}
    for seed in SEEDS:
        folder = directory / f"seed-{seed}"
        left = [".lock", "actions.encore", "learner.encore", "record.json"]
        assert sorted(path.name for path in folder.iterdir()) == left
        found[f"actions {seed}"] = (folder / "actions.encore").read_bytes()
        found[f"learner {seed}"] = (folder / "learner.encore").read_bytes()
        found[f"matrix {seed}"] = json.loads((folder / "record.json").read_text())["accuracy_matrix"]
    return found


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Results:
    directory = tmp_path_factory.mktemp("runs") / "left-alone"
    process = start(directory)
    assert process.wait() == 0
    return results(directory)


def kill_after(delay: float, folder: Path) -> Path:
    """Return the directory of a run that was killed so long after it began to write, or earlier."""
    directory = folder / f"after-{delay:.3f}"
    process = start(directory, "--quiet")
    wait_for(directory / "config.json", process)
    time.sleep(delay)
    process.kill()
    # Where the run was faster than the delay, there was nothing to kill.
    return directory if process.wait() == -signal.SIGKILL else kill_after(delay / 2, folder)


@pytest.mark.parametrize("kill_point", range(20))
def test_kill_at_a_random_moment(tmp_path: Path, left_alone: Results, kill_point: int) -> None:
    # Spread over the two seconds or so that both seeds take, so that the later ones find the second at work.
    delay = random.Random(kill_point).uniform(0, 0.1) + 0.1 * kill_point
    directory = kill_after(delay, tmp_path)
    launch.resume(directory, Quiet())
    assert results(directory) == left_alone


@pytest.mark.parametrize("kill_point", [1, 2, 3, 4, 7, 12, 19, 26, 33, *range(36, 46)])
def test_kill_around_the_renaming_of_a_file(tmp_path: Path, left_alone: Results, kill_point: int) -> None:
    """Kill just before (odd points) or just after (even ones) one of the first renames of a run."""
    program = f"""
import os, pathlib, signal, sys
replace, count = pathlib.Path.replace, 0
def replace_and_count(self, target):
    global count
    count += 1
    if count == {kill_point}: os.kill(os.getpid(), signal.SIGKILL)
    replace(self, target)
    count += 1
    if count == {kill_point}: os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace_and_count
from encore.cli import main
sys.exit(main(sys.argv[1:]))
"""
    directory = tmp_path / "runs"
    process = subprocess.run([sys.executable, "-c", program, *RUN, "--quiet", "--out", str(directory)])
    assert process.returncode == -signal.SIGKILL
    if kill_point == 1:
        # Nothing was promised yet: not even the settings were written.
        assert list(directory.glob("seed-*/*")) == []
        return
    launch.resume(directory, Quiet())
    assert results(directory) == left_alone


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, left_alone: Results, number: signal.Signals, status: int
) -> None:
    directory = tmp_path / "runs"
    process = start(directory)
    wait_for(directory / "seed-0" / "checkpoint.encore", process)
    process.send_signal(number)
    assert process.wait() == status
    errors = directory.with_suffix(".errors").read_text()
    assert f"encore resume {directory}" in errors
    assert "Traceback" not in errors
    again = subprocess.run([sys.executable, "-m", "encore", "resume", str(directory)], capture_output=True)
    assert again.returncode == 0
    assert results(directory) == left_alone


def test_run_with_every_kind_of_setting_is_resumed(tmp_path: Path) -> None:
    """A checkpoint is compared with the settings beside it: none may change on the way through a file."""
    chosen = ["--class-order", *"9876543210", "--weight-decay", "0.001", "--classifier", "softmax"]
    chosen += ["--objective.memory-weight", "0.5", "--data-dir", str(tmp_path), "--threads", "1"]
    directory = tmp_path / "runs"
    interrupt(directory, *chosen)
    launch.resume(directory, Quiet())
    record = json.loads((directory / "seed-0" / "record.json").read_text())
    assert [task["classes"] for task in record["tasks"]] == [[9, 8], [7, 6], [5, 4]]
    assert len(record["processes"]) == 2


def test_resumed_run_remembers_both_processes(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    interrupt(directory)
    launch.resume(directory, Quiet())
    record = json.loads((directory / "seed-0" / "record.json").read_text())
    first, second = record["processes"]
    assert (first["from_task"], first["from_batch"]) == (0, 0)
    assert second["from_task"] + second["from_batch"] > 0
    assert record["seconds"] > 0


def test_two_processes_do_not_work_on_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "runs"
    process = start(directory)
    wait_for(directory / "seed-0" / "checkpoint.encore", process)
    process.send_signal(signal.SIGSTOP)
    try:
        assert main(["resume", str(directory)]) == 2
        assert "another process is working on" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    directory = tmp_path / "runs"
    interrupt(directory)
    return directory


def test_checkpoint_of_another_configuration_is_refused(
    interrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = interrupted / "config.json"
    described = json.loads(place.read_text())
    described["settings"]["training"]["learning_rate"] = 0.2
    place.write_text(json.dumps(described))
    assert main(["resume", str(interrupted)]) == 2
    message = capsys.readouterr().err
    assert "belongs to another configuration" in message
    assert "settings.training.learning_rate is 0.1 there and 0.2 here" in message


def test_damaged_checkpoint_is_refused_and_kept(
    interrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = interrupted / "seed-0" / "checkpoint.encore"
    place.write_bytes(place.read_bytes()[:-100])
    before = place.read_bytes()
    assert main(["resume", str(interrupted)]) == 2
    assert "is truncated" in capsys.readouterr().err
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"seeds": [0]}', '{"seeds": [0], "settings": {"stream": {}}}']
)
def test_damaged_config_gets_one_sentence(
    interrupted: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (interrupted / "config.json").write_text(content)
    for verb in ("resume", "show"):
        assert main([verb, str(interrupted)]) == 2
        assert "config.json is damaged or of another version" in capsys.readouterr().err


def test_finished_runs_are_left_as_they_are(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    assert main([*RUN, "--quiet", "--out", str(directory)]) == 0
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*.*") if path.name != ".lock"}
    assert main(["resume", "--quiet", str(directory)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_what_depends_on_where_a_run_is_resumed_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*RUN, "--quiet", "--out", "runs", "--data-dir", "pictures"]) == 0
    settings, _ = launch.read_directory(tmp_path / "runs")
    assert settings.stream.data_dir == str(tmp_path / "pictures")
    assert settings.training.threads == 1, "as chosen for images of 8x8 where the run was started"


def test_chosen_settings_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    assert main([*RUN, "--quiet", "--out", str(directory), "--class-order", *"9876543210"]) == 0
    settings, seeds = launch.read_directory(directory)
    assert isinstance(settings, RunSettings)
    assert settings.stream.class_order == tuple(range(9, -1, -1))
    assert settings.part_options["model.width"] == 4
    assert seeds == [0, 1]
