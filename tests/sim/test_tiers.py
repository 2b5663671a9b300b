"""Planned moves of slots cost nothing and lost carriers little, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.broker.links.turned import OutwardCall
from tocsin.broker.streams.registry import StreamRegistry
from tocsin.broker.tiers.carrying import Carrying
from tocsin.broker.tiers.held import HeldSlots
from tocsin.core.coordination.leader.placing import NOTHING, Placing
from tocsin.core.coordination.participant import network_view
from tocsin.core.coordination.state.interest import Interest
from tocsin.core.forwarding.origins import Origins
from tocsin.core.forwarding.routes import RoutePlan
from tocsin.core.forwarding.table import ForwardingTable
from tocsin.core.tiers.slots import Slots, gate_of, is_gate, slot_of
from tocsin.core.tiers.table import SlotTable
from tocsin.core.tiers.ways import Fence, TierWays
from tocsin.model.network import BrokerInfo
from tocsin.sim.faults.kinds import Crash, Fault
from tocsin.sim.runs.runner import Broken, run, run_many
from tocsin.sim.runs.scenario import Scenario, find
from tocsin.sim.scenarios import tiers
from tocsin.sim.scenarios.tiers.traffic import Drain

SECOND = 1_000_000
SEEDS = 8  # within which each planted bug has to be found

ONE = "every slot has a carrier and a deputy"
ONCE = "no message comes twice"
ORDER = "no message overtakes another"
FLOW = "every message comes soon"
ALIKE = "members carry alike"
AGREED = "brokers send over the carriers of the log"
NEW = "no message of a new stream is lost"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("tiers", 0, 6) if outcome.broken] == []


def test_where_nothing_fails_no_move_costs_a_message() -> None:
    assert [seed for seed in range(4) if run(find("tiers"), seed, plan=[]).broken] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_many_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("tiers", 6, 200) if outcome.broken] == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────


class Situation(msgspec.Struct, frozen=True):
    """Who is emptied, and what fails."""

    drains: tuple[Drain, ...] = ()
    plan: tuple[Fault, ...] = ()
    hot: bool = False

    def broken(self, seed: int) -> Broken | None:
        build = partial(tiers.build, cuts=(), drains=self.drains, balance="messages", hot=self.hot)
        scenario: Scenario = msgspec.structs.replace(find("tiers"), build=build)
        return run(scenario, seed, plan=[*self.plan]).broken


CALM = Situation()
MOVING = Situation(
    (
        Drain("hub-1", 12 * SECOND, 16 * SECOND),
        Drain("hub-2", 20 * SECOND, 24 * SECOND),
        Drain("hub-3", 28 * SECOND, None),
    )
)
LOSING = Situation((), (Crash(at_us=16 * SECOND, for_us=12 * SECOND, node="hub-2"),))
ALONE = Situation(  # nobody leads when the routing broker is lost
    (),
    (
        *(Crash(at_us=15 * SECOND, for_us=4 * SECOND, node=each) for each in tiers.COORDINATORS),
        *LOSING.plan,
    ),
)

LEADERLESS = Situation(
    (), tuple(Crash(at_us=15 * SECOND, for_us=25 * SECOND, node=each) for each in tiers.COORDINATORS)
)

HOT = Situation(hot=True)
HOT_LOSING = Situation((), (Crash(at_us=26 * SECOND, for_us=12 * SECOND, node="hub-2"),), hot=True)

Plant = Callable[[pytest.MonkeyPatch], None]


def two_carriers(patch: pytest.MonkeyPatch) -> None:
    """A slot's messages go to its deputy as well."""
    apart = ForwardingTable._apart

    def doubled(self: Any, topic: str, peers: tuple[str, ...], way: Any) -> Any:
        over, here = apart(self, topic, peers, way)
        gates = [peer for peer in peers if is_gate(peer) and peer in self.ways._tiers]
        more = [self.ways._tiers[gate].deputies[slot_of(topic)] for gate in gates]
        return tuple(dict.fromkeys((*over, *filter(None, more)))), here

    patch.setattr(ForwardingTable, "_apart", doubled)


def no_pause(patch: pytest.MonkeyPatch) -> None:
    """Messages go to the new carrier as soon as the old one has been asked."""
    carry_out = Carrying._carry_out

    def hasty(self: Carrying, effect: Any) -> None:
        if isinstance(effect, Fence):
            effect = Fence(peer="nobody", ticket=effect.ticket)  # who is not there need not be waited for
        carry_out(self, effect)

    patch.setattr(Carrying, "_carry_out", hasty)
    patch.setattr(TierWays, "_pause_us", lambda self: 0)


def untold_deputies(patch: pytest.MonkeyPatch) -> None:
    """Brokers are told of carriers, and not of deputies."""
    after = Slots.after

    def without(self: Slots, moves: Mapping[int, tuple[str, str]], apart: Any = None) -> Slots:
        return after(self, {slot: (carrier, "") for slot, (carrier, _) in moves.items()}, apart)

    told = type("Told", (Slots,), {"after": without}, frozen=True)
    patch.setattr(network_view, "Slots", told)


def lone_member(patch: pytest.MonkeyPatch) -> None:
    """One member of a tier hears what clusters want, and the others do not."""
    laid_out = RoutePlan._laid_out

    def less(self: RoutePlan, *given: Any, **more: Any) -> Any:
        layout = laid_out(self, *given, **more)
        first = {tier: frozenset(members[:1]) for tier, members in layout.members.items()}
        return msgspec.structs.replace(layout, all_members=first)

    patch.setattr(RoutePlan, "_laid_out", less)


def unmarked(patch: pytest.MonkeyPatch) -> None:
    """What is for a routing broker's own clients is sent like what it is to carry."""
    apart = ForwardingTable._apart

    def together(self: Any, *given: Any) -> Any:
        over, here = apart(self, *given)
        return (*over, *here), ()

    patch.setattr(ForwardingTable, "_apart", together)


def kept_slots(patch: pytest.MonkeyPatch) -> None:
    """Slots of a member that is lost stay its own."""
    follow = SlotTable.follow

    def keep(self: SlotTable, members: Any) -> Any:
        return follow(self, {*members, *self.members})

    patch.setattr(SlotTable, "follow", keep)


def deaf_to_orders(patch: pytest.MonkeyPatch) -> None:
    """The leader does not look at who is emptied."""
    made = Placing.__init__

    def init(self: Placing, state: Any, ready: Any, emptied: Any, *more: Any) -> None:
        made(self, state, ready, lambda: frozenset[str](), *more)

    patch.setattr(Placing, "__init__", init)


def lost_while_held(patch: pytest.MonkeyPatch) -> None:
    """What was held while a slot moved is forgotten."""
    take = HeldSlots.take

    def forget(self: HeldSlots, name: str) -> Any:
        list(take(self, name))
        return iter(())

    patch.setattr(HeldSlots, "take", forget)


def loads_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The leader sees that the load is uneven, and moves nothing."""
    relieve = Placing._relieve

    def idle(self: Placing, tier: Any, wanted: Any, now_us: int) -> Any:
        since_us = tier.uneven_us
        if relieve(self, tier, wanted, now_us) != NOTHING:
            tier.uneven_us, tier.ours = since_us, None
        return NOTHING

    patch.setattr(Placing, "_relieve", idle)


def dialled_anyway(patch: pytest.MonkeyPatch) -> None:
    """Brokers dial one that cannot be dialled, and it does not dial them."""
    patch.setattr(BrokerInfo, "dials", lambda self, other: True)


def turned_once(patch: pytest.MonkeyPatch) -> None:
    """A broker that cannot be dialled keeps no connection at a routing broker that was away."""
    patch.setattr(OutwardCall, "line_down", lambda self, down: self.close())


def hasty_topics(patch: pytest.MonkeyPatch) -> None:
    """A topic leaves its slot at once, without the pause."""
    misplaced = TierWays._misplaced

    def at_once(self: TierWays) -> Any:
        for place in misplaced(self):
            if isinstance(place[1], str):
                self._settle(place)
            else:
                yield place

    patch.setattr(TierWays, "_misplaced", at_once)


def never_spread(patch: pytest.MonkeyPatch) -> None:
    """A topic that exceeds a member stays with it."""
    patch.setattr(Placing, "_part", lambda self, tier, wanted: None)


def kept_topics(patch: pytest.MonkeyPatch) -> None:
    """A member that is lost goes on to carry topics that are apart."""

    def keep(self: SlotTable, apart: Any) -> bool:
        before, self.apart = self.apart, dict(apart)
        return before != self.apart

    patch.setattr(SlotTable, "part", keep)


def belated_routes(patch: pytest.MonkeyPatch) -> None:
    """A broker is told its routes for a new stream with the next change, after it was told that the way is clear."""
    publish, before = Interest.publish, WeakKeyDictionary[Interest, list[Any]]()

    def later(self: Interest, placed: Any, now_us: int) -> None:
        due, before[self] = before.get(self, []), list(placed)
        publish(self, due, now_us)

    patch.setattr(Interest, "publish", later)


def first_to_go(patch: pytest.MonkeyPatch) -> None:
    """The routes for a topic go with the first of its publishers at a broker, though there are others."""
    cease = Origins.cease

    def at_once(self: Origins, topic: str, broker: str, now_us: int) -> None:
        if self._at.get(topic, {}).get(broker):
            self._at[topic][broker] = 1
            cease(self, topic, broker, now_us)

    patch.setattr(Origins, "cease", at_once)


def trusting(patch: pytest.MonkeyPatch) -> None:
    """A broker takes a topic for one that the coordinator knows as soon as a client publishes on it."""
    patch.setattr(StreamRegistry, "is_registered", lambda self, topic: topic in self._publishers)


PLANTED: list[tuple[Plant, tuple[str, ...], Situation]] = [
    (two_carriers, (ONCE,), CALM),
    (no_pause, (ORDER,), MOVING),
    (untold_deputies, (FLOW,), ALONE),
    (lone_member, (FLOW,), CALM),
    (unmarked, (ONCE, FLOW), CALM),
    (kept_slots, (ONE,), LOSING),
    (deaf_to_orders, (AGREED,), MOVING),
    (lost_while_held, (FLOW,), MOVING),
    (loads_forgotten, (ALIKE,), CALM),
    (hasty_topics, (ORDER,), HOT),
    (never_spread, (ALIKE,), HOT),
    (kept_topics, (ONE,), HOT_LOSING),
    (dialled_anyway, (FLOW,), CALM),
    (turned_once, (FLOW,), LOSING),
    (belated_routes, (NEW,), CALM),
    (first_to_go, (NEW,), CALM),
    (trusting, (NEW,), LEADERLESS),
]


@pytest.mark.parametrize(
    ("plant", "expected", "situation"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED]
)
def test_a_planted_bug_is_found(
    plant: Plant, expected: tuple[str, ...], situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in seeds_from(0, SEEDS):
        broken = situation.broken(seed)
        if broken is not None:
            assert broken.invariant in expected, broken
            return
    raise AssertionError(f"{plant.__name__} was not found within {SEEDS} seeds")


@pytest.mark.parametrize(
    "situation",
    [CALM, MOVING, LOSING, ALONE, LEADERLESS, HOT, HOT_LOSING],
    ids=["calm", "moving", "losing", "alone", "leaderless", "hot", "hot and losing"],
)
def test_without_a_bug_the_same_situations_break_nothing(situation: Situation) -> None:
    assert situation.broken(0) is None


def test_the_tier_of_the_scenario_is_the_one_that_is_checked() -> None:
    assert (
        gate_of(tiers.promises.TIER) == "@hub" and len({each.partition("-")[0] for each in tiers.HUBS}) == 1
    )
