"""Guests: clients whose home is another broker, served here while their home is away, and sent back when it returns.

A client that knows its home states it when it connects: ``PROPERTY_HOME`` in its CONNECT, the id of a broker or one
of its addresses. Every few heartbeats the broker asks the coordinator about some of these homes (``ask``), and with
each heartbeat about those that were there the last time. The coordinator answers with those that are there and have
room (``answered``). A home that was named STEADY times in a row is back. Its guests are sent there, a PORTION with
each answer: they arrive with everything that they have, and the home has other things to do as well.

An answer counts for the question that it answers, however late it comes; an answer that was overtaken counts for
nothing.

Invariant: a client that has come and not gone is a guest, whatever it was told. A message may be lost, and a home may
have no way in for a client while a standby has its name. So a guest that is still here is sent again, AGAIN rounds of
questions later.

Costs: a heartbeat costs the homes that have guests here and the guests that are sent, not the guests that stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from tocsin.core.survival import refuges as refuge
from tocsin.model.network import BrokerInfo, Scheme
from tocsin.model.versions import Stated

PROPERTY_HOME: Final = "home"  # client → broker: where it is at home
PROPERTY_BROKER: Final = "broker"  # broker → client, in answer to that: where it is
PROPERTY_SERVER: Final = "server"  # also: where it could go if this broker were gone; repeated, best first
PROPERTY_STAY: Final = "stay"  # client → broker: it could not reach where it was sent, and wants to stay
PROPERTY_WATCH: Final = "watch"  # both ways, on a watch connection (``core.survival.watchers``)
PROPERTY_VERSION: Final = "home.v"  # both ways: the version of all this; older clients and brokers say none
GUEST: Final = Stated("what a client and a broker say of its home")
SERVERS_TOPIC: Final = "$home/servers"  # broker → client, later: these servers now, with blanks between them

HOME_MAX_CHARS: Final = 300  # of an id or an address
HOMES_MAX: Final = 16  # that are asked about at a time; the others later
STEADY: Final = 3  # a broker that comes and goes is no home
PORTION: Final = 100
AGAIN: Final = 5  # with a question every two seconds, ten: longer than a client takes to find a closed door
UNANSWERED_MAX: Final = 64  # questions whose answers may still come


class _Home:
    """A broker whose clients are guests here."""

    __slots__ = ("named", "told", "waiting")

    def __init__(self) -> None:
        self.named = 0  # how often in a row
        self.waiting: dict[str, Scheme] = {}  # guests that were not sent → how they came
        self.told: dict[str, tuple[Scheme, int]] = {}  # the others, and with which beat; the earliest first

    def is_empty(self) -> bool:
        return not self.waiting and not self.told

    def due(self, before: int) -> Iterator[tuple[str, Scheme]]:
        """The guests that were not sent yet, then those that were told before that heartbeat."""
        yield from self.waiting.items()
        for client, (scheme, beat) in self.told.items():
            if beat >= before:
                return
            yield client, scheme


class Homes:
    """The homes of clients that one broker serves as guests."""

    def __init__(self, own: BrokerInfo, every: int = 1) -> None:
        """Homes that are away are asked about with one in ``every`` heartbeats."""
        self._every = every
        self._turn = 0
        self._own = self._latest = _names(
            own
        )  # the names of this broker, with and without those before it moved
        self._home_of: dict[str, str] = {}  # client → home
        self._homes: dict[str, _Home] = {}  # those with guests; those that were asked about last, last
        self._asked: dict[int, tuple[str, ...]] = {}  # by beat, the earliest first: not answered

    def __len__(self) -> int:
        return len(self._home_of)

    def readdress(self, own: BrokerInfo) -> None:
        """This broker has other addresses: clients that name one of the last two lots are at home."""
        self._own = _names(own) | self._latest
        self._latest = _names(own)

    def came(self, client: str, home: str, scheme: Scheme) -> None:
        """A client has come, and says where it is at home."""
        self.went(client)
        if home in self._own or not 0 < len(home) <= HOME_MAX_CHARS:
            return
        self._home_of[client] = home
        self._homes.setdefault(home, _Home()).waiting[client] = scheme

    def went(self, client: str) -> None:
        """A client is not here any more, guest or not."""
        name = self._home_of.pop(client, None)
        if name is None:
            return
        home = self._homes[name]
        home.waiting.pop(client, None)
        home.told.pop(client, None)
        if home.is_empty():
            del self._homes[name]

    def ask(self, beat: int) -> tuple[str, ...]:
        """The homes to ask about with this beat; their numbers grow."""
        self._turn = (self._turn + 1) % self._every
        wanted = self._named_last() if self._turn else iter(self._homes)
        asked = tuple(islice(wanted, HOMES_MAX))
        for name in asked:
            self._homes[name] = self._homes.pop(name)
        if asked:
            self._asked[beat] = asked
            if len(self._asked) > UNANSWERED_MAX:
                del self._asked[next(iter(self._asked))]
        return asked

    def _named_last(self) -> Iterator[str]:
        return (name for name, home in self._homes.items() if home.named and home.waiting)

    def answered(self, beat: int, there: Mapping[str, BrokerInfo]) -> list[tuple[str, str]]:
        """These homes of the ones asked about with that heartbeat are up: return the clients to send, each with its
        server reference.
        """
        asked = self._asked.get(beat, ())
        for each in [each for each in self._asked if each <= beat]:
            del self._asked[each]
        leaving: list[tuple[str, str]] = []
        for name in asked:
            home = self._homes.get(name)
            if home is None:
                continue
            home.named = home.named + 1 if name in there else 0
            if home.named >= STEADY:
                leaving += self._leaving(home, there[name], PORTION - len(leaving), beat)
        return leaving

    def _leaving(self, home: _Home, info: BrokerInfo, most: int, beat: int) -> list[tuple[str, str]]:
        due = tuple(islice(home.due(beat - AGAIN * self._every), max(most, 0)))
        found: list[tuple[str, str]] = []
        for client, scheme in due:
            home.waiting.pop(client, None)
            home.told.pop(client, None)
            home.told[client] = scheme, beat
            reference = refuge.reference((info,), scheme, 0)
            if reference is not None:  # else there is no way in for it just now
                found.append((client, reference))
        return found


def _names(broker: BrokerInfo) -> frozenset[str]:
    """What clients may call their home at a broker."""
    return frozenset((broker.id, *(entrance.address for entrance in broker.entrances)))
