"""Offers and requests are read strictly, and written in one way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.texts import (
    DURATION_MAX_US,
    QualityInvalid,
    offer_of,
    offer_text,
    read_offer,
    read_request,
    request_from,
    request_of,
    request_text,
)
from tocsin.model.quality import EVERYTHING, Durability, Liveliness, Offer, Ownership, Reliability, Request
from tocsin.query import parse
from tocsin.wire.mqtt.topics import check_filter


def test_every_policy_of_an_offer_is_read() -> None:
    said = (
        "reliability=reliable,durability=transient-local,deadline=100ms,budget=5ms,lifespan=1m,liveliness=manual,"
        "lease=2s,ownership=exclusive,strength=7,partition=b|a"
    )
    assert read_offer(said) == Offer(
        reliability=Reliability.RELIABLE,
        durability=Durability.TRANSIENT_LOCAL,
        deadline_us=100_000,
        budget_us=5_000,
        lifespan_us=60_000_000,
        liveliness=Liveliness.MANUAL,
        lease_us=2_000_000,
        ownership=Ownership.EXCLUSIVE,
        strength=7,
        partition=("a", "b"),
    )


def test_every_policy_of_a_request_is_read() -> None:
    said = "separation=1s,where=temp > 30 AND kind IN ('a'%2C 'b%2Fc'),strict=yes,deadline=1500ms"
    assert read_request(said) == Request(
        separation_us=1_000_000,
        where=parse("temp > 30 AND kind IN ('a', 'b/c')").text,
        strict=True,
        deadline_us=1_500_000,
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("", "no policy with a value"),
        ("deadline", "no policy with a value"),
        ("deadline=1", "a whole number and one of us, ms"),
        ("deadline=0s", "more than nothing"),
        ("deadline=366d", "at most 365d"),
        ("deadline=1s,deadline=2s", "said twice"),
        ("reliability=best", "is best-effort, reliable, not 'best'"),
        ("partition=a||b", "empty name"),
        ("partition=" + "|".join(map(str, range(17))), "at most 16"),
        ("liveliness=manual", "needs a lease"),
        ("where=temp >", "cannot be read"),
        ("strict=maybe", "yes or no"),
        ("lifespan=1s", "there is no policy 'lifespan'"),
        ("separation=2s,deadline=1s", "separation is longer than deadline"),
        ("partition=" + "x" * 1_100, "at most 1024"),
        ("x" * 4_000, "longer than 1024"),
    ],
)
def test_a_wrong_request_is_refused_by_name(said: str, problem: str) -> None:
    with pytest.raises(QualityInvalid, match=problem):
        read_request(said)


def test_strength_is_refused_without_exclusive_ownership() -> None:
    with pytest.raises(QualityInvalid, match="ownership=exclusive"):
        offer_of([("strength", "3")])
    with pytest.raises(QualityInvalid, match="from 0 to 2147483647"):
        offer_of([("ownership", "exclusive"), ("strength", "2147483648")])


def test_user_properties_need_no_escapes() -> None:
    said = [("where", "a = 'x,y/z' AND b > 3"), ("separation", "1s")]
    request = request_from(said)
    assert read_request(request_text(request)) == request


_durations = st.none() | st.integers(1, DURATION_MAX_US)
_names = st.lists(st.text("abc*?,/+#% ", min_size=1, max_size=5).map(str.strip).filter(bool), max_size=4)


@st.composite
def _requests(draw: st.DrawFn) -> Request:
    separation = draw(_durations)
    deadline = draw(_durations)
    if separation and deadline and separation > deadline:
        separation, deadline = deadline, separation
    where = draw(st.none() | st.sampled_from(["a = 'x,y'", "b LIKE 'c/%'", "d + 1 > 2", "EXISTS `#`"]))
    values: dict[str, Any] = {
        "reliability": draw(st.none() | st.sampled_from(Reliability)),
        "durability": draw(st.none() | st.sampled_from(Durability)),
        "lease_us": draw(_durations),
        "ownership": draw(st.none() | st.sampled_from(Ownership)),
        "partition": tuple(sorted(set(draw(_names)))),
        "separation_us": separation,
        "deadline_us": deadline,
        "where": None if where is None else parse(where).text,
        "strict": draw(st.booleans()),
    }
    return Request(**values)


@given(_requests())
def test_a_request_is_what_its_text_says(request: Request) -> None:
    text = request_text(request)
    if not text:
        return
    assert request_of(text) == request and request_text(read_request(text)) == text
    check_filter(f"$qos/{text}/a")  # it is one level, without wildcards
    assert "/" not in text


def test_an_offer_is_what_its_text_says() -> None:
    offer = Offer(
        deadline_us=90_061_000_000, ownership=Ownership.EXCLUSIVE, strength=0, partition=("a", "b,c")
    )
    assert offer_text(offer) == "deadline=90061s,ownership=exclusive,partition=a|b%2Cc,strength=0"
    assert read_offer(offer_text(offer)) == offer


def test_history_is_a_number_of_messages_or_all() -> None:
    request = read_request("durability=transient-local,history=5")
    assert request.history == 5 and request_text(request) == "durability=transient-local,history=5"
    everything = read_request("durability=persistent,history=all")
    assert (
        everything.history == EVERYTHING and request_text(everything) == "durability=persistent,history=all"
    )
    for wrong in ("history=5", "durability=volatile,history=5", "durability=transient,history=0"):
        with pytest.raises(QualityInvalid, match="history"):
            read_request(wrong)
