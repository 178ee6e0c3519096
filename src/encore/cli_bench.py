"""The verb `encore bench`: a table of speeds on the user's own machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from encore.settings import to_whole_number

if TYPE_CHECKING:
    from rich.console import Console

_MEASURED = Group("What is measured", sort_key=1)
_HOW = Group("How", sort_key=2)


def _counts(text: str, group: Group = _MEASURED) -> Parameter:
    return Parameter(help=text, group=group, converter=to_whole_number, negative=())


def add_bench_verb(app: App) -> None:
    """Add the verb."""
    app.command(bench)


def bench(
    *,
    image_size: Annotated[int, _counts("Height and width of the images, which have 3 channels.")] = 32,
    width: Annotated[int, _counts("Channels of the network's first stage.")] = 20,
    batch_size: Annotated[int, _counts("Incoming images, and as many remembered ones.")] = 10,
    repeats: Annotated[int, _counts("Rehearsal iterations for each incoming batch (K).")] = 10,
    runs: Annotated[
        int | None, _counts("Runs in one process, by turns; else 8 on a GPU, 2 on a CPU; 1 leaves them out.")
    ] = None,
    device: Annotated[str, Parameter(help="auto, cpu, cuda or cuda:N.", group=_HOW)] = "auto",
    threads: Annotated[int | None, _counts("CPU threads; else as for a run.", _HOW)] = None,
    seconds: Annotated[float, Parameter(help="How long to measure, at most.", group=_HOW)] = 50.0,
    json: Annotated[
        Path | None,
        Parameter(help="A file to write the numbers to, with the machine and versions.", group=_HOW),
    ] = None,
) -> None:
    """Measure how fast Encore is on this machine, beside the loop one would write without it."""
    from rich.console import Console

    from encore.bench import BenchSettings, measure
    from encore.files import write_json

    console = Console(markup=False, highlight=False)
    settings = BenchSettings(image_size, width, batch_size, repeats, runs, device, threads, seconds)
    with console.status(f"measuring, for {seconds:.0f} seconds or so"):
        measured = measure(settings)
    show_measured(console, measured)
    if json is not None:
        write_json(json, measured)
        console.print(f"written to {json}", soft_wrap=True)


def show_measured(console: Console, measured: dict[str, Any]) -> None:
    """Print the machine, the table, what was left out, and what the numbers mean."""
    from encore.tables import make_table

    settings, machine = measured["settings"], measured["machine"]
    side, batch = settings["image_size"], settings["batch_size"]
    on = machine.get("gpu") or f"{machine['processor']}, {_threads(machine)} {machine['cores']} cores"
    console.print(
        f"One iteration of ER-RAR: {batch} + {batch} images of 3x{side}x{side}, width {settings['width']}, "
        f"memory {settings['memory_size']:,}."
    )
    console.print(f"On {on}; torch {measured['torch']}; load before: {machine['load_before']:.1f}.\n")
    table = make_table("", "iteration\nms", "images\na second", "times the\nbare loop", "peak\nMiB")
    for num_ops in (1, 0):
        if num_ops == 0:
            table.add_row()
        table.add_row("RandAugment, P = 1" if num_ops else "no augmentation", style="bold")
        for row in measured["rows"]:
            if row["num_ops"] == num_ops:
                table.add_row(
                    f"  {row['name']}",
                    f"{row['milliseconds']:.3g}"
                    if row["milliseconds"] < 100
                    else f"{row['milliseconds']:.0f}",
                    f"{row['images_per_second']:,.0f}",
                    f"{row['times_bare']:.2f}",
                    f"{row['peak_bytes'] / 2**20:,.0f}",
                )
    console.print(table)
    rounds = min(row["rounds"] for row in measured["rows"])
    several = "s" if rounds > 1 else ""
    console.print(f"\nMedians of {rounds} round{several} of {settings['repeats']} iterations, by turns.")
    console.print(f"The engine auto takes {measured['auto']} here.")
    held = "on the GPU" if "gpu" in machine else "by the process"
    console.print(f"Peak: the most memory held {held} when the line was made ready.")
    if rounds < 5:
        console.print("So few rounds waver: allow more with --seconds.")
    for sentence in measured["left_out"]:
        console.print(f"Left out: {sentence}")


def _threads(machine: dict[str, Any]) -> str:
    return f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''} on"
