"""Figures over HTTP: one request a connection, and whatever else comes is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests.unit.runtime.collector import said
from tocsin.runtime.metrics import CONNECTIONS_MAX, HEAD_MAX_BYTES, Tell, served


async def tell() -> str:
    return "some_figure 1\n"


def serving(tell: Tell) -> AbstractAsyncContextManager[str]:
    return served("127.0.0.1", 0, tell, whose="it", setting="a.b")


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"405"),
    ],
)
async def test_other_requests_are_refused(request_bytes: bytes, code: bytes) -> None:
    async with serving(tell) as address:
        assert (await said(address, request_bytes)).startswith(b"HTTP/1.1 " + code)


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01\r\n\r\n", b"GET /" + b"x" * 4 * HEAD_MAX_BYTES])
async def test_rubbish_costs_its_connection_and_nothing_else(rubbish: bytes) -> None:
    async with serving(tell) as address:
        with contextlib.suppress(ConnectionError):  # it may be cut off while it still sends
            assert not (await said(address, rubbish)).startswith(b"HTTP/1.1 200")
        assert b" 200 " in await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_figures_that_cannot_be_had_are_for_later() -> None:
    async def broken() -> str:
        raise RuntimeError("no figures")

    async with serving(broken) as address:
        assert (await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 503")


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def held_open(address: str, count: int, request: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections that send this and never read."""
    host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
    held = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(request)
        held.append(writer)
    try:
        yield held
    finally:
        for writer in held:
            writer.transport.abort()


@pytest.mark.parametrize(
    "request_bytes", [b"", b"GET /metrics HTTP/1.1\r\n", GET], ids=["silent", "slow", "unread"]
)
async def test_connections_that_are_held_open_keep_no_collector_out(request_bytes: bytes) -> None:
    async def much() -> str:
        return "some_figure 1\n" * 2_000_000  # more than the kernel takes for a client that does not read

    async with serving(much) as address, held_open(address, 3 * CONNECTIONS_MAX, request_bytes):
        for _ in range(3):
            assert b" 200 " in await said(address, GET)


async def test_figures_are_put_together_once_for_all_who_wait() -> None:
    asked, ready = 0, asyncio.Event()

    async def slow() -> str:
        nonlocal asked
        asked += 1
        await ready.wait()
        return "some_figure 1\n"

    async with serving(slow) as address:
        answers = [asyncio.create_task(said(address, GET)) for _ in range(5)]
        while not asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        ready.set()
        assert all(b" 200 " in each for each in await asyncio.gather(*answers))
        assert asked == 1
