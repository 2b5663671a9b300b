"""Bytes by subscription, counted where a message is looked up and not where it is delivered.

A message costs one addition: to the **tally** of its topic, which the forwarding table keeps with the answer for that
topic. A tally knows the subscriptions that its topic concerns. Now and then ``take`` adds each tally to those, off the
hot path and in parts, and hands out what every one of them has: the bytes of one of its clients, and how many clients
there are.

A client with two filters that match a topic gets one copy, and both filters count it: the rate belongs to the
subscription, whoever else has another.

Invariants: a tally with bytes is in ``_touched`` once; a source with bytes is in ``_found`` once, unless that is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Final, NamedTuple, Protocol

TALLIES_MAX: Final = 50_000  # with bytes that no source has yet: as many as topics that are kept resolved
SOURCES_MAX: Final = (
    200_000  # with bytes that nobody has taken: twice the filters that a broker has by default
)


class TallySource(Protocol):
    """A subscription that brings messages to its clients here."""

    bytes: int  # since they were taken last

    @property
    def name(self) -> str: ...

    @property
    def targets(self) -> Sized: ...

    @property
    def in_turns(self) -> bool:
        """Whether each message is for one of the clients only: a group."""
        ...


class Count(NamedTuple):
    """What a subscription brought since the last count."""

    name: str
    each_bytes: float  # to each of its clients
    clients: int


class Tally:
    """The bytes of one topic."""

    __slots__ = ("_sources", "_touched", "bytes")

    def __init__(self, sources: tuple[TallySource, ...], touched: list[Tally]) -> None:
        self.bytes = 0
        self._sources = sources
        self._touched = touched

    def add(self, size: int) -> None:
        """A message of this size, to those who get the topic here. The hot path."""
        if not self.bytes:
            self._touched.append(self)
        self.bytes += size

    def settle(self, found: list[TallySource]) -> None:
        """Give the sources what was added."""
        size, self.bytes = self.bytes, 0
        for source in self._sources:
            if not source.bytes:
                if len(found) >= SOURCES_MAX:
                    continue
                found.append(source)
            source.bytes += size


class Tallies:
    """All tallies of one forwarding table."""

    def __init__(self) -> None:
        self._touched: list[Tally] = []
        self._found: list[TallySource] = []

    def tally(self, sources: Iterable[TallySource]) -> Tally:
        """A tally for a topic that concerns these."""
        if len(self._touched) >= TALLIES_MAX:
            self._settle(TALLIES_MAX)
        return Tally(tuple(sources), self._touched)

    def take(self, most: int) -> Iterator[list[Count]]:
        """What was counted until now, in parts of at most so many steps: other work may be done between two."""
        left = len(self._touched)  # what is touched meanwhile waits for the next time
        while left > 0:
            self._settle(most)
            left -= most
            yield []
        left = len(self._found)
        while left > 0:
            yield self._counts(most)
            left -= most

    def _counts(self, most: int) -> list[Count]:
        counts = []
        taken, self._found[:most] = self._found[:most], []
        for source in taken:
            size, source.bytes = source.bytes, 0
            clients = len(source.targets)
            if clients:
                counts.append(Count(source.name, size / clients if source.in_turns else size, clients))
        return counts

    def _settle(self, most: int) -> None:
        """The oldest first, so that none waits for ever."""
        taken, self._touched[:most] = self._touched[:most], []
        for tally in taken:
            tally.settle(self._found)
