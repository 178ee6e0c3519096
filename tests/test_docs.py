"""What the documentation shows runs as it stands there."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.contracts.test_parts import test_retrieval_picks_filled_slots_once as check_retrieval
from tests.helpers import make_batch

from encore import registry
from encore.cli import main
from encore.learner import Learner

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_readme_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("README.md", "python")
    shape = (3, 32, 32)
    batches = [make_batch(10, seed=number, shape=shape) for number in range(2)]
    exec(program, {"stream": batches, "images": make_batch(3, shape=shape).images})
    assert (tmp_path / "model.encore").is_file()


def test_quickstart_program_runs() -> None:
    (program,) = blocks("docs/quickstart.md", "python")
    exec(program, {})


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/add_a_part.md"])
def test_commands_have_only_options_that_exist(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    known = set(capsys.readouterr().out.replace("│", " ").split())
    known |= {"--retrieval.power"}  # of the part that docs/add_a_part.md adds
    shell = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    for command in re.findall(r"^encore run (.*)$", shell, flags=re.MULTILINE):
        assert {word for word in command.split() if word.startswith("--")} <= known


@pytest.mark.parametrize("name", registry.names("method"))
def test_method_has_a_page_with_parts_and_options_that_exist(name: str) -> None:
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    options = {
        f"--{kind}.{option.replace('_', '-')}"
        for kind in registry.FOLDERS
        for part in registry.names(kind)
        for option in registry.options(kind, part)
    }
    shown = re.findall(r"(?<![\w-])--[a-z-]+\.[a-z-]+", text)
    assert set(shown) <= options
    for kind, part in registry.recipe(name).parts().items():
        assert f"`{part}`" in text, f"the {kind}"
    assert "**Cost.**" in text


def test_page_on_ones_own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/your_own_images.md"
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        folder = Path("my/pictures") / f"kind {number % 6}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 30), (40 * (number % 6), number, 90)).save(folder / f"{number}.png")
    small = ["--benchmark.side", "16", "--model.width", "2", "--batch-size", "4", "--threads", "1"]
    for command in blocks(page, "sh")[0].splitlines():
        program, *words = shlex.split(command)
        assert program == "encore"
        assert main([*words, *(small if words[0] == "run" else [])]) == 0
    assert Path("sheet.png").is_file()

    arrays, camera, learning = blocks(page, "python")
    exec(arrays, {})
    assert Path("digits.encore").is_file()

    killed = f"""{camera}
whole = camera
def camera():
    for number, batch in enumerate(whole()):
        if number == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
{learning}"""
    imports = "import os, signal, torch; torch.set_num_threads(1)\n"
    assert subprocess.run([sys.executable, "-c", imports + killed]).returncode == -signal.SIGKILL
    seen_before = Learner.load("camera.encore", device="cpu").memory.num_seen
    assert seen_before == 200  # of about 300 in 100 batches, saved after each 200
    names: dict[str, Any] = {}
    exec(camera, names)
    exec(learning, names)
    came_since = names["learner"].memory.num_seen - seen_before
    assert 300 <= came_since <= 1500
    assert Learner.load("camera.encore", device="cpu").memory.num_seen == seen_before + came_since


@pytest.fixture
def added_parts(tmp_path: Path) -> Iterator[None]:
    """Put the files of docs/add_a_part.md into folders that count as the package's own."""
    programs = dict(
        zip(("retrieval/rare", "methods/rare_er"), blocks("docs/add_a_part.md", "python"), strict=True)
    )
    for name, program in programs.items():
        file = tmp_path / f"{name}.py"
        file.parent.mkdir()
        file.write_text(program)
        importlib.import_module(f"encore.{file.parent.name}").__path__.append(str(file.parent))
    registry.names.cache_clear()
    yield
    for name in programs:
        folder = (tmp_path / name).parent
        importlib.import_module(f"encore.{folder.name}").__path__.remove(str(folder))
    registry.names.cache_clear()


SMALL = ["--first-tasks", "1", "--memory-size", "50", "--model.width", "2", "--quiet"]


@pytest.mark.usefixtures("added_parts")
def test_added_part_is_found_runs_and_keeps_the_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "retrievals"]) == 0
    shown = capsys.readouterr().out
    assert "Slots without replacement" in shown
    assert "--retrieval.power 1.0" in shown
    chosen = ["--retrieval", "rare", "--retrieval.power", "0.5"]
    assert main(["run", *SMALL, *chosen, "--out", str(tmp_path / "runs")]) == 0
    for num_batches, size in [(1, 3), (6, 4), (6, 1)]:
        check_retrieval("rare", num_batches, size)


@pytest.mark.usefixtures("added_parts")
def test_added_method_is_listed_and_runs_with_rar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "methods"]) == 0
    assert "Experience replay that rehearses rare classes more often." in capsys.readouterr().out
    plan = ["--repeats", "2", "--num-ops", "1"]
    assert main(["run", "--method", "rare-er", *SMALL, *plan, "--out", str(tmp_path / "runs")]) == 0
    assert main(["show", str(tmp_path / "runs")]) == 0
    assert "rare ER-RAR" in capsys.readouterr().out
    record = json.loads((tmp_path / "runs" / "seed-0" / "record.json").read_text())
    assert record["config"]["parts"]["retrieval"] == {"name": "rare", "options": {"power": 0.5}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
