"""How fast Encore is on this machine, beside the loop one would write without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import SIGKILL
from statistics import median
from typing import Any

import torch

from encore import registry
from encore.bare import BareLoop
from encore.device import MOST_THREADS, choose_threads, resolve_device
from encore.errors import EncoreError
from encore.interfaces import Batch, Plan
from encore.learner import Learner
from encore.processor import keep_freed_memory, multiplies_bfloat16
from encore.randomness import Randomness
from encore.record import describe_machine, find_commit, peak_memory
from encore.turns import take_turns
from encore.values import positive_number, whole_number
from encore.version import VERSION

BARE = "bare PyTorch loop"
NUM_CLASSES = 100
MEMORY_SIZE = 2000
MAGNITUDE = 14
SHARE_FOR_COMPILING = 0.5  # of the time there is
SHARE_FOR_MEASURING = 0.4  # at least: what is not ready by then is left out


@dataclass(frozen=True)
class BenchSettings:
    """What is measured, and how long at most."""

    image_size: int = 32
    width: int = 20
    batch_size: int = 10
    repeats: int = 10
    runs: int | None = None
    device: str = "auto"
    threads: int | None = None
    seconds: float = 50.0

    def __post_init__(self) -> None:
        for name in ("image_size", "width", "batch_size"):
            whole_number(name, getattr(self, name), lowest=1)
        Plan(repeats=self.repeats)
        if self.runs is not None:
            whole_number("the number of runs", self.runs, lowest=1)
        positive_number("seconds", self.seconds)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    engine: str | None  # None is the bare loop
    num_ops: int
    runs: int = 1
    precision: str = "float32"
    options: Mapping[str, Any] = field(default_factory=dict)  # such as {"engine.own_kernels": False}


@dataclass
class Contestant:
    """A case that is ready: calling it learns one incoming batch in each of its runs."""

    case: Case
    work: Callable[[], None]
    peak_bytes: int
    seconds: list[float]


def measure(settings: BenchSettings) -> dict[str, Any]:
    """Time every case by turns until the time is over; return the machine, the rows and what was left out."""
    begun = time.perf_counter()
    device = resolve_device(settings.device)
    shape = (3, settings.image_size, settings.image_size)
    threads = choose_threads(shape) if settings.threads is None else settings.threads
    torch.set_num_threads(whole_number("the number of threads", threads, 1, MOST_THREADS))
    keep_freed_memory()
    load = os.getloadavg()[0]  # before this began to work
    left_out: list[str] = []
    contestants: list[Contestant] = []
    cases = list_cases(settings, device)
    if any(case.engine == "compiled" for case in cases):
        reason = _compile_beforehand(settings, device, SHARE_FOR_COMPILING * settings.seconds)
        if reason is not None:
            left_out.append(reason)
            cases = [case for case in cases if case.engine != "compiled"]
    end = begun + settings.seconds
    for number, case in enumerate(cases):
        if contestants and time.perf_counter() > end - SHARE_FOR_MEASURING * settings.seconds:
            names = ", ".join(f"{left.name} (P = {left.num_ops})" for left in cases[number:])
            left_out.append(f"for want of time: {names}; allow more with --seconds")
            break
        try:
            contestants.append(prepare(case, settings, shape, device))
        except EncoreError as error:
            left_out.append(str(error))
    num_rounds = 0
    while num_rounds < 1 or time.perf_counter() < end:
        # By turns, and in turning order, so that whatever else the machine does slows all of them alike.
        first = num_rounds % len(contestants)
        for contestant in contestants[first:] + contestants[:first]:
            contestant.seconds.append(measure_time(contestant.work, device))
            if num_rounds >= 1 and time.perf_counter() > end:
                break
        num_rounds += 1
    return {
        "encore": VERSION,
        "torch": torch.__version__,
        "commit": find_commit(),
        "machine": describe_machine(device) | {"load_before": load},
        "settings": asdict(settings) | {"memory_size": MEMORY_SIZE, "magnitude": MAGNITUDE},
        "auto": _chosen_by_auto(device),
        "rows": _rows(contestants, settings),
        "left_out": left_out,
    }


def list_cases(settings: BenchSettings, device: torch.device) -> list[Case]:
    """Return what can be measured on a device, with augmentation and without."""
    runs = settings.runs if settings.runs is not None else (8 if device.type == "cuda" else 2)
    own = _chosen_by_auto(device)
    cases = []
    for num_ops in (1, 0):
        cases.append(Case(BARE, None, num_ops))
        engines = [name for name in registry.names("engine") if name != "auto"]
        cases += [
            Case(name, name, num_ops)
            for name in sorted(engines, key=lambda name: (name != "eager", name))
            if name != "graph" or device.type == "cuda"
        ]
        if device.type == "cpu" and multiplies_bfloat16():
            cases.append(Case("eager, bfloat16", "eager", num_ops, precision="bfloat16"))
        if runs > 1:
            cases.append(Case(f"{own}, {runs} runs by turns", own, num_ops, runs))
    return cases


def _chosen_by_auto(device: torch.device) -> str:
    chosen: Any = registry.make("engine", "auto", Randomness(0, device))
    return type(chosen.chosen).__name__.lower()


def prepare(
    case: Case, settings: BenchSettings, shape: tuple[int, int, int], device: torch.device
) -> Contestant:
    """Make a case, and let it learn some batches first: what is made only once is not measured."""
    _forget_peak(device)
    batch, full = _batch(settings.batch_size, shape), _batch(MEMORY_SIZE, shape)
    plan = Plan(1, case.num_ops, MAGNITUDE)  # until it is ready
    if case.engine is None:
        model = registry.make("model", "reduced_resnet18", shape, NUM_CLASSES, width=settings.width)
        loop = BareLoop(model, MEMORY_SIZE, settings.batch_size, device=device)
        loop.images, loop.labels, loop.num_seen = list(full.images), full.labels.tolist(), MEMORY_SIZE

        def work() -> None:
            loop.observe(*batch, plan.repeats, plan.num_ops, plan.magnitude)

    else:
        learners = [_learner(case, seed, settings, shape, device) for seed in range(case.runs)]
        for learner in learners:
            learner.memory.write(
                torch.arange(MEMORY_SIZE, device=device), Batch(*(part.to(device) for part in full))
            )
        incoming = Batch(batch.images.to(device), batch.labels.to(device))

        def turn(learner: Learner) -> Iterator[bool]:
            learner.learn(incoming, plan)
            yield False

        def work() -> None:
            take_turns([turn(learner) for learner in learners], device, len(learners))

    for _ in range(3):  # the second makes recordings, and compiles
        measure_time(work, device)
    plan = Plan(settings.repeats, case.num_ops, MAGNITUDE)
    peak = peak_memory(device)
    return Contestant(case, work, peak.get("gpu_peak_memory_bytes") or _peak_of_process(), [])


def _learner(
    case: Case, seed: int, settings: BenchSettings, shape: tuple[int, int, int], device: torch.device
) -> Learner:
    return Learner(
        image_shape=shape,
        num_classes=NUM_CLASSES,
        memory_size=MEMORY_SIZE,
        memory_batch_size=settings.batch_size,
        parts={"model.width": settings.width, "engine": case.engine, **case.options},
        precision=case.precision,
        device=str(device),
        seed=seed,
    )


def _batch(size: int, shape: tuple[int, int, int]) -> Batch:
    generator = torch.Generator().manual_seed(size)
    images = torch.randint(0, 256, (size, *shape), generator=generator, dtype=torch.uint8)
    return Batch(images, torch.randint(0, NUM_CLASSES, (size,), generator=generator))


def measure_time(work: Callable[[], None], device: torch.device) -> float:
    """Return the seconds that work takes, with what it leaves to the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def _rows(contestants: list[Contestant], settings: BenchSettings) -> list[dict[str, Any]]:
    bare = {made.case.num_ops: made.seconds for made in contestants if made.case.engine is None}
    rows = []
    for made in contestants:
        num_iterations = settings.repeats * made.case.runs
        per_iteration = [seconds / num_iterations for seconds in made.seconds]
        theirs = [seconds / settings.repeats for seconds in bare[made.case.num_ops]]
        pairs = zip(theirs, per_iteration, strict=False)  # the last round may have been cut short
        rows.append(
            {
                "name": made.case.name,
                "engine": made.case.engine,
                "precision": made.case.precision,
                "num_ops": made.case.num_ops,
                "runs": made.case.runs,
                "rounds": len(per_iteration),
                "milliseconds": 1000 * median(per_iteration),
                "images_per_second": 2 * settings.batch_size / median(per_iteration),
                "times_bare": median(their / our for their, our in pairs),
                "peak_bytes": made.peak_bytes,
            }
        )
    return rows


def _compile_beforehand(settings: BenchSettings, device: torch.device, most_seconds: float) -> str | None:
    """Compile in a process of its own, which can be ended, so that torch finds it done; return why not."""
    try:
        registry.make("engine", "compiled", Randomness(0, device))
    except EncoreError as error:
        return str(error)
    program = "import json, sys\nfrom encore import bench\nbench.compile_once(json.loads(sys.argv[1]))"
    described = json.dumps(asdict(settings) | {"device": str(device), "threads": torch.get_num_threads()})
    compiling = subprocess.Popen(
        [sys.executable, "-c", program, described],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = compiling.wait(most_seconds)
    except subprocess.TimeoutExpired:
        return (
            f"the engine compiled was not ready after {most_seconds:.0f} seconds of compiling: "
            f"allow more with --seconds {4 * settings.seconds:.0f}"
        )
    finally:
        with suppress(ProcessLookupError):
            os.killpg(compiling.pid, SIGKILL)  # with the compilers that it has started
        compiling.wait()
    return None if status == 0 else "the engine compiled fails here: `--engine compiled` says why"


def compile_once(described: dict[str, Any]) -> None:
    """Have torch compile what the settings need, and keep it on the disk."""
    settings = BenchSettings(**described | {"repeats": 1})
    torch.set_num_threads(settings.threads or 1)
    shape = (3, settings.image_size, settings.image_size)
    prepare(Case("compiled", "compiled", 0), settings, shape, torch.device(settings.device))


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux alone can do this
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_of_process() -> int:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return peak_memory(torch.device("cpu"))["peak_memory_bytes"]
