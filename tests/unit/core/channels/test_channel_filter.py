"""What the name of a subscription to a channel says, and whether it fits the channel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.channels.channel_filter import Bound, bind, read_channel_filter, write_channel_filter
from tocsin.model.catalogue import PARAMETERS_MAX, Channel, Parameter
from tocsin.wire.mqtt.topics import FilterInvalid, check_filter

NEAR = Channel(
    "EmergenciesNearMe", (Parameter("user", "STRING"), Parameter("Radius", "DOUBLE")), (), "SELECT 1"
)
ALL = Channel("All", (), (), "SELECT 1")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
SPECIAL = st.text("%/+#&=?25BFbfä", max_size=12)


def bound(topic: str, channel: Channel = NEAR) -> Bound:
    return bind(read_channel_filter(topic), channel)


@pytest.mark.parametrize(
    "topic",
    [
        "$channel/EmergenciesNearMe/alice/5",
        "$channel/EmergenciesNearMe/alice/5.0",
        "$channel/emergenciesnearme/alice/+5".replace("+", "%2B"),
        "$channel/EmergenciesNearMe?user=alice&radius=5",
        "$channel/EmergenciesNearMe?RADIUS=5&User=alice",
    ],
)
def test_the_same_is_asked_for_in_many_ways(topic: str) -> None:
    found = bound(topic)
    assert (found.channel, found.values) == ("EmergenciesNearMe", ("alice", 5.0))
    assert found.topic == "$channel/EmergenciesNearMe/alice/5.0"
    assert found.k == bound(found.topic).k


@pytest.mark.parametrize("topic", ["$channel/All", "$channel/all?"])
def test_a_channel_may_have_no_parameters(topic: str) -> None:
    assert bound(topic, ALL).topic == "$channel/All"


def test_an_empty_level_is_an_empty_value() -> None:
    one = Channel("One", (Parameter("text", "STRING"),), (), "")
    assert bound("$channel/One/", one).values == ("",)
    assert bound("$channel/One?text=", one).values == ("",)


@given(st.lists(TEXT | SPECIAL, max_size=PARAMETERS_MAX))
def test_a_written_request_is_read_back_and_has_no_wildcards(values: list[str]) -> None:
    topic = write_channel_filter("Name", tuple(values))
    check_filter(topic)
    assert "+" not in topic and "#" not in topic
    assert read_channel_filter(topic).values == tuple(values)
    names = {f"p{number}": value for number, value in enumerate(values)}
    named = write_channel_filter("Name", named=names)
    assert read_channel_filter(named).named == tuple(names.items())


@given(TEXT | SPECIAL)
def test_escapes_mean_what_a_slow_reading_says(text: str) -> None:
    if "+" in text or "#" in text or "/" in text:
        return
    expected, rest = "", text
    while rest:
        meant = {"%2F": "/", "%2B": "+", "%23": "#", "%25": "%", "%26": "&"}.get(rest[:3].upper())
        expected, rest = (expected + meant, rest[3:]) if meant else (expected + rest[0], rest[1:])
    assert read_channel_filter(f"$channel/N/{text}").values == (expected,)


@given(TEXT, st.floats(allow_nan=False, allow_infinity=False))
def test_every_subscription_has_one_topic(user: str, radius: float) -> None:
    asked = bind(
        read_channel_filter(
            write_channel_filter("emergenciesnearme", named={"radius": repr(radius), "user": user})
        ),
        NEAR,
    )
    again = bound(asked.topic)
    assert (again.topic, again.values, again.k) == (asked.topic, asked.values, asked.k)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("$channel/EmergenciesNearMe/+/5", "no wildcards; .* position 27 is written %2B"),
        ("$channel/#", "no wildcards"),
        ("$channel/", "no name of a channel"),
        ("$channel//a", "no name of a channel"),
        ("$channel/9", "no name of a channel"),
        ("$channel/N?a", "no parameter; write name=value"),
        ("$channel/N" + "/a" * (PARAMETERS_MAX + 1), "at most 16 parameters"),
        ("$channel/N?" + "&".join(["a=1"] * (PARAMETERS_MAX + 1)), "at most 16 parameters"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(topic: str, words: str) -> None:
    with pytest.raises(FilterInvalid, match=words) as refused:
        read_channel_filter(topic)
    assert not refused.value.problem.startswith("filter"), "who asked knows it, and reasons are cut short"


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("$channel/EmergenciesNearMe", "it has 0 values, and the channel takes 2 values"),
        ("$channel/EmergenciesNearMe/alice", "it has 1 value, and"),
        ("$channel/EmergenciesNearMe/alice/5/6", "it has 3 values, and"),
        ("$channel/EmergenciesNearMe/alice/far", "Radius = 'far': a DOUBLE is a number"),
        ("$channel/EmergenciesNearMe?user=alice", "the parameter Radius is missing"),
        ("$channel/EmergenciesNearMe?user=alice&size=5", "there is no parameter 'size'"),
        ("$channel/EmergenciesNearMe?user=a&USER=b&radius=5", "USER is given twice"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_signature(topic: str, words: str) -> None:
    with pytest.raises(FilterInvalid, match=words) as refused:
        bound(topic)
    assert "EmergenciesNearMe(user STRING, Radius DOUBLE)" in refused.value.problem
