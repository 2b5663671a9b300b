"""Brokers that see their links as they are, a leader's rerouting that they tell, and messages over what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise, permutations

from tocsin.core.coordination.leader.rerouting import REFRESH_US, Rerouting
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.coordination.state.state import State
from tocsin.core.forwarding.origins import UNREGISTERED
from tocsin.core.machine import Effect, Send
from tocsin.core.tiers.slots import is_gate, slot_of
from tocsin.model.network import BrokerInfo, Role, Scope
from tocsin.wire.internal.commands import Elected, Interests, Joined, Limits, Logged, Lost, Said
from tocsin.wire.internal.control import Links

SECOND_US = 1_000_000


def info(name: str) -> BrokerInfo:
    cluster = {"n": "north", "s": "south", "w": "west"}[name[0]]
    role = Role.ROUTING if "hub" in name else Role.EDGE
    return BrokerInfo(name, cluster, role, "127.0.0.1", 1)


class Network:
    """Brokers that see their links as they are, told to one leader; ``broken`` are links that carry nothing."""

    def __init__(self, *names: str, interests: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.state = State()
        self.pictures = {name: NetworkView() for name in names}
        self.broken: set[tuple[str, str]] = set()
        self.delays: dict[tuple[str, str], int] = {}
        self.now_us = 0
        self.said: list[Logged] = []
        self.asked: list[str] = []
        self.rerouting = Rerouting(self.state)
        self.apply(Elected("leader", Limits(), 1))
        for name in names:
            self.apply(Said(name, 1, 1, (Joined(info(name)),)))
        for name, filters in (interests or {}).items():
            self.apply(Said(name, 1, 2, (Interests(filters),)))

    def apply(self, *commands: Logged) -> None:
        self.said += commands
        outcome = self.state.apply(self.now_us, commands)
        for broker, items in outcome.items.items():
            self.pictures[broker].apply(items, {}, fresh=broker in outcome.fresh)

    def lose(self, broker: str) -> None:
        self.apply(Lost(broker, 1))
        del self.pictures[broker]

    def links(self, broker: str) -> Links:
        """What a broker sees: of peers that are gone, nothing."""
        peers = [peer for peer in self.pictures[broker].peers if peer in self.pictures]
        cut = tuple(peer for peer in peers if (broker, peer) in self.broken)
        delays = tuple((peer, self.delay(broker, peer)) for peer in peers if peer not in cut)
        return Links(broker, 1, cut, delays)

    def delay(self, broker: str, peer: str) -> int:
        usual = 1_000 if info(broker).cluster == info(peer).cluster else 50_000
        return self.delays.get((broker, peer), usual)

    def hear(self, broker: str) -> list[Effect]:
        effects = self.rerouting.hear(self.links(broker), self.now_us)
        self.asked += [each.to for each in effects if isinstance(each, Send)]
        return effects

    def step(self) -> bool:
        """A second passes: everybody tells, and the leader acts; whether it did."""
        self.now_us += SECOND_US
        for broker in self.pictures:
            self.hear(broker)
        self.now_us += REFRESH_US
        commands, _ = self.rerouting.look(self.now_us)
        if commands:
            self.apply(*commands)
        return bool(commands)

    def settle(self) -> Network:
        for _ in range(100):
            if not self.step() and not self.step():
                return self
        raise AssertionError("it never settles")

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, origin: str, topic: str) -> Counter[str]:
        """How often each broker gets a message of a client of ``origin``, for its own clients or to carry."""
        got: Counter[str] = Counter()
        straight = {each for each in self.named(origin, Scope.ORIGIN, topic) if not is_gate(each)}
        got.update(each for each in straight if self.crosses(origin, each))
        for gate in sorted(self.named(origin, Scope.ORIGIN, topic) - straight):
            first = self.pictures[origin].tiers[gate].carriers[slot_of(topic)]
            if self.crosses(origin, first):
                got[first] += first not in straight
                for second in self.peers(first, Scope.TRANSIT, topic):
                    if info(second).cluster != info(origin).cluster and self.crosses(first, second):
                        got[second] += 1
        return got

    def named(self, broker: str, scope: Scope, topic: str) -> set[str]:
        """The brokers and tiers that routes name, for topics that are no streams."""
        routes, filters = self.pictures[broker].routes, (topic, UNREGISTERED)
        return {each.peer for each in routes if each.scope is scope and each.filter in filters}

    def peers(self, broker: str, scope: Scope, topic: str) -> list[str]:
        """The brokers that routes lead to."""
        tiers, slot = self.pictures[broker].tiers, slot_of(topic)
        named = self.named(broker, scope, topic)
        return sorted({tiers[each].carriers[slot] if is_gate(each) else each for each in named})

    def crosses(self, broker: str, peer: str) -> bool:
        """Whether what one broker sends to another arrives, straight or over relays; a relay needs links."""
        if (broker, peer) not in self.broken:
            return True
        relays = dict(self.pictures[broker].bypass.around).get(peer, ())
        way = (broker, *relays, peer)
        legs = list(pairwise(way))
        return bool(relays) and all(
            leg not in self.broken and leg[1] in self.pictures[leg[0]].peers for leg in legs
        )

    def could_cross(self, broker: str, peer: str) -> bool:
        """Whether there is a way of at most three links at all."""
        others = [each for each in self.pictures if each not in (broker, peer)]
        ways = [(broker, *relays, peer) for size in (0, 1, 2) for relays in permutations(others, size)]
        return any(self.broken.isdisjoint(pairwise(way)) for way in ways)


EVERYBODY = ("n-1", "n-2", "n-hub", "s-1", "s-2", "s-hub")
WANTS = {"s-1": ("t",), "s-2": ("t",), "n-2": ("t",)}
