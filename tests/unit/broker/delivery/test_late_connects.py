"""A CONNECT that is read long after its client gave it up ends no session that the client has made elsewhere since."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, Packet

from tests.unit.broker.harness import DEADLINE_S, Door
from tocsin.config import Limits
from tocsin.core.delivery.stored_session import StoredSession, encode_session, session_key
from tocsin.core.survival.announcements import FORGET_US
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

CLEAN = ConnectPacket("me", clean_start=True)


async def left_at(door: Door, home: str) -> None:
    """The client has a session that nobody serves, and that this broker served last."""
    session = StoredSession("me", "uid", 600, epoch=3, home=home)
    await door.parts.sessions.table.put(session_key("me"), encode_session(session))


async def say_and_go(door: Door, packets: Sequence[Packet]) -> None:
    """All of this, and that there is no more, is in the kernel before the broker runs again; until that has read it."""
    with socket.create_connection(("127.0.0.1", door.port)) as end:
        end.sendall(b"".join(encode(packet, V5) for packet in packets))
        end.shutdown(socket.SHUT_WR)
        end.setblocking(False)
        async with asyncio.timeout(DEADLINE_S):
            while await asyncio.get_running_loop().sock_recv(end, 4_096):
                pass


async def is_kept(door: Door) -> bool:
    """Whether the session is there when everything was forgotten that is to be."""
    await asyncio.sleep(3 * FORGET_US / 1e6)
    await door.parts.arrivals.settled("me")
    return await door.parts.sessions.table.get(session_key("me"), fresh=True) is not None


@pytest.mark.parametrize("goodbye", [(), (DisconnectPacket(),)])
@pytest.mark.parametrize(
    ("expiry_s", "home", "kept"), [(0, "south-1", True), (60, "south-1", True), (0, "north-1", False)]
)
async def test_a_client_that_gave_up_ends_only_a_session_older_than_that(
    expiry_s: int, home: str, kept: bool, goodbye: Sequence[Packet]
) -> None:
    connect = ConnectPacket("me", clean_start=True, session_expiry_interval=expiry_s)
    async with Door(Limits()) as door:
        await left_at(door, home)
        await say_and_go(door, [connect, *goodbye])
        assert await is_kept(door) == kept


async def test_a_client_that_heard_its_answer_ends_its_session_wherever_that_was() -> None:
    async with Door(Limits()) as door:
        await left_at(door, "south-1")
        peer = await door.peer(connect=CLEAN, accepted=False)
        assert not (await peer.receive(ConnAckPacket)).session_present
        peer.send(DisconnectPacket())
        assert not await is_kept(door)


async def test_a_client_that_stays_ends_its_session_wherever_that_was() -> None:
    async with Door(Limits()) as door:
        await left_at(door, "south-1")
        await door.peer(connect=CLEAN)
        assert not await is_kept(door)
