"""A link that is offered more than it can carry: it stays up, and what goes out is never old."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from mqtt5 import PublishPacket, TopicFilter

from tests.unit.broker.harness import Door, until
from tocsin.broker.links import link as links
from tocsin.config import Limits
from tocsin.core.links import backlog
from tocsin.model.network import Route, Scope

RATE = 100_000  # bytes a second
STEP_S = 0.02
MESSAGE = bytes(2_000)
FEW, MANY = 100, 1_000


class NarrowWay:
    """Passes RATE bytes a second on to a port, holds little, and counts the connections over it."""

    def __init__(self, to: int) -> None:
        self.connections = 0
        self._to = to
        self._joined: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> NarrowWay:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)
        listening.bind(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._join, sock=listening, limit=4 << 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._joined:
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    async def _join(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._joined.add(task)
        far, there = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            with contextlib.suppress(ConnectionError, ExceptionGroup):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pass(near, there, RATE))
                    both.create_task(_pass(far, back, 0))
        finally:
            for writer in (there, back):
                writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: int) -> None:
    while data := await reader.read(int(rate * STEP_S) or 1 << 16):
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(len(data) / rate if rate else 0)
    raise ConnectionResetError


class Narrow:
    """Two brokers, the way from the first to the second, and what a client at the second hears."""

    def __init__(self, origin: Door, end: Door, way: NarrowWay) -> None:
        self.origin, self.end, self.way = origin, end, way
        self.info = msgspec.structs.replace(end.info("south-1", "south"), port=way.port)

    async def publish(self, count: int) -> None:
        publisher = await self.origin.peer("publisher")
        publisher.send(*(PublishPacket("a", b"%d " % number + MESSAGE) for number in range(count)))

    def statistics(self) -> dict[str, int]:
        return self.origin.exchange.statistics()


@pytest.fixture
async def narrow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Narrow]:
    monkeypatch.setattr(links, "KEEP_ALIVE_S", 1)
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(Door(Limits(), broker="north-1", cluster="north"))
        end = await stack.enter_async_context(Door(Limits(), broker="south-1", cluster="south"))
        way = await stack.enter_async_context(NarrowWay(end.info("south-1", "south").port))
        network = Narrow(origin, end, way)
        origin.exchange.change_routes((Route(Scope.ORIGIN, "south-1", "a"),), (), (network.info,))
        await until(lambda: origin.exchange.links["south-1"].up)
        yield network


async def test_a_burst_arrives_whole_over_a_narrow_link_that_stays(narrow: Narrow) -> None:
    """The sign of life that is asked for meanwhile waits behind it for longer than a peer has to answer."""
    heard = await narrow.end.peer("subscriber")
    await heard.subscribe(TopicFilter("a"))
    await narrow.publish(FEW)
    got = [int((await heard.receive(PublishPacket)).payload.split()[0]) for _ in range(FEW)]
    assert got == list(range(FEW))
    assert narrow.way.connections == 1 and narrow.statistics()["dropped"] == 0


async def test_what_waits_too_long_for_a_narrow_link_is_dropped(
    narrow: Narrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "STALE_US", 500_000)
    heard = await narrow.end.peer("subscriber")
    await heard.subscribe(TopicFilter("a"))
    await narrow.publish(MANY)
    await until(lambda: narrow.statistics()["links_late"] > 0)
    await until(lambda: narrow.statistics()["links_waiting"] == 0)
    await narrow.publish(1)
    first = int((await heard.receive(PublishPacket)).payload.split()[0])
    assert first == 0 and narrow.way.connections == 1
    assert narrow.statistics()["links_late"] == narrow.statistics()["dropped"] < MANY
