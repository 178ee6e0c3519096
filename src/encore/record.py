"""One directory for each run: what was set, what came out, and on what it was measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from encore.config import choose_run_part
from encore.metrics import metrics_of
from encore.run import Run
from encore.version import VERSION

VERSIONED = ("torch", "numpy", "pillow", "safetensors", "scikit-learn")


def make_record(run: Run) -> dict[str, Any]:
    """Return all there is to know of a finished run, as JSON values."""
    learner, stream = run.learner, run.stream
    seconds = {kind: [round(value, 4) for value in values] for kind, values in run.seconds.items()}
    return {
        "encore": VERSION,
        "seed": run.seed,
        "config": describe_config(run),
        "tasks": [
            {"classes": list(task.classes), "train": len(task.train), "test": len(task.test)}
            for task in stream.tasks
        ],
        "plans": run.actions.means(),
        "accuracy_matrix": run.accuracy,
        "metrics": metrics_of(run.accuracy)._asdict(),
        "diverged": not learner.is_finite,
        "sgd_steps": learner.num_steps,
        "images_seen": learner.memory.num_seen,
        "images_trained": learner.num_images_trained,
        "images_skipped": sorted(stream.store.skipped.values()),
        "seconds_per_task": seconds,
        "seconds": round(sum(map(sum, run.seconds.values())), 4),
        "peak_memory_bytes": max(process["peak_memory_bytes"] for process in run.processes),
        "processes": run.processes,
    }


def describe_config(run: Run) -> dict[str, Any]:
    """Return the whole configuration with its defaults: the settings, and every part with its options."""
    parts = dict(run.config.to_json()["parts"])
    for kind in ("benchmark", "stream", "controller"):
        chosen = choose_run_part(run.settings, kind)
        parts[kind] = {"name": chosen.name, "options": dict(chosen.options)}
    return {
        **run.settings.to_json(),
        "image_shape": list(run.config.image_shape),
        "num_classes": run.config.num_classes,
        "parts": parts,
    }


def describe_controller(run: Run) -> dict[str, Any]:
    """Return what has chosen the plans of a run."""
    chosen = choose_run_part(run.settings, "controller")
    return {"seed": run.seed, "controller": {"name": chosen.name, "options": dict(chosen.options)}}


def describe_process(run: Run) -> dict[str, Any]:
    """Return when, from where in the stream, with which versions and on what this process goes on."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "from_task": run.task,
        "from_batch": run.batch,
        "commit": find_commit(),
        "versions": {"encore": VERSION, "python": platform.python_version(), **_find_versions()},
        "machine": describe_machine(run.learner.device),
        "side_by_side": run.side_by_side,
        **peak_memory(run.learner.device),
    }


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return what computes: processor, cores, memory, threads and, if it is used, the GPU."""
    described: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _find_processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "device": str(device),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
        described["cuda"] = torch.version.cuda
    return described


def find_commit() -> str | None:
    """Return the commit that Encore's source is at, with a + where it was changed since; None outside git."""
    folder = Path(__file__).parent
    try:
        _ask_git(
            folder, "ls-files", "--error-unmatch", Path(__file__).name
        )  # else it is another's repository
        commit = _ask_git(folder, "rev-parse", "HEAD")
        changed = _ask_git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def peak_memory(device: torch.device) -> dict[str, int]:
    """Return the largest memory this process has held so far, on the host and on the GPU, in bytes."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peaks = {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if device.type == "cuda":
        peaks["gpu_peak_memory_bytes"] = torch.cuda.max_memory_allocated(device)
    return peaks


def _find_versions() -> dict[str, str]:
    versions = {}
    for name in VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _find_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _ask_git(folder: Path, *words: str) -> str:
    answer = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return answer.stdout.strip()
