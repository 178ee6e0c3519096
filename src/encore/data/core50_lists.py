"""What CORe50's makers list: the images, and in which batch of which official run each of them comes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encore.data.image_set import Rows
from encore.data.safe_pickle import read_pickle
from encore.errors import EncoreError

PATHS, BATCHES, LABELS = "paths.pkl", "LUP.pkl", "labels.pkl"
SCENARIO = "nc"  # new classes in every batch
MOST_BYTES = 1 << 28  # of one of the files; the largest published has about 42 MB
NAME = re.compile(r"s([1-9]|1[01])/o([1-9]|[1-4][0-9]|50)/C_(\d\d)_(\d\d)_\d{3}\.png", re.ASCII)


@dataclass(frozen=True)
class Numbers:
    """What the published data count to.

    >>> sum(Numbers().task_sizes)
    50
    """

    images: int = 164_866
    runs: int = 10
    task_sizes: tuple[int, ...] = (10, 5, 5, 5, 5, 5, 5, 5, 5)  # objects
    test_sessions: tuple[int, ...] = (3, 7, 10)


class Catalogue(NamedTuple):
    """All images, in the order in which the makers number them."""

    names: list[str]  # such as s1/o1/C_01_01_000.png
    sessions: NDArray[np.int64]  # [N], from 1
    objects: NDArray[np.int64]  # [N], from 0


class OfficialRun(NamedTuple):
    """The images that one run uses."""

    rows: Rows  # their numbers in the catalogue, ascending
    is_test: NDArray[np.bool_]  # of each
    tasks: tuple[tuple[int, ...], ...]  # the objects of each task, as the run numbers them


Batches = list[list[NDArray[np.int64]]]  # by run and batch, the last of which is for testing


def read_catalogue(folder: Path, numbers: Numbers) -> Catalogue:
    """Return the images that `paths.pkl` names."""
    path = folder / PATHS
    listed = _read(path)
    names = [_text(name) for name in listed] if isinstance(listed, list) else []
    matches = [NAME.fullmatch(name) for name in names]
    parts = [match.groups() if match else ("0",) * 4 for match in matches]
    if not names:
        raise EncoreError(f"{path} must hold a list of names such as s1/o1/C_01_01_000.png")
    for name, (session, thing, *again) in zip(names, parts, strict=True):
        if [session.zfill(2), thing.zfill(2)] != again or session == "0":
            raise EncoreError(f"{path} must hold names such as s1/o1/C_01_01_000.png, got {name[:60]!r}")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise EncoreError(f"{path} names {name} more than once")
    if len(names) != numbers.images:
        raise EncoreError(f"{path} names {len(names):,} images, and CORe50 has {numbers.images:,}")
    columns = np.array([[int(session), int(thing)] for session, thing, *_ in parts], dtype=np.int64)
    return Catalogue(names, columns[:, 0], columns[:, 1] - 1)


def read_batches(folder: Path, file_name: str, numbers: Numbers) -> Batches:
    """Return what `LUP.pkl` or `labels.pkl` holds of the runs with new classes in every batch."""
    path = folder / file_name
    content = _read(path)
    runs: object = None
    if isinstance(content, dict):
        runs = content.get(SCENARIO, content.get(SCENARIO.encode()))
    if runs is None:
        raise EncoreError(f"{path} must hold a dictionary with the key {SCENARIO!r}")
    found = [
        [_numbers(batch, f"{path}, run {run}, batch {number}") for number, batch in enumerate(_list(batches))]
        for run, batches in enumerate(_list(runs))
    ]
    num_batches = len(numbers.task_sizes) + 1
    if len(found) != numbers.runs or any(len(batches) != num_batches for batches in found):
        counts = sorted({len(batches) for batches in found})
        raise EncoreError(
            f"{path} must hold {numbers.runs} runs of {num_batches} batches each, the last for testing, got "
            f"{len(found)} runs of {' or '.join(map(str, counts)) or 'no'} batches"
        )
    return found


def join_run(
    folder: Path, run: int, catalogue: Catalogue, batches: Batches, labels: Batches, numbers: Numbers
) -> OfficialRun:
    """Return one run, or refuse lists that contradict each other or the protocol."""
    of_run = f"run {run} of {SCENARIO} in {folder / BATCHES}"
    for number, (rows, named) in enumerate(zip(batches[run], labels[run], strict=True)):
        if len(rows) != len(named):
            raise EncoreError(
                f"{folder / LABELS} labels {len(named):,} images of batch {number} of run {run}, and "
                f"{BATCHES} names {len(rows):,}"
            )
    rows, label = np.concatenate(batches[run]), np.concatenate(labels[run])
    if rows.min() < 0 or rows.max() >= len(catalogue.names):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise EncoreError(f"{of_run} names image {wrong}, and {PATHS} lists 0 to {len(catalogue.names) - 1}")
    is_test = np.arange(len(rows)) >= len(rows) - len(batches[run][-1])
    order = np.argsort(rows, kind="stable")
    for place in np.flatnonzero(np.diff(rows[order]) == 0)[:1]:
        uses = ["to test on" if is_test[number] else "to train on" for number in order[place : place + 2]]
        name = catalogue.names[rows[order[place]]]
        raise EncoreError(f"{of_run} names {name} twice, {uses[0]} and {uses[1]}")
    object_of = _match_labels(folder, run, label, catalogue.objects[rows])
    tasks = tuple(
        tuple(object_of[named] for named in np.unique(batch).tolist()) for batch in labels[run][:-1]
    )
    if tuple(map(len, tasks)) != numbers.task_sizes or len(set().union(*tasks)) != len(object_of):
        raise EncoreError(
            f"{of_run} must bring {', '.join(map(str, numbers.task_sizes))} objects, none of them twice, and "
            f"brings {', '.join(str(len(task)) for task in tasks)}, together {len(set().union(*tasks))} of "
            f"{len(object_of)}"
        )
    in_test_session = np.isin(catalogue.sessions[rows], numbers.test_sessions)
    if (wrong_rows := rows[in_test_session != is_test]).size:
        sessions = ", ".join(map(str, numbers.test_sessions))
        raise EncoreError(
            f"{of_run} must test on sessions {sessions} and train on the others, and does not with "
            f"{catalogue.names[wrong_rows[0]]}"
        )
    return OfficialRun(rows[order], is_test[order], tasks)


def _match_labels(
    folder: Path, run: int, labels: NDArray[np.int64], objects: NDArray[np.int64]
) -> dict[int, int]:
    """Return the object of each label: a run numbers them in the order in which they come."""
    num_objects = len(np.unique(objects))
    pairs = np.unique(np.stack([labels, objects]), axis=1).T.tolist()
    object_of: dict[int, int] = dict(pairs)
    if not (len(object_of) == len(pairs) == num_objects and set(object_of) == set(range(num_objects))):
        label, thing = next(
            (pair for pair in pairs if object_of[pair[0]] != pair[1] or not 0 <= pair[0] < num_objects),
            pairs[-1],
        )
        raise EncoreError(
            f"{folder / LABELS} must number the {num_objects} objects of run {run} from 0 to "
            f"{num_objects - 1}, each with one number of its own, and gives o{thing + 1} the number {label}"
        )
    return object_of


def _read(path: Path) -> object:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise EncoreError(f"{path} is larger than any file of that name that was published")
        return read_pickle(bytearray(path.read_bytes()), str(path))
    except FileNotFoundError:
        raise EncoreError(f"{path} is missing, and core50 needs it") from None
    except OSError as error:
        raise EncoreError(f"{path} cannot be read ({error.strerror or error})") from error


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[object]:
    """Return a list, or a dictionary by numbers from 0 on, as a list."""
    if isinstance(value, dict) and list(value) == list(range(len(value))):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _numbers(value: object, origin: str) -> NDArray[np.int64]:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # lists of different lengths, within a list
        array = np.empty(0)
    if array.dtype.kind != "i" or array.ndim != 1 or len(array) == 0:
        raise EncoreError(f"{origin} must be a list of whole numbers")
    return array.astype(np.int64, copy=False)
