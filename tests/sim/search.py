"""The order in which a search for a planted bug tries its seeds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain


def seeds_from(first: int, count: int) -> Iterator[int]:
    """The seeds from 0 up to ``count``, each once, beginning with ``first`` and going round.

    ``first`` is a seed that has found the bug: it makes the search short. When that seed no longer shows the bug, all
    others are tried, so that the answer is the same as that of a search from 0.
    """
    return chain(range(first, count), range(min(first, count)))
