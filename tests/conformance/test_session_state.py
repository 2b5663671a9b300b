"""Chapters 3.1 and 4.1: sessions, how they begin, last and end."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    TopicFilter,
)

from tests.conformance.speech import (
    BOTH,
)
from tests.unit.broker.harness import DEADLINE_S, Door, Peer
from tests.unit.broker.talk import (
    ONE,
    lasting,
    nothing_more,
    publish,
    receive,
)
from tocsin.ports import TableSpec
from tocsin.wire.mqtt.connect import V5, Version


def connect_of(version: Version, client_id: str, *, clean: bool) -> ConnectPacket:
    """A CONNECT whose session lasts, in words of either version, unless it is a clean one of 3.1.1."""
    return lasting(client_id, clean=clean) if version == V5 else ConnectPacket(client_id, clean_start=clean)


async def came_back(door: Door, version: Version, *, clean: bool) -> tuple[Peer, bool]:
    """A client that is back; whether it was told that its session is there."""
    peer = await door.peer(connect=connect_of(version, "s", clean=clean), version=version, accepted=False)
    return peer, (await peer.receive(ConnAckPacket)).session_present


@pytest.mark.mqtt(
    "3.1.2-4", "3.1.2-5", "3.1.2-6", "3.1.2-23", "3.1.3-2", "3.1.4-4", "3.2.2-2", "3.2.2-3", "4.1.0-1"
)
@pytest.mark.mqtt311(
    "3.1.2-4",
    "3.1.2-5",
    "3.1.2-6",
    "3.1.3-2",
    "3.1.4-3",
    "3.2.2-1",
    "3.2.2-2",
    "3.2.2-3",
    "4.1.0-1",
    "4.1.0-2",
)
@BOTH
async def test_a_session_is_resumed_or_discarded_as_the_client_asks(door: Door, version: Version) -> None:
    publisher = await door.peer("p")
    first, present = await came_back(door, version, clean=False)
    assert not present, "there was none"
    await first.subscribe(TopicFilter("a", max_qos=ONE))
    first.close()
    await publish(publisher, "a", b"missed")
    second, present = await came_back(door, version, clean=False)
    assert present
    assert (await receive(second)).payload == b"missed"
    await nothing_more(second)
    second.close()
    await publish(publisher, "a", b"for nobody")
    third, present = await came_back(door, version, clean=True)
    assert not present
    await publish(publisher, "a", b"nor this")
    await nothing_more(third)
    other = await door.peer(connect=connect_of(version, "t", clean=False), version=version, accepted=False)
    assert not (await other.receive(ConnAckPacket)).session_present, "a session is its client's"


@pytest.mark.mqtt("4.1.0-2", "3.1.2-23")
async def test_a_session_ends_when_its_expiry_has_passed(door: Door) -> None:
    connect = ConnectPacket("s", session_expiry_interval=1)
    (await door.peer(connect=connect)).close()
    sessions = await door.store.table(TableSpec(name="net-sessions"))
    async with asyncio.timeout(DEADLINE_S):
        while await sessions.keys():
            await asyncio.sleep(0.05)
    again = await door.peer(connect=connect, accepted=False)
    assert not (await again.receive(ConnAckPacket)).session_present


@pytest.mark.mqtt("4.1.0-2")
async def test_a_client_may_end_its_session_when_it_leaves(door: Door) -> None:
    connect = lasting("s")
    leaving = await door.peer(connect=connect)
    leaving.send(DisconnectPacket(session_expiry_interval=0))
    assert await leaving.closed()
    again = await door.peer(connect=connect, accepted=False)
    assert not (await again.receive(ConnAckPacket)).session_present
