"""The forwarding table against the plain definition of a match."""

from __future__ import annotations

import weakref

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tocsin.core.forwarding.origins import UNREGISTERED
from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.model.network import Route, Scope
from tocsin.wire.mqtt.topics import matches

levels = st.sampled_from(["a", "b", "", "$c", "d"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.one_of(levels, st.just("+")), max_size=3))
    if not parts or draw(st.booleans()):
        parts.append("#")
    return "/".join(parts) or "+"


targets = st.integers(0, 4)
names = st.builds(str.__add__, st.sampled_from(["", "", "$share/g/", "$share/h/"]), filters())
routes = st.builds(Route, st.sampled_from(Scope), st.sampled_from(["p", "q"]), names)


def inner(name: str) -> str:
    return name.split("/", 2)[2] if name.startswith("$share/") else name


class TableAgainstLists(RuleBasedStateMachine):
    """Any history of changes: the trie answers as a list that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.table: ForwardingTable[int] = ForwardingTable()
        self.subscriptions: dict[tuple[int, str], Subscription] = {}
        self.routes: set[Route] = set()

    def interested(self, topic_filter: str) -> bool:
        return any(f == topic_filter for _, f in self.subscriptions)

    @rule(
        who=targets,
        topic_filter=names,
        no_local=st.booleans(),
        identifier=st.none() | st.integers(1, 3),
    )
    def subscribe(self, who: int, topic_filter: str, no_local: bool, identifier: int | None) -> None:
        first = not self.interested(topic_filter)
        subscription = Subscription(no_local, identifier)
        self.subscriptions[who, topic_filter] = subscription
        assert self.table.subscribe(who, topic_filter, subscription) is first

    @rule(who=targets, topic_filter=names)
    def unsubscribe(self, who: int, topic_filter: str) -> None:
        had = self.subscriptions.pop((who, topic_filter), None) is not None
        assert self.table.unsubscribe(who, topic_filter) is (had and not self.interested(topic_filter))

    @rule(who=targets)
    def drop(self, who: int) -> None:
        mine = {f for t, f in self.subscriptions if t == who}
        self.subscriptions = {key: s for key, s in self.subscriptions.items() if key[0] != who}
        assert set(self.table.drop(who)) == {f for f in mine if not self.interested(f)}

    @rule(route=routes)
    def add_route(self, route: Route) -> None:
        self.routes.add(route)
        self.table.add_route(route)

    @rule(route=routes)
    def remove_route(self, route: Route) -> None:
        self.routes.discard(route)
        self.table.remove_route(route)

    @rule(topic=topics)
    def resolve(self, topic: str) -> None:
        fanout = self.table.resolve(topic)
        wanted: dict[int, list[Subscription]] = {}
        for (target, topic_filter), subscription in self.subscriptions.items():
            if topic_filter == inner(topic_filter) and matches(topic_filter, topic):
                wanted.setdefault(target, []).append(subscription)
        identifiers = {t: sorted(s.identifier for s in subs if s.identifier) for t, subs in wanted.items()}
        assert sorted(fanout.audience.targets) == sorted(t for t, ids in identifiers.items() if not ids)
        assert {t: sorted(ids) for t, ids in fanout.identified} == {t: i for t, i in identifiers.items() if i}
        assert fanout.no_local == {t for t, subs in wanted.items() if all(s.no_local for s in subs)}
        plain = [r for r in self.routes if r.filter == inner(r.filter)]
        peers = {(r.scope, r.peer) for r in plain if matches(r.filter, topic)}
        assert sorted(fanout.origin) == sorted(p for s, p in peers if s is Scope.ORIGIN)
        assert sorted(fanout.transit) == sorted(p for s, p in peers if s is Scope.TRANSIT)
        groups = {f for _, f in self.subscriptions} | {r.filter for r in self.routes}
        groups = {f for f in groups if f != inner(f) and matches(inner(f), topic)}
        assert sorted(share.name for share in fanout.shares) == sorted(groups)
        for share in fanout.shares:
            members = {t: s for (t, f), s in self.subscriptions.items() if f == share.name}
            assert dict(share.members) == members
            for scope, found in ((Scope.ORIGIN, share.origin), (Scope.TRANSIT, share.transit)):
                mine = [r.peer for r in self.routes if (r.scope, r.filter) == (scope, share.name)]
                assert sorted(found) == sorted(mine)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        needed = {f for _, f in self.subscriptions} | {r.filter for r in self.routes}
        assert self.table.statistics()["filters"] == len({inner(each) for each in needed})
        assert set(self.table.interests()) == {f for _, f in self.subscriptions}
        if not needed:
            assert not self.table._root.children


TestTableAgainstLists = TableAgainstLists.TestCase
TestTableAgainstLists.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_topics_with_the_same_subscribers_share_an_audience() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    table.subscribe("x", "a/#", Subscription())
    table.subscribe("y", "#", Subscription())
    assert table.resolve("a/1").audience is table.resolve("a/2").audience


def test_a_target_that_is_gone_is_not_held_for_its_topics_sake() -> None:
    class Target:
        pass

    table: ForwardingTable[Target] = ForwardingTable()
    stays, goes = Target(), Target()
    for target in (stays, goes):
        table.subscribe(target, "a", Subscription())
    assert len(table.resolve("a").audience.targets) == 2
    table.drop(goes)
    gone = weakref.ref(goes)
    del goes, target
    assert table.resolve("a").audience.targets == (stays,)
    assert gone() is None


def test_a_change_of_one_plain_topic_leaves_the_others_resolved() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    table.subscribe("x", "a", Subscription())
    resolved = table.resolve("a")
    table.subscribe("x", "b", Subscription())
    assert table.resolve("a") is resolved
    table.subscribe("y", "a", Subscription())
    assert table.resolve("a").audience.targets == ("x", "y")


@given(st.lists(topics, max_size=10))
def test_an_empty_table_sends_nothing_anywhere(story: list[str]) -> None:
    table: ForwardingTable[int] = ForwardingTable()
    for topic in story:
        fanout = table.resolve(topic)
        assert not fanout.audience.targets
        assert not fanout.origin
        assert not fanout.transit


def test_a_groups_turn_goes_on_whatever_the_topic_and_whoever_comes() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    table.subscribe("x", "$share/g/a/#", Subscription())
    assert next(table.resolve("a/1").shares[0].turn) == 0
    table.subscribe("y", "$share/g/a/#", Subscription())
    assert next(table.resolve("a/2").shares[0].turn) == 1


def test_a_member_without_the_right_to_a_topic_gets_none_of_it() -> None:
    table: ForwardingTable[str] = ForwardingTable(
        permits=lambda target, topic: (target, topic) != ("x", "a/1")
    )
    for target in ("x", "y"):
        table.subscribe(target, "$share/g/a/#", Subscription())
    assert [target for target, _ in table.resolve("a/1").shares[0].members] == ["y"]
    assert [target for target, _ in table.resolve("a/2").shares[0].members] == ["x", "y"]


def test_what_is_no_registered_stream_goes_to_every_tier() -> None:
    registered: set[str] = set()
    table: ForwardingTable[int] = ForwardingTable(registered=registered.__contains__)
    table.know_routing(())
    table.add_route(Route(Scope.ORIGIN, "p", UNREGISTERED))
    table.add_route(Route(Scope.ORIGIN, "q", "a"))
    assert table.resolve("a").origin[::-1] == ("p", "q") and table.resolve("b").origin == ("p",)
    registered.update("ab")
    table.reregister("a")
    assert table.resolve("a").origin == ("q",) and table.resolve("b").origin == ("p",), (
        "it is not asked again"
    )
    table.reregister(None)
    assert table.resolve("b").origin == () and table.resolve("c").origin == ("p",)
    assert table.resolve("c").transit == ()
    table.remove_route(Route(Scope.ORIGIN, "p", UNREGISTERED))
    assert table.resolve("c").origin == () and table.statistics()["filters"] == 1
