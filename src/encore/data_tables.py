"""What `encore data` prints: which benchmarks' files there are, how fetching goes, what a check found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from encore import registry
from encore.data.benchmark import Benchmark
from encore.data.fetch import fetch, mirrors_for
from encore.data.inventory import Listing, check, describe_benchmarks
from encore.data.places import places
from encore.errors import EncoreError


def list_data(console: Console, data_dir: Path | None) -> None:
    """Show each benchmark: what it is, from where, how large, on what terms, and whether it is there."""
    benchmarks = [registry.make("benchmark", name) for name in registry.names("benchmark")]
    for number, listing in enumerate(describe_benchmarks(benchmarks, data_dir)):
        if number:
            console.print()
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold", min_width=8)
        table.add_column()
        table.add_row(listing.name, listing.summary)
        for name, text in (
            ("from", listing.source),
            ("size", listing.size),
            ("terms", listing.terms),
            ("here", _state(listing)),
        ):
            table.add_row(Text(name, style="dim"), text)
        console.print(table, highlight=False)


def fetch_data(
    console: Console, name: str, data_dir: Path | None, given_mirrors: Sequence[str], quiet: bool
) -> None:
    """Fetch a benchmark's files, with a bar where there is someone to see it."""
    benchmark: Benchmark = registry.make("benchmark", name)
    folder = places(data_dir)[0].folder
    mirrors = mirrors_for(benchmark, given_mirrors)
    with Progress(
        TextColumn(benchmark.name),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as progress:
        bar = progress.add_task("", total=None, visible=False)

        def report(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total, visible=True)

        fetched = fetch(benchmark, folder, mirrors, report)
    if not quiet:
        for sentence in fetched.sentences:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def check_data(console: Console, name: str, data_dir: Path | None) -> None:
    """Show what is right and wrong with a benchmark's files; refuse if anything is wrong."""
    benchmark: Benchmark = registry.make("benchmark", name)
    found = check(benchmark, data_dir)
    for file in found.files:
        console.print(
            f"{file.name}: {file.problem or file.verdict}", highlight=False, markup=False, soft_wrap=True
        )
    for part in found.parts:
        counts = part.images_per_class
        each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        console.print(
            f"{part.part}: {sum(counts):,} images of {len(counts)} classes, {each} of each",
            highlight=False,
        )
    if not found.is_right:
        raise EncoreError(
            f"{benchmark.name} is not as it was published; get it again with `encore data fetch {name}`, "
            "with the same --data-dir if one was given"
        )


def _state(listing: Listing) -> str:
    if listing.verified:
        return "yes, with the package" if listing.embedded else f"yes, verified, in {listing.path}"
    return listing.problem if listing.path is None else f"in {listing.path}, but {listing.problem}"
