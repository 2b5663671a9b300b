"""MQTT 3.1 (``MQIsdp``, level 3), as old devices speak it: 3.1.1 but for its CONNECT and its DUP flags."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import ConnAckPacket, PublishPacket, TopicFilter

from tests.conformance.speech import stranger
from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import ONE, frame, publish, text
from tocsin.wire.mqtt.connect import V311

HEAD = text("MQIsdp") + b"\3"
KEEP_ALIVE = b"\0\x3c"
ID = b"\0\7"


async def come(door: Door, *payload: bytes, flags: int = 0x02, first: int = 0x10) -> Peer:
    peer = await stranger(door, V311)
    peer.writer.write(frame(first, HEAD, bytes((flags,)), KEEP_ALIVE, *payload))
    return peer


async def accepted(peer: Peer) -> bool:
    return int((await peer.receive(ConnAckPacket)).reason_code) == 0


async def test_an_old_device_subscribes_and_publishes(door: Door) -> None:
    old, other = await come(door, text("old")), await door.peer("other")
    assert await accepted(old)
    await old.subscribe(TopicFilter("a/#", max_qos=ONE))
    await publish(other, "a/b", b"to the old one", ONE)
    assert (await old.receive(PublishPacket)).payload == b"to the old one"
    await other.subscribe(TopicFilter("c", max_qos=ONE))
    await publish(old, "c", b"of the old one", ONE)
    assert (await other.receive(PublishPacket)).payload == b"of the old one"


@pytest.mark.parametrize("flags", [0x02, 0x00])
async def test_a_client_without_a_name_is_refused(door: Door, flags: int) -> None:
    peer = await come(door, text(""), flags=flags)
    assert await asyncio.wait_for(peer.reader.read(), 10) == b"\x20\x02\x00\x02"


@pytest.mark.parametrize("first", range(0x10, 0x20))
async def test_the_flags_of_its_connect_mean_nothing(door: Door, first: int) -> None:
    assert await accepted(await come(door, text("old"), first=first))


@pytest.mark.parametrize("flags", [0x82, 0xC2])
async def test_a_name_or_password_that_is_announced_may_be_missing(door: Door, flags: int) -> None:
    assert await accepted(await come(door, text("old"), flags=flags))


async def test_requests_may_be_repeated_with_dup(door: Door) -> None:
    peer = await come(door, text("old"))
    assert await accepted(peer)
    peer.writer.write(frame(0x8A, ID, text("a"), b"\1"))
    assert await asyncio.wait_for(peer.reader.readexactly(5), 10) == b"\x90\x03" + ID + b"\1"
    peer.writer.write(frame(0x34, text("b"), ID, b"x"))
    assert await asyncio.wait_for(peer.reader.readexactly(4), 10) == b"\x50\x02" + ID
    peer.writer.write(frame(0x6A, ID))
    assert await asyncio.wait_for(peer.reader.readexactly(4), 10) == b"\x70\x02" + ID
    peer.writer.write(frame(0xAA, ID, text("a")))
    assert await asyncio.wait_for(peer.reader.readexactly(4), 10) == b"\xb0\x02" + ID


async def test_a_311_client_must_not_set_dup_there(door: Door) -> None:
    peer = await door.peer("new", version=V311)
    peer.writer.write(frame(0x8A, ID, text("a"), b"\1"))
    assert await peer.closed()
