"""Origins against a dumb model: which brokers publish in which scope, and for how long."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.forwarding.origins import (
    EVERYWHERE,
    LINGER_US,
    Lingering,
    Origins,
    scope_of,
    scopes_of_topic,
)
from tocsin.wire.mqtt.topics import matches

TOPICS = ("a", "a/b", "a/b/c", "a/c", "/a", "b", "$own/a", "$own")
FILTERS = ("a", "a/b", "a/#", "a/+", "a/+/c", "+/b", "#", "+", "/#", "/+", "b/#", "$own/#", "$own/+", "a/b/#")
BROKERS = ("north", "south")


@pytest.mark.parametrize(
    ("wanted", "scope"),
    [
        ("line/7", "line/7"),
        ("line/#", "line/#"),
        ("line/+/state", "line/#"),
        ("+/state", "#"),
        ("#", "#"),
        ("$share/group/line/7", EVERYWHERE),
    ],
)
def test_a_filter_has_the_scope_before_its_first_wildcard(wanted: str, scope: str) -> None:
    assert scope_of(wanted) == scope


@given(st.sampled_from(TOPICS), st.sampled_from(FILTERS))
def test_a_filter_that_matches_a_topic_is_in_one_of_its_scopes(topic: str, wanted: str) -> None:
    assert not matches(wanted, topic) or scope_of(wanted) in scopes_of_topic(topic)


steps = st.tuples(
    st.sampled_from(["publish", "cease", "touch", "lapse"]),
    st.sampled_from(TOPICS),
    st.sampled_from(BROKERS),
    st.integers(0, LINGER_US),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=30), st.integers(0, 30))
def test_a_broker_holds_a_scope_while_it_publishes_and_some_time_after(
    story: list[tuple[str, str, str, int]], saved_at: int
) -> None:
    origins, now_us = Origins(), 0
    clients: Counter[tuple[str, str]] = Counter()
    since_us: dict[tuple[str, str], int] = {}  # when the last one ceased
    told: dict[str, set[str]] = {each: set() for each in BROKERS}
    for place, (what, topic, broker, later_us) in enumerate(story):
        now_us += later_us
        pair = (topic, broker)
        for each, scopes in origins.lapse(now_us):
            assert told[each] >= set(scopes)
            told[each].difference_update(scopes)
        fresh: list[str] = []
        if what == "publish":
            fresh = origins.publish(topic, broker)
            clients[pair] += 1
        elif what == "cease" and clients[pair]:
            origins.cease(topic, broker, now_us)
            clients[pair] -= 1
            since_us[pair] = now_us
        elif what == "touch":
            fresh = origins.touch(topic, broker, now_us)
            if fresh:
                since_us[pair] = now_us
        assert not told[broker] & set(fresh), "a scope is told once"
        told[broker].update(fresh)
        if place == saved_at:
            origins = _restored(origins, clients)
        for broker in BROKERS:
            needed, possible = _scopes(broker, clients, since_us, now_us)
            assert needed <= told[broker] <= possible
            known = {
                each for topic in TOPICS for each in scopes_of_topic(topic) if origins.holds(each, broker)
            }
            assert known == told[broker]
            assert all((broker in origins.brokers(each)) == (each in known) for each in known)


def _scopes(
    broker: str, clients: Counter[tuple[str, str]], since_us: dict[tuple[str, str], int], now_us: int
) -> tuple[set[str], set[str]]:
    """The scopes that a broker holds at least, and at most."""
    needed: set[str] = set()
    possible: set[str] = set()
    for topic in TOPICS:
        pair = (topic, broker)
        age_us = now_us - since_us.get(pair, -3 * LINGER_US)
        if clients[pair] or age_us < LINGER_US:
            needed.update(scopes_of_topic(topic))
        if clients[pair] or age_us <= 2 * LINGER_US:
            possible.update(scopes_of_topic(topic))
    return needed, possible


def _restored(origins: Origins, clients: Counter[tuple[str, str]]) -> Origins:
    """The same from a snapshot."""
    restored = Origins()
    for (topic, broker), count in clients.items():
        for _ in range(count):
            restored.publish(topic, broker)
    for broker, lingering in origins.lingering():
        restored.restore(broker, Lingering(lingering.due_us, {**lingering.newer}, {}))
        restored.restore(broker, Lingering(lingering.due_us, {}, {**lingering.older}))
    return restored


def test_a_publisher_that_comes_and_goes_changes_nothing() -> None:
    origins = Origins()
    assert origins.publish("a", "north") == ["a", "a/#", "#"]
    for now_us in range(0, 20 * LINGER_US, LINGER_US // 2):
        origins.cease("a", "north", now_us)
        assert origins.lapse(now_us) == []
        assert origins.publish("a", "north") == []
    assert origins.next_due_us() is None
