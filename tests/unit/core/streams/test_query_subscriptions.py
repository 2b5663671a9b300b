"""Who gets the messages of a topic because of a query: held against a model that evaluates everything."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.core.streams.demand import Demand
from tocsin.core.streams.query_subscriptions import Inquiries
from tocsin.query import Query, parse

QUERIES = tuple(map(parse, ("kind = 'lamp'", "room > 1")))
TARGETS = ("anna", "ben")
TOPICS = ("a", "b", "c/d")
NAMES = ("one", "two")


def test_an_unknown_query_judges_each_message_by_what_it_says_of_itself() -> None:
    inquiries: Inquiries[str, int] = Inquiries(lambda topic: None, Demand(lambda: ()))
    assert inquiries.ask("anna", "q", QUERIES[0], 1)
    assert not inquiries.ask("anna", "q'", QUERIES[0], 2)
    assert set(inquiries.unknown) == {QUERIES[0].id}
    assert inquiries.judge({"kind": "lamp"}) == {"anna": [1, 2]}
    assert inquiries.judge({"kind": "door"}) == {}
    inquiries.know(QUERIES[0].id, ["a"])
    assert not inquiries.unknown and inquiries.judge({"kind": "lamp"}) == {}


def test_what_the_coordinator_says_of_a_query_that_nobody_asks_is_ignored() -> None:
    inquiries: Inquiries[str, int] = Inquiries(lambda topic: None, Demand(lambda: ()))
    inquiries.know("q", ["a"])
    inquiries.join("q", "a")
    inquiries.leave("q", "a")
    assert inquiries.topics("q") == () and len(inquiries) == 0


class Asking(RuleBasedStateMachine):
    """A forwarding table and what it should say, worked out from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.table: ForwardingTable[str] = ForwardingTable(
            lambda target, topic: (target, topic) != ("ben", "b")
        )
        self.asked: dict[tuple[str, str], tuple[Query, Subscription]] = {}
        self.sets: dict[str, set[str]] = {}  # of the queries that were answered
        self.filters: dict[str, Subscription] = {}

    @rule(
        who=st.sampled_from(TARGETS),
        name=st.sampled_from(NAMES),
        query=st.sampled_from(QUERIES),
        qos=st.integers(0, 2),
    )
    def ask(self, who: str, name: str, query: Query, qos: int) -> None:
        if (who, name) in self.asked:
            self.withdraw(who, name)
        first = all(query != asked for asked, _ in self.asked.values())
        subscription = Subscription(qos=qos)
        assert self.table.inquiries.ask(who, name, query, subscription) == first
        self.asked[who, name] = (query, subscription)

    @rule(who=st.sampled_from(TARGETS), name=st.sampled_from(NAMES))
    def withdraw(self, who: str, name: str) -> None:
        query, _ = self.asked.pop((who, name), (None, None))
        last = query is not None and all(query != asked for asked, _ in self.asked.values())
        assert self.table.inquiries.withdraw(who, name) == (query.id if query is not None and last else None)
        if last and query is not None:
            self.sets.pop(query.id, None)

    @rule(who=st.sampled_from(TARGETS))
    def drop(self, who: str) -> None:
        gone = {asked.id for (each, _), (asked, _) in self.asked.items() if each == who}
        self.asked = {key: value for key, value in self.asked.items() if key[0] != who}
        gone -= {asked.id for asked, _ in self.asked.values()}
        assert set(self.table.inquiries.drop(who)) == gone
        for query in gone:
            self.sets.pop(query, None)

    @rule(query=st.sampled_from(QUERIES), topics=st.sets(st.sampled_from(TOPICS)))
    def know(self, query: Query, topics: set[str]) -> None:
        self.table.inquiries.know(query.id, topics)
        if any(query == asked for asked, _ in self.asked.values()):
            self.sets[query.id] = set(topics)

    @rule(query=st.sampled_from(QUERIES), topic=st.sampled_from(TOPICS), joins=st.booleans())
    def turn(self, query: Query, topic: str, joins: bool) -> None:
        act = self.table.inquiries.join if joins else self.table.inquiries.leave
        act(query.id, topic)
        if query.id in self.sets:
            (self.sets[query.id].add if joins else self.sets[query.id].discard)(topic)

    @rule(who=st.sampled_from(TARGETS), subscribes=st.booleans())
    def subscribe(self, who: str, subscribes: bool) -> None:
        if subscribes:
            self.filters[who] = Subscription(identifier=7)
            self.table.subscribe(who, "c/#", self.filters[who])
        else:
            self.filters.pop(who, None)
            self.table.unsubscribe(who, "c/#")

    @invariant()
    def it_says_what_follows(self) -> None:
        for topic in TOPICS:
            expected: dict[str, list[Subscription]] = {}
            if topic.startswith("c/"):
                for target, subscription in self.filters.items():
                    expected.setdefault(target, []).append(subscription)
            for (target, _), (query, subscription) in self.asked.items():
                if topic in self.sets.get(query.id, ()):
                    expected.setdefault(target, []).append(subscription)
            if topic == "b":
                expected.pop("ben", None)
            wanted = {target: sorted(map(repr, each)) for target, each in self.table.wanted(topic)}
            assert wanted == {target: sorted(map(repr, each)) for target, each in expected.items()}
            fanout = self.table.resolve(topic)
            assert {*fanout.audience.targets, *(target for target, _ in fanout.identified)} == set(expected)
        unanswered = {asked.id for asked, _ in self.asked.values()} - self.sets.keys()
        assert set(self.table.inquiries.unknown) == unanswered


TestAsking = Asking.TestCase
TestAsking.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
