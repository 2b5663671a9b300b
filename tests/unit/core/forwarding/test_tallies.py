"""Bytes are counted by topic, and belong to the subscriptions that bring them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.forwarding import tallies
from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.core.forwarding.tallies import Count
from tocsin.query import parse

TOPICS = ["a/x", "a/y", "b"]
FILTERS = ["a/x", "a/+", "a/#", "#", "b", "$share/g/a/#", "$share/g/b"]


def counts(table: ForwardingTable[str], most: int = 100) -> dict[str, Count]:
    return {each.name: each for part in table.tallies.take(most) for each in part}


def publish(table: ForwardingTable[str], topic: str, size: int) -> None:
    """A message at QoS 0, as the shell forwards it."""
    fanout = table.resolve(topic)
    if fanout.audience.targets:
        fanout.tally.add(size)
    for share in fanout.shares:
        if share.members:
            share.tally.add(size)


def matches(name: str, topic: str) -> bool:
    """A filter against a topic, the simple way."""
    pattern = name.split("/", 2)[2] if name.startswith("$share/") else name
    levels, wanted = topic.split("/"), pattern.split("/")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        return len(levels) >= len(wanted) and all(a in ("+", b) for a, b in zip(wanted, levels, strict=False))
    return len(levels) == len(wanted) and all(a in ("+", b) for a, b in zip(wanted, levels, strict=True))


def test_each_filter_that_matches_has_the_bytes_of_one_client() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    for client in ("one", "two"):
        table.subscribe(client, "a/+", Subscription())
    table.subscribe("one", "a/x", Subscription())
    publish(table, "a/x", 100)
    publish(table, "a/y", 10)
    publish(table, "b", 1_000)
    assert counts(table) == {"a/+": Count("a/+", 110, 2), "a/x": Count("a/x", 100, 1)}
    assert not counts(table), "it was taken"


def test_members_of_a_group_share_its_bytes() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    for client in ("one", "two"):
        table.subscribe(client, "$share/g/a/#", Subscription())
    publish(table, "a/x", 100)
    assert counts(table) == {"$share/g/a/#": Count("$share/g/a/#", 50, 2)}


def test_a_query_has_the_bytes_of_its_streams() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    query = parse("room = 'r'")
    table.inquiries.ask("one", "$query/x", query, Subscription())
    table.inquiries.know(query.id, ["a/x"])
    publish(table, "a/x", 100)
    assert [target for target, _ in table.wanted("a/x")] == ["one"]
    table.count("a/x", 7)
    table.count("never/asked", 7)
    publish(table, "a/y", 100)
    assert counts(table) == {query.id: Count(query.id, 107, 1)}


def test_traffic_during_a_count_waits_for_the_next() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    for topic in TOPICS:
        table.subscribe("one", topic, Subscription())
    found: list[Count] = []
    for topic in TOPICS:
        publish(table, topic, 1)
    for part in table.tallies.take(1):
        found += part
        publish(table, "b", 10)
    assert len(found) <= len(TOPICS)
    assert (
        sum(each.each_bytes for each in found) + sum(c.each_bytes for c in counts(table).values()) == 3 + 60
    )


def test_topics_that_are_resolved_anew_again_and_again_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "TALLIES_MAX", 5)
    monkeypatch.setattr(tallies, "SOURCES_MAX", 3)
    table: ForwardingTable[str] = ForwardingTable()
    for number in range(50):
        table.subscribe("one", f"t/{number}", Subscription())
        publish(table, f"t/{number}", 1)
    assert len(table.tallies._touched) <= 5 and len(table.tallies._found) <= 3


steps = st.one_of(
    st.tuples(st.just("subscribe"), st.sampled_from(["c", "d"]), st.sampled_from(FILTERS)),
    st.tuples(st.just("unsubscribe"), st.sampled_from(["c", "d"]), st.sampled_from(FILTERS)),
    st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 100)),
    st.tuples(st.just("log"), st.sampled_from(TOPICS), st.integers(1, 100)),
)


@given(st.lists(steps, max_size=30), st.integers(1, 3))
def test_counts_are_those_of_a_simple_model(steps: list[tuple[str, str, object]], most: int) -> None:
    table: ForwardingTable[str] = ForwardingTable()
    held: dict[str, set[str]] = {name: set() for name in FILTERS}
    model: Counter[str] = Counter()
    for kind, first, second in steps:
        if kind == "subscribe":
            table.subscribe(first, str(second), Subscription())
            held[str(second)].add(first)
        elif kind == "unsubscribe":
            table.unsubscribe(first, str(second))
            held[str(second)].discard(first)
            for name in FILTERS:
                if not held[name] and not held.get(f"$share/g/{name}"):
                    model.pop(name, None)  # neither the filter nor a group of it is there
        else:
            assert isinstance(second, int)
            if kind == "publish":
                publish(table, first, second)
            elif table.wanted(first):
                table.count(first, second)
            for name, clients in held.items():
                if clients and matches(name, first) and (kind == "publish" or not name.startswith("$share")):
                    model[name] += second
    found: Counter[str] = Counter()
    for part in table.tallies.take(most):
        for each in part:
            assert each.clients == len(held[each.name])
            found[each.name] += round(
                each.each_bytes * (each.clients if each.name.startswith("$share") else 1)
            )
    assert found == Counter({name: size for name, size in model.items() if held[name]})
