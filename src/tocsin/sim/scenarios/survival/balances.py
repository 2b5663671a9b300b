"""``survival`` with balancing, and a crowd that begins at one broker: pairs of clients that ask for the same.

Brokers take few clients here, so that a handful makes one fuller than another. Balancing begins while brokers fail.
Clocks do not jump: how long a client has rested is reckoned by its broker's clock.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.broker.survival.moving_out import SENT_AWAY
from tocsin.config import Settings
from tocsin.config.balance import Balance
from tocsin.config.schema import Limits
from tocsin.core.machine import Say
from tocsin.sim.chance import MILLION
from tocsin.sim.process.stage import node_of
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World

# With their servers, the home first, and what they ask for.
CROWD: Final = tuple(
    (f"{asks.replace('/', '-')}-{number}", ("north-1", "south-1"), asks)
    for asks in ("dora/a", "fred/b", "fred/c")
    for number in (1, 2)
)
BALANCE: Final = Balance(mode="on", rate=2, threshold_percent=10, rest_s=15, grace_s=5)
LIMITS: Final = Limits(connections_max=20)


class Even(Invariant):
    """In the end no broker of a cluster is fuller than another by more than the threshold."""

    name = "in the end the brokers of a cluster are about as full as each other"

    def __init__(self, brokers: Brokers, settings: Settings, at_us: int) -> None:
        self._brokers = brokers
        self._most = settings.limits.connections_max * settings.balance.threshold_percent // 100
        self._clusters: dict[str, list[str]] = {}
        for each in settings.brokers:
            if each.role == "edge":
                self._clusters.setdefault(each.cluster, []).append(each.id)
        self._at_us = at_us

    def attach(self, world: World) -> None:
        world.at(self._at_us, self._look)

    def _look(self) -> None:
        for cluster, names in self._clusters.items():
            counts = {each: len(one.clients) for each in names for one in self._brokers.named(each)}
            if max(counts.values()) - min(counts.values()) > self._most:
                self.broken(f"in {cluster} brokers have so many clients: {counts}")


class NoCircle(Invariant):
    """Nobody is moved to balance to where they were moved from before they have rested."""

    name = "no client is moved in a circle"

    def __init__(self, rest_s: int) -> None:
        self._rest_us = rest_s * MILLION
        self._moved: dict[str, tuple[int, str]] = {}  # client → when it was moved last, and from where

    def attach(self, world: World) -> None:
        world.observers.on_say(SENT_AWAY, lambda node, say: self._on_sent(world.now_us, node, say))

    def _on_sent(self, now_us: int, node: str, say: Say) -> None:
        client, to = str(say.facts["subscriber"]), node_of(str(say.facts["to"]))
        at_us, before = self._moved.get(client, (-self._rest_us, ""))
        if not say.facts["drain"] and to == before and now_us - at_us < self._rest_us:
            self.broken(
                f"{client} is moved from {node} to {to}, where it was {(now_us - at_us) // 1_000} ms ago"
            )
        self._moved[client] = now_us, node


def balanced(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, balance=BALANCE, limits=LIMITS)
