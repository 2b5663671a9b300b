"""Samples as messages of the network, and back; names of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.bridge.dds.mapping import (
    ASK,
    CDR,
    HOPS_MAX,
    JSON,
    PARTITIONS_MAX,
    TOLD,
    Looped,
    Names,
    Sample,
    State,
    Unmappable,
    message_of,
    sample_of,
)
from tocsin.bridge.dds.quality import FOREVER
from tocsin.client.message import Message
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.topics import check_topic

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
samples = st.builds(
    Sample,
    data=st.binary(min_size=4, max_size=40),
    time_ns=st.integers(0, (1 << 63) - 1),
    writer=st.text("0123456789abcdef", min_size=32, max_size=32),
    state=st.sampled_from(State),
    partitions=st.lists(texts, max_size=3).map(tuple),
    strength=st.integers(0, (1 << 31) - 1),
)


def heard(publication: Publication) -> Message:
    return Message(
        publication.topic,
        publication.payload,
        publication.qos,
        user_properties=publication.user_properties,
        content_type=publication.content_type,
    )


@given(samples)
def test_a_sample_comes_back_as_it_was(sample: Sample) -> None:
    publication = message_of(sample, "dds/a", "north", qos=1, lifespan_ns=FOREVER)
    assert sample_of(heard(publication), "south", 5) == (sample, CDR)
    assert publication.expiry_s is None


@given(samples)
def test_a_sample_does_not_pass_the_bridge_that_took_it(sample: Sample) -> None:
    publication = message_of(sample, "dds/a", "north", qos=0, lifespan_ns=1)
    assert publication.expiry_s == 1
    with pytest.raises(Looped):
        sample_of(heard(publication), "north", 5)


def test_what_a_plain_client_leaves_out_is_as_it_would_be() -> None:
    sample, kind = sample_of(Message("dds/a", b'{"x": 1}'), "north", 77)
    assert (sample.time_ns, sample.writer, sample.state, kind) == (77, "", State.ALIVE, JSON)
    assert sample_of(Message("dds/a", b"\0\1\0\0"), "north", 7)[1] == CDR


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message("a", b"\0\0"), "too short"),
        (Message("a", b"\0" * 8, content_type="text/plain"), "content type is text/plain"),
        (Message("a", b"\0" * 8, user_properties=(("dds-time", "-1"),)), "dds-time"),
        (Message("a", b"\0" * 8, user_properties=(("dds-time", "9" * 30),)), "dds-time"),
        (Message("a", b"\0" * 8, user_properties=(("dds-strength", "²"),)), "dds-strength"),
        (Message("a", b"\0" * 8, user_properties=(("dds-state", "dead"),)), "dds-state"),
        (
            Message("a", b"\0" * 8, user_properties=(("dds-partition", "p"),) * (PARTITIONS_MAX + 1)),
            "partitions",
        ),
        (Message("a", b"\0" * 8, user_properties=(("tocsin-bridge", "b " * HOPS_MAX),)), "bridges"),
    ],
)
def test_a_message_that_is_no_sample_is_refused_in_words(message: Message, problem: str) -> None:
    with pytest.raises(Unmappable, match=problem):
        sample_of(message, "north", 0)


@given(texts.filter(lambda text: not text.startswith("$")))
def test_every_name_is_a_topic_and_comes_back(name: str) -> None:
    names = Names("plant/dds")
    check_topic(names.mqtt(name))
    assert names.read(names.mqtt(name)) == ("", "", name)
    assert names.read(names.ask(name)) == (ASK, "", name)
    assert names.read(names.told("north", name)) == (TOLD, "north", name)


def test_what_is_denied_is_denied_before_it_is_allowed() -> None:
    names = Names(allow=("rt/*", "Square"), deny=("rt/rosout",))
    assert [each for each in ("rt/a", "rt/rosout", "Square", "Circle") if names.allows(each)] == [
        "rt/a",
        "Square",
    ]
