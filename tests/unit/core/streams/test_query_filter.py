"""Queries in subscriptions are read, and refused in one line."""

from __future__ import annotations

import pytest

from tocsin.core.streams.query_filter import ListingFilter, QueryFilter, read_query
from tocsin.query import parse
from tocsin.wire.topics import FilterInvalid


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
