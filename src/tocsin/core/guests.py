"""Clients that are at home elsewhere, and here because their home is away: they are let go when it is back.

A client that knows its home says so when it comes: ``PROPERTY_HOME`` in its CONNECT, the id of a broker or one of its
addresses. With every few heartbeats the coordinator is asked about some of these homes (``ask``), and with each about
those that were there the last time; it answers with those that are there and have room (``answered``). Who was named
STEADY times in a row is back, and its guests are sent there, a PORTION with each answer: they come with all that they
have, and the home has other things to do as well.

Costs: a heartbeat costs the homes that it asks about and the guests that are sent; not the guests that stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tocsin.core import refuge
from tocsin.model.network import BrokerInfo, Scheme

PROPERTY_HOME: Final = "home"  # client → broker: where it is at home
PROPERTY_BROKER: Final = "broker"  # broker → client, in answer to that: where it is
PROPERTY_SERVER: Final = "server"  # also: where it could go if this broker were gone; repeated, best first
PROPERTY_STAY: Final = "stay"  # client → broker: it could not reach where it was sent, and wants to stay
SERVERS_TOPIC: Final = "$home/servers"  # broker → client, later: these servers now, with blanks between them

HOME_MAX_CHARS: Final = 300  # of an id or an address
HOMES_MAX: Final = 16  # that are asked about at a time; the others later
STEADY: Final = 3  # a broker that comes and goes is no home
PORTION: Final = 100


class Visit(msgspec.Struct, frozen=True):
    """One guest's."""

    home: str
    scheme: Scheme  # by which it came


class Guests:
    """Of one broker."""

    def __init__(self, own: BrokerInfo, every: int = 1) -> None:
        """Homes that are away are asked about with one in ``every`` heartbeats."""
        self._every = every
        self._turn = 0
        self._own = {own.id, *(entrance.address for entrance in own.entrances)}
        self._visits: dict[str, Visit] = {}  # by client
        self._of_home: dict[
            str, dict[str, None]
        ] = {}  # home → its clients; those that were asked about last, last
        self._named: dict[str, int] = {}  # home → how often in a row it was named
        self._asked: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._visits)

    def came(self, client: str, home: str, scheme: Scheme) -> None:
        """A client has come, and says where it is at home."""
        self.went(client)
        if home in self._own or not 0 < len(home) <= HOME_MAX_CHARS:
            return
        self._visits[client] = Visit(home, scheme)
        self._of_home.setdefault(home, {})[client] = None

    def went(self, client: str) -> None:
        """A client is not here any more, guest or not."""
        visit = self._visits.pop(client, None)
        if visit is None:
            return
        clients = self._of_home[visit.home]
        del clients[client]
        if not clients:
            del self._of_home[visit.home]
            self._named.pop(visit.home, None)

    def ask(self) -> tuple[str, ...]:
        """The homes to ask about now."""
        self._turn = (self._turn + 1) % self._every
        wanted = self._named_last() if self._turn else tuple(self._of_home)
        self._asked = wanted[:HOMES_MAX]
        for home in self._asked:
            self._of_home[home] = self._of_home.pop(home)
        return self._asked

    def _named_last(self) -> tuple[str, ...]:
        return tuple(home for home, count in self._named.items() if count)

    def answered(self, there: Mapping[str, BrokerInfo]) -> list[tuple[str, str]]:
        """Of the homes that were asked about these are there: the clients to send, each with its server reference."""
        asked, self._asked = self._asked, ()
        leaving: list[tuple[str, str]] = []
        for home in asked:
            self._named[home] = self._named.get(home, 0) + 1 if home in there else 0
            if self._named[home] >= STEADY:
                leaving += self._leaving(home, there[home], PORTION - len(leaving))
        self._named = {home: count for home, count in self._named.items() if home in self._of_home}
        for client, _ in leaving:
            self.went(client)
        return leaving

    def _leaving(self, home: str, info: BrokerInfo, most: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for client in tuple(self._of_home.get(home, ()))[: max(most, 0)]:
            reference = refuge.reference((info,), self._visits[client].scheme, 0)
            if reference is None:
                self.went(client)  # there is no way in for it: it stays
            else:
                found.append((client, reference))
        return found
