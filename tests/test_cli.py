from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from encore import launch, registry
from encore.cli import main
from encore.data.benchmark import DataFile
from encore.datasets.cifar100 import Cifar100
from encore.display import Live, display_for
from encore.settings import RehearsalSettings, RunSettings, StreamSettings, TrainingSettings
from encore.version import VERSION

FAST = ["--first-tasks", "2", "--memory-size", "20", "--model.width", "2", "--device", "cpu"]

# Every option of `encore run`. A new one is a decision: it is named here and in docs/quickstart.md.
RUN_OPTIONS = {
    "--benchmark", "--data-dir", "--stream", "--class-order", "--tasks", "--first-tasks",
    "--epochs", "--split", "--hold-out", "--skip-broken", "--batch-size",
    "--method", "--memory-size", "--memory-batch-size",
    "--retrieval", "--retention", "--objective", "--classifier",
    "--repeats", "--num-ops", "--magnitude", "--controller", "--augment-target", "--operation-space",
    "--model", "--learning-rate", "--weight-decay", "--engine", "--device", "--precision", "--threads",
    "--checkpoint-every", "--seeds", "--out", "--parallel", "--quiet",
    "--model.width", "--objective.memory-weight", "--objective.incoming-weight",
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished") / "runs"
    assert main(["run", *FAST, "--seeds", "3", "4", "--out", str(directory), "--quiet"]) == 0
    return directory


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one sentence that a mistake gets."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("encore: error: ")
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err
    return shown.err


def test_record_holds_all_there_is_to_know(finished: Path) -> None:
    record = json.loads((finished / "seed-3" / "record.json").read_text())
    assert record["encore"] == VERSION
    assert record["seed"] == 3
    config = record["config"]
    assert config["stream"]["benchmark"] == "digits"
    assert config["rehearsal"]["memory_size"] == 20
    assert config["parts"]["model"] == {"name": "reduced_resnet18", "options": {"width": 2}}
    assert config["parts"]["retention"]["name"] == "reservoir"
    assert config["parts"]["controller"]["name"] == "fixed"
    assert (config["image_shape"], config["num_classes"]) == ([1, 8, 8], 10)
    matrix = record["accuracy_matrix"]
    assert [len(row) for row in matrix] == [2, 2]
    assert matrix[0][1] == 0
    metrics = record["metrics"]
    assert set(metrics) == {
        "average_accuracy", "forgetting", "backward_transfer", "plasticity", "stability"
    }  # fmt: skip
    assert metrics["average_accuracy"] == pytest.approx((matrix[1][0] + matrix[1][1]) / 2)
    assert metrics["forgetting"] == pytest.approx(matrix[0][0] - matrix[1][0])
    num_batches = sum(task["train"] // 10 for task in record["tasks"])
    assert record["sgd_steps"] == num_batches
    assert record["images_seen"] == 10 * num_batches
    assert record["images_trained"] == 20 * num_batches - 10  # the first batch found an empty memory
    assert all(len(values) == 2 for values in record["seconds_per_task"].values())
    assert record["seconds"] > 0
    assert record["peak_memory_bytes"] > 2**26
    (process,) = record["processes"]
    assert process["versions"]["encore"] == VERSION
    assert {"python", "torch", "numpy"} <= set(process["versions"])
    assert {"system", "processor", "cores", "memory_bytes", "device", "threads"} <= set(process["machine"])
    assert process["commit"] is None or len(process["commit"].rstrip("+")) == 40


def test_same_seed_gives_the_same_record(finished: Path, tmp_path: Path) -> None:
    assert main(["run", *FAST, "--seeds", "4", "--out", str(tmp_path / "again"), "--quiet"]) == 0
    learners = [folder / "seed-4" / "learner.encore" for folder in (finished, tmp_path / "again")]
    assert learners[0].read_bytes() == learners[1].read_bytes()
    other = finished / "seed-3" / "learner.encore"
    assert other.read_bytes() != learners[0].read_bytes()


def test_show_one_directory(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(finished)]) == 0
    shown = capsys.readouterr().out
    records = [json.loads((finished / f"seed-{seed}" / "record.json").read_text()) for seed in (3, 4)]
    for record in records:
        assert f"{100 * record['metrics']['average_accuracy']:.2f}" in shown
    mean = 50 * sum(record["metrics"]["average_accuracy"] for record in records)
    assert f"{mean:.1f} ± " in shown


def test_show_several_side_by_side(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "rar"
    plan = ["--repeats", "2", "--num-ops", "1"]
    assert main(["run", *FAST, *plan, "--out", str(other), "--quiet"]) == 0
    assert main(["show", str(finished), str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "rar " in shown
    assert len([line for line in shown.splitlines() if line.startswith(("rar ", "runs "))]) == 3


def test_single_run_shows_its_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "one"
    assert main(["run", *FAST, "--out", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "seed 0  task 2 of 2" in shown
    assert "after task" in shown
    assert f"written to {directory}" in shown
    assert "\x1b" not in shown, "a pipe gets plain lines"


def test_quiet_is_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *FAST, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


def test_runs_have_a_place_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *FAST, "--quiet"]) == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.endswith("-digits-er")


def test_list_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for kind in registry.FOLDERS:
        for name in registry.names(kind):
            assert name in shown
    assert main(["list", "methods"]) == 0
    assert "digits" not in capsys.readouterr().out


def test_help_shows_every_option_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    words = {word for word in shown.replace("│", " ").split() if word.startswith("--")}
    assert words == RUN_OPTIONS
    for symbol in ("(K)", "(P)", "(Q)", "(M)"):
        assert symbol in shown


@pytest.mark.parametrize(
    "verb", ["tune", "resume", "show", "list", "theory", "data", "data list", "data fetch"]
)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help"]) == 0
    assert "Usage: encore" in capsys.readouterr().out


def test_help_does_not_wait_for_torch() -> None:
    program = "import sys; from encore.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == VERSION


def test_what_is_usual_for_a_benchmark_is_taken_and_said(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = {"--model": "resnet18", "--batch-size": "40", "--memory-size": "9", "--weight-decay": "0.001"}
    monkeypatch.setattr(registry.find("benchmark", "digits"), "usual", usual)
    given = ["--model.width", "2", "--memory_size=20", "--first-tasks", "1", "--device", "cpu"]
    assert main(["run", *given, "--out", str(tmp_path / "loud")]) == 0
    said = "as is usual for digits: --model resnet18 --batch-size 40 --weight-decay 0.001"
    assert capsys.readouterr().out.startswith(f"{said}\n")
    assert main(["run", "--batch-size=25", *given, "--quiet", "--out", str(tmp_path / "quiet")]) == 0
    assert capsys.readouterr().out == ""
    for name, batch_size in (("loud", 40), ("quiet", 25)):
        settings = json.loads((tmp_path / name / "config.json").read_text())["settings"]
        assert (settings["training"]["model"], settings["training"]["weight_decay"]) == ("resnet18", 0.001)
        assert (settings["stream"]["batch_size"], settings["rehearsal"]["memory_size"]) == (batch_size, 20)
    other = json.loads((finished / "config.json").read_text())["settings"]
    assert (other["training"]["model"], other["stream"]["batch_size"]) == ("reduced_resnet18", 10)
    assert main(["run", "--help"]) == 0
    assert "as is usual" not in capsys.readouterr().out
    assert main(["resume", str(tmp_path / "loud")]) == 0
    assert "as is usual" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("runn", "Did you mean"),
        ("run --bechmark digits", "Did you mean"),
        ("run --benchmark digit", "there is no benchmark 'digit'; did you mean 'digits'?"),
        ("run --method err", "there is no method 'err'; did you mean 'er'"),
        ("run --controller fix", "there is no controller 'fix'; did you mean 'fixed'?"),
        ("run --classifier softmaxx", "there is no classifier 'softmaxx'; did you mean 'softmax'?"),
        ("run --engine egear", "there is no engine 'egear'; did you mean 'eager'?"),
        ("run --augment-target al", "there is no augmentation target 'al'"),
        ("run --operation-space papre", "did you mean 'paper'?"),
        ("run --repeats 0", "repeats (K) must be a whole number from 1 to 100, got 0"),
        ("run --repeats 101", "repeats (K) must be a whole number from 1 to 100, got 101"),
        ("run --num-ops 5", "num_ops (P) must be a whole number from 0 to 4, got 5"),
        ("run --magnitude 31", "magnitude (Q) must be a whole number from 0 to 30, got 31"),
        ("run --repeats many", "--repeats"),
        ("run --memory-size 0", "memory size must be a whole number of at least 1, got 0"),
        ("run --memory-batch-size 0", "memory batch size must be a whole number of at least 1"),
        ("run --batch-size 0", "batch size must be a whole number of at least 1, got 0"),
        ("run --batch-size 5000", "batch size must be from 1 to"),
        ("run --learning-rate 0", "learning rate must be a number above 0"),
        ("run --learning-rate nan", "learning rate must be a number above 0"),
        ("run --weight-decay -1", "weight decay must be a number of at least 0"),
        ("run --first-tasks 6", "first_tasks must be from 1 to 5 for this benchmark, got 6"),
        ("run --class-order 1 2", "a class order must name each class from 0 to 9 once"),
        ("run --threads 0", "number of threads must be a whole number from 1 to 1024, got 0"),
        ("run --checkpoint-every 0", "checkpoint_every must be a whole number of at least 1"),
        ("run --device gpu", "there is no device 'gpu'"),
        ("run --device meta", "Encore trains on cpu or cuda, not on 'meta'"),
        ("run --seeds 1 1", "seeds must be one or more different numbers"),
        ("run --seeds -1", "a seed must be a whole number from 0"),
        ("run --model.width 0", "width must be at least 1"),
        ("run --model.depth 3", "--model.depth"),
        ("list nothing", "there is no kind of part 'nothing'"),
        ("show", "name at least one directory"),
        ("show nowhere", "nowhere holds no runs"),
        ("resume nowhere", "nowhere holds no runs"),
        ("theory --benchmark digit", "did you mean 'digits'?"),
        ("theory --memory-size 0", "memory_size must be at least 1, got 0"),
        ("theory --task-sizes 5 0", "task_sizes must be"),
        ("theory --seed -1", "a seed must be a whole number"),
        ("run --memory-size 2000000000", "it does not fit"),
        ("run --memory-size 99999999999999999999", "whole number of at least 1 and below 2**31"),
        ("run --threads 99999999999999", "number of threads must be a whole number from 1 to 1024"),
        ("run --repeats 2.5", "'2.5' is not a whole number"),
        ("run --seeds 1.5", "'1.5' is not a whole number"),
        ("run --seeds 4,5", "'4,5' is not a whole number; several are separated by spaces"),
        ("run --class-order 0.1 1", "'0.1' is not a whole number"),
        ("run --model.width 4.6", "'4.6' is not a whole number"),
        ("theory --task-sizes 3.7 2", "'3.7' is not a whole number"),
        ("run foo", "it is not clear what to do with 'foo': see `encore run --help`"),
        ("run --objective.memory-weight nan", "memory_weight must be a number of at least 0"),
        (
            "run --method finetune --classifier nearest-class-mean",
            "the classifier nearest_class_mean answers from remembered examples, and the retention nothing "
            "keeps none: use the classifier softmax, or another retention, such as reservoir",
        ),
        ("data check digit", "did you mean 'digits'?"),
        ("data fetch digit", "did you mean 'digits'?"),
        ("data fetch cifar100 --mirror ftp://a/b", "a mirror must be an http, https or file address"),
    ],
)
def test_mistakes_get_one_sentence_and_write_nothing(
    arguments: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refusal(capsys, *arguments.split())
    assert list(tmp_path.iterdir()) == []


def test_absent_data_is_said_with_the_way_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    message = refusal(
        capsys, "run", "--benchmark", "cifar100", "--data-dir", str(tmp_path), "--out", str(out)
    )
    assert "encore data fetch cifar100" in message
    assert not out.exists()


def test_existing_directory_is_not_touched(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.stat().st_mtime_ns for path in finished.rglob("*"))
    message = refusal(capsys, "run", *FAST, "--out", str(finished))
    assert f"{finished} exists already: choose another --out, or go on with `encore resume" in message
    assert before == sorted(path.stat().st_mtime_ns for path in finished.rglob("*"))


def test_file_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert "exists already" in refusal(capsys, "run", *FAST, "--out", str(tmp_path / "file"))
    message = refusal(capsys, "run", *FAST, "--out", str(tmp_path / "file" / "inside"))
    assert "cannot be created: Not a directory; choose another --out" in message
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def mounted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a small file system with the options asked for."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("mounted", ["ro"], indirect=True)
def test_read_only_place(mounted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, "run", *FAST, "--out", str(mounted / "runs"))
    assert "cannot be created: Read-only file system; choose another --out" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_forbidden_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    message = refusal(capsys, "run", *FAST, "--out", str(tmp_path / "locked" / "runs"))
    assert "cannot be created: Permission denied" in message


@pytest.mark.parametrize("mounted", ["size=300k"], indirect=True)
def test_full_disk_loses_nothing(mounted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = mounted / "runs"
    plan = ["--memory-size", "1000", "--first-tasks", "2", "--model.width", "4", "--checkpoint-every", "10"]
    filler = mounted / "filler"
    filler.write_bytes(b"\0" * 150_000)
    message = refusal(capsys, "run", *plan, "--out", str(out), "--quiet")
    assert "could not be written" in message
    assert "make room" in message
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", str(mounted)], check=True)
    assert main(["resume", str(out), "--quiet"]) == 0
    assert (out / "seed-0" / "record.json").is_file()


def test_reader_of_a_pipe_may_leave(finished: Path) -> None:
    command = f"{sys.executable} -m encore show {finished} | head -1; exit ${{PIPESTATUS[0]}}"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert answer.returncode in (0, 1)
    assert answer.stderr == ""


@pytest.mark.parametrize("missing", ["metrics", "config", "seconds", "accuracy_matrix", "everything"])
def test_damaged_record_is_said(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(finished), str(copy)], check=True)
    place = copy / "seed-3" / "record.json"
    record = json.loads(place.read_text())
    record.pop(missing, None)
    place.write_text("{" if missing == "everything" else json.dumps(record))
    assert "record.json is damaged; delete it and run `encore resume" in refusal(capsys, "show", str(copy))


def test_resume_takes_a_directory_of_directories(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        subprocess.run(["cp", "-r", str(finished), str(tmp_path / name)], check=True)
    (tmp_path / "two" / "seed-4" / "record.json").unlink()
    assert main(["resume", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("is finished already") == 3
    assert "seed 4  task 2 of 2" in shown
    again = [path / "seed-4" / "learner.encore" for path in (finished, tmp_path / "two")]
    assert again[0].read_bytes() == again[1].read_bytes()


def test_divergence_is_said_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "runs"
    assert main(["run", *FAST, "--learning-rate", "1e30", "--out", str(directory)]) == 0
    assert "training has diverged: try a smaller --learning-rate" in capsys.readouterr().out
    assert json.loads((directory / "seed-0" / "record.json").read_text())["diverged"] is True


def test_finished_run_did_not_diverge(finished: Path) -> None:
    assert json.loads((finished / "seed-3" / "record.json").read_text())["diverged"] is False


def test_theory_of_a_stream_of_one_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--task-sizes", "1000", "3000", "1000", "--memory-size", "2000"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:4].strip().isdigit()]
    assert rows == [
        ["1", "1,000", "0", "0", "-", "-", "-", "100%"],
        ["2", "3,000", "1,000", "1,000", "3.000", "0.143", "0.429", "75%"],
        ["3", "1,000", "4,000", "2,000", "0.500", "0.667", "0.333", "20%"],
    ]


def test_theory_of_a_benchmark_has_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--benchmark", "digits", "--memory-size", "50", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    sizes = [int(line.split()[1]) for line in shown.splitlines() if line[:4].strip().isdigit()]
    assert len(sizes) == 5
    assert sum(sizes) == 1442


def test_data_check_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "digits"]) == 0
    shown = capsys.readouterr().out
    assert "train: 1,442 images of 10 classes, 140 to 147 of each" in shown
    assert "test: 355 images of 10 classes" in shown


def test_altered_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "meta").write_bytes(b"altered")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    message = refusal(capsys, "data", "check", "cifar100", "--data-dir", str(tmp_path))
    assert "cifar100 is not as it was published" in message


def test_data_fetch_from_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fetch a small stand-in for the archive, and be told what came and that it is there."""
    mirror, folder = tmp_path / "mirror", tmp_path / "data"
    mirror.mkdir()
    content = b"stand-in" * 100
    (mirror / "cifar-100-python.tar.gz").write_bytes(content)
    stand_in = DataFile("cifar-100-python.tar.gz", len(content), hashlib.md5(content).hexdigest())
    monkeypatch.setattr(Cifar100, "downloads", (stand_in,))
    command = ["data", "fetch", "cifar100", "--data-dir", str(folder), "--mirror", mirror.as_uri()]
    assert main(command) == 0
    assert "was fetched from" in capsys.readouterr().out
    assert (folder / "cifar100" / "cifar-100-python.tar.gz").read_bytes() == content


def test_live_display_shows_where_a_run_stands(tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=140)
    settings = RunSettings(
        StreamSettings(first_tasks=2),
        RehearsalSettings(memory_size=20),
        training=TrainingSettings(device="cpu"),
        part_options={"model.width": 2},
    )
    with display_for(console, quiet=False) as display:
        assert isinstance(display, Live)
        launch.start(settings, [0], tmp_path / "runs", display)
    text = shown.getvalue()
    for expected in ("seed 0  task 2 of 2", "batch", "/28", "images/s", "memory", "incoming"):
        assert expected in text


def test_long_names_leave_the_numbers_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan = ["--repeats", "2", "--num-ops", "1", "--operation-space", "authors", "--augment-target", "memory"]
    chosen = [*FAST, *plan, "--classifier", "softmax", "--seeds", "0", "1"]
    assert main(["run", *chosen, "--out", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "mean ± population deviation over seeds 0 1" in shown


def test_single_seed_s_directory_leads_to_the_one_above(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"name the directory above, {finished}" in refusal(capsys, "show", str(finished / "seed-3"))


def test_two_runs_with_one_directory_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "encore", "run", *FAST, "--quiet", "--out", str(out), "--repeats"]
    both = [subprocess.Popen([*command, repeats], stderr=subprocess.PIPE) for repeats in ("1", "2")]
    refusals = [process.communicate()[1].decode() for process in both]
    assert sorted(process.returncode for process in both) == [0, 2]
    assert any("exists already" in said or "another process" in said for said in refusals)
    settings = json.loads((out / "config.json").read_text())["settings"]
    record = json.loads((out / "seed-0" / "record.json").read_text())
    assert record["config"]["plan"] == settings["plan"]


def test_runs_started_in_the_same_second_have_places_of_their_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "encore", "run", *FAST, "--quiet", "--seeds"]
    both = [subprocess.Popen([*command, seed], cwd=tmp_path) for seed in ("1", "2")]
    assert [process.wait() for process in both] == [0, 0]
    directories = list((tmp_path / "runs").iterdir())
    assert len(directories) == 2
    assert all(len(json.loads((path / "config.json").read_text())["seeds"]) == 1 for path in directories)


def test_brackets_in_a_path_are_part_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x[bold]" / "[red]"
    assert main(["run", *FAST, "--out", str(out)]) == 0
    assert f"written to {out}" in capsys.readouterr().out
    assert main(["data", "list", "--data-dir", str(out)]) == 0


@pytest.mark.parametrize("delay", [0.02, 0.1])
def test_stopping_at_the_start_leaves_no_traceback(tmp_path: Path, delay: float) -> None:
    command = [sys.executable, "-m", "encore", "run", *FAST, "--out", str(tmp_path / "runs")]
    # Who runs the tests in the background may have them ignore SIGINT, and what they start, too.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=heeding)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    if process.returncode == 130:
        assert b"Traceback" not in errors
    else:  # Python itself died of the signal, before Encore had begun to answer
        assert process.returncode in (1, -signal.SIGINT)
        assert b"in run_command" not in errors
