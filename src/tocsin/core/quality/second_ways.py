"""What an origin knows of those who want its topics within a budget, and of the ways to them; and what follows.

The **origin** is the broker of the publishers. **Destinations** say what they want within which budget (``wished``).
Brokers that have links to a destination say how long messages take over these (``reached``); the origin measures its
own. From both come the predictions that ``core.quality.ways`` judges. ``look`` is called about once a second.

A leg counts from LEAST samples on. A link that is down loses everything: what goes over others has to go on then.

What is forgotten: wishes that were not repeated for WISHED_US, legs not repeated for TOLD_US. What was measured of a
straight connection that was closed since holds for STRAIGHT_US, so that it is not tried again every second.

Bounds: WANTS_MAX pairs of a topic and a destination are judged; CONVOLVED predictions over relays are made anew in one
look; DESTINATIONS_MAX destinations, each with as many wishes as one word has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from tocsin.core.links.delay import MILLION, Delay, Part, predicted
from tocsin.core.quality.ways import (
    BASE,
    NO_RELAY,
    STRAIGHT,
    TWIN,
    Bounds,
    Decision,
    Key,
    Paths,
    Planner,
    Want,
    Why,
)
from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.quality import LEGS_MAX, Leg, Wish
from tocsin.wire.mqtt.topics import matches

LEAST: Final = 10  # samples of a link, before it counts
BROKER_US: Final = 1_000  # what a broker takes to pass a message on
WISHED_US: Final = 16_000_000
TOLD_US: Final = 16_000_000
STRAIGHT_US: Final = 60_000_000
WANTS_MAX: Final = 10_000
DESTINATIONS_MAX: Final = 64
REMEMBERED: Final = 1_000  # topics that are no more, for which it is known who wanted them
CONVOLVED: Final = 10  # a few milliseconds each
DOWN: Final = Delay((Part(0, 0, 1),), lost_ppm=MILLION, samples=LEAST)


class Topic(msgspec.Struct, frozen=True):
    """A topic that clients of the origin publish on under a budget."""

    offered_us: int
    priority: int = 0
    bytes_s: int = 0  # of one copy


class Told(msgspec.Struct, frozen=True):
    """Why a topic has the ways that it has, for one destination."""

    budget_us: int
    base_over: str
    decision: Decision


class _Destination:
    """A broker with subscribers that have a budget."""

    __slots__ = ("budgets", "info", "rows", "until_us")

    def __init__(self, info: BrokerInfo, rows: tuple[Wish, ...], until_us: int) -> None:
        self.info = info
        self.rows = rows
        self.until_us = until_us
        self.budgets: dict[str, tuple[int, int]] = {}  # topic → what it offers, and the budget; 0: none fits

    def budget_us(self, topic: str, offered_us: int) -> int:
        """The least budget of those who want a topic that they match; 0: nobody does."""
        known = self.budgets.get(topic)
        if known is None or known[0] != offered_us:
            fit = [
                each.budget_us
                for each in self.rows
                if each.budget_us >= offered_us > 0 and matches(each.filter, topic)
            ]
            known = self.budgets[topic] = offered_us, min(fit, default=0)
        return known[1]


def leg_of(peer: str, delay: Delay | None) -> Leg:
    """A link as it is told; None: it is down."""
    if delay is None:
        return Leg(peer, ())
    return Leg(peer, delay.parts, delay.lost_ppm, delay.repeated_ppm, delay.samples)


def delay_of(leg: Leg) -> Delay | None:
    """The delay of a link that was told; None: too little is known of it, or what was told is none."""
    if not leg.parts:
        return DOWN
    parts = tuple(Part(*each) for each in leg.parts if each[0] <= each[1] and each[2] > 0)
    rise = all(one.high_us <= other.low_us for one, other in pairwise(parts))
    if not rise or len(parts) != len(leg.parts) or leg.samples < LEAST:
        return None
    return Delay(parts, leg.lost_ppm, leg.repeated_ppm, leg.samples)


class SecondWays:
    """The second ways of one origin."""

    def __init__(self, bounds: Bounds, goal: float) -> None:
        self.planner = Planner(bounds)
        self.told: dict[Key, Told] = {}
        self.sought: tuple[str, ...] = ()  # destinations that want something of this broker
        self._goal = goal
        self._destinations: dict[str, _Destination] = {}
        self._legs: dict[
            str, dict[str, tuple[Delay, int]]
        ] = {}  # relay → destination → delay, and until when
        self._straight: dict[str, tuple[Delay, int]] = {}  # what was measured last, and until when it holds
        self._made: dict[tuple[str, str], tuple[Delay, Delay, Delay]] = {}  # two legs, and both together
        self._paths_now: dict[str, Paths] = {}  # of the last look …
        self._bases: dict[tuple[str, str], Delay | None] = {}  # … by destination and whom they lead over
        self._left = 0  # predictions that may be made anew in this look

    @property
    def destinations(self) -> Mapping[str, BrokerInfo]:
        return {name: each.info for name, each in self._destinations.items()}

    def wished(self, info: BrokerInfo, rows: tuple[Wish, ...], now_us: int) -> bool:
        """A destination says all that it wants; whether that is new."""
        known = self._destinations.get(info.id)
        if not rows:
            return self._destinations.pop(info.id, None) is not None
        if known is not None and (known.info, known.rows) == (info, rows):
            known.until_us = now_us + WISHED_US
            return False
        if known is None and len(self._destinations) >= DESTINATIONS_MAX:
            return False
        self._destinations[info.id] = _Destination(info, rows, now_us + WISHED_US)
        return True

    def reached(self, relay: str, legs: Iterable[Leg], now_us: int) -> None:
        """A broker says how its links to destinations are."""
        for leg in legs:
            delay = delay_of(leg)
            if delay is not None and leg.to in self._destinations and leg.to != relay:
                known = self._legs.setdefault(relay, {})
                before = known.get(leg.to)
                if before is not None and before[0] == delay:
                    delay = before[0]
                known[leg.to] = delay, now_us + TOLD_US

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────

    def look(
        self,
        topics: Mapping[str, Topic],
        own: Mapping[str, Delay],
        straight: Mapping[str, Delay],
        can_dial: Callable[[BrokerInfo], bool],
        base_of: Callable[[str, str], Collection[str]],
        room: Mapping[str, int],
        gone: Collection[str],
        now_us: int,
    ) -> None:
        """Decide anew. ``own``: the links of this broker that are measured, or DOWN; ``straight``: its extra
        connections that are; ``base_of`` a topic and a destination: to whom messages go that reach it, the destination
        itself or brokers that may carry; ``gone``: brokers that are lost."""
        self._forget(gone, now_us)
        self._left = CONVOLVED
        for broker, delay in straight.items():
            self._straight[broker] = delay, now_us + STRAIGHT_US
        wants: list[Want] = []
        paths: dict[str, Paths] = {}
        for name, each in self._destinations.items():
            if len(each.budgets) > 2 * len(topics) + REMEMBERED:
                each.budgets.clear()
            mine = [
                (topic, us) for topic, row in topics.items() if (us := each.budget_us(topic, row.offered_us))
            ]
            if not mine:
                continue
            paths[name] = self._paths(name, own, name in straight, can_dial(each.info))
            bases: dict[str, Delay | None] = {}
            for topic, budget_us in mine[: WANTS_MAX - len(wants)]:
                over = self._base_over(name, base_of(topic, name))
                if over is None:
                    continue
                if over not in bases:
                    bases[over] = self._way(over, name, own)
                row = topics[topic]
                wants.append(
                    Want(topic, name, budget_us, self._goal, row.priority, bases[over], over, row.bytes_s)
                )
        decisions = self.planner.decide(wants, paths, room)
        self._paths_now = paths
        self.sought = tuple(sorted(paths))[:LEGS_MAX]
        self._bases = {(each.destination, each.base_over): each.base for each in wants}
        self.told = {each.key: Told(each.budget_us, each.base_over, decisions[each.key]) for each in wants}

    def _forget(self, gone: Collection[str], now_us: int) -> None:
        for name, each in tuple(self._destinations.items()):
            if each.until_us < now_us or name in gone:
                del self._destinations[name]
        for relay, legs in tuple(self._legs.items()):
            for to, (_, until_us) in tuple(legs.items()):
                if until_us < now_us or to not in self._destinations or relay in gone:
                    del legs[to]
            if not legs:
                del self._legs[relay]
        for name, (_, until_us) in tuple(self._straight.items()):
            if until_us < now_us or name not in self._destinations:
                del self._straight[name]
        for relay, to in tuple(self._made):
            if to not in self._legs.get(relay, ()):
                del self._made[relay, to]

    def _base_over(self, destination: str, first: Collection[str]) -> str | None:
        """The broker that the usual way leads over; empty: none; None: no way leads there, or it is not known which."""
        if destination in first:
            return ""
        carrying = [each for each in first if destination in self._legs.get(each, ())]
        if len(carrying) == 1:
            return carrying[0]
        return None if carrying or len(first) != 1 else next(iter(first))

    def _way(self, over: str, destination: str, own: Mapping[str, Delay]) -> Delay | None:
        """The delay of a way over one broker, or over none; None: too little is known of it."""
        first = own.get(over or destination)
        if first is None or first.samples < LEAST:
            return None
        if first is DOWN:
            return DOWN
        if not over:
            return first.one_way().later(BROKER_US)
        second = self._legs.get(over, {}).get(destination)
        if second is None:
            return None
        return DOWN if second[0] is DOWN else self._predicted(over, destination, first, second[0])

    def _predicted(self, over: str, destination: str, first: Delay, second: Delay) -> Delay | None:
        made = self._made.get((over, destination))
        if made is not None and made[0] is first and made[1] is second:
            return made[2]
        if self._left <= 0:
            return None if made is None else made[2]
        self._left -= 1
        both = predicted(first.one_way(), second.one_way()).later(2 * BROKER_US)
        self._made[over, destination] = first, second, both
        return both

    def _paths(self, name: str, own: Mapping[str, Delay], connected: bool, can_dial: bool) -> Paths:
        known = self._straight.get(name)
        relays = {}
        for relay, legs in self._legs.items():
            if relay in own and name in legs and own[relay] is not DOWN and legs[name][0] is not DOWN:
                way = self._way(relay, name, own)
                if way is not None:
                    relays[relay] = way
        straight = None if known is None or known[0].samples < LEAST else known[0].one_way().later(BROKER_US)
        return Paths(straight, can_dial, connected, relays)

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def targets(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """By topic, to whom copies go over which ways."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for (topic, destination), told in self.told.items():
            if told.decision.ways:
                found.setdefault(topic, {})[destination] = told.decision.ways
        return found

    def connections(self) -> set[Key]:
        """The extra connections that are needed, or to be measured: destinations, each with which."""
        found = set()
        for (_, destination), told in self.told.items():
            found |= {(destination, way) for way in told.decision.ways if way in NO_RELAY}
            if told.decision.tries:
                found.add((destination, STRAIGHT))
        return found

    def delays(self, destination: str, over: str) -> dict[str, Delay]:
        """The ways to a destination as they were judged last, the usual one first; a twin is as its straight way."""
        paths, base = self._paths_now.get(destination, Paths()), self._bases.get((destination, over))
        found = {} if base is None else {BASE: base}
        straight = paths.straight if over else base
        if paths.straight is not None and over:
            found[STRAIGHT] = paths.straight
        if straight is not None:
            found[TWIN] = straight
        return found | {name: delay for name, delay in paths.relays.items() if name != over}

    def measured(self) -> set[str]:
        """The brokers to which links matter here: what is published under a budget goes over them, or could."""
        over = {told.base_over or destination for (_, destination), told in self.told.items()}
        return over | set(self._legs)


def is_open(told: Told) -> bool:
    """Whether it is still to be seen which ways a topic gets."""
    decision = told.decision
    return decision.why is Why.UNKNOWN or (decision.tries and decision.why is Why.SHORT)
