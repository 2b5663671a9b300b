"""Messages of AMQP and of the network, as each other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.bridge.mapping import (
    BRIDGED,
    HOPS_MAX,
    Looped,
    Unmappable,
    dead_inward,
    dead_outward,
    identity,
    inward,
    outward,
)
from tocsin.bridge.rules import InRule
from tocsin.client.message import Message, frame_of
from tocsin.model.publication import Publication
from tocsin.wire.amqp.message import AmqpMessage, Body, read_message, write_message
from tocsin.wire.amqp.values import Symbol, Timestamp, Ubyte, Ulong, Uuid

RULE = InRule("orders", "plant/orders")
TEXTS = st.text("abcä/€", max_size=8)


def said(publication: Publication) -> dict[str, str]:
    return dict(publication.user_properties)


def heard(publication: Publication) -> Message:
    """A message as a subscriber gets it."""
    return Message(
        publication.topic,
        publication.payload,
        publication.qos,
        False,
        publication.user_properties,
        None,
        publication.expiry_s,
        publication.content_type,
        publication.response_topic,
        publication.correlation,
    )


def test_every_property_has_its_place_on_the_way_in() -> None:
    message = AmqpMessage(
        body=b"x",
        durable=True,
        priority=Ubyte(12),
        ttl_ms=1_500,
        message_id=Ulong(7),
        to="elsewhere",
        user_id=b"root",
        subject="pumps",
        reply_to="plant/answers",
        correlation_id="c-1",
        content_type="text/plain",
        content_encoding="gzip",
        group_id="g",
        application={"a": "1", "b": 2, "c": True, "d": 1.5, "e": Symbol("s"), "f": Timestamp(5), "g": None},
    )
    publication = inward(message, RULE, "here")
    assert (publication.topic, publication.payload, publication.qos) == ("plant/orders", b"x", 1)
    assert (publication.expiry_s, publication.content_type) == (2, "text/plain")
    assert (publication.response_topic, publication.correlation) == ("plant/answers", b"c-1")
    assert said(publication) == {
        "message-id": "7",
        "priority": "9",
        "subject": "pumps",
        "content-encoding": "gzip",
        "group-id": "g",
        "a": "1",
        "b": "2",
        "c": "true",
        "d": "1.5",
        "e": "s",
        "f": "5",
        "g": "",
        BRIDGED: "here",
    }


@pytest.mark.parametrize(
    ("kind", "body", "payload"),
    [
        (Body.DATA, b"\0\xff", b"\0\xff"),
        (Body.VALUE, "tück", "tück".encode()),
        (Body.VALUE, b"raw", b"raw"),
    ],
)
def test_data_strings_and_binaries_are_payloads(kind: Body, body: Any, payload: bytes) -> None:
    publication = inward(AmqpMessage(kind=kind, body=body), RULE, "here")
    assert publication.payload == payload
    assert publication.payload_format == int(isinstance(body, str))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (AmqpMessage(kind=Body.SEQUENCE, body=[[1]]), "sequence"),
        (AmqpMessage(kind=Body.VALUE, body=None), "null"),
        (AmqpMessage(kind=Body.VALUE, body={"a": 1}), "dict"),
        (AmqpMessage(kind=Body.VALUE, body=Symbol("s")), "symbol"),
        (AmqpMessage(kind=Body.VALUE, body=Uuid(b"u" * 16)), "uuid"),
        (AmqpMessage(application={"a": [1]}), "simple value"),
        (AmqpMessage(application={"a": "x\0"}), "zero character"),
        (AmqpMessage(application={"a": "x" * 65_536}), "65535 bytes"),
        (AmqpMessage(application={str(each): "" for each in range(200)}), "properties"),
        (AmqpMessage(application={BRIDGED: " ".join("abcdefgh")}), "8 bridges"),
    ],
)
def test_what_cannot_be_carried_is_refused_with_a_reason(message: AmqpMessage, words: str) -> None:
    with pytest.raises(Unmappable, match=words):
        inward(message, RULE, "here")


@pytest.mark.parametrize("subject", [None, "", "a/#", "+", "x\0", "x" * 1_020, "/".join("x" * 32)])
def test_a_subject_that_makes_no_topic_is_refused(subject: str | None) -> None:
    with pytest.raises(Unmappable):
        inward(AmqpMessage(subject=subject), InRule("orders", "plant/{subject}"), "here")


def test_reply_addresses_that_are_no_topics_are_properties() -> None:
    publication = inward(AmqpMessage(reply_to="answers/#"), RULE, "here")
    assert (publication.response_topic, said(publication)["reply-to"]) == (None, "answers/#")


def test_messages_that_are_not_durable_have_the_qos_of_the_settings() -> None:
    assert inward(AmqpMessage(), RULE, "here").qos == 1
    assert inward(AmqpMessage(), RULE, "here", volatile_qos=0).qos == 0
    assert inward(AmqpMessage(durable=True), RULE, "here", volatile_qos=0).qos == 1


def test_an_application_cannot_take_the_place_of_a_header() -> None:
    message = AmqpMessage(priority=2, message_id="m", application={"priority": "critical", "message-id": "x"})
    publication = inward(message, RULE, "here")
    assert (said(publication)["priority"], said(publication)["message-id"]) == ("2", "m")
    assert len(publication.user_properties) == 3


def test_every_property_has_its_place_on_the_way_out() -> None:
    message = Message(
        "plant/alarms",
        b"hot",
        1,
        user_properties=(("priority", "critical"), ("a", "1"), ("b", "2"), ("a", "3")),
        expiry_s=9,
        content_type="text/plain",
        response_topic="plant/answers",
        correlation=b"\0c",
    )
    made = outward(message, "here", message_id="m-1", ttl_ms=8_999)
    assert made == AmqpMessage(
        body=b"hot",
        durable=True,
        priority=9,
        ttl_ms=8_999,
        message_id="m-1",
        subject="plant/alarms",
        reply_to="plant/answers",
        correlation_id=b"\0c",
        content_type="text/plain",
        application={"a": "1, 3", "b": "2", BRIDGED: "here"},
    )
    assert not outward(Message("t", b""), "here", message_id=None, ttl_ms=None).durable


def test_a_content_type_that_is_no_symbol_is_a_property() -> None:
    made = outward(Message("t", b"", content_type="tëxt"), "here", message_id=None, ttl_ms=None)
    assert (made.content_type, made.application["content-type"]) == (None, "tëxt")
    write_message(made)


@given(
    st.builds(
        AmqpMessage,
        body=st.binary(max_size=50),
        durable=st.booleans(),
        priority=st.none() | st.integers(1, 9).map(Ubyte),
        message_id=st.none() | TEXTS,
        correlation_id=st.none() | st.binary(max_size=5),
        content_type=st.none() | st.text("abc/", min_size=1),
        application=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5),
    )
)
def test_a_message_that_crosses_two_bridges_keeps_what_it_says(message: AmqpMessage) -> None:
    publication = inward(message, RULE, "one")
    frame_of(publication)  # MQTT can say it
    there = heard(publication)
    assert identity(there, "s", 1) == message.message_id or message.message_id is None
    again = outward(there, "two", message_id=identity(there, "s", None), ttl_ms=None)
    back = read_message(write_message(again))
    application = dict(back.application)
    assert application.pop(BRIDGED) == "one two"
    kept = msgspec.structs.replace(
        back, subject=None, application=application, durable=message.durable, priority=message.priority
    )
    assert kept == message
    assert back.durable and back.priority == message.priority
    for bridge in ("one", "two"):
        with pytest.raises(Looped):
            inward(back, RULE, bridge)


def test_a_message_does_not_pass_a_bridge_twice_in_either_direction() -> None:
    came = heard(inward(AmqpMessage(), RULE, "here"))
    with pytest.raises(Looped):
        outward(came, "here", message_id=None, ttl_ms=None)
    sent = outward(Message("t", b""), "here", message_id=None, ttl_ms=None)
    with pytest.raises(Looped):
        inward(sent, RULE, "here")


def test_no_message_passes_bridges_without_end() -> None:
    message = AmqpMessage()
    for hop in range(HOPS_MAX):
        message = outward(heard_after(message, f"in-{hop}"), f"out-{hop}", message_id=None, ttl_ms=None)
        if hop == HOPS_MAX // 2 - 1:
            break
    with pytest.raises(Unmappable, match="bridges"):
        inward(message, RULE, "last")


def heard_after(message: AmqpMessage, bridge: str) -> Message:
    return heard(inward(message, RULE, bridge))


def test_ids_are_the_publishers_or_follow_from_content_and_packet() -> None:
    message = Message("t", b"x", 1)
    assert identity(message, "s", 5) == identity(message, "s", 5)
    different = {
        identity(message, "s", 5),
        identity(message, "s", 6),
        identity(message, "r", 5),
        identity(Message("t", b"y", 1), "s", 5),
        identity(Message("u", b"x", 1), "s", 5),
        identity(Message("t", b"x", 1, user_properties=(("a", "b"),)), "s", 5),
    }
    assert len(different) == 6
    assert identity(message, "s", None) is None
    assert identity(Message("t", b"", user_properties=(("message-id", "m"),)), "s", 5) == "m"
    assert identity(Message("t", b"", user_properties=(("channel", "C"), ("id", "r-1"))), "s", 5) == "r-1"


def test_dead_messages_say_why_and_do_not_leave_by_the_bridge() -> None:
    dead = dead_inward(b"raw", "bridge/here/dead", RULE, "it is a sequence", "here")
    assert (dead.topic, dead.payload, dead.qos) == ("bridge/here/dead", b"raw", 1)
    assert said(dead)["dead-reason"] == "it is a sequence"
    with pytest.raises(Looped):
        outward(heard(dead), "here", message_id=None, ttl_ms=None)
    message = Message("plant/alarms", b"hot", 1, user_properties=(("a", "1"),))
    dead = dead_outward(message, "bridge/here/dead", "plant/# → alarms", "rejected", "here")
    assert said(dead) == {
        "dead-rule": "plant/# → alarms",
        "dead-reason": "rejected",
        "topic": "plant/alarms",
        "a": "1",
        BRIDGED: "here",
    }
