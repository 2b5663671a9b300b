"""A broker and the coordinator agree on routes, whatever the bus loses, repeats or reorders."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core import parts
from tocsin.core.machine import Effect, IllegalEvent, Received, Send, SetTimer, Started, TimerFired
from tocsin.core.membership import HEARTBEAT, TELL, InterestsChanged, Leaving, Member, RoutesChanged
from tocsin.core.registry import CHECK, SETTLED, Registry
from tocsin.core.routing import RoutePlan
from tocsin.model.message import COORDINATOR, Address, Message, broker_address
from tocsin.model.network import BrokerInfo, Role, Route, RoutesVersion, Scope
from tocsin.wire.control import Heartbeat, Interests, Leave, Resync, Routes

HEARTBEAT_US = 1_000_000
SUSPECT_US = 5_000_000
NORTH_1 = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 1)
NORTH_HUB = BrokerInfo("north-hub", "north", Role.ROUTING, "127.0.0.1", 2)
SOUTH_1 = BrokerInfo("south-1", "south", Role.EDGE, "127.0.0.1", 3)
SOUTH_HUB = BrokerInfo("south-hub", "south", Role.ROUTING, "127.0.0.1", 4)
BROKERS = (NORTH_1, NORTH_HUB, SOUTH_1, SOUTH_HUB)

EffectT = TypeVar("EffectT", bound=Effect)
MessageT = TypeVar("MessageT", bound=Message)


def of(kind: type[EffectT], effects: list[Effect]) -> list[EffectT]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(kind: type[MessageT], effects: list[Effect]) -> list[MessageT]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def started_member(info: BrokerInfo = NORTH_1) -> Member:
    member = Member(info, HEARTBEAT_US)
    member.handle(Started(incarnation=7), 0)
    return member


def routes(base: int, number: int, added: tuple[Route, ...], *, removed: tuple[Route, ...] = ()) -> Received:
    peers = {route.peer for route in (*added, *removed)}
    message = Routes(
        base, RoutesVersion(9, number), tuple(b for b in BROKERS if b.id in peers), added, removed
    )
    return Received(sender=COORDINATOR, message=message)


TO_SOUTH = Route(Scope.ORIGIN, "south-hub", "a/#")
TO_NORTH_HUB = Route(Scope.ORIGIN, "north-hub", "b")


# ── the broker's side ───────────────────────────────────────────────────────────────────────────────────────


def test_a_member_introduces_itself_with_all_its_interests() -> None:
    member = Member(NORTH_1, HEARTBEAT_US)
    assert member.handle(InterestsChanged(added=("a/#",)), 0) == []
    effects = member.handle(Started(incarnation=7), 0)
    (interests,) = sent(Interests, effects)
    assert (interests.info, interests.base, interests.version, interests.added) == (NORTH_1, 0, 1, ("a/#",))
    (beat,) = sent(Heartbeat, effects)
    assert beat == Heartbeat("north-1", 7, 1, RoutesVersion())


def test_a_burst_of_interests_is_one_message() -> None:
    member = started_member()
    first = member.handle(InterestsChanged(added=("a",)), 0)
    assert [timer.name for timer in of(SetTimer, first)] == [TELL]
    assert member.handle(InterestsChanged(added=("b",), removed=("a",)), 0) == []
    (interests,) = sent(Interests, member.handle(TimerFired(name=TELL), 2_000))
    assert (interests.base, interests.version, interests.added, interests.removed) == (1, 2, ("b",), ())


def test_an_interest_that_comes_back_before_it_was_told_is_not_told_at_all() -> None:
    member = started_member()
    member.handle(InterestsChanged(added=("a",)), 0)
    member.handle(TimerFired(name=TELL), 2_000)
    member.handle(InterestsChanged(removed=("a",)), 3_000)
    member.handle(InterestsChanged(added=("a",)), 3_000)
    assert member.handle(TimerFired(name=TELL), 5_000) == []


def test_routes_are_applied_once_and_change_the_peers() -> None:
    member = started_member()
    (change,) = of(RoutesChanged, member.handle(routes(0, 1, (TO_SOUTH,)), 0))
    assert (change.added, change.removed, change.peers) == ((TO_SOUTH,), (), (SOUTH_HUB,))
    assert member.state == "member"
    assert member.handle(routes(0, 1, (TO_SOUTH,)), 0) == [], "a repeat changes nothing"
    (change,) = of(RoutesChanged, member.handle(routes(1, 2, (TO_NORTH_HUB,), removed=(TO_SOUTH,)), 0))
    assert (change.added, change.removed) == ((TO_NORTH_HUB,), (TO_SOUTH,))
    assert change.peers == (NORTH_HUB,), "nobody needs the link to the south any more"


def test_a_change_that_builds_on_something_lost_is_ignored() -> None:
    member = started_member()
    member.handle(routes(0, 1, (TO_SOUTH,)), 0)
    assert member.handle(routes(2, 3, (TO_NORTH_HUB,)), 0) == []
    (beat,) = sent(Heartbeat, member.handle(TimerFired(name=HEARTBEAT), 0))
    assert beat.routes == RoutesVersion(9, 1), "the heartbeat tells what it has"


def test_whole_routes_of_another_coordinator_replace_what_was_there() -> None:
    member = started_member()
    member.handle(routes(0, 5, (TO_SOUTH,)), 0)
    message = Routes(0, RoutesVersion(10, 1), (NORTH_HUB,), (TO_NORTH_HUB,))
    (change,) = of(RoutesChanged, member.handle(Received(sender=COORDINATOR, message=message), 0))
    assert (change.added, change.removed, change.peers) == ((TO_NORTH_HUB,), (TO_SOUTH,), (NORTH_HUB,))


def test_a_member_that_leaves_says_so_and_then_nothing() -> None:
    member = started_member()
    assert sent(Leave, member.handle(Leaving(), 0)) == [Leave("north-1", 7)]
    assert member.handle(TimerFired(name=HEARTBEAT), 0) == []
    assert member.handle(routes(0, 1, (TO_SOUTH,)), 0) == []


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    member = Member(NORTH_1, HEARTBEAT_US)
    with pytest.raises(IllegalEvent, match="'new' cannot take TimerFired"):
        member.handle(TimerFired(name=HEARTBEAT), 0)
    assert member.state == "new"


# ── the coordinator's side ──────────────────────────────────────────────────────────────────────────────────


def started_registry() -> Registry:
    registry = Registry(HEARTBEAT_US, SUSPECT_US)
    registry.handle(Started(incarnation=9), 0)
    return registry


def hears(registry: Registry, message: Message, now_us: int = 0) -> list[Effect]:
    return registry.handle(Received(sender="broker/x", message=message), now_us)


def test_a_heartbeat_of_a_stranger_is_answered_with_a_request_for_everything() -> None:
    registry = started_registry()
    assert sent(Resync, hears(registry, Heartbeat("north-1", 7, 1, RoutesVersion()))) == [Resync(9)]


def test_a_broker_that_joins_gets_its_routes_and_the_others_theirs() -> None:
    registry = started_registry()
    hears(registry, Interests(NORTH_1, 7, 0, 1, ("a/#",)))
    effects = hears(registry, Interests(SOUTH_1, 8, 0, 1, ("b",)))
    told = {send.to: send.message for send in of(Send, effects)}
    assert isinstance(to_south := told[broker_address("south-1")], Routes)
    assert isinstance(to_north := told[broker_address("north-1")], Routes)
    assert to_south.added == (Route(Scope.ORIGIN, "north-1", "a/#"),)
    assert to_north.added == (Route(Scope.ORIGIN, "south-1", "b"),)
    assert (to_south.base, to_north.base) == (0, 1)
    assert to_south.version.number != to_north.version.number


def test_a_broker_that_is_silent_too_long_loses_its_routes() -> None:
    registry = started_registry()
    hears(registry, Interests(NORTH_1, 7, 0, 1, ("a/#",)), 0)
    hears(registry, Interests(SOUTH_1, 8, 0, 1, ()), 0)
    hears(registry, Heartbeat("south-1", 8, 1, RoutesVersion(9, 1)), SUSPECT_US)
    effects = registry.handle(TimerFired(name=CHECK), SUSPECT_US + 1)
    (withdrawn,) = sent(Routes, effects)
    assert withdrawn.removed == (Route(Scope.ORIGIN, "north-1", "a/#"),)
    assert set(registry.brokers) == {"south-1"}


def test_a_broker_that_was_forgotten_and_comes_back_gets_routes_with_a_number_it_has_not_seen() -> None:
    registry = started_registry()
    (first,) = sent(Routes, hears(registry, Interests(NORTH_1, 7, 0, 1, ()), 0))
    registry.handle(TimerFired(name=CHECK), SUSPECT_US + 1)
    assert "north-1" not in registry.brokers
    hears(registry, Heartbeat("north-1", 7, 1, first.version), SUSPECT_US + 2)
    (again,) = sent(Routes, hears(registry, Interests(NORTH_1, 7, 0, 2, ()), SUSPECT_US + 3))
    assert again.version.number > first.version.number


def test_a_coordinator_that_starts_beside_running_brokers_holds_back_until_it_is_settled() -> None:
    registry = started_registry()
    beat = Heartbeat("north-1", 7, 4, RoutesVersion(5, 3))  # routes of an earlier coordinator
    assert sent(Resync, hears(registry, beat)) == [Resync(9)]
    assert hears(registry, Interests(NORTH_1, 7, 0, 4, ()))[1:] == [], "no routes from half the picture"
    hears(registry, Interests(SOUTH_1, 8, 0, 1, ("b",)))
    effects = registry.handle(TimerFired(name=SETTLED), 2 * HEARTBEAT_US)
    (whole,) = sent(Routes, effects)
    assert (whole.base, whole.added) == (0, (Route(Scope.ORIGIN, "south-1", "b"),))


def test_large_interests_and_routes_travel_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_MAX_BYTES", 200)
    network = Bus()
    network.start("north-1", "south-1")
    network.members["south-1"].handle(
        InterestsChanged(added=tuple(f"topic/{n}" for n in range(50))), network.now_us
    )
    network.timers[broker_address("south-1"), TELL] = network.now_us
    network.run_for(3 * HEARTBEAT_US)
    assert len(network.members["north-1"].routes) == 50


# ── both sides, over a bad bus ──────────────────────────────────────────────────────────────────────────────


class Bus:
    """Members and a registry under a virtual clock, with a bus that ``fate`` makes lose, repeat and delay."""

    def __init__(self) -> None:
        self.now_us = 0
        self.members: dict[str, Member] = {}
        self.registry = Registry(HEARTBEAT_US, SUSPECT_US)
        self.timers: dict[tuple[Address, str], int] = {}
        self.mail: list[tuple[int, int, Send, Address]] = []
        self.sequence = 0
        self.fate: list[int] = []
        self.incarnations = 100
        self.start_registry()

    def start_registry(self) -> None:
        self.incarnations += 1
        self.registry = Registry(HEARTBEAT_US, SUSPECT_US)
        self.timers = {key: at for key, at in self.timers.items() if key[0] != COORDINATOR}
        self.do(COORDINATOR, self.registry.handle(Started(incarnation=self.incarnations), self.now_us))

    def start(self, *brokers: str) -> None:
        for info in BROKERS:
            if info.id in brokers:
                self.incarnations += 1
                address = broker_address(info.id)
                self.timers = {key: at for key, at in self.timers.items() if key[0] != address}
                self.members[info.id] = member = Member(info, HEARTBEAT_US)
                self.do(address, member.handle(Started(incarnation=self.incarnations), self.now_us))

    def change(self, broker: str, event: InterestsChanged) -> None:
        self.do(broker_address(broker), self.members[broker].handle(event, self.now_us))

    def do(self, who: Address, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[who, effect.name] = self.now_us + effect.delay_us
            elif isinstance(effect, Send):
                luck = self.fate.pop() if self.fate else 1
                for copy in range({0: 0, 2: 2}.get(luck, 1)):  # 0: lost, 2: twice, 3 and up: late
                    self.sequence += 1
                    delay_us = 500 + copy * 700_000 + (luck * 400_000 if luck > 2 else 0)
                    self.mail.append((self.now_us + delay_us, self.sequence, effect, who))

    def run_for(self, duration_us: int) -> None:
        end_us = self.now_us + duration_us
        while True:
            due = [(at, 1, who, name) for (who, name), at in self.timers.items()]
            letters = [(letter[0], 0, letter) for letter in self.mail]
            next_us = min([at for at, *_ in due] + [at for at, *_ in letters], default=end_us + 1)
            if next_us > end_us:
                self.now_us = end_us
                return
            self.now_us = next_us
            arrived = min(
                (letter for letter in self.mail if letter[0] == next_us), default=None, key=lambda m: m[1]
            )
            if arrived is not None:
                self.mail.remove(arrived)
                _, _, send, sender = arrived
                self.tell(send.to, Received(sender=sender, message=send.message))
            else:
                who, name = next((who, name) for at, _, who, name in due if at == next_us)
                del self.timers[who, name]
                self.tell(who, TimerFired(name=name))

    def tell(self, who: Address, event: Received | TimerFired) -> None:
        if who == COORDINATOR:
            self.do(who, self.registry.handle(event, self.now_us))
        elif (broker := who.removeprefix("broker/")) in self.members:
            self.do(who, self.members[broker].handle(event, self.now_us))


FILTERS = ("a", "a/#", "b/+", "c")
steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(BROKERS), st.sampled_from(FILTERS)),
    st.tuples(st.just("remove"), st.sampled_from(BROKERS), st.sampled_from(FILTERS)),
    st.tuples(st.just("restart"), st.sampled_from(BROKERS), st.none()),
    st.tuples(st.just("crash"), st.sampled_from(BROKERS), st.none()),
    st.tuples(st.just("new coordinator"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.none(), st.integers(1, 3_000_000)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25), st.lists(st.integers(0, 8), max_size=80))
def test_everybody_has_the_routes_that_a_plan_from_scratch_gives_once_the_bus_is_good_again(
    story: list[tuple[str, BrokerInfo | None, object]], fate: list[int]
) -> None:
    bus = Bus()
    wanted: dict[str, set[str]] = {info.id: set() for info in BROKERS}
    bus.start(*wanted)
    bus.fate = fate
    for what, info, detail in story:
        if what == "wait":
            assert isinstance(detail, int)
            bus.run_for(detail)
        elif what == "new coordinator":
            bus.start_registry()
        elif info is not None and what in ("crash", "restart"):
            bus.members.pop(info.id, None)
            bus.timers = {key: at for key, at in bus.timers.items() if key[0] != broker_address(info.id)}
            wanted.pop(info.id, None)
            if what == "restart":
                wanted[info.id] = set()
                bus.start(info.id)
        elif info is not None and info.id in bus.members:
            assert isinstance(detail, str)
            present = detail in wanted[info.id]
            if what == "add" and not present:
                wanted[info.id].add(detail)
                bus.change(info.id, InterestsChanged(added=(detail,)))
            elif what == "remove" and present:
                wanted[info.id].remove(detail)
                bus.change(info.id, InterestsChanged(removed=(detail,)))
    bus.fate = []
    bus.run_for(SUSPECT_US * 2 + 6 * HEARTBEAT_US)
    plan = RoutePlan()
    for info in BROKERS:
        if info.id in wanted:
            plan.join(info, wanted[info.id])
    assert {broker: set(member.routes) for broker, member in bus.members.items()} == {
        broker: set(plan.routes(broker)) for broker in wanted
    }
    assert set(bus.registry.brokers) == set(wanted)
