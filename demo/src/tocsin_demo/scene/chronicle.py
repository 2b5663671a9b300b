"""The coordinator's log about brokers: joins, losses, takeovers and backups.

The log is the truth of the network (decision 018), and each of its entries says when it was written: these are the
times at which things were decided. When a backup has done what it was told, it says so in its own log.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import Malformed
from tocsin.wire.internal.commands import Joined, Lost, Planned, Said, decode_batch
from tocsin.wire.internal.notices import Moved, decode_notice

STANDS_IN: Final = "stands in for a broker that is gone"  # as ``broker.survival.takeover`` says it
LINES_MAX: Final = 100_000  # of a log that are looked at


class Mark(msgspec.Struct, frozen=True):
    """Something that was decided about a broker, and when."""

    at_s: float
    kind: str  # joined, lost, moved
    broker: str
    to: str | None = None  # of moved: the stand-in


class Chronicle:
    """Gathers marks; reads no clock."""

    def __init__(self, network: str) -> None:
        self.marks: list[Mark] = []
        self.plan: Mapping[str, tuple[str | None, str | None]] = {}  # broker → local and remote backup
        self._commands = f"{network}.c"
        self._places: dict[str, int] = {}  # broker → epoch of the newest news of its place

    def take(self, subject: str, payload: bytes, at_s: float) -> None:
        """An entry of the log."""
        try:
            if subject == self._commands:
                self._take_commands(payload, at_s)
            else:
                self._take_notice(payload, at_s)
        except Malformed:
            return  # of another version: the process that needs it has reported that

    def _take_commands(self, payload: bytes, at_s: float) -> None:
        for command in decode_batch(payload).commands:
            match command:
                case Lost(broker=broker):
                    self.marks.append(Mark(at_s, "lost", broker))
                case Planned(backups=backups):
                    self.plan = {broker: (local, remote) for broker, local, remote in backups}
                case Said(broker=broker, commands=commands) if any(
                    isinstance(each, Joined) for each in commands
                ):
                    self.marks.append(Mark(at_s, "joined", broker))

    def _take_notice(self, payload: bytes, at_s: float) -> None:
        """Every broker is told of a move; it counts once."""
        for item in decode_notice(payload).items:
            if isinstance(item, Moved) and item.gone and self._places.get(item.broker, -1) < item.epoch:
                self._places[item.broker] = item.epoch
                to = None if item.to is None else item.to.id
                self.marks.append(Mark(at_s, "moved", item.broker, to))

    def first(self, kind: str, broker: str, after_s: float) -> Mark | None:
        """The first mark of that kind about a broker at or behind that time."""
        found = (m for m in self.marks if m.kind == kind and m.broker == broker and m.at_s >= after_s)
        return min(found, key=lambda mark: mark.at_s, default=None)

    def stand_in(self, broker: str, after_s: float) -> Mark | None:
        """The last that was told to stand in for a broker which failed at that time, before it joined again."""
        back = self.first("joined", broker, after_s)
        found = [
            mark
            for mark in self.marks
            if mark.kind == "moved" and mark.broker == broker and mark.at_s >= after_s
            if back is None or mark.at_s <= back.at_s
        ]
        return max(found, key=lambda mark: mark.at_s, default=None)

    def planned(self, brokers: Iterable[str]) -> bool:
        """Whether all of these have a backup."""
        return all(any(self.plan.get(broker, (None, None))) for broker in brokers)


def took_over(log: Path, broker: str, after: datetime.datetime) -> datetime.datetime | None:
    """When the broker with that log said that it stands in for another, at or behind that time."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            for _, line in zip(range(LINES_MAX), file, strict=False):
                if STANDS_IN not in line or (at := _said_at(line, broker)) is None:
                    continue
                if at >= after:
                    return at
    except OSError:
        return None
    return None


class _Line(msgspec.Struct):
    timestamp: datetime.datetime
    event: str
    broker: str = ""


def _said_at(line: str, broker: str) -> datetime.datetime | None:
    try:
        said = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return said.timestamp if said.event == STANDS_IN and said.broker == broker else None
