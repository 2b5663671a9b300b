"""Where a broker's clients can go: first to its planned backups, then to refuges.

A client is told beforehand where to go if its broker is lost: to the local backup, which has a copy of its state, then
to the remote one, then to **refuges**. A broker that stops sends its clients the same way. A broker that is full sends
new clients to a refuge.

The coordinator chooses refuges.

Brokers of the same cluster come first, edge brokers before routing ones, then the one with the most room. A broker that
is full is no refuge, nor is one that waits to be promoted, or that has no entrance for clients. A **checksum** says
which refuges a broker knows already, so that they are told once.

Costs: all brokers are sorted when the registry says that they changed, and a few of them looked at for each question.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final

import msgspec

from tocsin.model.network import BrokerInfo, Role, Scheme

REFUGES_MAX: Final = 3  # brokers that one is told of: the next is asked if one is gone meanwhile
FULL: Final = 1_000  # thousandths
ROOMY: Final = 900  # guests are sent home to a broker that is less full, lest it sends them away again
HOMES_MAX: Final = 64  # that one broker may ask about at a time
SUMMED: Final = ("id", "cluster", "role", "host", "port", "entrances", "certified")
STEP: Final = 50  # thousandths in which brokers count as equally full, lest each client changes the order


class RefugePlan:
    """Ranks live brokers by how well they can take clients in."""

    def __init__(self) -> None:
        self._given: tuple[tuple[BrokerInfo, ...], dict[str, int]] | None = None  # of which the rest is made
        self._ranked: tuple[BrokerInfo, ...] = ()
        self._by_cluster: dict[str, list[BrokerInfo]] = {}
        self._homes: dict[str, BrokerInfo] = {}  # those with room, by id and by address
        self._checksums: dict[tuple[str, ...], int] = {}  # of choices that were made since then, by their ids

    def rank(self, brokers: Iterable[BrokerInfo], loads: Mapping[str, int]) -> None:
        """These brokers are there, and so full, in thousandths. Nothing is done where that was so before."""
        given = (tuple(brokers), dict(loads))
        if given == self._given:
            return
        self._given = given
        able = [
            each
            for each in given[0]
            if each.entrances and each.role != Role.STANDBY and loads.get(each.id, 0) < FULL
        ]
        able.sort(key=lambda each: (each.role != Role.EDGE, loads.get(each.id, 0) // STEP, each.id))
        self._ranked = tuple(able)
        self._checksums = {}
        self._by_cluster = {}
        for each in able:
            self._by_cluster.setdefault(each.cluster, []).append(each)
        roomy = [each for each in able if loads.get(each.id, 0) < ROOMY]
        addresses = {entrance.address: each for each in roomy for entrance in each.entrances}
        self._homes = addresses | {each.id: each for each in roomy}

    def of(self, broker: BrokerInfo) -> tuple[BrokerInfo, ...]:
        """Where this broker's clients can go, best first."""
        chosen: dict[str, BrokerInfo] = {}
        for each in chain(self._by_cluster.get(broker.cluster, ()), self._ranked):
            if len(chosen) == REFUGES_MAX:
                break
            if each.id != broker.id:
                chosen.setdefault(each.id, each)
        return tuple(chosen.values())

    def news(self, broker: BrokerInfo, known: int) -> tuple[BrokerInfo, ...] | None:
        """The same, or None if the broker knows them: the checksum is that of what it knows."""
        chosen = self.of(broker)
        ids = tuple(each.id for each in chosen)
        if ids not in self._checksums:
            self._checksums[ids] = checksum(chosen)
        return None if self._checksums[ids] == known else chosen

    def homes(self, asked: Iterable[str]) -> tuple[tuple[str, BrokerInfo], ...]:
        """The brokers, of those asked about by id or address, that are there and have room."""
        wanted = islice(asked, HOMES_MAX)
        return tuple((name, self._homes[name]) for name in wanted if name in self._homes)


def checksum(refuges: Iterable[BrokerInfo]) -> int:
    """Differs (nearly always) if they do, in whichever order they are; 0 for none. Brokers of an earlier release know
    SUMMED of a broker and no more, and have the same checksum."""
    known = ({name: getattr(each, name) for name in SUMMED} for each in refuges)
    return zlib.crc32(b"".join(sorted(map(msgspec.msgpack.encode, known))))


def destinations(
    backups: Iterable[BrokerInfo], refuges: Iterable[BrokerInfo], scheme: Scheme, turn: int
) -> list[str]:
    """Server references for the clients of a broker that is lost or stops: its backups in their order, then refuges."""
    planned = [reference((each,), scheme, 0) for each in backups]
    return list(
        dict.fromkeys(each for each in (*planned, *references(refuges, scheme, turn)) if each is not None)
    )


def reference(refuges: Iterable[BrokerInfo], scheme: Scheme, turn: int) -> str | None:
    """The server reference for a client that came by this scheme; None if none of them has an entrance for it."""
    return next(iter(references(refuges, scheme, turn)), None)


def references(refuges: Iterable[BrokerInfo], scheme: Scheme, turn: int) -> list[str]:
    """All of them, best first.

    A client is never sent from TLS to an entrance without. ``turn`` spreads many clients over those that are as near
    as the first.
    """
    open_doors = [
        (each.cluster, entrance.address)
        for each in refuges
        for entrance in each.entrances
        if entrance.scheme == scheme
    ]
    nearest = [address for cluster, address in open_doors if cluster == open_doors[0][0]]
    farther = [address for cluster, address in open_doors if cluster != open_doors[0][0]]
    first = turn % len(nearest) if nearest else 0
    return [*nearest[first:], *nearest[:first], *farther]
