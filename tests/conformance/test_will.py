"""Chapter 3.1: the will that a CONNECT leaves."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    PublishPacket,
    TopicFilter,
    Will,
)

from tests.conformance.speech import (
    BOTH,
    said,
)
from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import (
    ONE,
    TWO,
    ending,
    nothing_more,
    receive,
)
from tocsin.wire.mqtt.connect import Version


def with_will(client_id: str = "lost", **fields: object) -> ConnectPacket:
    will = Will("gone", payload=b"bye", **fields)  # type: ignore[arg-type]
    return ConnectPacket(client_id, clean_start=True, keep_alive=1, will=will)


async def watcher_of(door: Door) -> Peer:
    watcher = await door.peer("w")
    await watcher.subscribe(TopicFilter("gone", max_qos=TWO))
    return watcher


@pytest.mark.mqtt("3.1.2-7", "3.1.2-8", "3.1.2-10", "3.1.2-22")
@pytest.mark.mqtt311("3.1.2-8", "3.1.2-10", "3.1.2-24")
@BOTH
@pytest.mark.parametrize("reason", ["closed", "silent", "in error"])
async def test_the_will_of_a_client_that_is_lost_is_published_once(
    door: Door, version: Version, reason: str
) -> None:
    watcher = await watcher_of(door)
    lost = await door.peer(connect=with_will(), version=version)
    if reason == "closed":
        lost.close()
    elif reason == "in error":
        lost.writer.write(b"\0\0")
    else:  # it says nothing for one and a half times its keep-alive
        assert await ending(lost) == said(0x8D, version)
    assert (await watcher.receive(PublishPacket)).payload == b"bye"
    again = await door.peer("lost", version=version)
    again.send(DisconnectPacket())
    assert await again.closed()
    await nothing_more(watcher)


@pytest.mark.mqtt("3.1.2-8", "3.1.2-10", "3.14.4-3")
@pytest.mark.mqtt311("3.1.2-10", "3.14.4-3")
@BOTH
async def test_a_client_that_says_goodbye_leaves_no_will(door: Door, version: Version) -> None:
    watcher = await watcher_of(door)
    polite = await door.peer(connect=with_will(), version=version)
    polite.send(DisconnectPacket())
    assert await polite.closed()
    await nothing_more(watcher)


@pytest.mark.mqtt311("3.1.2-12")
@BOTH
async def test_a_client_that_left_no_will_has_none_published(door: Door, version: Version) -> None:
    watcher = await door.peer("w")
    await watcher.subscribe(TopicFilter("#"))
    lost = await door.peer("lost", version=version)
    lost.writer.write(b"\0\0")
    await ending(lost)
    await nothing_more(watcher)


@pytest.mark.mqtt("3.1.2-8")
async def test_a_client_may_say_goodbye_and_want_its_will_published(door: Door) -> None:
    watcher = await watcher_of(door)
    leaving = await door.peer(connect=with_will())
    leaving.send(DisconnectPacket(reason_code=DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE))
    assert (await watcher.receive(PublishPacket)).payload == b"bye"


@pytest.mark.mqtt("3.1.2-8")
async def test_the_will_is_published_when_the_session_ends_before_its_delay_does(door: Door) -> None:
    watcher = await watcher_of(door)
    lost = await door.peer(
        connect=with_will(will_delay_interval=1_000)
    )  # its session ends with the connection
    lost.close()
    assert (await watcher.receive(PublishPacket)).payload == b"bye"


@pytest.mark.mqtt("3.1.2-14", "3.1.2-15")
@pytest.mark.mqtt311("3.1.2-16", "3.1.2-17")
@BOTH
@pytest.mark.parametrize("kept", [True, False])
async def test_a_will_is_retained_if_it_says_so(door: Door, version: Version, kept: bool) -> None:
    watcher = await watcher_of(door)
    lost = await door.peer(connect=with_will(retain=kept, qos=ONE), version=version)
    lost.close()
    await receive(watcher)
    late = await door.peer("late")
    await late.subscribe(TopicFilter("gone"))
    if kept:
        assert (await receive(late)).payload == b"bye"
    await nothing_more(late)


@pytest.mark.mqtt("3.1.3-10", "3.1.2-12")
async def test_a_will_keeps_its_properties_in_their_order(door: Door) -> None:
    watcher = await watcher_of(door)
    pairs = [("k", "2"), ("k", "1"), ("a", "3")]
    lost = await door.peer(connect=with_will(user_properties=pairs, content_type="text", qos=TWO))
    lost.close()
    packet = await receive(watcher)
    assert (packet.user_properties, packet.content_type, packet.qos) == (pairs, "text", TWO)
