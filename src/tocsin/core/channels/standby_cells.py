"""Standby cells: the channels that a broker prepares for the brokers that it backs.

    (REAPS, Algorithm 3: S1 is what is put here, S2 what is deleted)

A backup that prepares names for its primaries (``core.replication.backup``) has a standby cell for each k that they
mean and for which it has no active cell. So a takeover writes nothing that clients wait for: a standby cell that is
stored **covers** its k. While another broker has an active cell for k, also one that is lost, that broker's files have
the rows, and this broker finds them there (``unseen``); as soon as there is none, the rows are for the standbys. The
backup writes its active cell later. A remote backup has no standby cells, and its clients wait for the writes.

Invariants: a standby cell is wanted if a prepared name means its k and no active cell of this broker is stored, so that
the active cell is there before the standby goes; and a cell that covers k stays until the active cell is stored or no
client wants it, though the primary's clients have given k up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tocsin.core.channels.cells import SubscriptionCells
from tocsin.core.channels.channel_filter import Bound, read_channel_filter
from tocsin.core.channels.signals import Prepared, Unprepared
from tocsin.core.machine import Effect
from tocsin.model.results import STANDBY
from tocsin.wire.mqtt.topics import FilterInvalid

COVERING: Final = ""  # the name under which a cell stays that covers its k; no client's subscription has it


def is_standby(key: str) -> bool:
    """Whether a cell's key, or a request about the cell, is of a standby."""
    return key.endswith(f".{STANDBY}")


class StandbyCells:
    """Writes the standby cells that a local backup has for its primaries' channels.

    ``meaning`` says what a name means, None: nothing; ``active`` are the cells for this broker's own clients.
    """

    def __init__(
        self, broker: str, meaning: Callable[[str], Bound | None], active: SubscriptionCells
    ) -> None:
        self._meaning = meaning
        self._active = active
        self.cells = SubscriptionCells(broker, standby=True)
        self._primaries: dict[str, dict[str, None]] = {}  # prepared name → the primaries
        self._of_channel: dict[str, dict[str, None]] = {}  # channel, in small letters → prepared names
        self._bound: dict[str, Bound] = {}  # what prepared names mean, if something
        self._of_k: dict[str, dict[str, None]] = {}  # the inverse
        self._wanted: dict[str, Bound] = {}  # those for which there is, or is to be, a cell
        self._covering: dict[str, Bound] = {}  # k whose cell stays until the active cell is stored

    def covers(self, k: str) -> bool:
        """Whether results of k reach this broker's clients before its active cell is stored."""
        return self.cells.holds(k)

    def covers_names(self, names: Iterable[str]) -> bool:
        """The same of what each of these prepared names means."""
        prepared, holds = self._bound.get, self.cells.holds
        return all((bound := prepared(name)) is not None and holds(bound.k) for name in names)

    def names(self, k: str) -> Iterable[str]:
        """The prepared names that mean k."""
        return self._of_k.get(k, ())

    def prepared(self, name: str) -> Bound | None:
        """What a name means that a primary's clients have: it was read when it was copied, not at the takeover."""
        return self._bound.get(name)

    def prepare(self, event: Prepared) -> list[Effect]:
        """Names that a primary's clients have; the ticket is answered when the cells are stored."""
        effects: list[Effect] = []
        wanted: list[str] = []
        for name in event.names:
            if name not in self._primaries:
                self._primaries[name] = {}
                self._of_channel.setdefault(channel_of(name), {})[name] = None
                effects += self._bind(name)
            self._primaries[name][event.primary] = None
            if name in self._wanted:
                wanted.append(self._wanted[name].k)
        return [*effects, *self.cells.wait(event.ticket, wanted)] if event.ticket else effects

    def unprepare(self, event: Unprepared) -> list[Effect]:
        """Names that they have no longer."""
        effects: list[Effect] = []
        for name in event.names:
            primaries = self._primaries.get(name, {})
            primaries.pop(event.primary, None)
            if primaries or name not in self._primaries:
                continue
            del self._primaries[name]
            of_channel = self._of_channel[channel_of(name)]
            del of_channel[name]
            if not of_channel:
                del self._of_channel[channel_of(name)]
            effects += self._bind(name)
        return effects

    def redefined(self, channel: str) -> list[Effect]:
        """A channel, named in small letters, is another, or is no more."""
        return [effect for name in self._of_channel.get(channel, ()) for effect in self._bind(name)]

    def turned(self, k: str) -> list[Effect]:
        """This broker may hold k in earnest, or no longer."""
        effects = [effect for name in self._of_k.get(k, ()) for effect in self._settle(name)]
        if k in self._covering and not self._active.awaits(k):
            effects += self.cells.unwant(COVERING, self._covering.pop(k))
        return effects

    def _bind(self, name: str) -> list[Effect]:
        """Find what a name means now."""
        before = self._bound.pop(name, None)
        if before is not None:
            del self._of_k[before.k][name]
            if not self._of_k[before.k]:
                del self._of_k[before.k]
        after = self._meaning(name) if name in self._primaries else None
        if after is not None:
            self._bound[name] = after
            self._of_k.setdefault(after.k, {})[name] = None
        return self._settle(name)

    def _settle(self, name: str) -> list[Effect]:
        bound, had = self._bound.get(name), self._wanted.get(name)
        wanted = bound if bound is not None and not self._active.holds(bound.k) else None
        if (wanted and wanted.k) == (had and had.k):
            return []
        effects: list[Effect] = []
        if wanted is not None:
            self._wanted[name] = wanted
            effects = self.cells.want(name, wanted)
        else:
            del self._wanted[name]
        return effects if had is None else [*effects, *self._unwant(name, had)]

    def _unwant(self, name: str, had: Bound) -> list[Effect]:
        effects: list[Effect] = []
        if self._active.awaits(had.k) and had.k not in self._covering:
            self._covering[had.k] = had
            effects = self.cells.want(COVERING, had)
        return [*effects, *self.cells.unwant(name, had)]


def channel_of(name: str) -> str:
    """The channel of a name, in lower case; empty if the name is invalid."""
    try:
        return read_channel_filter(name).channel.lower()
    except FilterInvalid:
        return ""
