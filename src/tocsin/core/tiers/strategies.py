"""Strategies: by what the slots of a tier are placed at its members (the leader's; pure).

    topics, messages, bytes    members carry as many a second, each
    processor                  as many messages as each machine is quick: unequal machines carry unequal parts
    connections                slots between the same clusters are at the same members, so that fewer links are used
    delay                      slots are at members near the clusters between which their messages go
    hash                       rendezvous hashing: whatever they bring, and with the fewest moves when members change

``place`` has two uses. When members come or go, every slot that has to move does, and all others that it takes until
members carry alike. When only the load is uneven (``strain`` above ACT), it moves as few slots as bring that under
GOAL. ``connections`` and ``delay`` leave the load uneven within ACT.

Cost: a few passes over the slots, and for each move one over the members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from tocsin.core.tiers.loads import Rate, TierLoad
from tocsin.core.tiers.placing import NO_PINS, spread_deputies
from tocsin.core.tiers.slots import NOBODY, SLOTS, Slots, ranking
from tocsin.core.tiers.table import Moves

Kind = Literal["topics", "messages", "bytes", "processor", "connections", "delay", "hash"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
ACT: Final = 1.2  # the most loaded member against the mean, above which slots move …
GOAL: Final = 1.1  # … until it is below this
GAIN: Final = 0.1  # of what `delay` and `connections` make smaller, from which on that is worth moving slots
WORTH: Final = 1 / 500  # of the mean, that a move has to take off the most loaded member
PASSES: Final = 4  # over all slots, in which `delay` and `connections` find most of what there is to gain
ALIKE: Final = 0.1  # by which slots may differ for the deputy to decide which one moves


class Wanted(msgspec.Struct, frozen=True):
    """Who is to carry. ``rested``: whether a slot may move for the sake of balance; ``most`` slots do so."""

    slots: Slots
    members: tuple[str, ...]
    leaving: Collection[str] = ()
    pins: Mapping[int, str] = NO_PINS
    rested: Callable[[int], bool] = lambda slot: True
    most: int = SLOTS


class _Draft:
    """An assignment that is being changed."""

    rested: Callable[[int], bool] = staticmethod(lambda slot: True)  # when members come or go, all may move

    def __init__(
        self,
        wanted: Wanted,
        weights: list[float],
        speeds: Mapping[str, float],
        extra: Mapping[str, float],
    ) -> None:
        self.before = slots = wanted.slots
        self.members = sorted(wanted.members)
        self.weights = weights
        self.speeds = speeds
        self.carriers, self.deputies = list(slots.carriers), list(slots.deputies)
        self.fixed: set[int] = set()
        self.homeless: list[int] = []
        self.load = {each: extra.get(each, 0.0) for each in self.members}
        self.of: dict[str, set[int]] = {each: set() for each in self.members}
        self.moved = 0
        for slot, carrier in enumerate(slots.carriers):
            at = wanted.pins.get(slot, "")
            if at in self.load and (carrier in self.load or carrier in wanted.leaving):
                self.fixed.add(slot)
                self._put(slot, at)
            elif carrier in self.load:
                self._put(slot, carrier)
            elif carrier in wanted.leaving:
                self.homeless.append(slot)

    def _put(self, slot: int, member: str) -> None:
        before = self.carriers[slot]
        if before != member and self.deputies[slot] == member:
            self.deputies[slot] = before
        self.carriers[slot] = member
        self.of[member].add(slot)
        self.load[member] += self.weights[slot]

    def move(self, slot: int, to: str) -> None:
        before = self.carriers[slot]
        self.of[before].discard(slot)
        self.load[before] -= self.weights[slot]
        self._put(slot, to)
        self.moved += 1

    def full(self, member: str, more: float = 0.0) -> float:
        """How much of what it could carry a member carries."""
        return (self.load[member] + more) / self.speeds.get(member, 1.0)

    @property
    def mean(self) -> float:
        return sum(self.load.values()) / sum(self.speeds.get(each, 1.0) for each in self.members)

    @property
    def strain(self) -> float:
        """The most loaded member against the mean."""
        mean = self.mean
        return max(map(self.full, self.members)) / mean if mean > 0 else 1.0

    def house(self) -> None:
        """Give the slots of those that leave to others, the heaviest first."""
        for slot in sorted(self.homeless, key=lambda each: (-self.weights[each], each)):
            weight, deputy = self.weights[slot], self.deputies[slot]
            if not weight:
                self._put(slot, min(self.members, key=lambda each: (len(self.of[each]), each)))
                continue
            least = min(self.members, key=lambda each: (self.full(each, weight), each))
            near = deputy in self.load and self.full(deputy, weight) <= self.full(least, weight) * GOAL
            self._put(slot, deputy if near else least)
        self.homeless = []

    def even(self, goal: float, most: int) -> None:
        """Move slots from the most to the least loaded member, as few as bring all under this goal; with a most of all
        slots, the least loaded one above its like, too."""
        stuck: set[str] = set()
        while self.moved < most:
            mean = self.mean
            able = [each for each in self.members if each not in stuck]
            if not able or mean <= 0:
                return
            fullest = max(able, key=lambda each: (self.full(each), each))
            emptiest = min(self.members, key=lambda each: (self.full(each), each))
            over = self.full(fullest) > goal * mean
            under = most >= SLOTS and self.full(emptiest) < (2 - goal) * mean
            if not over and not under:
                return
            slot = self._fitting(fullest, emptiest, mean * WORTH)
            if slot is None:
                stuck.add(fullest)
            else:
                self.move(slot, emptiest)

    def _fitting(self, fullest: str, emptiest: str, worth: float) -> int | None:
        """The slot whose move leaves the fuller of the two least full; None: none takes as much as is ``worth`` it."""
        quick, slow = self.speeds.get(fullest, 1.0), self.speeds.get(emptiest, 1.0)
        wanted = (self.full(fullest) - self.full(emptiest)) * quick * slow / (quick + slow)
        movable = sorted(
            (each for each in self.of[fullest] if each not in self.fixed and self.rested(each)),
            key=lambda each: (self.weights[each], each),
        )
        weights = [self.weights[each] for each in movable]
        place = bisect_right(weights, wanted)

        def after(slot: int) -> float:
            weight = self.weights[slot]
            return max(self.full(fullest, -weight), self.full(emptiest, weight))

        near = movable[max(0, place - 1) : place + 1]
        if not near:
            return None
        best = min(near, key=lambda each: (after(each), self.weights[each]))
        if self.full(fullest) - after(best) < worth:
            return None
        alike = movable[bisect_left(weights, self.weights[best] * (1 - ALIKE)) : movable.index(best) + 1]
        return next((each for each in reversed(alike) if self.deputies[each] == emptiest), best)

    def share_idle(self) -> None:
        """Give members with few slots some that bring nothing yet, lest all that is to come goes to the others."""
        idle = {
            each: [
                slot for slot in sorted(self.of[each]) if not self.weights[slot] and slot not in self.fixed
            ]
            for each in self.members
        }
        mean = sum(map(len, idle.values())) // len(idle)
        if min(map(len, idle.values())) >= mean // 2:
            return
        for member in self.members:
            while len(idle[member]) < mean:
                most = max(idle, key=lambda each: (len(idle[each]), each))
                slot = idle[most].pop()
                self.move(slot, member)
                idle[member].append(slot)

    def moves(self, *, spread: bool) -> Moves:
        """What has changed. ``spread``: have the deputies of each member be all others alike."""
        if spread and len(self.members) > 1:
            for carrier in self.members:
                others = [each for each in self.members if each != carrier]
                spread_deputies(sorted(self.of[carrier]), self.deputies, others)
        for slot in set().union(*self.of.values()):
            if self.deputies[slot] == self.carriers[slot]:
                self.deputies[slot] = NOBODY
        before = self.before
        return {
            slot: (self.carriers[slot], self.deputies[slot])
            for member in self.members
            for slot in sorted(self.of[member])
            if (self.carriers[slot], self.deputies[slot]) != (before.carriers[slot], before.deputies[slot])
        }


class Strategy:
    """Members carry as much of something as the others."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def carried(self, wanted: Wanted, load: TierLoad) -> dict[str, float]:
        """What each member carries, with what comes to it from those that leave."""
        draft = self._draft(wanted, load)
        if draft.members:
            draft.house()
        return draft.load

    def strain(self, wanted: Wanted, load: TierLoad) -> float:
        """How far the tier is from what this strategy wants; slots should move above ACT."""
        return self._draft(wanted, load).strain

    def place(self, wanted: Wanted, load: TierLoad) -> Moves:
        """The moves, when members come or go."""
        draft = self._draft(wanted, load)
        if not draft.members:
            return {}
        draft.house()
        self._improve(draft, load, SLOTS)
        draft.share_idle()
        return draft.moves(spread=True)

    def relieve(self, wanted: Wanted, load: TierLoad) -> Moves:
        """The moves, when the load is uneven: few of them."""
        draft = self._draft(wanted, load)
        if len(draft.members) < 2:
            return {}
        draft.rested = wanted.rested
        self._improve(draft, load, wanted.most)
        return draft.moves(spread=False)

    def _improve(self, draft: _Draft, load: TierLoad, most: int) -> None:
        draft.even(GOAL, most)

    def _draft(self, wanted: Wanted, load: TierLoad) -> _Draft:
        speeds: Mapping[str, float] = {}
        if self.kind == "processor" and load.speeds:
            known = load.speeds
            unknown = sorted(known.values())[len(known) // 2]
            speeds = {each: known.get(each, unknown) / unknown for each in wanted.members}
        apart = list(load.apart)
        extra = dict(zip(apart, _weights(self.kind, load.apart.values()), strict=True))
        return _Draft(wanted, _weights(self.kind, load.rates), speeds, extra)


class Nearness(Strategy):
    """Slots are where that makes something smaller, and members carry alike within ACT."""

    def strain(self, wanted: Wanted, load: TierLoad) -> float:
        draft = self._draft(wanted, load)
        strain = draft.strain
        if strain > ACT or len(draft.members) < 2:
            return strain
        draft.rested = wanted.rested
        costs = self._costs(draft, load)
        before = costs.total()
        self._shift(draft, costs, wanted.most)
        return ACT + GAIN if before > 0 and costs.total() < (1 - GAIN) * before else min(strain, ACT)

    def _improve(self, draft: _Draft, load: TierLoad, most: int) -> None:
        draft.even(ACT, most)
        self._shift(draft, self._costs(draft, load), most)

    def _costs(self, draft: _Draft, load: TierLoad) -> _Costs:
        ends = [each.ends for each in load.rates]
        if self.kind == "delay":
            return _Delays(draft, ends, load.distance)
        return _Pairs(draft, ends)

    def _shift(self, draft: _Draft, costs: _Costs, most: int) -> None:
        """Move slots to where they cost less, the most rewarding first, while members stay within ACT."""
        limit = ACT * draft.mean
        for _ in range(PASSES if most >= SLOTS else 1):
            gains = sorted(
                (
                    (costs.gain(slot, member), slot, member)
                    for slot in set().union(*draft.of.values())
                    if slot not in draft.fixed and draft.rested(slot) and costs.matters(slot)
                    for member in draft.members
                    if member != draft.carriers[slot]
                ),
                reverse=True,
            )
            moved = False
            for gain, slot, member in gains:
                if gain <= 0 or draft.moved >= most:
                    break
                if draft.carriers[slot] == member or costs.gain(slot, member) <= 0:
                    continue
                if draft.full(member, draft.weights[slot]) <= limit:
                    costs.move(slot, member)
                    moved = True
            if not moved:
                return


class _Costs(ABC):
    """What an assignment costs, and what a move would change of that."""

    def __init__(self, draft: _Draft, ends: list[dict[str, float]]) -> None:
        self.draft = draft
        self.ends = ends

    def matters(self, slot: int) -> bool:
        return bool(self.ends[slot])

    @abstractmethod
    def total(self) -> float:
        """What everything costs as it is."""

    @abstractmethod
    def gain(self, slot: int, to: str) -> float:
        """How much less it costs with a slot at another member."""

    def move(self, slot: int, to: str) -> None:
        self.draft.move(slot, to)


class _Delays(_Costs):
    """Messages by the round trip between a member and where they come from and go to."""

    def __init__(
        self, draft: _Draft, ends: list[dict[str, float]], distance: Callable[[str, str], int]
    ) -> None:
        super().__init__(draft, ends)
        clusters = set().union(*ends)
        self._far = {
            (cluster, each): distance(cluster, each) for cluster in clusters for each in draft.members
        }

    def _at(self, slot: int, member: str) -> float:
        return sum(count * self._far[cluster, member] for cluster, count in self.ends[slot].items())

    def total(self) -> float:
        return sum(self._at(slot, each) for each in self.draft.members for slot in self.draft.of[each])

    def gain(self, slot: int, to: str) -> float:
        return self._at(slot, self.draft.carriers[slot]) - self._at(slot, to)


class _Pairs(_Costs):
    """Pairs of a cluster and a member between which messages go."""

    def __init__(self, draft: _Draft, ends: list[dict[str, float]]) -> None:
        super().__init__(draft, ends)
        self._used = Counter(
            (cluster, each) for each in draft.members for slot in draft.of[each] for cluster in ends[slot]
        )

    def total(self) -> float:
        return float(sum(1 for count in self._used.values() if count))

    def gain(self, slot: int, to: str) -> float:
        at, used = self.draft.carriers[slot], self._used
        fewer = sum(used[cluster, at] == 1 for cluster in self.ends[slot])
        more = sum(used[cluster, to] == 0 for cluster in self.ends[slot])
        # Where no pair ends yet: towards members that have the same clusters in more slots.
        likeness = sum(used[cluster, to] - used[cluster, at] + 1 for cluster in self.ends[slot])
        return fewer - more + likeness / SLOTS**2

    def move(self, slot: int, to: str) -> None:
        for cluster in self.ends[slot]:
            self._used[cluster, self.draft.carriers[slot]] -= 1
            self._used[cluster, to] += 1
        super().move(slot, to)


class Hashing(Strategy):
    """Rendezvous hashing: the member with the highest hash of itself and the slot; its deputy is the next."""

    def strain(self, wanted: Wanted, load: TierLoad) -> float:
        return 1.0

    def relieve(self, wanted: Wanted, load: TierLoad) -> Moves:
        return {}

    def place(self, wanted: Wanted, load: TierLoad) -> Moves:
        members, moves = sorted(wanted.members), {}
        for slot in range(SLOTS):
            ranked = ranking(slot, members)
            at = wanted.pins.get(slot, "")
            if at in ranked:
                ranked.sort(key=lambda each: each != at)
            pair = (*ranked, NOBODY)[:2] if ranked else (NOBODY, NOBODY)
            now = wanted.slots.carriers[slot], wanted.slots.deputies[slot]
            if ranked and pair != now and (now[0] in members or now[0] in wanted.leaving):
                moves[slot] = pair[0], pair[1]
        return moves


def strategy(kind: Kind) -> Strategy:
    """The strategy of that name."""
    if kind == "hash":
        return Hashing(kind)
    return Nearness(kind) if kind in ("delay", "connections") else Strategy(kind)


def _weights(kind: Kind, rates: Iterable[Rate]) -> list[float]:
    """What each of these counts."""
    if kind == "topics":
        return [each.topics for each in rates]
    if kind == "bytes":
        return [each.bytes for each in rates]
    return [each.messages for each in rates]
