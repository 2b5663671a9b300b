"""A machine for tests: it remembers what it was told, and does what a function says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tocsin.core.machine import Effect, Event
from tocsin.sim.node import Disk

Kind = TypeVar("Kind", bound=Event)
React = Callable[[Event, int], list[Effect]]


class Probe:
    """The machine. ``make`` is what ``World.add`` wants: a node that restarts is the same probe."""

    def __init__(self, react: React | None = None) -> None:
        self.seen: list[tuple[int, Event]] = []  # with the time that it was told
        self.disks: list[Disk] = []  # one for each start
        self._react = react

    def make(self, disk: Disk) -> Probe:
        self.disks.append(disk)
        return self

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self.seen.append((now_us, event))
        return [] if self._react is None else self._react(event, now_us)

    def events(self, kind: type[Kind]) -> list[Kind]:
        """All events of one kind that it got, in order."""
        return [event for _, event in self.seen if isinstance(event, kind)]
