"""`encore bench` measures what works here, says what does not, and ends in time."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from encore import bench, registry
from encore.bench import BARE, BenchSettings, Case, list_cases, measure
from encore.cli import main
from encore.cli_bench import show_measured
from encore.engines import compiled
from encore.errors import EncoreError
from encore.randomness import Randomness

TINY = {"image_size": 8, "width": 2, "batch_size": 2, "repeats": 2, "threads": 1, "device": "cpu"}


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the compiler away: compiling would take longer than all these tests."""

    def refuse(device: torch.device) -> None:
        raise EncoreError("the engine compiled needs a C++ compiler")

    monkeypatch.setattr(compiled, "check_compiler", refuse)
    monkeypatch.setattr(bench, "choose_threads", lambda shape: 1)


@pytest.mark.usefixtures("no_compiler")
def test_verb_prints_a_table_and_keeps_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    options = ["--image-size", "8", "--width", "2", "--batch-size", "2", "--repeats", "2", "--threads", "1"]
    monkeypatch.setattr(bench, "SHARE_FOR_MEASURING", -1000.0)  # all, on a slow machine, too
    kept = tmp_path / "numbers.json"
    assert main(["bench", *options, "--device", "cpu", "--seconds", "1", "--json", str(kept)]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("written to"))
    assert "Left out: the engine compiled needs a C++ compiler" in shown
    measured = json.loads(kept.read_text())
    names = [(row["name"], row["num_ops"]) for row in measured["rows"]]
    for num_ops in (0, 1):
        assert {(BARE, num_ops), ("eager", num_ops), ("eager, 2 runs by turns", num_ops)} <= {*names}
    for row in measured["rows"]:
        assert row["images_per_second"] == pytest.approx(4000 / row["milliseconds"])
        assert row["rounds"] >= 1
        assert row["peak_bytes"] > 1e7
        if row["engine"] is None:
            assert row["times_bare"] == 1
        assert f"{row['times_bare']:.2f}" in shown
    assert measured["auto"] == "eager"
    assert measured["machine"]["threads"] == 1


@pytest.mark.usefixtures("no_compiler")
def test_what_there_is_no_time_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measure(BenchSettings(**TINY, seconds=1e-3))  # type: ignore[arg-type]
    (row,) = measured["rows"]
    assert (row["name"], row["rounds"]) == (BARE, 1)
    assert any("for want of time: eager (P = 1)" in sentence for sentence in measured["left_out"])
    shown = io.StringIO()
    show_measured(Console(file=shown, width=80), measured)
    assert "allow more with --seconds" in " ".join(shown.getvalue().split())


def test_cases_are_what_can_work_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "multiplies_bfloat16", lambda: True)
    on_cpu = list_cases(BenchSettings(runs=3), torch.device("cpu"))
    assert [case.num_ops for case in on_cpu] == [1] * 5 + [0] * 5
    assert {case.engine for case in on_cpu} == {None, "eager", "compiled"}
    assert Case("eager, bfloat16", "eager", 1, precision="bfloat16") in on_cpu
    assert Case("eager, 3 runs by turns", "eager", 0, runs=3) in on_cpu
    assert all(case.runs == 1 for case in list_cases(BenchSettings(runs=1), torch.device("cpu")))
    monkeypatch.setattr(bench, "multiplies_bfloat16", lambda: False)
    assert all(case.precision == "float32" for case in list_cases(BenchSettings(), torch.device("cpu")))


def test_compiling_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        registry.make("engine", "compiled", Randomness(0))
    except EncoreError as error:
        pytest.skip(str(error))
    started = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr(bench, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))
    reason = bench._compile_beforehand(BenchSettings(**TINY), torch.device("cpu"), 0.2)  # type: ignore[arg-type]
    assert reason is not None
    assert "was not ready after 0 seconds of compiling" in reason
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"width": 0}, {"runs": 0}, {"repeats": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(EncoreError):
        BenchSettings(**wrong)  # type: ignore[arg-type]
