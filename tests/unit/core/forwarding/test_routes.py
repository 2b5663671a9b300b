"""The route plan against its promise: exactly one copy for each interested broker, within two hops."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.forwarding.origins import LINGER_US, UNREGISTERED
from tocsin.core.forwarding.routes import RoutePlan
from tocsin.core.tiers.slots import MARK, is_gate
from tocsin.model.network import BrokerInfo, Role, Route, Scope


def broker(
    name: str, cluster: str, role: Role = Role.EDGE, port: int = 1883, *, tier: str = ""
) -> BrokerInfo:
    return BrokerInfo(name, cluster, role, "127.0.0.1", port, tier=tier)


def copies(plan: RoutePlan, origin: str, topic: str) -> list[tuple[str, int]]:
    """Send one message (filters are plain topics here) and list (broker, hops) for each copy for a broker's clients."""
    arrivals = [arrived for _, arrived in over_each_member(plan, origin, topic)]
    assert all(arrived == arrivals[0] for arrived in arrivals), "any member can carry any message"
    return arrivals[0]


def over_each_member(plan: RoutePlan, origin: str, topic: str) -> list[tuple[str, list[tuple[str, int]]]]:
    """The same for each choice of members that carry."""
    filters = (topic,) if plan.origins.holds(topic, origin) else (topic, UNREGISTERED)
    routes = {r.peer for r in plan.routes(origin) if r.scope is Scope.ORIGIN and r.filter in filters}
    straight = sorted(each for each in routes if not is_gate(each))
    gates = sorted(each for each in routes if is_gate(each))
    found = []
    for carriers in product(*(plan.tiers[each.removeprefix(MARK)] for each in gates)):
        arrived = [(each, 1) for each in straight]
        for carrier in carriers:
            arrived += _carried(plan, plan.brokers[origin].cluster, carrier, topic)
        found.append((",".join(carriers), sorted(arrived, key=lambda each: (each[1], each[0]))))
    return found


def _carried(plan: RoutePlan, cluster: str, carrier: str, topic: str) -> list[tuple[str, int]]:
    """What a member makes of a message from a cluster: its own clients, and its transit routes."""
    arrived = []
    if plan.brokers[carrier].cluster != cluster and topic in plan.interests(carrier):
        arrived.append((carrier, 1))
    for route in plan.routes(carrier):
        if route.scope is not Scope.TRANSIT or route.filter != topic:
            continue
        if plan.brokers[route.peer].cluster != cluster:
            arrived.append((route.peer, 2))
    return arrived


def two_clusters() -> RoutePlan:
    plan = RoutePlan()
    for cluster in ("north", "south"):
        plan.join(broker(f"{cluster}-1", cluster), ())
        plan.join(broker(f"{cluster}-2", cluster), ())
        plan.join(broker(f"{cluster}-hub", cluster, Role.ROUTING), ())
    return plan


def test_a_message_inside_a_cluster_takes_one_hop() -> None:
    plan = two_clusters()
    plan.change("north-2", ["a"], ())
    assert copies(plan, "north-1", "a") == [("north-2", 1)]


def test_a_message_into_another_cluster_goes_through_its_hub_once() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    plan.change("south-2", ["a"], ())
    assert copies(plan, "north-1", "a") == [("south-1", 2), ("south-2", 2)]


def test_a_second_interest_in_a_cluster_changes_nothing_in_the_others() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    changes = plan.change("south-2", ["a"], ())
    assert set(changes) == {"south-1", "south-hub"}


def test_a_cluster_without_a_hub_borrows_a_tier() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    plan.leave("south-hub")
    assert copies(plan, "north-1", "a") == [("south-1", 2)]


def test_a_network_without_hubs_is_a_mesh() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    plan.leave("south-hub")
    plan.leave("north-hub")
    assert copies(plan, "north-1", "a") == [("south-1", 1)]


def test_a_broker_that_leaves_takes_its_interests_along() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    changes = plan.leave("south-1")
    assert Route(Scope.TRANSIT, "south-1", "a") in changes["south-hub"].removed
    assert all(not plan.routes(b) for b in plan.brokers)


def test_a_broker_that_joins_with_the_same_description_only_changes_its_interests() -> None:
    plan = two_clusters()
    plan.change("north-2", ["a", "b"], ())
    changes = plan.join(broker("north-2", "north"), ["b", "c"])
    assert changes["north-1"].added == (Route(Scope.ORIGIN, "north-2", "c"),)
    assert changes["north-1"].removed == (Route(Scope.ORIGIN, "north-2", "a"),)


def test_a_broker_that_comes_back_elsewhere_only_changes_its_interests() -> None:
    plan = two_clusters()
    plan.change("north-2", ["a", "b"], ())
    moved = broker("north-2", "north", port=1)
    changes = plan.join(moved, ["b", "c"])
    assert plan.brokers["north-2"] == moved
    assert changes["north-1"].added == (Route(Scope.ORIGIN, "north-2", "c"),)
    assert changes["north-1"].removed == (Route(Scope.ORIGIN, "north-2", "a"),)


def test_whoever_sends_into_other_clusters_over_a_hub_uses_it() -> None:
    plan = two_clusters()
    plan.change("north-1", ["a"], ())
    assert plan.users("north-hub") == {"south-1", "south-2", "south-hub"} and not plan.users("south-hub")
    plan.shun(["north-hub"])
    assert plan.users("north-hub") == {"south-1", "south-2", "south-hub"}
    assert plan.users("south-hub") == {"south-1", "south-2"}  # north borrows it


def cloud(hubs: int = 3, clusters: str = "abc") -> RoutePlan:
    plan = RoutePlan()
    for number in range(hubs):
        plan.join(broker(f"hub-{number}", "cloud", Role.ROUTING), ())
    for cluster in clusters:
        plan.join(broker(f"{cluster}-1", cluster), [f"to {cluster}", "to all"])
    return plan


def test_a_tier_carries_for_clusters_that_have_none() -> None:
    plan = cloud()
    assert copies(plan, "a-1", "to b") == [("b-1", 2)]
    assert copies(plan, "a-1", "to all") == [("b-1", 2), ("c-1", 2)]
    assert {r.peer for r in plan.routes("a-1")} == {"@cloud"}


def test_a_hub_that_comes_or_goes_changes_only_its_own_routes() -> None:
    plan = cloud()
    assert set(plan.join(broker("hub-9", "cloud", Role.ROUTING), ())) == {"hub-9"}
    assert plan.shun(["hub-0"]) == {} and plan.tiers["cloud"] == ("hub-1", "hub-2", "hub-9")
    assert plan.leave("hub-1") == {} and plan.leave("hub-2") == {}
    assert copies(plan, "a-1", "to all") == [("b-1", 2), ("c-1", 2)]


def test_the_last_of_a_tier_changes_everybodys_routes() -> None:
    plan = cloud(hubs=1)
    assert set(plan.leave("hub-0")) == {"a-1", "b-1", "c-1"}
    assert copies(plan, "a-1", "to b") == [("b-1", 1)]


def test_routing_brokers_of_several_clusters_may_be_one_tier() -> None:
    plan = RoutePlan()
    for cluster in "abc":
        plan.join(broker(f"{cluster}-hub", cluster, Role.ROUTING, tier="wan"), ["t"])
        plan.join(broker(f"{cluster}-1", cluster), ["t"])
    assert set(plan.tiers) == {"wan"}
    everybody = {"a-hub", "b-1", "b-hub", "c-1", "c-hub"}
    assert all({b for b, _ in got} == everybody for _, got in over_each_member(plan, "a-1", "t"))


places = st.tuples(st.sampled_from("xyz"), st.sampled_from([Role.EDGE, Role.ROUTING]), st.booleans())


@given(st.lists(places, min_size=1, max_size=6), st.sets(st.integers(0, 5)))
def test_a_hubs_users_are_the_brokers_whose_routes_lead_to_its_tier(
    drawn: list[tuple[str, Role, bool]], shunned: set[int]
) -> None:
    infos = [broker(f"b{n}", cluster, role) for n, (cluster, role, _) in enumerate(drawn)]
    hubs = [info.id for info in infos if info.role is Role.ROUTING]
    without = {f"b{n}" for n in shunned} & set(hubs)
    plan = RoutePlan()
    for info, (_, _, wants) in zip(infos, drawn, strict=True):
        plan.publish("t", info.id)
        plan.join(info, ("t",) if wants else ())
    plan.shun(without)
    for hub in hubs:
        plan.shun(without - {hub})
        tier = next(each for each, members in plan.tiers.items() if hub in members)
        gate = Route(Scope.ORIGIN, f"{MARK}{tier}", "t")
        expected = {info.id for info in infos if gate in plan.routes(info.id)}
        plan.shun(without)
        assert plan.users(hub) == expected


names = st.sampled_from([f"b{n}" for n in range(6)])
topics = st.sets(st.sampled_from("abc"), max_size=3)
steps = st.one_of(
    st.tuples(
        st.just("join"),
        names,
        st.sampled_from("xyz"),
        st.sampled_from([Role.EDGE, Role.ROUTING]),
        topics,
        st.integers(1, 2),
        st.sampled_from(["", "", "wan"]),
    ),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("shun"), names),
    st.tuples(st.just("change"), names, topics, topics),
    st.tuples(st.just("publish"), names, st.sampled_from("abc")),
    st.tuples(st.just("cease"), names, st.sampled_from("abc"), st.booleans()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=25))
def test_whatever_happens_each_interested_broker_gets_one_copy_within_two_hops(
    story: list[tuple[object, ...]],
) -> None:
    plan = RoutePlan()
    told: dict[str, set[Route]] = {}
    published: Counter[tuple[str, str]] = Counter()
    now_us = 0
    for step in story:
        name = str(step[1])
        if step[0] == "join":
            info = broker(name, str(step[2]), Role(str(step[3])), int(str(step[5])), tier=str(step[6]))
            changes = plan.join(info, step[4])  # type: ignore[arg-type]
            assert plan.brokers[name] == info
        elif step[0] == "shun":
            changes = plan.shun(plan.shunned ^ {name})
        elif step[0] == "leave":
            changes = plan.leave(name)
            told.pop(name, None)
        elif step[0] == "publish":
            changes = plan.publish(str(step[2]), name)
            published[name, str(step[2])] += 1
        elif step[0] == "cease":
            now_us += LINGER_US
            if published[name, str(step[2])]:
                published[name, str(step[2])] -= 1
                plan.origins.cease(str(step[2]), name, now_us)
            changes = plan.lapse(now_us) if step[3] else {}
        elif name in plan.brokers:
            changes = plan.change(name, step[2], step[3])  # type: ignore[arg-type]
        else:
            continue
        for who, change in changes.items():
            routes = told.setdefault(who, set())
            assert not routes & set(change.added), "a route is announced once"
            assert routes >= set(change.removed), "only announced routes are withdrawn"
            routes.update(change.added)
            routes.difference_update(change.removed)
    assert all(plan.origins.holds(topic, name) for (name, topic), count in published.items() if count)
    for origin in plan.brokers:
        senders = {each for each in plan.brokers if any(r.peer == origin for r in plan.routes(each))}
        assert sorted(plan.senders(origin)) == sorted(senders)
        assert told.get(origin, set()) == plan.routes(origin), "the announced changes add up to the routes"
        for topic in "abc":
            interested = sorted(b for b in plan.brokers if b != origin and topic in plan.interests(b))
            for carriers, arrived in over_each_member(plan, origin, topic):
                assert sorted(b for b, _ in arrived) == interested, f"one copy each, over {carriers}"
                assert all(hops <= 2 for _, hops in arrived)
