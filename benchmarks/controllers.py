"""What a controller costs the host for each incoming batch, with the record of its choices.

python -m benchmarks.controllers
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Generator

from encore import registry
from encore.actions import Actions
from encore.interfaces import Feedback, Plan

NAMES = ("fixed", "bpg", "bpg_published")
NUM_BATCHES, NUM_ROUNDS = 1000, 20


def measure(name: str, num_batches: int = NUM_BATCHES) -> tuple[float, float]:
    """Return the microseconds of a batch: of the controller with its record, and of the record alone."""
    controller: Any = registry.make("controller", name, Plan())
    actions, generator = Actions(controller), Generator().manual_seed(0)
    feedback = [Feedback(torch.tensor([number / 10, 0.5, 1.0, 1.0])) for number in range(11)]
    recording = 0
    begin = time.perf_counter_ns()
    for number in range(num_batches):
        plan = controller.choose(generator)
        before = time.perf_counter_ns()
        actions.note(0, plan, feedback[number % 11])
        recording += time.perf_counter_ns() - before
        if controller.needs_feedback:
            controller.learn_from(feedback[number % 11].read())
    before = time.perf_counter_ns()
    actions.state_dict()  # as a checkpoint does
    recording += time.perf_counter_ns() - before
    whole = time.perf_counter_ns() - begin
    return whole / num_batches / 1000, recording / num_batches / 1000


def main() -> None:
    """Print the least of some rounds, as whatever else runs only adds to it."""
    torch.set_num_threads(1)
    for name in NAMES:
        rounds = [measure(name) for _ in range(NUM_ROUNDS)]
        whole, recording = (min(values) for values in zip(*rounds, strict=True))
        print(f"{name:14} {whole:6.1f} us an incoming batch, {recording:5.1f} of them to record it")


if __name__ == "__main__":
    main()
