"""Encore: learn from a stream that never repeats, and do not forget."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from encore.errors import EncoreError
from encore.version import VERSION as __version__

if TYPE_CHECKING:
    from encore.interfaces import Batch as Batch
    from encore.interfaces import Feedback as Feedback
    from encore.interfaces import Plan as Plan
    from encore.learner import Learner as Learner
    from encore.live import recut as recut
    from encore.stream import Stream as Stream
    from encore.teaching import teach as teach

__all__ = ["Batch", "EncoreError", "Feedback", "Learner", "Plan", "Stream", "__version__", "recut", "teach"]

# Loaded when first used: the command line answers `--help` without waiting a second for torch.
_HOMES = {
    "Batch": "encore.interfaces",
    "Feedback": "encore.interfaces",
    "Learner": "encore.learner",
    "Plan": "encore.interfaces",
    "Stream": "encore.stream",
    "recut": "encore.live",
    "teach": "encore.teaching",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'encore' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
