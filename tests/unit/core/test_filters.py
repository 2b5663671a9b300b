"""What clients subscribe to is read into one of six types, and refused as each type is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.channels.channel_filter import ChannelFilter, read_channel_filter
from tocsin.core.filters import (
    ListingFilter,
    QueryFilter,
    RequestFilter,
    SharedFilter,
    TopicFilter,
    UnreadableFilter,
    filter_type,
    interest_of,
    read_filter,
    read_query,
    stored_filter,
)
from tocsin.query import parse
from tocsin.wire.mqtt.topics import FilterInvalid

ROOM = "Room = '410'"
EACH = {
    "a/+/b": TopicFilter("a/+/b"),
    "$SYS/#": TopicFilter("$SYS/#"),
    "$query": TopicFilter("$query"),  # a topic like any other
    "a/$query/x": TopicFilter("a/$query/x"),
    "$share/g/a/#": SharedFilter("$share/g/a/#", "g", "a/#"),
    "$qos/#": TopicFilter("$qos/#"),
    "$qos/+/t": TopicFilter("$qos/+/t"),
    "$qos/late/#": TopicFilter("$qos/late/#"),
    "$qos/deadline=1s/t": RequestFilter("$qos/deadline=1s/t", "deadline=1s", "t"),
    f"$query/{ROOM}": QueryFilter(f"$query/{ROOM}", parse(ROOM)),
    f"$streams/{ROOM}": ListingFilter(f"$streams/{ROOM}", parse(ROOM)),
    "$channel/Near/alice": ChannelFilter("$channel/Near/alice", "Near", ("alice",)),
    "$share/g/$channel/Near/alice": SharedFilter("$share/g/$channel/Near/alice", "g", "$channel/Near/alice"),
}


@pytest.mark.parametrize("name", EACH)
def test_a_name_is_read_into_its_type_and_keeps_its_text(name: str) -> None:
    wanted = read_filter(name)
    assert wanted == EACH[name] and type(wanted) is filter_type(name)
    assert wanted.name == name and stored_filter(name) == wanted
    assert len({wanted, stored_filter(name)}) == 1


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (f"$share/g/$query/{ROOM}", "a query cannot be shared"),
        (f"$share/g/$streams/{ROOM}", "a query cannot be shared"),
        ("$share/g/$channel/Near/+", "a channel takes no wildcards"),
        ("$share/g", "a shared subscription is written"),
        ("$channel/Near/+", "a channel takes no wildcards"),
        ("$qos/reliable/t", "'reliable' is no policy with a value, as deadline=100ms"),
        ("$qos/reliable", "a request is written"),
        ("$qos//t", "'' is no policy with a value"),
        ("$query/Room =", "query, character"),
        ("a/#/b", "# at position 2"),
        ("", "it is empty"),
    ],
)
def test_a_wrong_name_is_refused_and_if_stored_kept(name: str, problem: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        read_filter(name)
    assert problem in caught.value.problem and caught.value.reason_code == 0x8F
    assert stored_filter(name) == UnreadableFilter(name, caught.value.problem)


def test_bounds_are_those_of_topics_and_not_of_queries() -> None:
    long = " OR ".join([ROOM] * 3)
    with pytest.raises(FilterInvalid, match="at most 20"):
        read_filter("a" * 21, max_bytes=20)
    with pytest.raises(FilterInvalid, match="levels"):
        read_filter("$share/g/a/b/c", max_levels=2)
    with pytest.raises(FilterInvalid, match="at most 20"):
        read_filter("$channel/Near/alice-in-town", max_bytes=20)
    assert read_filter(f"$query/{long}", max_bytes=20).name == f"$query/{long}"


def test_a_name_too_long_to_remember_is_read_all_the_same() -> None:
    name = "a" * 5_000
    assert stored_filter(name) == TopicFilter(name)


texts = st.text(alphabet="$ab/+#%?='", max_size=12)
starts = st.sampled_from(["", "$share/", "$share/g/", "$query/", "$streams/", "$channel/", "$channel/N/"])


@given(starts, texts)
def test_any_text_has_one_kind_and_a_stored_one_never_fails(start: str, text: str) -> None:
    name = start + text
    stored = stored_filter(name)
    assert stored.name == name
    if not isinstance(stored, UnreadableFilter):
        assert type(stored) is filter_type(name) and read_filter(name) == stored
        if isinstance(stored, TopicFilter | SharedFilter):
            assert interest_of(name) == stored
        if isinstance(stored, ChannelFilter):
            assert read_channel_filter(name) == stored


def test_a_query_is_decoded_and_equal_ones_have_one_id() -> None:
    one, two = read_query("$query/a %2B 1 = 2 AND b"), read_query("$query/(b AND (a %2B 1 = 2))")
    assert one.query == parse("a + 1 = 2 AND b") and one.id == two.id == one.query.id
    assert isinstance(one, QueryFilter) and one.name == "$query/a %2B 1 = 2 AND b"


def test_a_listing_and_a_subscription_of_one_query_have_different_ids() -> None:
    messages, listing = (
        read_query("$query/Location/Room = '410'"),
        read_query("$streams/Location/Room = '410'"),
    )
    assert (
        isinstance(listing, ListingFilter) and listing.query == messages.query and listing.id != messages.id
    )


@pytest.mark.parametrize(
    "name", ["$query/", "$query/a =", "$streams/x +", "$query/#", "$query/" + "a" * 5_000]
)
def test_a_bad_query_is_refused_in_one_printable_line(name: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        read_query(name)
    assert caught.value.reason_code == 0x8F
    assert caught.value.problem.isprintable() and len(caught.value.problem) < 250


def test_the_mark_stands_before_the_character_that_is_wrong() -> None:
    with pytest.raises(FilterInvalid) as caught:
        read_query(
            "$query/Location/Room = '410' AND\nAND Point/Type = 'Sensor' AND more of it that is cut off"
        )
    problem = caught.value.problem
    assert problem.startswith("query, character 27: ")
    assert problem.endswith(": Location/Room = '410' AND ^AND Point/Type = 'Sensor' AND ")
