"""Subscriptions with a request are kept apart, and are an interest like any other to the network."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.forwarding.table import ForwardingTable, Interests, Subscription

SLOW = "$qos/separation=1s/a/+"
HOT = "$qos/where=b > 1/a/+"
ASKED = Subscription(request="separation=1s")


def test_a_target_with_a_request_is_apart_from_the_others() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    table.subscribe("plain", "a/+", Subscription())
    table.subscribe("slow", SLOW, ASKED)
    table.subscribe("both", "a/b", Subscription(identifier=3))
    table.subscribe("both", HOT, Subscription(request="where=b > 1"))
    fanout = table.resolve("a/b")
    assert fanout.audience.targets == ("plain",) and fanout.identified == ()
    assert dict(fanout.requesting) == {
        "slow": (ASKED,),
        "both": (Subscription(identifier=3), Subscription(request="where=b > 1")),
    }
    assert {target for target, _ in table.wanted("a/b")} == {"plain", "slow", "both"}
    table.drop("both")
    assert dict(table.resolve("a/b").requesting) == {"slow": (ASKED,)}


def test_the_network_is_told_of_the_filter_once() -> None:
    told: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    table: ForwardingTable[str] = ForwardingTable()
    interests = Interests(table, lambda added, removed: told.append((added, removed)), 10)
    assert interests.subscribe("x", SLOW, ASKED)
    assert interests.subscribe("x", "a/+", Subscription())
    assert interests.subscribe("y", HOT, Subscription(request="where=b > 1"))
    assert told == [(("a/+",), ())] and interests.has("a/+") and interests.has(HOT)
    assert dict(table.held()) == {"a/+": 3} and list(table.interests()) == ["a/+"]
    interests.unsubscribe("x", "a/+")
    interests.forget("x")
    assert len(told) == 1
    interests.forget("y")
    assert told[1:] == [((), ("a/+",))] and table.statistics()["filters"] == 0


_names = st.sampled_from(["a/+", "a/b", "#", SLOW, HOT, "$qos/separation=1s/a/b", "$share/g/a/b"])


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("xyz"), _names), max_size=40))
def test_interest_in_a_filter_is_told_while_somebody_has_it(steps: list[tuple[bool, str, str]]) -> None:
    wanted: set[str] = set()

    def told(added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        assert not wanted.intersection(added) and wanted.issuperset(removed)
        wanted.update(added)
        wanted.difference_update(removed)

    table: ForwardingTable[str] = ForwardingTable()
    interests = Interests(table, told, 100)
    held: set[tuple[str, str]] = set()
    for adds, target, name in steps:
        if adds:
            interests.subscribe(target, name, Subscription(request="where=b > 1" if "$qos" in name else ""))
            held.add((target, name))
        else:
            interests.unsubscribe(target, name)
            held.discard((target, name))
        patterns = {name.split("/", 2)[2] if name.startswith("$qos") else name for _, name in held}
        assert wanted == patterns == set(table.interests()) and interests.count == len(patterns)
        named = {target for target, name in held if "$qos" in name and target}
        assert {target for target, _ in table.resolve("a/b").requesting} == named
