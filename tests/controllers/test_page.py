"""What docs/controllers.md shows runs as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from torch import Generator

from encore.cli import main
from encore.interfaces import FeedbackValues, Plan

PAGE = (Path(__file__).parents[2] / "docs" / "controllers.md").read_text(encoding="utf-8")
SMALL = ["--first-tasks", "1", "--model.width", "2", "--batch-size", "40", "--device", "cpu", "--quiet"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_commands_and_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (table,) = blocks("csv")
    Path("plans.csv").write_text(table)
    for command in "".join(blocks("sh")).replace("\\\n", " ").splitlines():
        program, *words = shlex.split(command)
        assert program == "encore"
        assert main([*words, *(SMALL if words[0] == "run" else [])]) == 0
    assert Path("controller_bpg.svg").is_file()

    reading, writing = blocks("python")
    names: dict[str, Any] = {}
    exec(reading, names)
    assert len(names["repeats"]) == len(names["memory_accuracy"]) > 5
    exec(writing, names)
    controller, generator = names["Cautious"](Plan()), Generator().manual_seed(0)
    for _ in range(300):
        controller.choose(generator)
        controller.learn_from(FeedbackValues(1.0, 1.0, 0.0, 0.0))
    assert sum(controller.probabilities[:5]) > 0.9
