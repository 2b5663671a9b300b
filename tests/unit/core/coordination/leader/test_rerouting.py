"""A leader finds ways around links that are cut, and nobody is lost for it."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.coordination.desk import Desk, of, sent
from tests.unit.core.coordination.wiring import EVERYBODY, SECOND_US, WANTS, Network, info
from tocsin.core.coordination.leader.rerouting import AROUND_MAX, REFRESH_US, Rerouting, told
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.machine import Received, Say, Send
from tocsin.model.network import Scope, broker_address
from tocsin.wire.internal.commands import Joined, Lost, Rerouted, Said, Shunned
from tocsin.wire.internal.control import Links, Measure


def network() -> Network:
    return Network(*EVERYBODY, interests=WANTS)


def test_a_cut_link_is_bypassed_over_the_nearest_relay_without_a_loss() -> None:
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


def test_a_relay_that_is_cut_or_lost_is_replaced_by_the_next() -> None:
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


def test_a_hub_that_nobody_reaches_is_dropped_until_somebody_does() -> None:
    net = network()
    net.broken = {(each, "s-hub") for each in EVERYBODY if each != "s-hub"}
    net.settle()
    assert net.state.interest.plan.shunned == {"s-hub"}
    assert net.send("n-1", "t") == {"n-2": 1, "n-hub": 1, "s-1": 1, "s-2": 1}
    net.broken -= {("n-2", "s-hub")}
    net.settle()
    assert not net.state.interest.plan.shunned and net.send("n-1", "t")["s-1"] == 1


def unreached(hub: str, reached_by: str) -> set[tuple[str, str]]:
    """All links to a hub but one."""
    return {(each, hub) for each in EVERYBODY if each not in (hub, reached_by)}


def test_a_hub_reached_only_by_an_unreachable_broker_is_dropped() -> None:
    """Whether that broker has a link to it, because the hub itself wants something, makes no difference."""
    for wants in ({"n-1": ("t",)}, {"n-1": ("t",), "n-hub": ("t",)}):
        net = Network(*EVERYBODY, interests=wants)
        net.broken = unreached("n-hub", "n-2") | {(each, "n-2") for each in EVERYBODY if each != "n-2"}
        net.settle()
        assert net.state.interest.plan.shunned == {"n-hub"}
        assert net.send("s-1", "t") == {"s-hub": 1, "n-1": 1}
        net.broken -= {("s-2", "n-2")}  # so that there is a way
        net.settle()
        assert not net.state.interest.plan.shunned
        assert net.send("s-1", "t") == {"n-hub": 1, "n-1": 1}


def test_a_hub_stays_while_a_detour_is_sought_or_crosses_its_cluster() -> None:
    net = Network(*EVERYBODY, interests={"n-1": ("t",), "n-hub": ("t",)})
    net.settle()
    net.broken = unreached("n-hub", "n-2")
    for broker in EVERYBODY:
        net.hear(broker)
    assert net.rerouting.look(net.now_us) == ([], [])  # they are still measuring
    net.settle()
    assert all(way and way[-1] == "n-2" for _, _, way in told(net.state))
    assert net.send("s-1", "t") == {"n-hub": 1, "n-1": 1}
    assert not any(isinstance(each, Shunned) for each in net.said)


def reached_by_one() -> Network:
    """Only s-1 reaches n-hub, and nobody reaches s-1, so that nothing goes around."""
    net = Network(*EVERYBODY, interests={"n-1": ("t",), "n-hub": ("t",)})
    net.broken = unreached("n-hub", "s-1") | {(each, "s-1") for each in EVERYBODY if each != "s-1"}
    net.settle()
    assert all(way == () for _, _, way in told(net.state)) and not net.state.interest.plan.shunned
    return net


def test_a_hub_stays_while_one_sender_does_not_report_its_link_cut() -> None:
    """Its link may be away for a moment, and if the hub were left out it would not be dialled again."""
    net = reached_by_one()
    net.rerouting.hear(Links("s-1", 1, (), ()), net.now_us)
    assert net.rerouting.look(net.now_us) == ([], [])
    net.broken |= {("s-1", "n-hub")}
    assert net.settle().state.interest.plan.shunned == {"n-hub"}
    net.broken -= {("s-1", "n-hub")}
    assert not net.settle().state.interest.plan.shunned


def test_who_comes_when_a_hub_is_left_out_tries_it() -> None:
    net = reached_by_one()
    net.lose("s-1")
    assert net.settle().state.interest.plan.shunned == {"n-hub"}
    net.pictures["s-1"] = NetworkView()
    net.apply(Said("s-1", 2, 1, (Joined(info("s-1")),)))
    net.hear("s-1")
    commands, said = net.rerouting.look(net.now_us)
    assert Rerouted("s-1", (("n-hub", ()),)) in commands
    assert not any(isinstance(each, Shunned) for each in commands)  # meanwhile others go on as they do
    assert not any(isinstance(each, Say) and "is cut" in each.text for each in said)  # nobody says so of s-1
    assert not net.settle().state.interest.plan.shunned
    assert "s-1" not in net.state.detours.rows and net.send("s-1", "t") == {"n-hub": 1, "n-1": 1}


def test_a_new_leader_keeps_a_hub_until_it_hears_who_reaches_it() -> None:
    net = reached_by_one()
    net.rerouting = Rerouting(net.state)
    for broker in ("s-2", "s-hub", "n-1", "n-2"):
        net.hear(broker)
    assert net.rerouting.look(net.now_us + REFRESH_US) == ([], [])


def test_a_new_leader_believes_the_log_for_brokers_it_has_not_heard() -> None:
    net = reached_by_one()
    net.rerouting = Rerouting(net.state)
    net.broken |= {("s-1", "n-hub")}
    net.hear("s-1")
    commands, _ = net.rerouting.look(net.now_us + REFRESH_US)
    assert Shunned(("n-hub",)) in commands


def test_a_hub_that_nobody_sends_over_is_not_left_out() -> None:
    net = Network(*EVERYBODY, interests={"n-1": ("t",)})
    for broker in ("n-1", "s-1"):  # as relays that were to use it
        net.rerouting.hear(Links(broker, 1, ("s-hub",), ()), net.now_us)
    commands, _ = net.rerouting.look(net.now_us + REFRESH_US)
    assert [type(each) for each in commands] == [Rerouted, Rerouted]


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
    assert net.rerouting.look(net.now_us + REFRESH_US - 1) == ([], [])
    commands, said = net.rerouting.look(net.now_us + REFRESH_US)
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
    assert net.rerouting.look(net.now_us) == ([], [])
    net.hear("n-1")
    assert net.rerouting.look(net.now_us) == ([], []) and told(net.state) == before
    net.broken = set()
    net.hear("n-1")
    commands, _ = net.rerouting.look(net.now_us)
    assert commands == [Rerouted("n-1", ())]


def test_the_leader_ignores_links_to_brokers_that_are_not_there() -> None:
    net = network()
    net.rerouting.hear(Links("n-1", 1, ("nobody", "n-1"), ()), 0)
    assert net.rerouting.look(10 * SECOND_US) == ([], [])


PAIRS = [pair for pair in product(EVERYBODY, EVERYBODY) if pair[0] != pair[1]]


@settings(max_examples=300, deadline=None)
@given(
    st.sets(st.sampled_from(PAIRS), max_size=14),
    st.sets(st.sampled_from(PAIRS), max_size=8),
    st.dictionaries(st.sampled_from(PAIRS), st.integers(1, 100_000)),
    st.sets(st.sampled_from(EVERYBODY), min_size=1, max_size=4),
)
def test_a_message_arrives_once_if_a_path_of_three_links_exists(
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


NORTH = [pair for pair in PAIRS if pair[1].startswith("n")]


@settings(max_examples=150, deadline=None)
@given(
    st.sets(st.sampled_from(NORTH), max_size=8),
    st.sets(st.sampled_from(NORTH), max_size=8),
    st.sets(st.sampled_from(("n-1", "n-2", "n-hub")), min_size=1),
)
def test_a_hub_that_two_senders_miss_and_no_detour_reaches_is_dropped(
    first: set[tuple[str, str]], then: set[tuple[str, str]], interested: set[str]
) -> None:
    net = Network(*EVERYBODY, interests=dict.fromkeys(sorted(interested), ("t",)))
    for spared in (first, then):
        net.broken = set(NORTH) - spared
        net.settle()
        without = [broker for broker, peer, _ in told(net.state) if peer == "n-hub"]
        reached = any(net.could_cross(each, "n-hub") for each in ("s-1", "s-2", "s-hub"))
        expected = {"n-hub"} if len(without) >= 2 and not reached else set[str]()
        assert net.state.interest.plan.shunned == expected


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
    desk.take(desk.fire(CoordinatorTimer.PLAN))
    assert desk.batches[-1].commands == (Rerouted("n-1", (("n-2", ("n-3",)),)),)
    assert desk.handle(Received(sender="", message=Links("n-1", 8, (), ()))) == []  # of another life
    desk.take(desk.handle(Received(sender="", message=Links("n-1", 7, (), ()))))
    assert desk.batches[-1].commands == (Rerouted("n-1", ()),)
    assert not any(isinstance(each, Lost | Shunned) for batch in desk.batches for each in batch.commands)
