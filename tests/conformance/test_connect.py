"""Chapter 3.1: CONNECT."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.conformance.speech import (
    BOTH,
    MALFORMED,
    PROTOCOL_ERROR,
    connect_frame,
    fate,
    fate_of_connect,
    greeting,
    properties,
    said,
    stranger,
)
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import (
    LASTING,
    ending,
    frame,
    lasting,
    nothing_more,
    text,
)
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version


@pytest.mark.mqtt("3.1.0-1")
@pytest.mark.mqtt311("3.1.0-1")
@BOTH
async def test_a_connection_that_does_not_begin_with_connect_is_closed(door: Door, version: Version) -> None:
    for first in (
        encode(PingReqPacket(), version),
        encode(PublishPacket("a", b"x"), version),
        encode(SubscribePacket(1, [TopicFilter("a")]), version),
        encode(DisconnectPacket(), version),
    ):
        assert await fate_of_connect(door, first, version) is None


@pytest.mark.mqtt("3.1.0-2", "4.13.1-1")
@pytest.mark.mqtt311("3.1.0-2")
@BOTH
async def test_a_second_connect_ends_the_connection(door: Door, version: Version) -> None:
    assert await fate(door, greeting(version, "bad"), version) == said(PROTOCOL_ERROR, version)


# ── name, version and flags ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.1.2-1")
@pytest.mark.mqtt311("3.1.2-1")
@BOTH
async def test_another_protocol_is_not_served(door: Door, version: Version) -> None:
    assert await fate_of_connect(door, connect_frame(version, text("c"), name="HTTP"), version) is None


@pytest.mark.mqtt("3.1.2-2", "3.2.2-7")
async def test_a_version_to_come_is_told_that_it_is_not_spoken(door: Door) -> None:
    assert await fate_of_connect(door, connect_frame(V5, text("c"), level=6)) == 0x84


@pytest.mark.mqtt311("3.1.2-2")
@pytest.mark.parametrize(("name", "level"), [("MQTT", 3), ("MQIsdp", 4), ("MQTT", 0x83), ("MQIsdp", 0x84)])
async def test_an_older_version_is_told_so_in_its_own_words(door: Door, name: str, level: int) -> None:
    peer = await stranger(door, V311)
    peer.writer.write(connect_frame(V311, text("c"), name=name, level=level))
    assert await peer.reader.read() == b"\x20\x02\x00\x01"


@pytest.mark.mqtt("3.1.2-3", "3.1.2-11", "3.1.2-12", "3.1.2-13", "3.1.4-1")
@pytest.mark.mqtt311("3.1.2-3", "3.1.2-11", "3.1.2-13", "3.1.2-14", "3.1.2-15", "3.1.4-1")
@BOTH
@pytest.mark.parametrize(
    "flags",
    [0x03, 0x0A, 0x12, 0x22, 0x1E],
    ids=["reserved", "will QoS 1, no will", "will QoS 2, no will", "will retain, no will", "will QoS 3"],
)
async def test_connect_flags_that_cannot_be_are_malformed(door: Door, version: Version, flags: int) -> None:
    payload = [text("c")]
    if flags & 0x04:
        payload += [properties(version), text("gone"), text("bye")]
    connect = connect_frame(version, *payload, flags=flags)
    assert await fate_of_connect(door, connect, version) == said(MALFORMED, version)


@pytest.mark.mqtt("3.1.2-9", "3.1.2-16", "3.1.2-17", "3.1.2-18", "3.1.2-19", "3.1.3-3")
@pytest.mark.mqtt311("3.1.2-9", "3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-21", "3.1.3-3")
@BOTH
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (0x02, 0),  # no client id
        (0x06, 1),  # a will, but none of its fields
        (0x82, 1),  # a user name, but none there
        (0xC2, 2),  # a password, but none there
        (0x02, 2),  # no user name, but one there
        (0x82, 3),  # no password, but one there
    ],
)
async def test_what_the_flags_say_is_what_must_be_there(
    door: Door, version: Version, flags: int, fields: int
) -> None:
    payload = (text("c"), text("user"), text("password"))[:fields]
    connect = connect_frame(version, *payload, flags=flags)
    assert await fate_of_connect(door, connect, version) == said(MALFORMED, version)


@pytest.mark.mqtt("3.1.3-1", "3.1.2-17", "3.1.2-19", "3.1.4-5")
@pytest.mark.mqtt311("3.1.3-1", "3.1.4-4")
@BOTH
async def test_a_connect_with_everything_is_read_in_the_order_of_its_fields(
    door: Door, version: Version
) -> None:
    watcher = await door.peer("w")
    await watcher.subscribe(TopicFilter("gone"))
    payload = (text("c"), properties(version), text("gone"), text("bye"), text("user"), text("password"))
    peer = await stranger(door, version)
    peer.writer.write(connect_frame(version, *payload, flags=0xC6))
    assert int((await peer.receive(ConnAckPacket)).reason_code) == 0
    peer.close()
    assert (await watcher.receive(PublishPacket)).payload == b"bye"


@pytest.mark.mqtt311("3.1.2-22")
async def test_in_version_3_a_password_needs_a_user_name(door: Door) -> None:
    connect = connect_frame(V311, text("c"), text("password"), flags=0x42)
    assert await fate_of_connect(door, connect, V311) is None


@pytest.mark.mqtt("3.1.2-19")
async def test_in_version_5_a_password_needs_none(door: Door) -> None:
    peer = await stranger(door)
    peer.writer.write(connect_frame(V5, text("c"), text("password"), flags=0x42))
    assert int((await peer.receive(ConnAckPacket)).reason_code) == 0


# ── client ids ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.1.3-5")
@pytest.mark.mqtt311("3.1.3-5")
@BOTH
async def test_a_client_id_of_23_letters_and_digits_is_welcome(door: Door, version: Version) -> None:
    for client_id in ("0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ", "x"):
        await door.peer(client_id, version=version)


@pytest.mark.mqtt("3.1.3-6", "3.1.3-7", "3.2.2-16")
async def test_a_client_without_an_id_is_given_one_of_its_own(door: Door) -> None:
    connect = ConnectPacket("", session_expiry_interval=LASTING)
    told: list[str | None] = []
    for _ in range(2):
        peer = await door.peer(connect=connect, accepted=False)
        told.append((await peer.receive(ConnAckPacket)).assigned_client_id)
    assert told[0] and told[1] and told[0] != told[1]
    peer.send(PingReqPacket())  # it knows its id, and its session
    await peer.receive(PingRespPacket)
    peer.close()
    again = await door.peer(connect=lasting(told[1]), accepted=False)
    answer = await again.receive(ConnAckPacket)
    assert (answer.session_present, answer.assigned_client_id) == (True, None), "it is good for coming back"


@pytest.mark.mqtt311("3.1.3-6", "3.1.3-7", "3.1.3-8")
async def test_in_version_3_a_client_without_an_id_needs_a_clean_session(door: Door) -> None:
    await door.peer(connect=ConnectPacket("", clean_start=True), version=V311)
    refused = await stranger(door, V311)
    refused.send(ConnectPacket("", clean_start=False))
    assert await refused.reader.read() == b"\x20\x02\x00\x02"


@pytest.mark.mqtt("3.1.3-8", "3.2.2-6", "3.2.2-7", "4.13.2-1")
@pytest.mark.mqtt311("3.1.3-9", "3.2.2-4", "3.2.2-5")
@BOTH
async def test_an_unacceptable_client_id_is_refused_and_the_connection_closed(
    door: Door, version: Version
) -> None:
    peer = await door.peer("c" * 257, version=version, accepted=False)
    answer = await peer.receive(ConnAckPacket)
    assert (int(answer.reason_code), answer.session_present) == (0x85, False)
    assert await peer.closed()


# ── the answer ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.1.4-3")
@pytest.mark.mqtt311("3.1.4-2")
@BOTH
async def test_a_second_connection_of_a_client_ends_the_first(door: Door, version: Version) -> None:
    first = await door.peer("same", version=version)
    second = await door.peer("same", version=version)
    assert await ending(first) == said(0x8E, version)
    await nothing_more(second)


@pytest.mark.mqtt("3.1.4-6", "3.1.4-2")
@pytest.mark.mqtt311("3.1.4-5")
@BOTH
async def test_what_comes_behind_a_connect_that_is_refused_is_not_looked_at(
    door: Door, version: Version
) -> None:
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("a"))
    refused = encode(ConnectPacket("c" * 257, clean_start=True), version)
    message = encode(PublishPacket("a", b"x"), version)
    assert await fate_of_connect(door, refused + message, version) is not None
    await nothing_more(subscriber)


@pytest.mark.mqtt("3.1.4-1")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x21\x00\x00", PROTOCOL_ERROR),  # receive maximum 0
        (b"\x27\x00\x00\x00\x00", PROTOCOL_ERROR),  # maximum packet size 0
        (b"\x19\x02", PROTOCOL_ERROR),  # request response information 2
        (b"\x17\x02", PROTOCOL_ERROR),  # request problem information 2
        (b"\x11\0\0\0\0\x11\0\0\0\0", PROTOCOL_ERROR),  # session expiry interval twice
        (b"\x16" + text("data"), PROTOCOL_ERROR),  # authentication data without a method
        (b"\x23\0\1", PROTOCOL_ERROR),  # a topic alias, which belongs to PUBLISH
        (b"\x7f\0", MALFORMED),  # no property at all
    ],
)
async def test_a_connect_with_properties_that_cannot_be_is_refused(door: Door, raw: bytes, code: int) -> None:
    assert await fate_of_connect(door, connect_frame(V5, text("c"), raw=raw)) == code


@pytest.mark.mqtt("3.1.4-1")
async def test_bytes_behind_the_payload_of_a_connect_are_malformed(door: Door) -> None:
    connect = greeting(V5)
    longer = frame(0x10, connect[2:], b"more")
    assert await fate_of_connect(door, longer) == MALFORMED
