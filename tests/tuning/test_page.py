"""What docs/tuning.md shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from encore.cli import main
from encore.settings import StreamSettings
from encore.tuning.grid import make_grid

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")


def test_page_has_only_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = set()
    for verb in ("run", "tune"):
        assert main([verb, "--help"]) == 0
        known |= set(capsys.readouterr().out.replace("│", " ").split())
    assert set(re.findall(r"--[a-z][a-z-]*", PAGE)) <= known


def test_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    small = 'StreamSettings(first_tasks=2, batch_size=40), part_options={"model.width": 2}, rehearsal='
    assert "rehearsal=" in program
    exec(program.replace("rehearsal=", small), {"StreamSettings": StreamSettings})
    shown = capsys.readouterr().out
    assert re.fullmatch(r"Plan\(repeats=[12], num_ops=1, magnitude=(5|14)\) \d+\n", shown)
    assert (tmp_path / "runs/tuned/choice.json").is_file()


def test_published_grid_is_as_long_as_it_is_said_to_be() -> None:
    (words,) = re.findall(r"`(--repeats-grid 1 2 5 10 20[^`]*)`", PAGE)
    values = [tuple(map(int, part.split()[1:])) for part in words.split("--")[1:]]
    assert len(make_grid(*values)) == 35
