"""What the store in memory adds to its pure state: a clock, waiting, and clients that share a server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tocsin.errors import StoreUnavailable
from tocsin.ports import Change, LogSpec, Record, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

SPEC = LogSpec("l", ("l.>",), max_age_s=10, dedupe_window_s=5)


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.us = 1_000_000_000

    def now_us(self) -> int:
        return self.us

    def pass_s(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def server(clock: HandClock) -> MemoryServer:
    return MemoryServer(clock)


async def test_entries_grow_old_and_go(server: MemoryServer, clock: HandClock) -> None:
    log = await MemoryStore(server).log(SPEC)
    await log.append([Record("l.a", b"", "1")])
    clock.pass_s(6)
    assert await log.append([Record("l.a", b"", "1")]) == (2,), "an id is forgotten after the window"
    clock.pass_s(5)
    assert [entry.position for entry in (await log.read("l.a", 0)).entries] == [2]


async def test_a_watch_hears_of_an_expiry_by_a_clock_that_is_moved(
    server: MemoryServer, clock: HandClock
) -> None:
    table = await MemoryStore(server).table(TableSpec("t"))
    await table.put("lease", b"", ttl_s=3)
    async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
        assert [(await anext(changes)).kind for _ in range(3)] == ["reset", "put", "ready"]
        clock.pass_s(3)
        server.expire()
        assert await anext(changes) == Change("delete", "lease", b"", 2)


async def test_clients_of_one_server_see_the_same(server: MemoryServer) -> None:
    one, other = MemoryStore(server), MemoryStore(server)
    await (await one.log(SPEC)).append([Record("l.a", b"", "1")])
    assert await (await other.log(SPEC)).last() == 1
    await one.close()
    assert await (await other.log(SPEC)).last() == 1


async def test_closing_one_client_leaves_the_other_waiting(server: MemoryServer) -> None:
    one, other = MemoryStore(server), MemoryStore(server)
    logs = [await one.log(SPEC), await other.log(SPEC)]
    waiting = [asyncio.ensure_future(anext(log.follow("l.a", 0))) for log in logs]
    await asyncio.sleep(0)
    await one.close()
    with pytest.raises(StoreUnavailable):
        await waiting[0]
    await logs[1].append([Record("l.a", b"", "1")])
    assert (await waiting[1]).position == 1
