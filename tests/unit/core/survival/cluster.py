"""Landmark machines of one cluster on virtual time, with a network between them that can be changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import count

from tocsin.core.machine import CancelTimer, Effect, Event, Received, Say, Send, SetTimer, TimerFired
from tocsin.core.survival.landmark import Landmark
from tocsin.core.survival.landmark_signals import (
    BacksKnown,
    LandmarkKnown,
    MeanwhileIn,
    MeanwhileOut,
    NearRoutes,
    NeighboursWanted,
    Restored,
    RosterKnown,
    Severed,
    WantsChanged,
)
from tocsin.model.network import BrokerInfo, Role, Route
from tocsin.wire.internal.cluster_messages import (
    ClusterMessage,
    decode_cluster_message,
    encode_cluster_message,
)

SECOND = 1_000_000
DELAY_US = 5_000
START_US = 100_000  # a process takes to start


def info(broker: str) -> BrokerInfo:
    return BrokerInfo(broker, "north", Role.EDGE, "127.0.0.1", 1)


class Node:
    def __init__(self, broker: str, now_us: int = 0) -> None:
        self.broker = broker
        self.wanted: set[str] = set()
        self.machine = Landmark(broker, lambda: sorted(self.wanted), series=now_us)
        self.timers: dict[str, int] = {}  # name → the number of the one that counts
        self.routes: set[Route] = set()
        self.standing_in: set[str] = set()
        self.linked: set[str] = set()
        self.landmark = ""
        self.alive = True
        self.words: list[ClusterMessage] = []  # that it said


class Cluster:
    """A cluster's landmark machines, joined by links that lose nothing. A message needs a link that was asked for."""

    def __init__(self, brokers: Iterable[str], backs: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.nodes = {broker: Node(broker) for broker in brokers}
        self.apart: set[frozenset[str]] = set()
        self.now_us = 0
        self._queue: list[tuple[int, int, str, Event | tuple[str, int]]] = []
        self._count = count(1)
        self._backs = backs or {}
        for broker in self.nodes:
            self._begin(broker)

    def _begin(self, broker: str) -> None:
        self.post(broker, RosterKnown(brokers=tuple(map(info, self.nodes))))
        self.post(broker, BacksKnown(primaries=self._backs.get(broker, ())))

    # ── faults ──────────────────────────────────────────────────────────────────────────────────────────────

    def sever(self, *brokers: str) -> None:
        for broker in brokers or self.nodes:
            if self.nodes[broker].alive:
                self.post(broker, Severed())

    def restore(self, *brokers: str) -> None:
        for broker in brokers or self.nodes:
            if self.nodes[broker].alive:
                self.post(broker, Restored())

    def kill(self, broker: str) -> None:
        self.nodes[broker].alive = False

    def restart(self, broker: str, clock_us: int | None = None) -> None:
        """A new process of that name, which a leader hears, and which has no clients yet."""
        self.kill(broker)
        self.run(START_US)
        self.nodes[broker] = Node(broker, self.now_us if clock_us is None else clock_us)
        self._begin(broker)

    def part(self, one: str, other: str) -> None:
        self.apart.add(frozenset((one, other)))

    def join(self, one: str, other: str) -> None:
        self.apart.discard(frozenset((one, other)))

    def want(self, broker: str, name: str) -> None:
        node = self.nodes[broker]
        if name not in node.wanted:
            node.wanted.add(name)
            self.post(broker, WantsChanged(added=(name,)))

    def want_not(self, broker: str, name: str) -> None:
        node = self.nodes[broker]
        if name in node.wanted:
            node.wanted.discard(name)
            self.post(broker, WantsChanged(removed=(name,)))

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, for_us: int) -> None:
        end_us = self.now_us + for_us
        while self._queue and self._queue[0][0] <= end_us:
            self.now_us, _, broker, event = heappop(self._queue)
            node = self.nodes[broker]
            if isinstance(event, tuple):
                name, number = event
                if node.timers.get(name) != number:
                    continue
                event = TimerFired(name=name)
            self.post(broker, event)
        self.now_us = end_us

    def post(self, broker: str, event: Event) -> None:
        node = self.nodes[broker]
        if node.alive:
            for effect in node.machine.handle(event, self.now_us):
                self._carry_out(node, effect)

    def _carry_out(self, node: Node, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=ClusterMessage() as word):
                target = to.removeprefix("broker/")
                assert target in node.linked, "words go over links that were asked for"
                node.words.append(word)
                if frozenset((node.broker, target)) not in self.apart:
                    heard = Received(
                        sender=f"broker/{node.broker}",
                        message=decode_cluster_message(encode_cluster_message(word)),
                    )
                    heappush(self._queue, (self.now_us + DELAY_US, next(self._count), target, heard))
            case SetTimer(name=name, delay_us=delay_us):
                number = node.timers[name] = next(self._count)
                heappush(self._queue, (self.now_us + delay_us, number, node.broker, (name, number)))
            case CancelTimer(name=name):
                node.timers.pop(name, None)
            case NeighboursWanted(peers=peers):
                node.linked = {each.id for each in peers}
            case NearRoutes(added=added, removed=removed):
                assert not node.routes & set(added) and set(removed) <= node.routes
                node.routes = (node.routes | set(added)) - set(removed)
            case LandmarkKnown(landmark=landmark):
                node.landmark = landmark
            case MeanwhileIn(broker=broker):
                assert broker not in node.standing_in and node.machine.severed
                node.standing_in.add(broker)
            case MeanwhileOut(broker=broker):
                node.standing_in.remove(broker)
            case Say():
                pass
            case other:
                raise AssertionError(f"no way to carry out {other}")

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────

    def landmarks(self) -> dict[str, str]:
        return {broker: node.landmark for broker, node in self.nodes.items() if node.alive}

    def standing_in(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for broker, node in self.nodes.items():
            if node.alive:
                for each in node.standing_in:
                    found[each].add(broker)
        return dict(found)

    def reached(self, broker: str) -> dict[str, set[str]]:
        """To whom a broker sends what, beside the coordinator's routes."""
        found: dict[str, set[str]] = defaultdict(set)
        for route in self.nodes[broker].routes:
            found[route.peer].add(route.filter)
        return dict(found)
