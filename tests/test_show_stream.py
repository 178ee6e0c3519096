"""What is drawn of a stream is what a run of it sees."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console

from encore import registry
from encore.cli import main
from encore.data.image_set import ImageSet
from encore.datasets.digits import Digits
from encore.errors import EncoreError
from encore.stream import Task
from encore.stream_chart import LIMITS, SHADES, draw_chart
from encore.stream_frequencies import join, measure, share_out
from encore.stream_picture import MOST_ROWS, NARROWEST_SHARE, NUM_LEVELS, WIDTH, draw_picture

SVG = "{http://www.w3.org/2000/svg}"


def make_tasks(*labels_of_tasks: list[int]) -> tuple[list[Task], NDArray[np.int64]]:
    """Return tasks whose training images have just these labels, in this order."""
    labels = np.array([label for of_task in labels_of_tasks for label in of_task])
    ends = np.cumsum([len(of_task) for of_task in labels_of_tasks])
    tasks = [
        Task(tuple(dict.fromkeys(of_task)), torch.arange(end - len(of_task), end), torch.arange(0))
        for of_task, end in zip(labels_of_tasks, ends, strict=True)
    ]
    return tasks, labels


def draw(tasks: list[Task], labels: NDArray[np.int64], width: int = 80) -> list[str]:
    names = [f"class {label}" for label in range(int(labels.max()) + 1)]
    return [line.plain for line in draw_chart(tasks, labels, names, width)]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith("encore: error: ")
    assert error.count("\n") == 1
    return error


def test_shares_are_counted() -> None:
    tasks, labels = make_tasks([2] * 75 + [0] * 25, [0] * 60 + [2] * 40 + [1] * 100)
    frequencies = measure(tasks, labels, most_rows=3, widths=[2, 8])
    assert frequencies.rows == ((2,), (0,), (1,))
    assert frequencies.homes == (0, 0, 1)
    # Fifty images each: 50 of class 2 | 25 and 25 | 50 of class 0 | 10 and 40 | 50 of class 1 | 50.
    expected = np.array([[1, 0.5, 0, 0.8, 0, 0], [0, 0.5, 1, 0.2, 0, 0], [0, 0, 0, 0, 1, 1]])
    assert frequencies.shares.tolist() == np.repeat(expected, [1, 1, 2, 2, 2, 2], axis=1).tolist()
    assert frequencies.highest == 0.75
    assert frequencies.strengths.max() == 1
    assert frequencies.num_images == 50


def test_rows_hold_classes_of_one_task_where_there_is_room() -> None:
    tasks, labels = make_tasks([3, 0, 1, 6, 7] * 20, [2, 5] * 50)
    assert measure(tasks, labels, 4, [1, 1]).rows == ((3, 0, 1), (6, 7), (2,), (5,))
    assert measure(tasks, labels, 3, [1, 1]).rows == ((3, 0, 1, 6, 7), (2, 5))
    assert measure(tasks, labels, 1, [1, 1]).rows == ((3, 0, 1, 6, 7, 2, 5),)
    shares = measure(tasks, labels, 4, [1, 1]).shares
    np.testing.assert_allclose(shares, [[0.6, 0], [0.4, 0], [0, 0.5], [0, 0.5]])


def test_classes_of_a_task_that_is_left_out_are_shown() -> None:
    tasks, labels = make_tasks([0] * 90 + [4] * 10)
    tasks = [Task((0,), tasks[0].train, tasks[0].test)]  # as in a blurry stream
    assert measure(tasks, labels, 9, [5]).rows == ((0,), (4,))


@pytest.mark.parametrize("sizes", [[1], [10, 10, 10], [5000, 1, 1], [300, 700, 20, 1000], [100] * 20])
def test_cells_are_shared_fairly(sizes: list[int]) -> None:
    for num_cells in (20, 37, 64):
        widths = share_out(sizes, num_cells)
        assert min(widths) >= 1
        assert num_cells - len(sizes) < sum(widths) <= num_cells
        for width, size in zip(widths, sizes, strict=True):
            assert abs(width - size / sum(sizes) * num_cells) <= max(1, num_cells % len(sizes) + 1)


def test_too_many_tasks_are_joined() -> None:
    tasks, _ = make_tasks([0] * 5, [1] * 7, [0, 2], [3])
    joined, step = join(tasks, most=3)
    assert step == 2
    assert [task.classes for task in joined] == [(0, 1), (0, 2, 3)]
    assert [task.train.tolist() for task in joined] == [list(range(12)), [12, 13, 14]]
    assert join(tasks, most=4)[1] == 1


@pytest.mark.parametrize("width", [24, 33, 80, 200])
@pytest.mark.parametrize("num_tasks", [1, 2, 5, 19, 100, 300])
def test_no_line_is_too_long(width: int, num_tasks: int) -> None:
    tasks, labels = make_tasks(*([number % 40, number % 7] * 30 for number in range(num_tasks)))
    lines = draw(tasks, labels, width)
    drawn = lines[: lines.index("")]
    assert max(map(len, drawn)) <= width
    assert len(drawn) <= 27
    numbers = [int(word) for word in drawn[-1].split()[1:]]
    assert numbers[0] == 1
    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= num_tasks


def test_shades_say_how_often() -> None:
    # Two columns a task, of fifty images each; the highest share in a task is 0.5.
    columns = [[0] * 25 + [1] * 25, [0] * 1 + [1] * 25 + [2] * 24, [0] * 6 + [2] * 25 + [1] * 19]
    columns += [[0] * 12 + [1] * 25 + [2] * 13, [0] * 18 + [1] * 25 + [2] * 7]
    tasks, labels = make_tasks(*(2 * column for column in columns))
    lines = draw(tasks, labels, width=18)
    cells = lines[0].partition("│")[2].replace("│", "")
    assert cells == "██··░░▒▒▓▓"
    assert len(LIMITS) == len(SHADES) - 1
    assert "up to · 2.5 %  ░ 12 %  ▒ 25 %  ▓ 38 %  █ more of the images of that time" in lines


def test_tasks_are_marked() -> None:
    tasks, labels = make_tasks([0] * 100, [1] * 200, [2] * 100)
    lines = draw(tasks, labels, width=40)
    assert [line.count("│") for line in lines[:3]] == [3, 3, 3]
    axis, numbers = lines[3], lines[4]
    assert axis.count("┴") == 2
    starts = [axis.index("└") + 1, *(found.start() + 1 for found in re.finditer("┴", axis))]
    assert [numbers[start] for start in starts] == ["1", "2", "3"]
    assert [lines[row][start] for row, start in enumerate(starts)] == ["█", "█", "█"]


def test_names_are_harmless_and_short() -> None:
    names = ["a\x1b[31mred\nline", "<b>&amp;", "a name that is far too long", "日本語の名前です", "\udcff"]
    tasks, labels = make_tasks(*([label] * 60 for label in range(5)))
    lines = [line.plain for line in draw_chart(tasks, labels, names, 60)]
    for line in lines:
        assert all(letter.isprintable() for letter in line)
    assert len({line.index("│") for line in lines[:3]}) == 1
    picture = draw_picture(tasks, labels, names, "title \x00", ["a < b"])
    words = [found.text for found in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert "<b>&amp;" in words
    assert "a < b" in words
    picture.encode("utf-8")


def levels_of(picture: str) -> NDArray[np.int64]:
    """Return what the map shows, read from its paths: a level for each pixel of a row, 0 for none."""
    root = ElementTree.fromstring(picture)
    (drawn,) = [group for group in root.iter(f"{SVG}g") if group.get("class") == "map"]
    colours = [found.get("fill") for found in root.iter(f"{SVG}rect")][-NUM_LEVELS:]  # from pale to dark
    levels = np.zeros((MOST_ROWS, WIDTH), dtype=np.int64)
    for path in drawn.iter(f"{SVG}path"):
        for pixel, row, length, back in re.findall(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", str(path.get("d"))):
            assert length == back
            cells = levels[int(row), int(pixel) : int(pixel) + int(length)]
            assert not cells.any(), "no cell is drawn twice"
            cells[:] = 1 + colours.index(path.get("fill"))
    return levels


@pytest.mark.parametrize("num_classes", [3, 60, 400])
def test_picture_shows_the_shares(num_classes: int) -> None:
    numbers = np.random.default_rng(0)
    sizes = [4000, 4900, 5800, 3300]
    tasks, labels = make_tasks(*(numbers.integers(0, num_classes, size).tolist() for size in sizes))
    frequencies = measure(tasks, labels, MOST_ROWS, share_out(sizes, WIDTH), NARROWEST_SHARE)
    levels = levels_of(draw_picture(tasks, labels, [str(label) for label in range(num_classes)], "", []))
    drawn = levels[: len(frequencies.rows)]
    assert levels.sum() == drawn.sum()
    assert np.abs(drawn / NUM_LEVELS - frequencies.strengths).max() <= 1 / NUM_LEVELS
    assert ((drawn > 0) == (frequencies.shares > 0)).all()


def test_picture_has_title_axes_and_boundaries() -> None:
    tasks, labels = make_tasks([0] * 1000, [1] * 3000, [2] * 1000)
    root = ElementTree.fromstring(
        draw_picture(tasks, labels, ["cat", "dog", "elk"], "A title", ["sub", "line"])
    )
    words = [found.text for found in root.iter(f"{SVG}text")]
    for expected in ("A title", "sub", "line", "task", "cat", "dog", "elk", "images seen", "1", "2", "3"):
        assert expected in words
    assert [word for word in words if word and "," in word] == ["1,000", "2,000", "3,000", "4,000", "5,000"]
    boundaries = [path for path in root.iter(f"{SVG}path") if path.get("class") == "boundary"]
    places = [int(str(path.get("d")).split()[0][1:]) for path in boundaries]
    assert places == [WIDTH // 5, WIDTH * 4 // 5]


def test_terminal_has_colours_and_a_pipe_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from encore import cli_streams

    monkeypatch.setenv("COLUMNS", "80")
    plain = shown(capsys, "show-stream", "--stream", "gradual")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 80
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=80, markup=False)
    monkeypatch.setattr(cli_streams, "_console", lambda: console)
    assert main(["show-stream", "--stream", "gradual"]) == 0
    coloured = file.getvalue()
    assert {"36", "35", "32", "34", "31"} <= set(re.findall(r"\x1b\[(\d+)m", coloured))
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_what_is_drawn_is_what_a_run_sees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--stream", "imbalanced", "--stream.ratio", "0.3", "--tasks", "3", "--first-tasks", "2"]
    options += ["--batch-size", "7", "--epochs", "2"]
    drawn = shown(capsys, "show-stream", *options, "--seed", "5", "--memory-size", "50")
    small = ["--memory-size", "20", "--model.width", "2", "--device", "cpu", "--quiet"]
    assert main(["run", *options, *small, "--seeds", "5", "--out", str(tmp_path / "runs")]) == 0
    record = json.loads((tmp_path / "runs" / "seed-5" / "record.json").read_text())
    sizes = [task["train"] // 2 for task in record["tasks"]]
    title, described, of_tasks, ratios = drawn.splitlines()[:4]
    assert title == "digits, imbalanced (law exponential, ratio 0.3, largest anywhere), seed 5"
    num_tested = sum(task["test"] for task in record["tasks"])
    assert described == (
        f"2 tasks, {sum(sizes)} images 2 times in {record['sgd_steps']} batches of 7, {num_tested} to test on"
    )
    assert of_tasks == f"images of a task: {sizes[0]} {sizes[1]}"
    assert ratios == f"lambda with a memory of 50: {sizes[0] / 50:.3g} {sizes[1] / 50:.3g}"
    order = [str(label) for task in record["tasks"] for label in task["classes"]]
    assert [line.split()[0] for line in drawn.splitlines()[5 : 5 + len(order)]] == order


def test_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class NeverDecoded:
        reads_at_once = False
        shape = (3, 500, 500)

        def __len__(self) -> int:
            return 400

        def read(self, rows: Any) -> Any:
            raise AssertionError("a drawing needs no pixels")

    def load(self: Digits, data_dir: Path | None) -> ImageSet:
        labels = np.arange(400) % 10
        return ImageSet(
            NeverDecoded(), labels, tuple("abcdefghij"), np.arange(400) >= 300, times=np.arange(400.0) % 90
        )

    monkeypatch.setattr(Digits, "load", load)
    for kind in registry.names("stream"):
        if kind != "given":
            assert f"digits, {kind}" in shown(capsys, "show-stream", "--stream", kind)


def test_picture_is_whole_or_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "picture.svg"
    assert f"written to {place}" in shown(capsys, "show-stream", "--out", str(place))
    first = place.read_text(encoding="utf-8")
    ElementTree.fromstring(first)
    shown(capsys, "show-stream", "--out", str(place))
    assert place.read_text(encoding="utf-8") == first, "the same stream makes the same picture"
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]
    missing = tmp_path / "nowhere" / "picture.svg"
    assert f"there is no folder {missing.parent}" in refusal(capsys, "show-stream", "--out", str(missing))
    (tmp_path / "folder.svg").mkdir()
    assert "could not be written" in refusal(capsys, "show-stream", "--out", str(tmp_path / "folder.svg"))


OPTIONS = {
    "--benchmark", "--data-dir", "--stream", "--class-order", "--tasks", "--first-tasks", "--epochs",
    "--split", "--hold-out", "--batch-size", "--seed", "--memory-size", "--out",
}  # fmt: skip


def test_help_shows_every_option_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def options(*arguments: str) -> set[str]:
        words = shown(capsys, *arguments, "--help").replace("│", " ").split()
        return {word for word in words if word.startswith("--")}

    assert options("show-stream") == OPTIONS
    assert options("show-stream", "--stream", "blurry") == OPTIONS | {"--stream.share"}
    assert options("theory") == OPTIONS - {"--epochs", "--hold-out", "--batch-size", "--out"} | {
        "--task-sizes"
    }
    assert {"--stream.law", "--stream.ratio"} <= options("theory", "--stream", "imbalanced")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--stream blury", "there is no stream 'blury'; did you mean 'blurry'?"),
        ("--benchmark digit", "there is no benchmark 'digit'; did you mean 'digits'?"),
        (
            "--stream blurry --stream.share 1",
            "share must be below 1, for something of a class to stay, got 1",
        ),
        ("--stream blurry --stream.share -0.5", "share must be a number of at least 0, got -0.5"),
        ("--stream imbalanced --stream.ratio 2", "ratio must be at most 1"),
        ("--stream imbalanced --stream.law stp", "there is no law 'stp'; did you mean 'step'?"),
        ("--stream gradual --stream.width wide", "--stream.width"),
        ("--stream by_time", "this benchmark does not know when its images were taken"),
        ("--stream given", "this benchmark does not say which image belongs to which task"),
        ("--stream gradual --tasks 11", "10 classes make from 1 to 10 tasks of --stream gradual, got 11"),
        ("--stream shuffled --tasks 400", "task 356 has no test images"),
        ("--stream.share 0.1", "--stream.share"),
        ("--skip-broken 1", "--skip-broken"),
        ("--batch-size 0", "the batch size must be a whole number of at least 1, got 0"),
        ("--epochs 0", "epochs must be a whole number of at least 1, got 0"),
        ("--seed -1", "a seed must be a whole number from 0"),
        ("--memory-size 0", "memory_size must be at least 1, got 0"),
        ("--out picture.png", "name a file that ends in .svg, not picture.png"),
        ("again", "it is not clear what to do with 'again'"),
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
    assert sentence in refusal(capsys, "show-stream", *arguments.split())
    assert list(tmp_path.iterdir()) == []


def sizes_in(table: str) -> list[int]:
    return [
        int(line.split()[1].replace(",", "")) for line in table.splitlines() if line[:4].strip().isdigit()
    ]


def test_theory_knows_every_kind_of_stream(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--benchmark", "digits", "--stream", "imbalanced", "--seed", "3", "--memory-size", "50"]
    table = shown(capsys, "theory", *options)
    drawn = shown(capsys, "show-stream", *options)
    assert drawn.splitlines()[2] == f"images of a task: {' '.join(map(str, sizes_in(table)))}"
    rows = [line.split() for line in table.splitlines() if line[:4].strip().isdigit()]
    ratios = [f"{size / 50:.3f}" for size in sizes_in(table)[1:]]
    assert [row[4] for row in rows] == ["-", *ratios]
    assert len(set(ratios)) > 1, "lambda differs from task to task"


def test_theory_has_tasks_too_small_to_train_on(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--benchmark", "digits", "--stream", "imbalanced", "--stream.ratio", "0.001"]
    assert min(sizes_in(shown(capsys, "theory", *options, "--stream.largest", "first"))) < 10


@pytest.mark.parametrize("kind", ["class_incremental", "blurry", "imbalanced", "gradual", "shuffled"])
def test_theory_without_files_is_that_with_them(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["theory", "--benchmark", "digits", "--stream", kind, "--seed", "4", "--tasks", "3"]
    with_files = shown(capsys, *options)

    def load(self: Digits, data_dir: Path | None) -> ImageSet:
        raise EncoreError("there is nothing")

    monkeypatch.setattr(Digits, "load", load)
    without = shown(capsys, *options)
    assert sizes_in(without) == sizes_in(with_files)
    assert "sizes as the benchmark states them" in without
    assert "sizes as the benchmark states them" not in with_files
    monkeypatch.setattr(Digits, "class_sizes", ())
    assert "there is nothing" in refusal(capsys, *options)


def test_theory_reads_what_is_known_only_from_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Digits, "class_sizes", ())
    assert sum(sizes_in(shown(capsys, "theory", "--benchmark", "digits"))) == 1442


PAGE = Path(__file__).parent.parent / "docs" / "streams.md"


def test_commands_of_the_documentation_make_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S))
    commands = [line.split()[1:] for line in shell.replace("\\\n", " ").splitlines()]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        if "cifar100" in command:
            known = shown(capsys, *command[: command.index("--memory-size")], "--help")
            assert {word for word in command if word.startswith("--")} <= set(known.replace("│", " ").split())
        else:
            shown(capsys, *command)
    (made,) = tmp_path.iterdir()
    assert made.read_bytes() == (PAGE.parent / "pictures" / made.name).read_bytes()
    assert len([command for command in commands if "--out" in command]) == 3


def test_documentation_names_every_kind() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind in registry.names("stream"):
        assert f"| `{kind}` |" in page
        for option, choice in registry.options("stream", kind).items():
            default = f"{choice.default:g}" if isinstance(choice.default, float) else choice.default
            assert f"`--stream.{option} {default}`" in page
