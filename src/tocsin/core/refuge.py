"""Where a broker's clients can go when it has no room for them or stops: the coordinator's choice, a few brokers each.

Brokers of the same cluster come first, edge brokers before routing ones, then the one with the most room. A broker that
is full is no refuge, nor is one that waits to be promoted, or that has no entrance for clients.

Costs: all brokers are sorted when the registry says that they changed, and a few of them looked at for each question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from tocsin.model.network import BrokerInfo, Role, Scheme

REFUGES_MAX: Final = 3  # brokers that one is told of: the next is asked if one is gone meanwhile
FULL: Final = 1_000  # thousandths


class RefugePlan:
    """The live brokers, by how well they can take clients in."""

    def __init__(self) -> None:
        self._ranked: tuple[BrokerInfo, ...] = ()
        self._by_cluster: dict[str, list[BrokerInfo]] = {}

    def rank(self, brokers: Iterable[BrokerInfo], loads: Mapping[str, int]) -> None:
        """These brokers are there, and so full, in thousandths."""
        able = [
            each
            for each in brokers
            if each.entrances and each.role != Role.STANDBY and loads.get(each.id, 0) < FULL
        ]
        able.sort(key=lambda each: (each.role != Role.EDGE, loads.get(each.id, 0), each.id))
        self._ranked = tuple(able)
        self._by_cluster = {}
        for each in able:
            self._by_cluster.setdefault(each.cluster, []).append(each)

    def of(self, broker: BrokerInfo) -> tuple[BrokerInfo, ...]:
        """Where this broker's clients can go, best first."""
        chosen: dict[str, BrokerInfo] = {}
        for each in chain(self._by_cluster.get(broker.cluster, ()), self._ranked):
            if len(chosen) == REFUGES_MAX:
                break
            if each.id != broker.id:
                chosen.setdefault(each.id, each)
        return tuple(chosen.values())


def reference(refuges: Iterable[BrokerInfo], scheme: Scheme, turn: int) -> str | None:
    """The server reference for a client that came by this scheme; None if none of them has an entrance for it.

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
    return nearest[turn % len(nearest)] if nearest else None
