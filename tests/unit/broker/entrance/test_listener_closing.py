"""Nobody is let in by a door that was closed, however near to that it came."""

from __future__ import annotations

import asyncio
import socket

import pytest
from mqtt5 import ConnectPacket

from tests.unit.broker.harness import DEADLINE_S, Door
from tests.unit.broker.talk import LASTING
from tocsin.broker.entrance.websocket import framed
from tocsin.config import Limits
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

TURNS_MAX = 6  # of the loop, from a connection that the kernel has made to one that is known here


class Wire(asyncio.Transport):
    """A transport that notes how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.written = b""

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data


async def answer_to(caller: socket.socket) -> bytes:
    """What a caller hears who says CONNECT: nothing if it is hung up on."""
    loop = asyncio.get_running_loop()
    connect = ConnectPacket("c", clean_start=False, session_expiry_interval=LASTING)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_sendall(caller, encode(connect, V5))
            return await loop.sock_recv(caller, 1_024)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("turns", range(TURNS_MAX))
async def test_a_client_that_comes_while_the_broker_stops_is_not_let_in(turns: int) -> None:
    async with Door(Limits()) as door:
        await door.peer("before")
        with socket.create_connection(("127.0.0.1", door.port), DEADLINE_S) as caller:
            caller.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await door.listener.close()
            assert await answer_to(caller) == b""
            assert door.listener.clients == 0


@pytest.mark.parametrize("web", [False, True])
async def test_a_socket_accepted_before_the_end_and_noticed_after_is_closed(door: Door, web: bool) -> None:
    connection, wire = door.listener.make(), Wire()
    protocol: asyncio.Protocol = framed(door.listener)(connection) if web else connection
    await door.listener.close()
    protocol.connection_made(wire)
    assert wire.aborted and not wire.written
    protocol.connection_lost(None)
    assert door.listener.clients == 0
