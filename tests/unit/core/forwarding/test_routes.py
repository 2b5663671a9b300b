"""The route plan against its promise: exactly one copy for each interested broker, within two hops."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.forwarding.routes import RoutePlan
from tocsin.model.network import BrokerInfo, Role, Route, Scope


def broker(name: str, cluster: str, role: Role = Role.EDGE, port: int = 1883) -> BrokerInfo:
    return BrokerInfo(name, cluster, role, "127.0.0.1", port)


def copies(plan: RoutePlan, origin: str, topic: str) -> list[tuple[str, int]]:
    """Send one message (filters are plain topics here) and list (broker, hops) for each copy that arrives."""
    arrived: list[tuple[str, int]] = []
    for first in sorted(
        {r.peer for r in plan.routes(origin) if r.scope is Scope.ORIGIN and r.filter == topic}
    ):
        arrived.append((first, 1))
        for route in sorted(plan.routes(first), key=lambda r: r.peer):
            destination = plan.brokers[route.peer]
            from_cluster = plan.brokers[origin].cluster
            if route.scope is Scope.TRANSIT and route.filter == topic and destination.cluster != from_cluster:
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
    assert copies(plan, "north-1", "a") == [("south-hub", 1), ("south-1", 2), ("south-2", 2)]


def test_a_second_interest_in_a_cluster_changes_nothing_in_the_others() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    changes = plan.change("south-2", ["a"], ())
    assert set(changes) == {"south-1", "south-hub"}


def test_a_cluster_without_a_hub_borrows_one() -> None:
    plan = two_clusters()
    plan.change("south-1", ["a"], ())
    plan.leave("south-hub")
    assert copies(plan, "north-1", "a") == [("north-hub", 1), ("south-1", 2)]


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
    assert plan.users("south-hub") == {"south-1", "south-2"}  # it is borrowed


places = st.tuples(st.sampled_from("xyz"), st.sampled_from([Role.EDGE, Role.ROUTING]), st.booleans())


@given(st.lists(places, min_size=1, max_size=6), st.sets(st.integers(0, 5)))
def test_a_hubs_users_are_the_brokers_whose_routes_cross_it(
    drawn: list[tuple[str, Role, bool]], shunned: set[int]
) -> None:
    infos = [broker(f"b{n}", cluster, role) for n, (cluster, role, _) in enumerate(drawn)]
    wanting = [infos[n] for n, (_, _, wants) in enumerate(drawn) if wants]
    hubs = [info.id for info in infos if info.role is Role.ROUTING]
    without = {f"b{n}" for n in shunned} & set(hubs)
    plan = RoutePlan()
    for info in infos:
        plan.join(info, ("t",) if info in wanting else ())
    plan.shun(without)
    for hub in hubs:
        expected: set[str] = set()
        for destination in wanting:
            alone = RoutePlan()
            for info in infos:
                alone.join(info, ("t",) if info == destination else ())
            alone.shun(without - {hub})
            foreign = [info.id for info in infos if info.cluster != destination.cluster]
            expected |= {each for each in foreign if Route(Scope.ORIGIN, hub, "t") in alone.routes(each)}
            if any(Route(Scope.TRANSIT, each.id, "t") in alone.routes(hub) for each in infos):
                expected |= set(foreign) - {hub}
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
    ),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("change"), names, topics, topics),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=25))
def test_whatever_happens_each_interested_broker_gets_one_copy_within_two_hops(
    story: list[tuple[object, ...]],
) -> None:
    plan = RoutePlan()
    told: dict[str, set[Route]] = {}
    for step in story:
        name = str(step[1])
        if step[0] == "join":
            info = broker(name, str(step[2]), Role(str(step[3])), int(str(step[5])))
            changes = plan.join(info, step[4])  # type: ignore[arg-type]
            assert plan.brokers[name] == info
        elif step[0] == "leave":
            changes = plan.leave(name)
            told.pop(name, None)
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
    for origin in plan.brokers:
        senders = {each for each in plan.brokers if any(r.peer == origin for r in plan.routes(each))}
        assert sorted(plan.senders(origin)) == sorted(senders)
        assert told.get(origin, set()) == plan.routes(origin), "the announced changes add up to the routes"
        for topic in "abc":
            arrived = copies(plan, origin, topic)
            interested = {b for b in plan.brokers if b != origin and topic in plan.interests(b)}
            got = [b for b, _ in arrived]
            hubs = {b for b, info in plan.brokers.items() if info.role is Role.ROUTING}
            assert sorted(b for b in got if b in interested) == sorted(interested)
            assert set(got) - interested <= hubs, "only a hub may carry what it does not want"
            assert len(got) == len(set(got)), "one copy"
            assert all(hops <= 2 for _, hops in arrived)
