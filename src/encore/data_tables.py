"""What `encore data` prints: what there is, how fetching and preparing go, what a check found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from encore import registry
from encore.config import choose_part
from encore.data.benchmark import Benchmark
from encore.data.fetch import fetch, mirrors_for
from encore.data.inventory import Check, Listing, PartCheck, check, describe_benchmarks
from encore.data.opening import Choice, forget, look, prepare, prepared_folder
from encore.data.places import places
from encore.data.prepared import in_words, read_prepared
from encore.data.sheet import check_path, save_sheet
from encore.errors import EncoreError


def list_data(console: Console, name: str | None, data_dir: Path | None) -> None:
    """Show a line for each benchmark, or all that is known of one."""
    names = registry.names("benchmark") if name is None else [registry.resolve("benchmark", name)]
    listings = describe_benchmarks((registry.make("benchmark", each) for each in names), data_dir)
    if name is not None:
        console.print(_details(listings[0]), highlight=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("benchmark", "size", "here", "prepared"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "size")
    for listing in listings:
        sizes = sum(path.stat().st_size for path in listing.prepared)
        table.add_row(listing.name, listing.size, _where(listing), in_words(sizes) if sizes else "-")
    console.print(table, highlight=False)
    console.print(
        "\n`encore data list NAME` says what it is, its licence, and how to get it; here means that its "
        "files are there, and `encore data check NAME` compares what is in them.",
        highlight=False,
        style="dim",
    )


def fetch_data(
    console: Console, name: str, data_dir: Path | None, given_mirrors: Sequence[str], quiet: bool
) -> None:
    """Fetch a benchmark's files, with a bar where there is someone to see it."""
    benchmark: Benchmark = registry.make("benchmark", name)
    folder = places(data_dir)[0].folder
    mirrors = mirrors_for(benchmark, given_mirrors)
    with _bar(console, quiet, DownloadColumn(), TransferSpeedColumn()) as report:
        fetched = fetch(benchmark, folder, mirrors, lambda done, total: report(benchmark.name, done, total))
    if not quiet:
        for sentence in fetched.sentences:
            _say(console, sentence)


def prepare_data(
    console: Console,
    name: str,
    options: Mapping[str, Any],
    data_dir: Path | None,
    skip_broken: int,
    quiet: bool,
) -> None:
    """Decode a benchmark once into a file that runs map into memory."""
    choice = _choose(name, options, data_dir)
    if choice.benchmark.embedded:
        if not quiet:
            _say(console, f"{name} needs no preparing: its images come with {choice.benchmark.source}")
        return
    begun = time.perf_counter()
    with _bar(console, quiet, MofNCompleteColumn()) as report:
        outcome = prepare(choice, skip_broken, lambda done, total: report("preparing", done, total))
    if quiet:
        return
    size = in_words(outcome.prepared.num_bytes)
    if not outcome.is_new:
        _say(console, f"{outcome.prepared.path} is there and right, {size}: nothing was prepared")
        return
    for reason in outcome.prepared.broken.values():
        _say(console, f"left out: {reason}")
    seconds = time.perf_counter() - begun
    num_images = len(outcome.prepared.image_set.images) - len(outcome.prepared.broken)
    _say(console, f"{outcome.prepared.path}: {num_images:,} images, {size}, {seconds:.1f} s")


def forget_data(console: Console, name: str) -> None:
    """Delete what was prepared from a benchmark."""
    name = registry.resolve("benchmark", name)
    deleted = forget(name)
    for path, num_bytes in deleted.items():
        _say(console, f"deleted {path}, {in_words(num_bytes)}")
    if not deleted:
        _say(console, f"nothing of {name} is prepared in {prepared_folder()}")


def check_data(
    console: Console, name: str, options: Mapping[str, Any], data_dir: Path | None, sheet: Path | None
) -> None:
    """Show what is right and wrong with a benchmark's files and images; refuse if anything is wrong."""
    choice = _choose(name, options, data_dir)
    if sheet is not None:
        check_path(sheet)
    with _bar(console, False, MofNCompleteColumn()) as report:
        found = check(choice, report)
    for file in (*found.files, *([found.prepared] if found.prepared else [])):
        _say(console, f"{file.name}: {file.problem or file.verdict}")
    for part in found.parts:
        _say(console, _count(part))
        if found.image_set is not None and len(set(part.images_per_class)) > 1:
            counted = zip(found.image_set.class_names, part.images_per_class, strict=True)
            console.print("  " + ", ".join(f"{each} {count:,}" for each, count in counted), highlight=False)
    for reason in found.broken:
        _say(console, f"broken: {reason}")
    if sheet is not None and found.image_set is not None:
        save_sheet(found.image_set, choice.benchmark.name, sheet)
        _say(console, f"{sheet} shows some images of each class")
    if not found.is_right:
        raise EncoreError(_advice(choice, found))


def _choose(name: str, options: Mapping[str, Any], data_dir: Path | None) -> Choice:
    given = {option.removeprefix("benchmark."): value for option, value in options.items()}
    chosen = choose_part("benchmark", name, given)
    return Choice(registry.make("benchmark", chosen.name, **chosen.options), chosen.options, data_dir)


@contextmanager
def _bar(
    console: Console, quiet: bool, *columns: ProgressColumn
) -> Iterator[Callable[[str, int, int], None]]:
    """Give what to report progress to; it shows where there is someone to see it."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as progress:
        bar = progress.add_task("", total=None, visible=False)

        def report(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total, visible=True)

        yield report


def _details(listing: Listing) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row(Text(listing.name, style="bold"), listing.summary)
    table.add_row("from", listing.source)
    table.add_row("size", listing.size)
    table.add_row("terms", listing.terms)
    if listing.is_here and listing.path is not None:
        table.add_row(
            "here", f"{listing.path}; `encore data check {listing.name}` compares what is in the files"
        )
    elif listing.is_here:
        table.add_row("here", "yes, in a package that is installed")
    else:
        table.add_row("here", f"no: {listing.problem.removesuffix(f': {listing.steps}')}")
        table.add_row("to get it", listing.steps)
    for path in listing.prepared:
        table.add_row("prepared", f"{path}, {in_words(path.stat().st_size)}, {_state(path, listing.name)}")
    if not listing.prepared and not listing.embedded:
        table.add_row("prepared", f"no: `encore data prepare {listing.name}` decodes it once, for all runs")
    return table


def _where(listing: Listing) -> str:
    if listing.is_here and listing.embedded:
        return "in a package"
    if listing.is_here:
        return f"in {listing.named_by}" if listing.named_by else "elsewhere"
    if listing.path is not None:
        return "in part"
    return "no, but prepared" if listing.prepared else "no"


def _state(path: Path, name: str) -> str:
    """Say what a prepared file was made with, and whether its source is still the same."""
    try:
        origin = read_prepared(path, remedy=f"delete it with `encore data forget {name}`").origin
        benchmark = registry.make("benchmark", origin.benchmark, **origin.options)
        data_dir = None if origin.data_dir is None else Path(origin.data_dir)
        choice = Choice(benchmark, origin.options, data_dir)
        found = look(choice)
    except EncoreError as error:
        return f"but {error}"
    options = "".join(f", {option} {value}" for option, value in choice.unusual_options.items())
    if found.source is None:
        return f"from {origin.path}{options}; those files are gone, and runs use what was prepared"
    problem = f"out of date, as {found.problem}: the next run prepares it again" if found.problem else ""
    return f"from {origin.path}{options}; {problem or 'up to date'}"


def _count(part: PartCheck) -> str:
    counts = part.images_per_class
    each = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    return f"{part.part}: {sum(counts):,} images of {len(counts)} classes, {each} of each"


def _advice(choice: Choice, found: Check) -> str:
    """Say in a sentence what is wrong and what to do."""
    benchmark = choice.benchmark
    if any(file.problem for file in found.files):
        if benchmark.downloads:
            fetch_it = f"get it again with `encore data fetch {benchmark.name}`"
            same = "with the same --data-dir if one was given"
            return f"{benchmark.name} is not as it was published; {fetch_it}, {same}"
        return f"{benchmark.name} is not as it should be: {benchmark.steps}"
    if found.broken:
        number = len(found.broken)
        return (
            f"{number:,} of {benchmark.name}'s images cannot be read: mend or remove them, or leave them out "
            f"with --skip-broken {number}"
        )
    again = f"prepare it again with `{choice.command('prepare')}`"
    return f"what was prepared from {benchmark.name} is damaged: {again}"


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)
