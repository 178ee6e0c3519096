"""A table of pictures with their classes, as spreadsheets and scripts write it."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from encore.data.folder_listing import PARTS, Catalogue, count_validation, shown, shown_all
from encore.errors import EncoreError

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
USUAL_NAMES = ("images.csv", "labels.csv")
Value = TypeVar("Value")

HEADER_BYTES = 65_536  # within which a header ends

# What a column holds, and how it may be called; of several the first. Case, spaces, _ and - do not matter.
COLUMNS = {
    "path": ("path", "filename", "file", "image"),
    "label": ("label", "class", "category"),
    "time": ("time",),
    "task": ("task",),
    "split": ("split", "part"),
}


class Row(NamedTuple):
    """A row below the header, by what its fields hold."""

    line: int  # of the file, on which it begins
    fields: Mapping[str, str]


def find_tables(folder: Path) -> list[Path]:
    """Return the .csv files right in a folder."""
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix.lower() == ".csv" and path.name[0] != "." and path.is_file()
        )
    except OSError as error:
        raise EncoreError(f"{folder} cannot be listed: {error.strerror or error}") from error


def find_lists(tables: Sequence[Path]) -> list[Path]:
    """Return the tables that have the columns of a list: those of a usual name, if there are any."""
    lists = [file for file in tables if _is_list(file)]
    return [file for file in lists if file.name.lower() in USUAL_NAMES] or lists


def _is_list(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            beginning = opened.read(HEADER_BYTES).decode("utf-8-sig", errors="replace")
        header = beginning.lstrip("\r\n").splitlines()[0]
        return {"path", "label"} <= _find_columns(file, header)[1].keys()
    except (OSError, IndexError, EncoreError):
        return False


def read_list(folder: Path, file: Path) -> Catalogue:
    """Return the pictures that a list names, each with its class and what else the list says of it."""
    text = _read_text(file)
    delimiter, columns = _find_columns(file, text)
    rows = list(_rows(file, text, delimiter, columns))
    if not rows:
        raise EncoreError(f"{file} lists no pictures: below its header there is nothing")
    _check_names(folder, file, rows)
    parts = ["train" for _ in rows]
    if "split" in columns:
        parts = [_convert(file, row, "split", _part, "train or test") for row in rows]
        for part, is_there in (("train", "train" in parts), ("test", set(parts) != {"train"})):
            if not is_there:
                raise EncoreError(f"{file} has a column that says train or test, and no row says {part}")
    num_unused = parts.count("validation") if "test" in parts else 0
    if num_unused:
        rows = [row for row, part in zip(rows, parts, strict=True) if part != "validation"]
        parts = [part for part in parts if part != "validation"]
    return Catalogue(
        names=[str(PurePosixPath(row.fields["path"])) for row in rows],
        labels=[row.fields["label"] for row in rows],
        is_test=[part != "train" for part in parts] if "split" in columns else None,
        times=_times(file, rows) if "time" in columns else None,
        tasks=[_convert(file, row, "task", _task, "a whole number") for row in rows]
        if "task" in columns
        else None,
        layout=f"{shown(file.name)}, by its columns {', '.join(columns)}",
        list_file=file,
        passed_over=count_validation(num_unused),
    )


def _read_text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise EncoreError(f"there is no list {file}") from None
    except OSError as error:
        raise EncoreError(f"{file} cannot be read: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise EncoreError(f"{file}, line {line} is not UTF-8: save the list with that encoding") from None


def _find_columns(file: Path, text: str) -> tuple[str, dict[str, int]]:
    """Return the delimiter, and the place of each column that is known."""
    headers = {delimiter: _read_header(file, text, delimiter) for delimiter in DELIMITERS}
    found = {delimiter: _place(header) for delimiter, header in headers.items()}
    for delimiter, places in found.items():
        if {"path", "label"} <= places.keys():
            return delimiter, places
    header = max(headers.values(), key=len)
    if not header:
        raise EncoreError(f"{file} is empty: it must begin with a header such as path,label")
    raise EncoreError(
        f"{file} must have a column path and a column label in its first line, and has "
        f"{', '.join(shown(column[:40]) or 'one without a name' for column in header[:8])}"
    )


def _read_header(file: Path, text: str, delimiter: str) -> list[str]:
    for _, row in _parse(file, text, delimiter):
        return row
    return []


def _place(header: Sequence[str]) -> dict[str, int]:
    names = ["".join(column.casefold().split()).replace("_", "").replace("-", "") for column in header]
    return {
        kind: names.index(known[0])
        for kind, spellings in COLUMNS.items()
        if (known := [spelling for spelling in spellings if spelling in names])
    }


def _parse(file: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Return the rows that are not blank, each with the line on which it begins."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    line = 1
    try:
        for row in reader:
            if any(row):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise EncoreError(f"{file}, line {line} cannot be read as a table: {error}") from None


def _rows(file: Path, text: str, delimiter: str, columns: Mapping[str, int]) -> Iterator[Row]:
    table = _parse(file, text, delimiter)
    _, header = next(table)
    for line, row in table:
        if len(row) != len(header):
            raise EncoreError(
                f"{file}, line {line} has {len(row)} fields and the header has {len(header)}: put what holds "
                f"{DELIMITERS[delimiter]} into double quotes"
            )
        fields = {
            kind: row[place] if kind == "path" else row[place].strip() for kind, place in columns.items()
        }
        for kind, value in fields.items():
            if not value:
                raise EncoreError(f"{file}, line {line} has no {kind}")
        yield Row(line, fields)


def _check_names(folder: Path, file: Path, rows: Sequence[Row]) -> None:
    """Refuse names that leave the folder, that come twice, or that no file has."""
    lines: dict[str, int] = {}
    missing = []
    for line, fields in rows:
        path = PurePosixPath(fields["path"])
        name = shown(str(path))
        if path.is_absolute() or ".." in path.parts:
            raise EncoreError(
                f"{file}, line {line}: {name} leads out of the folder: name files as they lie below {folder}"
            )
        if (first := lines.setdefault(str(path), line)) != line:
            raise EncoreError(f"{file}, line {line}: {name} was named before, in line {first}")
        if not _is_file(folder / path):
            missing.append(f"{name} in line {line}")
    if missing:
        raise EncoreError(f"{file} names files that are not in {folder}: {shown_all(missing)}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _convert(file: Path, row: Row, kind: str, convert: Callable[[str], Value], wanted: str) -> Value:
    value = row.fields[kind]
    try:
        return convert(value)
    except (KeyError, ValueError, OverflowError):
        raise EncoreError(f"{file}, line {row.line}: {kind} must be {wanted}, got {value[:40]!r}") from None


def _part(word: str) -> str:
    return PARTS[word.lower()]


def _task(word: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", word):
        raise ValueError
    return int(word)


def _times(file: Path, rows: Sequence[Row]) -> list[float]:
    """Return the times: numbers if the first is one, else dates."""
    try:
        _number(rows[0].fields["time"])
    except ValueError:
        return [
            _convert(file, row, "time", _date, "a date such as 2024-05-31 or 2024-05-31T12:30, or a number")
            for row in rows
        ]
    return [_convert(file, row, "time", _number, "a number, as the first is") for row in rows]


def _number(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError
    return number


def _date(word: str) -> float:
    """Return seconds since 1970; what names no zone counts as UTC."""
    date = datetime.fromisoformat(word)
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
