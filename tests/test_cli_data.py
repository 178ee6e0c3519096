"""The verbs of `encore data`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from encore import registry
from encore.cli import main

FAST = ["--model.width", "2", "--memory-size", "10", "--batch-size", "4", "--tasks", "2", "--quiet"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of this machine; a terminal of 80 columns."""
    monkeypatch.setenv("ENCORE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "data" / "prepared"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Twelve pictures of each of four classes, of sizes of their own."""
    draws = np.random.default_rng(0)
    for label in range(4):
        (tmp_path / "pictures" / f"kind {label}").mkdir(parents=True)
        for number in range(12):
            pixels = draws.integers(60 * label, 60 * label + 60, (12 + number, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / f"kind {label}" / f"{number}.png")
    return tmp_path / "pictures"


def shown(capsys: pytest.CaptureFixture[str], *command: str | Path) -> str:
    assert main([str(word) for word in command]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def refusal(capsys: pytest.CaptureFixture[str], *command: str | Path) -> str:
    assert main([str(word) for word in command]) == 2
    message = capsys.readouterr().err
    assert message.startswith("encore: error: ")
    assert message.count("\n") == 1
    return message


# encore data list


def test_the_list_has_a_line_for_each_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "data", "list").splitlines()
    assert lines[0].split() == ["benchmark", "size", "here", "prepared"]
    assert all(len(line.rstrip()) <= 80 for line in lines)
    beginnings = [line.split()[0] for line in lines if line.strip()]
    assert set(registry.names("benchmark")) <= set(beginnings)
    by_name = {line.split()[0]: " ".join(line.split()) for line in lines if line.strip()}
    assert by_name["digits"] == "digits nothing to fetch in a package -"
    assert by_name["cifar100"] == "cifar100 186 MB, 169 MB to fetch no -"


@pytest.mark.parametrize("name", registry.names("benchmark"))
def test_the_details_say_all_there_is_to_know(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "data", "list", name)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    said = text.replace("\n", "").replace(" ", "")
    benchmark = registry.make("benchmark", name)
    facts = [registry.describe("benchmark", name), benchmark.source, benchmark.terms, benchmark.size]
    if "here no" in " ".join(text.split()):
        facts.append(benchmark.steps)
    for fact in facts:
        assert fact.replace(" ", "") in said


def test_the_details_of_what_is_prepared(
    pictures: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "list", "image_folder", "--data-dir", str(pictures)]
    assert "encore data prepare image_folder" in shown(capsys, *command)
    shown(capsys, "data", "prepare", "image_folder", "--data-dir", pictures, "--benchmark.side", "8")
    (path,) = place.glob("*.safetensors")
    said = " ".join(shown(capsys, *command).split())
    assert path.name in said
    assert f"from{pictures},side8;uptodate" in said.replace(" ", "")  # paths are folded
    (pictures / "kind 0" / "1.png").unlink()
    assert "out of date" in " ".join(shown(capsys, *command).split())
    pictures.rename(pictures.parent / "elsewhere")
    assert "those files are gone, and runs use what was prepared" in " ".join(
        shown(capsys, "data", "list", "image-folder").split()
    )
    assert "no, but prepared" in shown(capsys, "data", "list")


def test_a_list_of_damaged_files_goes_on(
    pictures: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.mkdir(parents=True)
    (place / "image_folder-01234567.safetensors").write_bytes(b"damaged")
    (place / "image_folder-89abcdef.safetensors").write_bytes(b"")
    assert "image_folder" in shown(capsys, "data", "list")
    said = " ".join(shown(capsys, "data", "list", "image_folder").split())
    assert said.count("delete it with `encore data forget image_folder`") == 2
    assert shown(capsys, "data", "forget", "image_folder").count("deleted") == 2


# encore data prepare, and a run with what it prepared


def test_preparing_says_where_how_large_and_how_long(
    pictures: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "prepare", "image_folder", "--data-dir", str(pictures), "--benchmark.side", "8"]
    first = shown(capsys, *command)
    (path,) = place.glob("*.safetensors")
    assert first.startswith(f"{path}: 48 images, 14 kB, ")
    assert first.endswith(" s\n")
    assert shown(capsys, *command) == f"{path} is there and right, 14 kB: nothing was prepared\n"
    assert shown(capsys, *command, "--quiet") == ""


def test_a_run_with_what_was_prepared_is_the_run_without(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data-dir", str(pictures), "--benchmark.side", "8"]

    def accuracy(out: str) -> object:
        main(["run", "--benchmark", "image_folder", *options, *FAST, "--out", str(tmp_path / out)])
        return json.loads((tmp_path / out / "seed-0" / "record.json").read_text())["accuracy_matrix"]

    before = accuracy("before")
    shown(capsys, "data", "prepare", "image_folder", *options)
    for picture in pictures.rglob("*.png"):
        picture.unlink()
    pictures.rename(tmp_path / "elsewhere")  # so that nothing else can be what is read
    assert accuracy("after") == before


def test_a_run_says_that_it_prepares_again_unless_it_is_to_be_quiet(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data-dir", str(pictures), "--benchmark.side", "8"]
    run = ["run", "--benchmark", "image_folder", *options, *FAST, "--out"]
    shown(capsys, "data", "prepare", "image_folder", *options)
    (pictures / "kind 0" / "1.png").unlink()
    run.remove("--quiet")
    text = shown(capsys, *run, tmp_path / "loud")
    assert f"image_folder is prepared again, as files in {pictures} have changed since" in text
    (pictures / "kind 0" / "2.png").unlink()
    assert shown(capsys, *run, tmp_path / "silent", "--quiet") == ""


def test_broken_pictures(pictures: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pictures / "kind 1" / "3.png").write_bytes(b"no picture")
    command = ["data", "prepare", "image_folder", "--data-dir", str(pictures), "--benchmark.side=8"]
    message = refusal(capsys, *command)
    assert f"{pictures}/kind 1/3.png is not a picture" in message
    assert "--skip-broken N" in message
    assert list(place.glob("*.safetensors")) == []
    text = shown(capsys, *command, "--skip-broken", "1")
    assert f"left out: {pictures}/kind 1/3.png is not a picture" in text
    assert ": 47 images, " in text


def test_preparing_what_a_package_carries_is_not_needed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "digits needs no preparing" in shown(capsys, "data", "prepare", "digits")
    assert not place.exists()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("prepare digit", "did you mean 'digits'?"),
        ("check digit", "did you mean 'digits'?"),
        ("list digit", "did you mean 'digits'?"),
        ("forget digit", "did you mean 'digits'?"),
        ("fetch digit", "did you mean 'digits'?"),
        ("prepare cifar100", "run `encore data fetch cifar100`"),
        ("prepare image_folder", "--data-dir"),
        ("prepare digits --benchmark.side 8", "--benchmark.side"),
        ("prepare image_folder --benchmark.side 8.5", "not a whole number"),
        ("prepare image_folder --benchmark.side 1 --data-dir .", "must be a whole number from 8"),
        ("prepare image_folder --skip-broken x", "not a whole number"),
        ("check image_folder --data-dir nowhere", "there is no folder nowhere"),
        ("check digits --sheet sheet.jpg", "ends in .png"),
        ("prepare", "benchmark"),
    ],
)
def test_mistakes(command: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", *command.split()]) == 2
    message = capsys.readouterr().err
    assert expected.lower() in message.lower()
    assert "Traceback" not in message


def test_help_offers_the_options_of_the_benchmark_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("prepare", "check"):
        with_options = shown(capsys, "data", verb, "image-folder", "--help")
        assert "--benchmark.side" in with_options
        for without in (["digits"], [], ["no-such-thing"]):
            text = shown(capsys, "data", verb, *without, "--help")
            assert "--benchmark." not in text
            assert "PARTOPTIONS" not in text


# encore data check


def test_checking_counts_decodes_and_compares(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data-dir", str(pictures), "--benchmark.side", "8"]
    (pictures / "kind 2" / "0.png").unlink()
    text = shown(capsys, "data", "check", "image_folder", *options)
    assert "all: 47 images of 4 classes, 11 to 12 of each" in text
    assert "kind 0 12, kind 1 12, kind 2 11, kind 3 12" in text
    assert "every checksum right" not in text
    shown(capsys, "data", "prepare", "image_folder", *options)
    assert "every checksum right" in shown(capsys, "data", "check", "image_folder", *options)


def test_checking_lists_broken_pictures_and_fails(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pictures / "kind 1" / "3.png").write_bytes(b"")
    (pictures / "kind 3" / "1.png").write_bytes((pictures / "kind 3" / "1.png").read_bytes()[:60])
    assert main(["data", "check", "image_folder", "--data-dir", str(pictures)]) == 2
    found = capsys.readouterr()
    assert [line.partition(".png")[0] for line in found.out.splitlines() if line.startswith("broken")] == [
        f"broken: {pictures}/kind 1/3",
        f"broken: {pictures}/kind 3/1",
    ]
    assert "2 of image_folder's images cannot be read" in found.err
    assert "--skip-broken 2" in found.err


def test_checking_damaged_preparation_fails_with_the_way_out(
    pictures: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data-dir", str(pictures), "--benchmark.side", "8"]
    shown(capsys, "data", "prepare", "image_folder", *options)
    (path,) = place.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    assert main(["data", "check", "image_folder", *options]) == 2
    found = capsys.readouterr()
    assert "does not match its checksum" in found.out
    way_out = f"encore data prepare image_folder --benchmark.side=8 --data-dir {pictures}"
    assert f"prepare it again with `{way_out}`" in found.err
    assert "images, " in shown(capsys, *way_out.split()[1:])
    shown(capsys, "data", "check", "image_folder", *options)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", [name for name in registry.names("benchmark") if name != "digits"])
def test_checking_what_is_hostile_or_broken_never_ends_in_a_traceback(
    name: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fill a folder with the benchmark's own file names and random, empty or misplaced content."""
    draws = np.random.default_rng(seed)
    benchmark = registry.make("benchmark", name)
    names = [file.name for file in (*benchmark.files, *benchmark.downloads)]
    names += [word.strip(",;:()") for word in benchmark.steps.split() if "." in word.strip(",;:().")]
    names += ["train/a/1.png", "val/b/2.jpg", "images.csv", "paths.pkl", "labels.pkl", "test.txt"]
    for number, each in enumerate(names):
        path = tmp_path / "hostile" / each.lstrip("/.$")
        is_left_out = number > 0 and draws.random() < 0.3
        if is_left_out or "://" in each or path.exists() or any(above.is_file() for above in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if number > 0 and draws.random() < 0.15:
            path.mkdir()
        else:
            path.write_bytes(draws.bytes(int(draws.integers(0, 3000))))
    for verb in ("check", "prepare"):
        assert main(["data", verb, name, "--data-dir", str(tmp_path / "hostile")]) == 2
        assert capsys.readouterr().err.startswith("encore: error: ")


def test_a_sheet_shows_the_classes(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "sheet.png"
    text = shown(capsys, "data", "check", "image_folder", "--data-dir", pictures, "--sheet", sheet)
    assert f"{sheet} shows some images of each class" in text
    with Image.open(sheet) as opened:
        assert opened.width > 6 * 48


def test_a_sheet_that_cannot_be_written_is_refused_before_images_are_decoded(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sheet.jpg", "nowhere/sheet.png"):
        command = [
            "data",
            "check",
            "image_folder",
            "--data-dir",
            str(pictures),
            "--sheet",
            str(tmp_path / name),
        ]
        assert main(command) == 2
        found = capsys.readouterr()
        assert str(tmp_path / name) in found.err
        assert found.out == ""


# encore data forget, encore data fetch


def test_forgetting(pictures: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("8", "9"):
        options = ["--data-dir", str(pictures), "--benchmark.side", side]
        shown(capsys, "data", "prepare", *options, "image_folder")  # in any order
    assert shown(capsys, "data", "forget", "image-folder").count("deleted ") == 2
    assert list(place.glob("*.safetensors")) == []
    assert "nothing of image_folder is prepared" in shown(capsys, "data", "forget", "image_folder")
    assert len(list(pictures.rglob("*.png"))) == 48


def test_fetching_what_nobody_may_pass_on_says_what_to_do(
    pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in registry.names("benchmark"):
        benchmark = registry.make("benchmark", name)
        if not benchmark.downloads and not benchmark.embedded:
            message = refusal(capsys, "data", "fetch", name)
            assert " ".join(f"{name} cannot be fetched: {benchmark.steps}".split()) in message
    text = shown(capsys, "data", "fetch", "image_folder", "--data-dir", pictures)
    assert text == f"image_folder is already in {pictures}: there is nothing to fetch\n"


def test_stopping_says_how_things_are_left(
    pictures: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("encore.data.opening.write_prepared", stop)
    assert main(["data", "prepare", "image_folder", "--data-dir", str(pictures)]) == 130
    assert "encore: stopped; what was begun is removed" in capsys.readouterr().err
    assert [path.suffix for path in place.iterdir()] == [".lock"]
