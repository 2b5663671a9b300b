"""Chapters 3.12 to 3.15: PINGREQ, DISCONNECT and AUTH; and 4.12, extended authentication, which is not offered."""

from __future__ import annotations

import pytest
from mqtt5 import (
    AuthPacket,
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    TopicFilter,
)

from tests.conformance.speech import (
    BOTH,
    MALFORMED,
    PROTOCOL_ERROR,
    connect_frame,
    fate,
    fate_of_connect,
    properties,
    stranger,
)
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ending, frame, lasting, text
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version


@pytest.mark.mqtt("3.12.4-1")
@pytest.mark.mqtt311("3.12.4-1")
@BOTH
async def test_every_ping_is_answered(door: Door, version: Version) -> None:
    peer = await door.peer("c", version=version)
    peer.send(*[PingReqPacket()] * 3)
    for _ in range(3):
        await peer.receive(PingRespPacket)


@pytest.mark.mqtt("3.14.0-1")
@BOTH
async def test_who_is_not_in_is_never_sent_a_disconnect(door: Door, version: Version) -> None:
    """Whatever is wrong before the CONNACK, what comes is a CONNACK or nothing."""
    for first in (
        b"\0\0",
        b"\x10\x00",
        b"\xe0\x00",
        connect_frame(version, text(b"\xff")),
        connect_frame(version, text("c"), flags=0x03),
    ):
        peer = await stranger(door, version)
        peer.writer.write(first)
        answer = await peer.reader.read()
        assert answer == b"" or answer[0] == 0x20


@pytest.mark.mqtt("3.14.4-1", "3.14.4-2", "4.13.2-1", "3.14.2-1", "3.14.2-2")
async def test_behind_a_disconnect_comes_nothing_but_the_end(door: Door) -> None:
    peer, publisher = await door.peer("c"), await door.peer("p")
    await peer.subscribe(TopicFilter("a"))
    bad = b"\0\0"
    peer.writer.write(encode(PingReqPacket(), V5) + bad + encode(PingReqPacket(), V5))
    publisher.send(PublishPacket("a", b"x"))
    await peer.receive(PingRespPacket)
    goodbye = await peer.first(DisconnectPacket)
    assert (int(goodbye.reason_code), goodbye.session_expiry_interval) == (MALFORMED, None)
    assert await peer.closed()


@pytest.mark.mqtt311("3.14.4-1", "3.14.4-2")
@BOTH
async def test_behind_a_clients_disconnect_nothing_is_looked_at(door: Door, version: Version) -> None:
    watcher, peer = await door.peer("w"), await door.peer("c", version=version)
    await watcher.subscribe(TopicFilter("a"))
    peer.send(DisconnectPacket(), PublishPacket("a", b"late"))
    assert await peer.closed()
    watcher.send(PingReqPacket())
    await watcher.receive(PingRespPacket)


@pytest.mark.mqtt("3.14.2-1")
async def test_a_reason_to_leave_that_does_not_exist_is_a_protocol_error(door: Door) -> None:
    assert await fate(door, frame(0xE0, b"\x77")) == PROTOCOL_ERROR


@pytest.mark.mqtt("3.14.2-1")
@pytest.mark.parametrize("code", [0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x9C, 0xA2])
async def test_a_client_does_not_leave_with_a_reason_that_is_the_servers(door: Door, code: int) -> None:
    assert await fate(door, frame(0xE0, bytes((code,)))) == PROTOCOL_ERROR


@pytest.mark.mqtt("3.14.2-2", "4.13.1-1")
async def test_a_session_that_should_end_cannot_be_kept_by_leaving(door: Door) -> None:
    peer = await door.peer(connect=ConnectPacket("c", session_expiry_interval=0))
    peer.send(DisconnectPacket(session_expiry_interval=10))
    assert await ending(peer) == PROTOCOL_ERROR


@pytest.mark.mqtt("3.1.2-23")
async def test_how_long_a_session_is_kept_can_be_changed_when_leaving(door: Door) -> None:
    for expiry_s, present in ((10, True), (0, False)):
        peer = await door.peer(connect=lasting("c"))
        peer.send(DisconnectPacket(session_expiry_interval=expiry_s))
        assert await peer.closed()
        again = await door.peer(connect=lasting("c"), accepted=False)
        assert (await again.receive(ConnAckPacket)).session_present is present


# ── extended authentication ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("4.12.0-1", "4.12.0-4", "3.1.2-30", "4.12.0-2", "4.12.0-5")
async def test_a_method_of_authentication_is_refused_at_once(door: Door) -> None:
    raw = b"\x15" + text("SCRAM-SHA-256")
    assert await fate_of_connect(door, connect_frame(V5, text("c"), raw=raw)) == 0x8C


@pytest.mark.mqtt("4.12.0-6", "4.12.0-7", "4.12.1-2", "3.15.2-1")
async def test_who_asked_for_none_gets_none_and_may_not_begin_one(door: Door) -> None:
    peer = await door.peer("c", accepted=False)
    assert (await peer.receive(ConnAckPacket)).authentication_method is None
    peer.send(AuthPacket())
    assert await ending(peer) == PROTOCOL_ERROR
    method = properties(V5, b"\x15" + text("SCRAM-SHA-256"))
    assert await fate(door, frame(0xF0, b"\x19", method)) == PROTOCOL_ERROR


@pytest.mark.mqtt311("2.2.2-2")
async def test_in_version_3_there_is_no_such_packet(door: Door) -> None:
    assert await fate(door, b"\xf0\x00", V311) is None
