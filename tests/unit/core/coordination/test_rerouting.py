"""A leader finds ways around links that are cut, and nobody is lost for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise, permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.coordination.desk import Desk, of, sent
from tocsin.core.coordination.picture import Picture
from tocsin.core.coordination.planning import PLAN
from tocsin.core.coordination.rerouting import AROUND_MAX, REFRESH_US, Rerouting, told
from tocsin.core.coordination.state import State
from tocsin.core.machine import Effect, Received, Say, Send
from tocsin.model.message import broker_address
from tocsin.model.network import BrokerInfo, Role, Scope
from tocsin.wire.commands import Interests, Joined, Logged, Lost, Rerouted, Said, Shunned
from tocsin.wire.control import Links, Measure

SECOND_US = 1_000_000


def info(name: str) -> BrokerInfo:
    cluster = {"n": "north", "s": "south", "w": "west"}[name[0]]
    role = Role.ROUTING if "hub" in name else Role.EDGE
    return BrokerInfo(name, cluster, role, "127.0.0.1", 1)


class Network:
    """Brokers that see their links as they are, told to one leader; ``broken`` are links that carry nothing."""

    def __init__(self, *names: str, interests: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.state = State()
        self.pictures = {name: Picture() for name in names}
        self.broken: set[tuple[str, str]] = set()
        self.delays: dict[tuple[str, str], int] = {}
        self.now_us = 0
        self.said: list[Logged] = []
        self.asked: list[str] = []
        self.rerouting = Rerouting(self.state)
        for name in names:
            self.apply(Said(name, 1, 1, (Joined(info(name)),)))
        for name, filters in (interests or {}).items():
            self.apply(Said(name, 1, 2, (Interests(filters),)))

    def apply(self, *commands: Logged) -> None:
        self.said += commands
        outcome = self.state.apply(self.now_us, commands)
        for broker, items in outcome.items.items():
            self.pictures[broker].apply("", items, {}, fresh=broker in outcome.fresh)

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
        effects = self.rerouting.hear("", self.links(broker), self.now_us)
        self.asked += [each.to for each in effects if isinstance(each, Send)]
        return effects

    def step(self) -> bool:
        """A second passes: everybody tells, and the leader acts; whether it did."""
        self.now_us += SECOND_US
        for broker in self.pictures:
            self.hear(broker)
        self.now_us += REFRESH_US
        commands, _ = self.rerouting.look("", self.now_us)
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
        """How often each broker gets a message of a client of ``origin``."""
        got: Counter[str] = Counter()
        for first in self.peers(origin, Scope.ORIGIN, topic):
            if self.crosses(origin, first):
                got[first] += 1
                for second in self.peers(first, Scope.TRANSIT, topic):
                    if info(second).cluster != info(origin).cluster and self.crosses(first, second):
                        got[second] += 1
        return got

    def peers(self, broker: str, scope: Scope, topic: str) -> list[str]:
        routes = self.pictures[broker].routes
        return sorted({each.peer for each in routes if each.scope is scope and each.filter == topic})

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


def network() -> Network:
    return Network(*EVERYBODY, interests=WANTS)


def test_a_cut_link_is_bypassed_over_the_nearest_relay_and_nobody_is_lost() -> None:
    net = network()
    net.delays[("n-2", "s-hub")] = 9_000
    net.broken = {("n-1", "s-hub")}
    assert net.send("n-1", "t") == {"n-2": 1}
    net.settle()
    assert told(net.state) == [("n-1", "s-hub", ("n-2",))]
    assert net.send("n-1", "t") == {"n-2": 1, "s-hub": 1, "s-1": 1, "s-2": 1}
    assert set(net.state.members) == set(EVERYBODY)


def test_the_detour_ends_when_the_link_is_back() -> None:
    net = network()
    net.broken = {("n-1", "s-hub")}
    net.settle().broken = set()
    net.settle()
    assert told(net.state) == [] and net.send("n-1", "t") == {"n-2": 1, "s-hub": 1, "s-1": 1, "s-2": 1}


def test_a_relay_that_is_cut_itself_or_gone_is_replaced_by_the_next() -> None:
    net = network()
    net.broken = {("n-1", "s-hub")}
    net.settle()
    ((_, _, (first,)),) = told(net.state)
    net.broken |= {(first, "s-hub")}
    net.settle()
    way = dict(net.state.detours.around("n-1"))["s-hub"]
    assert way and first not in way
    net.lose(way[-1])
    assert net.state.detours.around("n-1")["s-hub"] == ()
    net.settle()
    assert net.send("n-1", "t")["s-1"] == 1


def test_both_directions_can_be_cut() -> None:
    net = Network("n-1", "n-2", "n-3", interests={"n-1": ("t",), "n-2": ("t",)})
    net.broken = {("n-1", "n-2"), ("n-2", "n-1")}
    net.settle()
    assert told(net.state) == [("n-1", "n-2", ("n-3",)), ("n-2", "n-1", ("n-3",))]


def test_a_hub_that_nobody_reaches_carries_no_more_and_does_again_when_somebody_does() -> None:
    net = network()
    net.broken = {(each, "s-hub") for each in EVERYBODY if each != "s-hub"}
    net.settle()
    assert net.state.interest.plan.shunned == {"s-hub"}
    assert net.send("n-1", "t") == {"n-2": 1, "n-hub": 1, "s-1": 1, "s-2": 1}
    net.broken -= {("n-2", "s-hub")}
    net.settle()
    assert not net.state.interest.plan.shunned and net.send("n-1", "t")["s-1"] == 1


def test_only_those_around_the_failure_are_asked_to_measure() -> None:
    net = Network(*EVERYBODY, "w-1", "w-2", interests=WANTS)
    net.settle()
    net.broken = {("n-1", "n-2")}
    net.asked.clear()
    net.hear("n-1")
    distances = net.rerouting.distances
    near = {"n-1", "n-2"} | distances.neighbours("n-1") | distances.neighbours("n-2")
    assert set(net.asked) == {broker_address(each) for each in near}
    assert broker_address("s-1") not in net.asked and len(net.asked) <= AROUND_MAX
    net.asked.clear()
    net.hear("n-1")
    assert net.asked == []  # once for each failure


def test_a_way_is_chosen_only_after_those_around_had_time_to_measure() -> None:
    net = network()
    net.broken = {("n-1", "s-hub")}
    net.hear("n-1")
    assert net.rerouting.look("", net.now_us + REFRESH_US - 1) == ([], [])
    commands, said = net.rerouting.look("", net.now_us + REFRESH_US)
    assert len(commands) == 1 and [type(each) for each in said] == [Say]


def test_a_way_that_works_is_kept_though_another_is_shorter_by_now() -> None:
    net = network()
    net.broken = {("n-1", "s-hub")}
    before = told(net.settle().state)
    net.delays |= {("n-1", relay): 90_000 for relay in before[0][2]}
    assert told(net.settle().state) == before


def test_what_another_leader_has_decided_stays_until_the_broker_is_heard() -> None:
    net = network()
    net.broken = {("n-1", "s-hub")}
    before = told(net.settle().state)
    net.rerouting = Rerouting(net.state)
    net.hear("n-2")
    assert net.rerouting.look("", net.now_us) == ([], [])
    net.hear("n-1")
    assert net.rerouting.look("", net.now_us) == ([], []) and told(net.state) == before
    net.broken = set()
    net.hear("n-1")
    commands, _ = net.rerouting.look("", net.now_us)
    assert commands == [Rerouted("n-1", ())]


def test_a_link_to_a_broker_that_is_not_there_is_no_affair_of_ours() -> None:
    net = network()
    net.rerouting.hear("", Links("n-1", 1, ("nobody", "n-1"), ()), 0)
    assert net.rerouting.look("", 10 * SECOND_US) == ([], [])


PAIRS = [pair for pair in product(EVERYBODY, EVERYBODY) if pair[0] != pair[1]]


@settings(max_examples=300, deadline=None)
@given(
    st.sets(st.sampled_from(PAIRS), max_size=14),
    st.sets(st.sampled_from(PAIRS), max_size=8),
    st.dictionaries(st.sampled_from(PAIRS), st.integers(1, 100_000)),
    st.sets(st.sampled_from(EVERYBODY), min_size=1, max_size=4),
)
def test_whoever_wants_a_message_gets_it_once_if_a_way_of_three_links_exists(
    first: set[tuple[str, str]],
    then: set[tuple[str, str]],
    delays: dict[tuple[str, str], int],
    interested: set[str],
) -> None:
    net = Network(*EVERYBODY, interests=dict.fromkeys(sorted(interested), ("t",)))
    net.delays = delays
    for broken in (first, first | then, then, set[tuple[str, str]]()):
        net.broken = broken
        net.settle()
        for origin in EVERYBODY:
            got = net.send(origin, "t")
            assert all(count == 1 for count in got.values())
            for first_hop in net.peers(origin, Scope.ORIGIN, "t"):
                reached = net.could_cross(origin, first_hop)
                assert got[first_hop] == reached
                for second in net.peers(first_hop, Scope.TRANSIT, "t"):
                    if reached and info(second).cluster != info(origin).cluster:
                        assert got[second] == net.could_cross(first_hop, second)
        assert set(net.state.members) == set(EVERYBODY)
        if not broken:
            assert told(net.state) == [] and not net.state.interest.plan.shunned
            wanted = interested - {origin}
            assert wanted <= set(net.send(origin, "t"))


# ── the leader's machine ─────────────────────────────────────────────────────────────────────────────────────


def test_a_leader_writes_the_detour_into_its_log() -> None:
    desk = Desk()
    desk.lead()
    for name in ("n-1", "n-2", "n-3"):
        desk.take(desk.submit(Joined(info(name)), broker=name))
    effects = desk.handle(Received(sender="", message=Links("n-1", 7, ("n-2",), (("n-3", 5),))))
    assert {each.to for each in of(Send, effects)} == {broker_address(each) for each in ("n-1", "n-2", "n-3")}
    assert len(sent(Measure, effects)) == 3
    desk.now_us += REFRESH_US
    desk.take(desk.fire(PLAN))
    assert desk.batches[-1].commands == (Rerouted("n-1", (("n-2", ("n-3",)),)),)
    assert desk.handle(Received(sender="", message=Links("n-1", 8, (), ()))) == []  # of another life
    desk.take(desk.handle(Received(sender="", message=Links("n-1", 7, (), ()))))
    assert desk.batches[-1].commands == (Rerouted("n-1", ()),)
    assert not any(isinstance(each, Lost | Shunned) for batch in desk.batches for each in batch.commands)
