"""Second ways: which copies of a topic's messages go where, so that latency budgets are kept.

A **want** is a topic with a budget at its origin, and a destination that asked for its messages within a budget. Its
**base** way is where routes lead. Of the other ways there are

    straight   an extra connection to the destination, across clusters too
    NAME       over a relay: a broker that the origin has a link to, and that has one to the destination
    twin       a second connection of the straight way, which shares all but losses with it

A way **misses** a message that it brings later than the budget, or not at all. If the base way misses more than the
goal, the cheapest set of ways is taken that are disjoint and miss the goal's share together: fewest copies first, then
fewest new connections, then fewest misses. If none reaches the goal, the best one that at least halves the misses.
A straight way that nobody has measured is tried first: the connection is made, and asked for signs of life.

What the planner gives is bounded (``Bounds``, and ``room`` in bytes). If more ask than fit, the higher priority comes
first, then who is helped more (in powers of HELPED), then who has its ways already, then by name. A want that was left
out says which bound left it out.

Ways are judged again when a distribution differs by much; else the last judgement holds. Who has ways keeps them until
the base way alone misses less than 1/LEAVE of the goal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from math import log
from typing import Final

import msgspec

from tocsin.core.links.delay import MUCH, Delay, miss_of_twins

STRAIGHT: Final = "straight"
TWIN: Final = "twin"
BASE: Final = "base"
NO_RELAY: Final = (STRAIGHT, TWIN)  # no broker may have such a name on a way
RELAYS_MAX: Final = 4  # that are looked at for one destination: the quickest
LEAVE: Final = 4
HELPS: Final = 2  # a set that does not reach the goal has to divide the misses by this …
HELPS_STILL: Final = 1.25  # … and one that is taken already, by this
HELPED: Final = 4
LEAST: Final = 1e-9  # a share of misses that counts as none

Key = tuple[str, str]  # topic and destination


class Why(StrEnum):
    """Why a want has no second way, or not those that it should have."""

    GOOD = ""  # the base way is good enough, or the ways that it has are
    UNKNOWN = "unknown"  # too little is known of the base way
    SHORT = "no better way"  # even the best ways miss more than the goal
    LINKS = "links_max"
    SHARE = "share"
    FLOWS = "flows_max"


class Bounds(msgspec.Struct, frozen=True):
    """What one broker adds at most."""

    ways: int = 3  # of one want, with the base way
    links: int = 16  # extra connections
    flows: int = 1_000


class Want(msgspec.Struct, frozen=True):
    """A topic for a destination, as it is judged."""

    topic: str
    destination: str
    budget_us: int
    goal: float
    priority: int
    base: Delay | None  # None: too little is known
    base_over: str  # the broker that the base way leads over; empty: it is straight itself
    bytes_s: int = 0  # of one copy

    @property
    def key(self) -> Key:
        return self.topic, self.destination


class Paths(msgspec.Struct, frozen=True):
    """The other ways to one destination, as far as they are known."""

    straight: Delay | None = None  # None: not measured
    can_dial: bool = True  # a straight connection may be made …
    connected: bool = False  # … or is there, measured or not
    relays: Mapping[str, Delay] = {}


class Decision(msgspec.Struct, frozen=True):
    """What a want gets."""

    ways: tuple[str, ...] = ()  # beside the base way
    miss: float = 1.0  # predicted, with these
    alone: float = 1.0  # predicted of the base way
    why: Why = Why.GOOD
    tries: bool = False  # a straight connection is to be measured


class _Judged(msgspec.Struct):
    """A want with the sets that would help it, the best first."""

    want: Want
    paths: Paths
    alone: float
    sets: list[tuple[tuple[str, ...], float]]
    tries: bool


def misses(want: Want, paths: Paths, ways: Sequence[str]) -> float:
    """How often all of these are late, the base way among them."""
    assert want.base is not None
    straight = want.base if not want.base_over else paths.straight
    twins = TWIN in ways
    rate = 1.0
    if want.base_over or not twins:
        rate *= want.base.miss(want.budget_us)
    if twins:
        assert straight is not None, "a twin is of a straight way"
        rate *= miss_of_twins(straight, want.budget_us)
    elif STRAIGHT in ways:
        assert straight is not None
        rate *= straight.miss(want.budget_us)
    for each in ways:
        if each not in NO_RELAY:
            rate *= paths.relays[each].miss(want.budget_us)
    return rate


def possible(want: Want, paths: Paths, ways_max: int) -> Iterator[tuple[str, ...]]:
    """The sets of ways that are disjoint: a relay that the base way leads over is none, and a twin needs its other."""
    quickest = sorted(paths.relays.items(), key=lambda each: (each[1].miss(want.budget_us), each[0]))
    relays = [name for name, _ in quickest if name != want.base_over][:RELAYS_MAX]
    straight = want.base if not want.base_over else paths.straight
    singles = list(relays)
    if want.base_over and paths.straight is not None:
        singles.append(STRAIGHT)
    if straight is not None and paths.can_dial and straight.floor_us <= want.budget_us:
        singles.append(TWIN)
    for count in range(1, ways_max):
        for ways in combinations(singles, count):
            if TWIN in ways and want.base_over and STRAIGHT not in ways:
                continue
            yield ways


def connections(want: Want, ways: Iterable[str]) -> tuple[Key, ...]:
    """The extra connections that these need."""
    return tuple((want.destination, each) for each in ways if each in NO_RELAY)


class Planner:
    """The second ways of one broker's topics."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.decisions: dict[Key, Decision] = {}
        self._judged: dict[Key, _Judged] = {}

    def decide(
        self, wants: Sequence[Want], paths: Mapping[str, Paths], room: Mapping[str, int]
    ) -> dict[Key, Decision]:
        """What each want gets now. ``paths`` by destination; ``room``: bytes a second that copies may take, by the name
        of a relay, or of ``straight`` for all extra connections."""
        judged = {each.key: self._judge(each, paths.get(each.destination, Paths())) for each in wants}
        self._judged = judged
        self.decisions = self._admit(judged, dict(room))
        return self.decisions

    # ── one want ────────────────────────────────────────────────────────────────────────────────────────────

    def _judge(self, want: Want, paths: Paths) -> _Judged:
        before = self._judged.get(want.key)
        if before is not None and _alike(before, want, paths):
            before.want = msgspec.structs.replace(want, base=before.want.base)
            return before
        if want.base is None:
            return _Judged(want, paths, 1.0, [], False)
        alone = want.base.miss(want.budget_us)
        held = self.decisions.get(want.key, Decision()).ways
        enough = want.goal / LEAVE if held else want.goal
        if alone <= enough:
            return _Judged(want, paths, alone, [], False)
        sets = [(ways, misses(want, paths, ways)) for ways in possible(want, paths, self.bounds.ways)]
        good = [each for each in sets if each[1] <= want.goal]
        others = [
            (ways, miss)
            for ways, miss in sets
            if miss > want.goal and miss * (HELPS_STILL if ways == held else HELPS) <= alone
        ]
        good.sort(key=lambda each: (len(each[0]), len(connections(want, each[0])), each[1], each[0]))
        others.sort(key=lambda each: (each[1], len(each[0]), each[0]))
        if held:  # keep what is good enough, so that ways do not change without a reason
            good.sort(key=lambda each: each[0] != held)
        known = not want.base_over or paths.straight is not None
        return _Judged(want, paths, alone, good + others, not known and paths.can_dial and not good)

    # ── all of them ─────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, judged: Mapping[Key, _Judged], room: dict[str, int]) -> dict[Key, Decision]:
        links: set[Key] = set()
        decisions: dict[Key, Decision] = {}
        flows = 0
        for key, each in sorted(judged.items(), key=self._turn):
            decision = self._fit(each, room, links, flows)
            decisions[key] = decision
            flows += bool(decision.ways)
            links.update(connections(each.want, decision.ways))
            for way in decision.ways:
                at = STRAIGHT if way in NO_RELAY else way
                room[at] = room.get(at, 0) - each.want.bytes_s
        return self._try(judged, decisions, links)

    def _turn(self, item: tuple[Key, _Judged]) -> tuple[int, int, bool, Key]:
        key, each = item
        best = each.sets[0][1] if each.sets else each.alone
        helped = int(log(max(each.alone, LEAST) / max(best, LEAST), HELPED))
        return -each.want.priority, -helped, not self.decisions.get(key, Decision()).ways, key

    def _fit(self, each: _Judged, room: Mapping[str, int], links: set[Key], flows: int) -> Decision:
        want = each.want
        if want.base is None:
            return Decision(why=Why.UNKNOWN)
        if not each.sets:
            why = Why.GOOD if each.alone <= want.goal else Why.SHORT
            return Decision((), each.alone, each.alone, why)
        if flows >= self.bounds.flows:
            return Decision((), each.alone, each.alone, Why.FLOWS)
        why = Why.GOOD
        for ways, miss in each.sets:
            if len(links.union(connections(want, ways))) > self.bounds.links:
                why = why or Why.LINKS
            elif not self._has_room(want, ways, room):
                why = why or Why.SHARE
            else:
                return Decision(ways, miss, each.alone, Why.GOOD if miss <= want.goal else why or Why.SHORT)
        return Decision((), each.alone, each.alone, why)

    def _has_room(self, want: Want, ways: Sequence[str], room: Mapping[str, int]) -> bool:
        extra = sum(each in NO_RELAY for each in ways)
        if extra * want.bytes_s > room.get(STRAIGHT, 0):
            return False
        return all(room.get(each, 0) >= want.bytes_s for each in ways if each not in NO_RELAY)

    def _try(
        self, judged: Mapping[Key, _Judged], decisions: dict[Key, Decision], links: set[Key]
    ) -> dict[Key, Decision]:
        """Connections that are to be measured get what room is left, those that are there already first."""
        wanting = {key: each for key, each in judged.items() if each.tries}
        for key, each in sorted(
            wanting.items(), key=lambda item: (not item[1].paths.connected, self._turn(item))
        ):
            tried = (each.want.destination, STRAIGHT)
            if tried in links or len(links) < self.bounds.links:
                links.add(tried)
                decisions[key] = msgspec.structs.replace(decisions[key], tries=True)
            elif not decisions[key].ways:
                decisions[key] = msgspec.structs.replace(decisions[key], why=Why.LINKS)
        return decisions


def _alike(before: _Judged, want: Want, paths: Paths) -> bool:
    """Whether a judgement still holds."""
    last, now = before.want, want
    if (last.budget_us, last.goal, last.base_over) != (now.budget_us, now.goal, now.base_over):
        return False
    if (before.paths.can_dial, before.paths.relays.keys()) != (paths.can_dial, paths.relays.keys()):
        return False
    pairs = [(last.base, now.base), (before.paths.straight, paths.straight)]
    pairs += [(before.paths.relays[each], paths.relays[each]) for each in paths.relays]
    return not any(_differ(a, b, want) for a, b in pairs)


def _differ(a: Delay | None, b: Delay | None, want: Want) -> bool:
    if a is None or b is None:
        return a is not b
    one, other = a.miss(want.budget_us), b.miss(want.budget_us)
    return a.differs(b) or abs(one - other) > max(max(one, other) / MUCH, want.goal / MUCH)
