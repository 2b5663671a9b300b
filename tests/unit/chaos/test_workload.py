"""Who hears what, held against what the filters say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.chaos.workload import LANE_KEY, RUN_KEY, TURNS, make
from tocsin.query import parse
from tocsin.wire.mqtt.topics import matches, split_filter


@given(st.integers(1, 12), st.integers(1, 40))
def test_subscribers_hear_what_their_filter_or_query_takes(publishers: int, subscribers: int) -> None:
    load = make("r", publishers=publishers, subscribers=subscribers)
    assert len({stream.topic for stream in load.streams}) == publishers
    assert len({each.name for each in load.subscribers}) == subscribers
    for each in load.subscribers:
        if each.kind == "query":
            query = parse(each.text)
            heard = [stream for stream in load.streams if query.matches(stream.metadata)]
        else:
            pattern, _ = split_filter(each.text)
            heard = [stream for stream in load.streams if matches(pattern, stream.topic)]
        assert list(each.streams) == heard and heard


def test_every_kind_and_both_qualities_are_there() -> None:
    load = make("r", publishers=6, subscribers=len(TURNS))
    assert {(each.kind, each.qos) for each in load.subscribers} == set(TURNS)
    assert {stream.qos for stream in load.streams} == {1, 2}
    assert load.streams[0].metadata == {RUN_KEY: "r", LANE_KEY: load.streams[0].lane}


def test_who_left_left_all_other_streams() -> None:
    load = make("r", publishers=6, subscribers=16)
    leavers = [each for each in load.subscribers if each.left]
    assert {(each.kind, each.qos, each.left_kind) for each in leavers} == {
        ("topic", 1, "topic"),
        ("topic", 2, "query"),
    }
    for each in leavers:
        if each.left_kind == "query":
            query = parse(each.left)
            assert all(query.matches(stream.metadata) for stream in load.streams)
        else:
            assert all(matches(split_filter(each.left)[0], stream.topic) for stream in load.streams)


def test_exactly_once_needs_qos_2_on_both_sides_and_order_single_subscribers() -> None:
    load = make("r", publishers=6, subscribers=16)
    qos = {stream.topic: stream.qos for stream in load.streams}
    by_receiver = {each.receiver: each for each in load.subscribers}
    for (receiver, topic), promise in load.expectations.items():
        subscriber = by_receiver[receiver]
        assert promise.once == (subscriber.qos == 2 and qos[topic] == 2)
        assert promise.ordered == (subscriber.kind != "shared")
    assert {"group-1", "group-2"} <= set(by_receiver), "the members of a group are one receiver"
