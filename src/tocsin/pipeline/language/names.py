"""Names that somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar, if any is."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def meant(word: str, known: Iterable[str], what: str) -> str:
    """The hint for an unknown name."""
    names = sorted(known, key=str.lower)
    if near := nearest(word, names):
        return f"did you mean {near}?"
    if not names:
        return f"there are no {what} yet"
    shown = ", ".join(names[:8])
    return f"write one of {shown}{', …' if len(names) > 8 else ''}"
