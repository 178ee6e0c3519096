"""What Encore raises when a caller made a mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EncoreError(ValueError):
    """A mistake of the caller: one sentence that names what was wrong and what would be right.

    The command line prints the sentence and exits with status 2; it never shows a traceback for it.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> EncoreError:
    """Return the error for a name nobody knows, with the nearest known ones first.

    >>> print(unknown_name("method", "err", ["er", "mir"]))
    there is no method 'err'; did you mean 'er'? (known: er, mir)
    """
    names, name = sorted(known), str(name)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
    return EncoreError(f"there is no {kind} {name!r}{hint} (known: {', '.join(names)})")
