"""How a plan of faults is drawn: a profile says which faults, how often and how long; the seed says the rest.

Durations are drawn so that each doubling is as likely as the next: a lease of two seconds is tried with pauses of a
tenth, of one, of four, and no one length is favoured. Some runs are nearly calm and some have a dozen faults at
once, because bugs hide in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tocsin.model.network import Address
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.faults.compound import CrashAtMoment, CrashInTurn, Flapping, StaleFirst, Storm
from tocsin.sim.faults.kinds import (
    BadWeather,
    Crash,
    CrashTogether,
    Fault,
    Lag,
    LeaderLoss,
    OldNews,
    Partition,
    Pause,
    Skew,
    Sleep,
    StoreClock,
    StoreTrouble,
    WatchReset,
)
from tocsin.sim.network import STORE, Direction, Weather
from tocsin.sim.store import StoreWeather

Kind = Literal[
    "crash",
    "sleep",
    "pause",
    "skew",
    "partition",
    "store partition",
    "weather",
    "leader loss",
    "store trouble",
    "watch reset",
    "store clock",
    "old news",
    "lag",
    "crash together",
    "cut off together",
    "flapping",
    "halves",
    "crash in turn",
    "stale first",
    "moment",
    "storm",
]

# All but "store clock", which is for scenarios in which something expires; "old news", which is for those in which
# somebody decides by a read that takes some time to be wrong; "lag", which is for those in which somebody
# could take what it has heard of a log for all that there is; those of groups, moments and connections, for scenarios
# that have some; and cuts by halves or that come and go, which are for those that last long enough.
EVERY_KIND: tuple[tuple[Kind, int], ...] = (
    ("crash", 4),
    ("sleep", 1),
    ("pause", 3),
    ("skew", 1),
    ("partition", 3),
    ("store partition", 2),
    ("weather", 2),
    ("leader loss", 2),
    ("store trouble", 2),
    ("watch reset", 2),
)
PERCENT = MILLION // 100
FLAP_MIN_US = MILLION // 5
FLAP_MAX_US = 3 * MILLION
OLD_NEWS_MAX_US = 10 * MILLION  # a server that led gives up that soon without the others
TURNS_US = MILLION // 10  # in which those crash that do so one after the other
TURNS_MAX = 4
TORN_MAX = 3  # effects of an event that are carried out before a torn crash; few events have more


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Which faults a scenario can bear."""

    kinds: tuple[tuple[Kind, int], ...] = EVERY_KIND  # with their weights
    most: int = 12  # faults in one run
    shortest_us: int = MILLION // 10
    longest_us: int = 8 * MILLION
    # The nodes that crash, sleep, pause or have a bad clock; None: every node.
    targets: tuple[Address, ...] | None = None
    drift_max_ppm: int = 20_000  # two in a hundred: ten times what a bad quartz does
    ahead_max_us: int = 2 * MILLION
    store_ahead_max_us: int = 2 * MILLION  # the same of the store's
    # Nodes that crash together, within a moment, or are cut off together from all the others.
    groups: tuple[tuple[Address, ...], ...] = ()
    # The nodes with clients, which are cut off from the store alone; None: every node.
    brokers: tuple[Address, ...] | None = None
    moments: tuple[str, ...] = ()  # at which a node that reaches them may crash (``World.reach``)


CALM = Profile(most=0)


def draw_plan(profile: Profile, nodes: Sequence[Address], until_us: int, chance: Chance) -> list[Fault]:
    """A plan for these nodes, in order of time; every fault begins before ``until_us``."""
    if not profile.most or not profile.kinds:
        return []
    draw = _Draw(profile, nodes, until_us, chance)
    plan = [draw.fault() for _ in range(chance.between(1, profile.most))]
    plan.sort(key=lambda fault: fault.at_us)
    return plan


class _Draw:
    """One plan in the making."""

    def __init__(self, profile: Profile, nodes: Sequence[Address], until_us: int, chance: Chance) -> None:
        self._profile = profile
        self._nodes = tuple(nodes)
        self._targets = self._nodes if profile.targets is None else profile.targets
        self._brokers = self._nodes if profile.brokers is None else profile.brokers
        self._until_us = until_us
        self._chance = chance
        self._draw: dict[Kind, Callable[[int, int], Fault]] = {
            "crash": self._crash,
            "sleep": lambda at, long: Sleep(at_us=at, for_us=long, node=self._target()),
            "pause": lambda at, long: Pause(at_us=at, for_us=long, node=self._target()),
            "skew": self._skew,
            "partition": self._partition,
            "store partition": self._store_partition,
            "weather": self._weather,
            "leader loss": lambda at, long: LeaderLoss(at_us=at, for_us=long),
            "store trouble": self._store_trouble,
            "store clock": self._store_clock,
            "old news": self._old_news,
            "watch reset": lambda at, long: WatchReset(at_us=at, for_us=0),
            "lag": lambda at, long: Lag(at_us=at, for_us=long, node=self._target()),
            "crash together": self._crash_together,
            "cut off together": self._cut_off_together,
            "flapping": self._flapping,
            "halves": self._halves,
            "crash in turn": self._crash_in_turn,
            "stale first": self._stale_first,
            "moment": self._moment,
            "storm": lambda at, long: Storm(at_us=at, for_us=0, node=self._chance.one_of(self._brokers)),
        }

    def fault(self) -> Fault:
        kind = self._chance.weighted(self._profile.kinds)
        return self._draw[kind](self._chance.below(self._until_us), self._span_us())

    def _span_us(self) -> int:
        return self._between(self._profile.shortest_us, self._profile.longest_us)

    def _between(self, shortest: int, longest: int) -> int:
        doublings = max(1, (longest // max(1, shortest)).bit_length())
        low = min(longest, shortest << self._chance.below(doublings))
        return self._chance.between(low, min(longest, 2 * low))

    def _target(self) -> Address:
        return self._chance.one_of(self._targets)

    def _side(self, everybody: Sequence[Address]) -> tuple[Address, ...]:
        """One address as often as any larger part."""
        most = max(1, len(everybody) // 2)
        count = 1 if self._chance.below(2) else self._chance.between(1, most)
        return tuple(sorted(self._chance.some_of(everybody, count)))

    def _direction(self) -> Direction:
        kinds: tuple[tuple[Direction, int], ...] = (("both", 2), ("out", 1), ("in", 1))
        return self._chance.weighted(kinds)

    def _crash(self, at_us: int, for_us: int) -> Fault:
        torn = self._chance.between(0, TORN_MAX) if self._chance.below(2) else None
        return Crash(at_us=at_us, for_us=for_us, node=self._target(), after_effects=torn)

    def _crash_together(self, at_us: int, for_us: int) -> Fault:
        nodes = self._chance.one_of(self._profile.groups)
        return CrashTogether(at_us=at_us, for_us=for_us, nodes=nodes)

    def _cut_off_together(self, at_us: int, for_us: int) -> Fault:
        side = self._chance.one_of(self._profile.groups)
        return Partition(at_us=at_us, for_us=for_us, side=side, direction=self._direction())

    def _skew(self, at_us: int, for_us: int) -> Fault:
        drift = self._profile.drift_max_ppm
        return Skew(
            at_us=at_us,
            for_us=for_us,
            node=self._target(),
            ahead_us=self._chance.below(self._profile.ahead_max_us + 1) if self._chance.below(2) else 0,
            drift_ppm=self._chance.between(-drift, drift),
        )

    def _store_clock(self, at_us: int, for_us: int) -> Fault:
        return StoreClock(
            at_us=at_us, for_us=0, ahead_us=self._between(MILLION, self._profile.store_ahead_max_us)
        )

    def _old_news(self, at_us: int, for_us: int) -> Fault:
        old_us = self._chance.between(OLD_NEWS_MAX_US // 10, OLD_NEWS_MAX_US)
        nodes, direction = self._side(self._brokers), self._direction()
        return OldNews(at_us=at_us, for_us=for_us, nodes=nodes, old_us=old_us, direction=direction)

    def _partition(self, at_us: int, for_us: int) -> Fault:
        side = self._side(self._nodes)
        others = None
        if self._chance.below(2):
            rest = [address for address in (*self._nodes, STORE) if address not in side]
            others = self._side(rest)
        return Partition(at_us=at_us, for_us=for_us, side=side, others=others, direction=self._direction())

    def _store_partition(self, at_us: int, for_us: int) -> Fault:
        return Partition(
            at_us=at_us,
            for_us=for_us,
            side=self._side(self._brokers),
            others=(STORE,),
            direction=self._direction(),
        )

    def _flapping(self, at_us: int, for_us: int) -> Fault:
        others = (STORE,) if self._chance.below(2) else None
        return Flapping(
            at_us=at_us,
            for_us=for_us,
            side=self._side(self._brokers),
            others=others,
            direction=self._direction(),
            every_us=self._chance.between(FLAP_MIN_US, FLAP_MAX_US),
        )

    def _halves(self, at_us: int, for_us: int) -> Fault:
        side = sorted(self._chance.some_of(self._nodes, max(1, len(self._nodes) // 2)))
        return Partition(at_us=at_us, for_us=for_us, side=tuple(side), direction=self._direction())

    def _crash_in_turn(self, at_us: int, for_us: int) -> Fault:
        """Within TURNS_US, which no fault is shorter than."""
        chance, able = self._chance, tuple(dict.fromkeys(self._targets))
        nodes = chance.some_of(able, chance.between(2, TURNS_MAX))
        crashes = tuple((node, chance.below(TURNS_US)) for node in nodes)
        return CrashInTurn(at_us=at_us, for_us=max(for_us, TURNS_US), crashes=crashes)

    def _stale_first(self, at_us: int, for_us: int) -> Fault:
        group = self._chance.one_of(self._profile.groups)
        stale = self._chance.one_of(group)
        others = tuple(node for node in group if node != stale)
        return StaleFirst(at_us=at_us, for_us=for_us, stale=stale, others=others)

    def _moment(self, at_us: int, for_us: int) -> Fault:
        """From then on until the trouble is over."""
        return CrashAtMoment(
            at_us=at_us,
            for_us=self._until_us - at_us,
            moment=self._chance.one_of(self._profile.moments),
            after_us=self._chance.below(TURNS_US) if self._chance.below(2) else 0,
            down_us=for_us,
        )

    def _weather(self, at_us: int, for_us: int) -> Fault:
        chance = self._chance
        weather = Weather(
            side=frozenset(self._side(self._nodes)) if chance.below(2) else None,
            loss_ppm=chance.between(0, 30) * PERCENT if chance.below(2) else 0,
            duplicate_ppm=chance.between(0, 30) * PERCENT if chance.below(2) else 0,
            reorder_ppm=chance.between(0, 50) * PERCENT if chance.below(2) else 0,
            reorder_us=chance.between(1_000, MILLION),
            extra_us=chance.between(0, MILLION // 2) if chance.below(2) else 0,
        )
        return BadWeather(at_us=at_us, for_us=for_us, weather=weather)

    def _store_trouble(self, at_us: int, for_us: int) -> Fault:
        chance = self._chance
        weather = StoreWeather(
            refuse_ppm=chance.between(0, 50) * PERCENT if chance.below(2) else 0,
            lose_ppm=chance.between(0, 30) * PERCENT if chance.below(2) else 0,
            mute_ppm=chance.between(0, 50) * PERCENT if chance.below(2) else 0,
            slow_us=chance.between(0, 8 * MILLION) if chance.below(2) else 0,
        )
        return StoreTrouble(at_us=at_us, for_us=for_us, weather=weather)
