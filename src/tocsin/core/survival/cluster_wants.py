"""The filters of clients, as brokers of a cluster tell each other without a coordinator.

A broker keeps a **log** of its own wants: each filter with the version at which it last came or went, oldest first.
A peer that knows the log up to a version gets the later changes, a slice at a time; so lost messages are repeated, and
a filter that came and went in between is told once. The other side is a **copy**, which takes a slice only if nothing
before it is missing.

Invariants: a copy at the version of the log has its filters; a copy's version never says more than it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from tocsin.wire.internal.cluster_messages import SLICE, Want

WANTS_MAX: Final = (
    250_000  # filters of one broker that others are told: as many as settings allow it by default
)


class WantsLog:
    """The wants of one broker's own clients, with versions, while others are told. Its series are numbered above
    ``series``."""

    def __init__(self, series: int = 0) -> None:
        self.series = series
        self.version = 0
        self._wants: dict[str, tuple[int, bool]] = {}  # by filter; the last change is last

    def begin(self, series: int, filters: Iterable[str]) -> None:
        """A new series, in which these are wanted."""
        assert series > self.series, "series grow"
        self.series, self.version, self._wants = series, 0, {}
        self.change(islice(filters, WANTS_MAX), ())

    def end(self) -> None:
        """Nobody is told any more; what changes from now on is not noted."""
        self._wants = {}

    def change(self, added: Iterable[str], removed: Iterable[str]) -> None:
        for names, wanted in ((removed, False), (added, True)):
            for name in names:
                self.version += 1
                self._wants.pop(name, None)
                self._wants[name] = (self.version, wanted)
        if len(self._wants) > 2 * WANTS_MAX:  # mostly withdrawn filters: start again without them
            self.begin(self.series + 1, [name for name, (_, wanted) in self._wants.items() if wanted])

    def since(self, known: tuple[int, int]) -> tuple[int, tuple[Want, ...]]:
        """For a peer that knows a run up to a version: the version to continue from, and the first changes after it."""
        series, version = known
        base = version if series == self.series and version <= self.version else 0
        newer = 0
        for at, _ in reversed(self._wants.values()):
            if at <= base:
                break
            newer += 1
        items = islice(self._wants.items(), len(self._wants) - newer, None)
        return base, tuple((at, name, wanted) for name, (at, wanted) in islice(items, SLICE))


class Copy:
    """One broker's copy of another's wants."""

    def __init__(self) -> None:
        self.series = 0
        self.version = 0
        self.filters: dict[str, None] = {}

    def take(
        self, series: int, base: int, wants: tuple[Want, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Take a slice: the filters that came, and those that went."""
        came: dict[str, None] = {}
        went: dict[str, None] = {}
        if series != self.series:
            went = self.filters
            self.series, self.version, self.filters = series, 0, {}
        if base > self.version:
            return (), tuple(went)
        for at, name, wanted in wants:
            if at <= self.version:
                continue
            self.version = at
            if wanted and name not in self.filters and len(self.filters) < WANTS_MAX:
                self.filters[name] = None
                if name in went:
                    del went[name]
                else:
                    came[name] = None
            elif not wanted and name in self.filters:
                del self.filters[name]
                went[name] = None
        return tuple(came), tuple(went)
