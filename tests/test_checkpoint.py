from __future__ import annotations

import json
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.helpers import assert_same_state, make_batch, make_learner

from encore import checkpoint
from encore.errors import EncoreError
from encore.files import write_json, written_atomically
from encore.learner import Learner
from encore.version import VERSION

STATE: dict[str, Any] = {
    "tensor": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "bytes": torch.tensor([1, 2, 255], dtype=torch.uint8),
    "scalar": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "nested": {"list": [1, 2.5, "text", None, True, {"deep": torch.ones(1)}], 3: {"integer key": 4}},
    "nothing": {},
}


def write(path: Path) -> Path:
    checkpoint.save(path, "run", {"seed": 1}, STATE)
    return path


def test_state_comes_back(tmp_path: Path) -> None:
    described, state = checkpoint.load(write(tmp_path / "a.encore"), "run")
    assert described == {"seed": 1}
    assert_same_state(STATE, state)


def test_tensors_that_are_views_come_back(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {"base": base, "row": base[1], "turned": base.T, "same": base}
    checkpoint.save(tmp_path / "a.encore", "run", {}, state)
    assert_same_state(state, checkpoint.load(tmp_path / "a.encore", "run")[1])


def test_file_may_be_replaced_while_its_state_is_in_use(tmp_path: Path) -> None:
    _, state = checkpoint.load(write(tmp_path / "a.encore"), "run")
    (tmp_path / "a.encore").write_bytes(b"\0" * 3000)
    assert_same_state(STATE, state)


def test_any_truncation_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.encore")
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(EncoreError, match=r"a\.encore (is truncated|was not written|was altered)"):
            checkpoint.load(path, "run")


def test_any_altered_byte_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.encore")
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            described, state = checkpoint.load(path, "run")
        except EncoreError:
            continue
        # Then it was a byte without meaning, such as the padding of the header.
        assert described == {"seed": 1}
        assert_same_state(STATE, state)


def test_altered_number_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.encore")
    whole = path.read_bytes()
    altered = re.sub(rb'(seed[\\"]+: )1', rb"\g<1>2", whole)
    assert altered != whole
    path.write_bytes(altered)
    with pytest.raises(EncoreError, match="altered or damaged: its checksum does not match"):
        checkpoint.load(path, "run")


def test_other_format_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.encore")
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {"encore": json.dumps(json.loads(metadata["encore"]) | {"format": "99"})})
    with pytest.raises(EncoreError, match=f"has format 99, and this is Encore {VERSION}"):
        checkpoint.load(path, "run")


def test_equal_states_make_equal_files(tmp_path: Path) -> None:
    assert write(tmp_path / "a.encore").read_bytes() == write(tmp_path / "b.encore").read_bytes()


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "weights.safetensors"
    save_file({"weight": torch.ones(2)}, foreign)
    with pytest.raises(EncoreError, match="was not written by Encore"):
        checkpoint.load(foreign, "run")
    with pytest.raises(EncoreError, match="there is no checkpoint at"):
        checkpoint.load(tmp_path / "absent", "run")
    with pytest.raises(EncoreError, match="there is no checkpoint at"):
        checkpoint.load(tmp_path, "run")


def test_pickle_is_not_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(marker),)

    path = tmp_path / "model.encore"
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(EncoreError, match="is truncated or is not an Encore checkpoint"):
        Learner.load(path)
    torch.save({"state": Hostile()}, path)
    with pytest.raises(EncoreError, match="is truncated or is not an Encore checkpoint"):
        Learner.load(path)
    assert not marker.exists()


def test_kind_is_checked(tmp_path: Path) -> None:
    with pytest.raises(EncoreError, match="is the checkpoint of a run, not of a learner"):
        checkpoint.load(write(tmp_path / "a.encore"), "learner")


def test_objects_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not object"):
        checkpoint.save(tmp_path / "a.encore", "run", {}, {"thing": object()})
    assert list(tmp_path.iterdir()) == []


def test_failure_while_writing_leaves_the_file_before(tmp_path: Path) -> None:
    path = write(tmp_path / "a.encore")
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="power cut"), written_atomically(path) as unfinished:
        unfinished.write_bytes(b"half")
        raise RuntimeError("power cut")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


KILLED_WHILE_WRITING = """
import resource, signal, sys
from pathlib import Path

import torch

from encore import checkpoint

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # with Python's own handling a full file is an error
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
checkpoint.save(Path(sys.argv[1]), "run", {}, {"weights": torch.zeros(100_000)})
"""


def test_what_a_kill_in_the_middle_of_writing_leaves_is_cleared_by_the_next(tmp_path: Path) -> None:
    path = write(tmp_path / "[a].encore")
    before = path.read_bytes()
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(path)])
    assert ended.returncode == -signal.SIGXFSZ
    (half,) = set(tmp_path.iterdir()) - {path}
    assert half.name.endswith(".part")
    assert any(half.iterdir())
    assert path.read_bytes() == before
    write(path)
    assert list(tmp_path.iterdir()) == [path]


def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.encore"
    at_work = tmp_path / f".a.encore.{os.getppid()}.part"
    other = tmp_path / ".b.encore.0.part"
    for folder in (at_work, other):
        folder.mkdir()
    write(path)
    assert set(tmp_path.iterdir()) == {path, at_work, other}


def test_readable_by_whom_other_files_are(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    path = write(tmp_path / "a.encore")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_json_reads_back_and_is_a_line_an_entry(tmp_path: Path) -> None:
    value: dict[str, Any] = {"matrix": [[0.5, 0.0], [0.25, 1.0]], "empty": {}, "list": [], "none": None}
    value["text"] = 'a "b"'
    write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == value
    assert "[0.25, 1.0]" in text


def test_full_disk_gets_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    """Fill a file system of one megabyte that is mounted for the test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        path = write(disk / "a.encore")
        before = path.read_bytes()
        with pytest.raises(EncoreError, match=r"a\.encore could not be written: .*make room"):
            checkpoint.save(path, "run", {}, {"large": torch.ones(2**20)})
        assert path.read_bytes() == before
        assert list(disk.iterdir()) == [path]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_file_size_limit_gets_one_sentence(tmp_path: Path) -> None:
    """Write past a limit that needs no rights to set: the same failure of a write as on a full disk."""
    program = f"""
        import resource, signal, torch
        from pathlib import Path
        from encore import checkpoint, EncoreError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
        try:
            checkpoint.save(Path({str(tmp_path / "a.encore")!r}), "run", {{}}, {{"large": torch.ones(2**20)}})
        except EncoreError as error:
            print(error)
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert "could not be written" in answer.stdout
    assert list(tmp_path.iterdir()) == []


def test_learner_of_another_shape_is_not_confused(tmp_path: Path) -> None:
    learner = make_learner(memory_size=5)
    learner.observe(*make_batch(9))
    learner.save(tmp_path / "m.encore")
    assert Learner.load(tmp_path / "m.encore").memory.capacity == 5
