"""Placing: when the leader moves slots between the members of a tier, and which.

    a member comes, or slots went to deputies ──► GATHER_US in which nothing else happens
        ──► the moves that have all members carry alike ──► ``Placed``
    the load is uneven for UNEVEN_US ──► few moves that even it out ──► ``Placed`` ──► UNEVEN_US at least

What is alike, and which slots move, is the strategy's (``core.tiers.strategies``), by the loads that members tell
(``core.tiers.loads``). While there is hardly any load, or none is known, members get as many slots as the others
(``core.tiers.placing``): there is nothing to go by. A leader that was just elected waits for the members' loads, lest
it undo what the one before it has evened out.

A routing broker that an operator has emptied (``tocsin drain``) gives its slots up in the same way. A member that has
come carries nothing before it has applied its first notice: until then it has no routes onward. Slots of a member that
is gone are its deputies' already (``core.coordination.state.tiers``); evening out can wait for others that fail or come
at the same time.

A topic that brings much is carried apart from its slot, and one that brings more than a member's part by several
members (``core.tiers.hot``). That is looked at when the load is uneven, before slots are.

Invariants: a slot that was moved for the sake of balance rests for REST_US; such a move has MOVED_MAX slots at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from tocsin.core.coordination.leader.pinning import Pins
from tocsin.core.coordination.state.state import State
from tocsin.core.links.distances import Distances
from tocsin.core.tiers.hot import TopicRate, part
from tocsin.core.tiers.loads import TierLoad, TierLoads
from tocsin.core.tiers.placing import even
from tocsin.core.tiers.slots import Slots, slot_of
from tocsin.core.tiers.strategies import ACT, Kind, Wanted, strategy
from tocsin.core.tiers.table import SlotTable
from tocsin.model.network import Role
from tocsin.wire.internal.commands import Placed
from tocsin.wire.internal.control import Load
from tocsin.wire.internal.slots import SlotMoves

GATHER_US: Final = 1_500_000
UNTOLD_US: Final = 8_000_000  # that a member may take to tell its load, before the leader goes on without it
UNEVEN_US: Final = 10_000_000
LOOK_US: Final = 2_500_000  # between two looks at the load
REST_US: Final = 60_000_000
MOVED_MAX: Final = 64


UNPARTED: Final = ("hash", "topics")  # strategies to which a topic is a topic, whatever it brings
Change = tuple[dict[int, tuple[str, str]], dict[str, tuple[str, ...]] | None]  # of slots, and of topics apart
NOTHING: Final[Change] = ({}, None)


class PlacingRules(msgspec.Struct, frozen=True):
    """What the settings say."""

    balance: Kind = "messages"
    light_messages_s: int = 10  # for each member, below which slots are counted instead


class _Tier:
    """One tier, as it was seen."""

    def __init__(self, now_us: int) -> None:
        self.loads = TierLoads()
        # Who is ready, who leaves, what is pinned, and the slots, when one of these changed last.
        self.seen: tuple[object, ...] = ()
        self.since_us = now_us  # when that was
        self.settled = False  # what follows from that was done
        self.ours: Slots | None = None  # the slots as the leader has placed them last
        self.came_us: dict[str, int] = {}  # member → when it was seen first
        self.pins: Mapping[int, str] = {}  # at the last look …
        self.kept_us: dict[int, int] = {}  # … and slots that were pinned before that, until they may move
        self.looked_us = now_us  # at the load
        self.uneven_us: int | None = None  # since when it is uneven

    def keep(self, pins: Mapping[int, str], slots: Slots, now_us: int) -> Mapping[int, str]:
        """The pins, and for a while after each the slot where it was pinned to: it was moved once."""
        for slot in self.pins.keys() - pins.keys():
            if slots.carriers[slot] == self.pins[slot]:
                self.kept_us[slot] = now_us + REST_US
        self.pins = pins
        self.kept_us = {slot: at_us for slot, at_us in self.kept_us.items() if at_us > now_us}
        return {**{slot: slots.carriers[slot] for slot in self.kept_us}, **pins} if self.kept_us else pins


class Placing:
    """Looks for slots to move, for one leader. ``ready``: whether a member has applied a notice; ``emptied`` names the
    brokers that are to carry nothing, and ``pins`` who has to carry which slots. ``distances`` says how far brokers are
    from each other."""

    def __init__(
        self,
        state: State,
        ready: Callable[[str], bool],
        emptied: Callable[[], Collection[str]],
        pins: Pins,
        rules: PlacingRules | None = None,
        distances: Distances | None = None,
    ) -> None:
        self._state = state
        self._ready = ready
        self._emptied = emptied
        self._pins = pins
        self._rules = rules or PlacingRules()
        self._strategy = strategy(self._rules.balance)
        self._distances = distances or Distances()
        self._tiers: dict[str, _Tier] = {}

    def heard(self, load: Load, now_us: int) -> None:
        """A member has told what it carries."""
        tier = self._state.interest.plan.member_of(load.broker)
        table = self._state.tiers.tables.get(tier)
        if table is not None:
            known = self._known(tier, now_us)
            known.loads.follow(table.slots, now_us)
            known.loads.heard(load, now_us)

    def loads(self) -> dict[str, Load]:
        """What members have told last."""
        return {
            member: report.load
            for tier in self._tiers.values()
            for member, report in tier.loads.reports.items()
            if member in self._state.members
        }

    def loads_of(self, tier: str) -> TierLoads | None:
        """What members of a tier have told."""
        known = self._tiers.get(tier)
        return None if known is None else known.loads

    def load(self, tier: str) -> TierLoad:
        """What a tier carries, for looking."""
        return self._tiers[tier].loads.look(self._distance)

    def topics(self, tier: str) -> dict[str, TopicRate]:
        """The busiest topics of a tier, for looking."""
        return self._topics(self._tiers[tier])

    def rested(self, tier: str, now_us: int) -> Callable[[int], bool]:
        """Whether slots of a tier may move for the sake of balance, for looking."""
        return self._tiers[tier].loads.rested(now_us, REST_US)

    def uneven_us(self, tier: str, now_us: int) -> int:
        """For how long the load of a tier is uneven, in µs, for looking."""
        since_us = self._tiers[tier].uneven_us
        return 0 if since_us is None else now_us - since_us

    def same_us(self, tier: str, now_us: int) -> int:
        """For how long nobody has come to a tier or gone, in µs, for looking."""
        return now_us - self._tiers[tier].since_us

    def look(self, now_us: int) -> list[Placed]:
        """The commands for the log; at most one for each tier."""
        tables = self._state.tiers.tables
        for tier in [each for each in self._tiers if each not in tables]:
            del self._tiers[tier]
        placed = []
        for tier, table in sorted(tables.items()):
            moves, apart = self._look_at(tier, table, now_us)
            if moves or apart is not None:
                placed.append(Placed(tier, SlotMoves.of(moves), apart))
        return placed

    def _known(self, tier: str, now_us: int) -> _Tier:
        if tier not in self._tiers:
            self._tiers[tier] = _Tier(now_us)
        return self._tiers[tier]

    def _look_at(self, name: str, table: SlotTable, now_us: int) -> Change:
        tier, slots = self._known(name, now_us), table.slots
        leaving = frozenset(self._emptied()) & {*table.members}
        ready = tuple(each for each in table.members if each not in leaving and self._ready(each))
        pins = tier.keep(self._pins.of(name), slots, now_us)
        tier.loads.follow(slots, now_us)
        tier.came_us = {each: tier.came_us.get(each, now_us) for each in table.members}
        now = (ready, leaving, pins, slots)
        if slots == tier.ours and tier.seen[:3] == now[:3]:
            tier.seen, tier.ours = now, None  # what was placed is in the log
        rested = tier.loads.rested(now_us, REST_US)
        wanted = Wanted(slots, ready, leaving, pins, rested, MOVED_MAX)
        if tier.seen != now:
            tier.seen, tier.since_us, tier.settled = now, now_us, False
            tier.uneven_us = tier.ours = None
        elif not tier.settled:
            if now_us - tier.since_us < GATHER_US or not self._is_told(tier, table, now_us):
                return NOTHING
            tier.settled = True
            if self._is_light(tier, ready):
                moves = even(slots, ready, leaving, pins)
            else:
                moves = self._strategy.place(wanted, tier.loads.look(self._distance))
            apart = self._part(tier, wanted) if leaving or ready != table.members else None
            tier.ours = slots.after(moves, apart)
            return moves, apart
        elif now_us - tier.looked_us >= LOOK_US:
            tier.looked_us = now_us
            if not self._is_light(tier, ready):
                return self._relieve(tier, wanted, now_us)
            tier.uneven_us = None  # there is nothing to go by
        return NOTHING

    def _relieve(self, tier: _Tier, wanted: Wanted, now_us: int) -> Change:
        load = tier.loads.look(self._distance)
        if self._strategy.strain(wanted, load) <= ACT and not self._is_cold(tier, wanted):
            tier.uneven_us = None
        elif tier.uneven_us is None:
            tier.uneven_us = now_us
        elif now_us - tier.uneven_us >= UNEVEN_US:
            tier.uneven_us = None
            apart = self._part(tier, wanted) if tier.loads.has_measured(now_us) else None
            moves = {} if apart is not None else self._strategy.relieve(wanted, load)
            tier.ours = wanted.slots.after(moves, apart)
            return moves, apart
        return NOTHING

    def _part(self, tier: _Tier, wanted: Wanted) -> dict[str, tuple[str, ...]] | None:
        """The topics that are to be apart from their slots, and who carries them; None: as they are. A topic in a slot
        that is pinned stays there."""
        if self._rules.balance in UNPARTED:
            return None
        load, apart = tier.loads.look(self._distance), wanted.slots.apart
        topics = self._topics(tier)
        movable = {topic: rate for topic, rate in topics.items() if slot_of(topic) not in wanted.pins}
        found = part(apart, movable, self._strategy.carried(wanted, load), wanted.members)
        return None if found == apart else found

    def _topics(self, tier: _Tier) -> dict[str, TopicRate]:
        """The busiest topics of a tier, and what each broker brings of them."""
        topics = tier.loads.topics(self._rules.balance)
        return {
            topic: msgspec.structs.replace(rate, sources=self._by_broker(rate.sources))
            for topic, rate in topics.items()
        }

    def _by_broker(self, clusters: Mapping[str, float]) -> dict[str, float]:
        """What comes from clusters, by their brokers: as if each brought as much as the others."""
        found: dict[str, float] = {}
        for cluster, weight in clusters.items():
            there = [each for each in self._state.interest.plan.brokers.values() if each.cluster == cluster]
            names = [each.id for each in there if each.role is not Role.ROUTING] or [
                each.id for each in there
            ]
            found.update((name, weight / len(names)) for name in names)
        return found

    def _is_cold(self, tier: _Tier, wanted: Wanted) -> bool:
        """Whether some topic need not be apart any more."""
        return bool(wanted.slots.apart) and (self._part(tier, wanted) or wanted.slots.apart).keys() < (
            wanted.slots.apart.keys()
        )

    def _is_told(self, tier: _Tier, table: SlotTable, now_us: int) -> bool:
        """Whether those who carry have told what that brings, or had time to."""
        carried = table.carried()
        return all(
            tier.loads.is_known(each, now_us) or now_us - tier.came_us[each] >= UNTOLD_US
            for each in table.members
            if carried[each]
        )

    def _is_light(self, tier: _Tier, members: Collection[str]) -> bool:
        """Whether there is too little load to go by it."""
        if self._rules.balance == "hash":
            return False
        return tier.loads.messages < self._rules.light_messages_s * len(members)

    def _distance(self, cluster: str, member: str) -> int:
        """The round trip from the nearest broker of a cluster."""
        found = [
            self._distances.between(info.id, member).us
            for info in self._state.interest.plan.brokers.values()
            if info.cluster == cluster and info.id != member
        ]
        return min(found, default=0)
