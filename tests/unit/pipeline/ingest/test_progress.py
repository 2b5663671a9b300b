"""Cells of progress, the lease, and definitions, on a store in memory."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import msgspec
import pytest

from tocsin.errors import StoreUnavailable
from tocsin.model.channel_names import ChannelNames
from tocsin.pipeline.ingest.progress import ChannelProgress, Progress
from tocsin.ports import Table
from tocsin.store import process_lease as module
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.store.process_lease import KEY, LeaseHolder, LeaseLost, ProcessLease, this_process

PLACES = ChannelNames("net")


@pytest.fixture
async def table() -> Table:
    return await MemoryStore(MemoryServer()).table(PLACES.progress)


async def test_what_was_noted_and_written_is_read_again(table: Table) -> None:
    progress = Progress(table)
    for number in range(200):
        progress.note_channel(f"C{number}", ChannelProgress(number, {"reports": 3}, 17))
    progress.note_tick(5)
    progress.note_ingested(99)
    progress.note_version("channel.c1", 4)
    await progress.write()
    other = Progress(table)
    await other.load()
    assert other.channel("c7") == ChannelProgress(7, {"reports": 3}, 17) and len(other.channels) == 200
    assert (other.tick, other.ingested, other.last_version("channel.c1"), other.last_version("x")) == (
        5,
        99,
        4,
        0,
    )


async def test_what_cannot_be_written_is_written_later_unless_there_is_newer(table: Table) -> None:
    progress = Progress(table)
    real: Any = table.put
    away = True

    async def put(key: str, value: bytes, **options: Any) -> int:
        if away:
            raise StoreUnavailable("put", "away")
        revision: int = await real(key, value, **options)
        return revision

    table.put = put  # type: ignore[method-assign]
    progress.note_tick(1)
    progress.note_ingested(1)
    await progress.write()
    progress.note_tick(2)
    away = False
    await progress.write()
    other = Progress(table)
    await other.load()
    assert (other.tick, other.ingested) == (2, 1)


async def test_a_lease_is_one_processs_and_another_waits_for_its_end(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    first, second = ProcessLease(table, "one"), ProcessLease(table, "two")
    await first.acquire()
    waiting: list[str] = []
    task = asyncio.create_task(second.acquire(waiting.append))
    while not waiting:
        await asyncio.sleep(0)
    assert waiting[0] == f"{socket.gethostname()}, process {os.getpid()}" and not task.done()
    await first.release()
    await task


async def test_a_holder_on_this_machine_that_is_gone_is_not_waited_for(table: Table) -> None:
    gone = LeaseHolder("old", socket.gethostname(), os.getpid(), this_process("x").started_us - 1)
    await table.put(KEY, msgspec.json.encode(gone))
    lease = ProcessLease(table, "new")
    await asyncio.wait_for(lease.acquire(), 10)


async def test_whoever_finds_anothers_name_in_it_stops(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.0)
    lease = ProcessLease(table, "one")
    await lease.acquire()
    keeping = asyncio.create_task(lease.keep())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not keeping.done(), "renewing it over and over is no reason to stop"
    await table.put(KEY, msgspec.json.encode(LeaseHolder("two", "elsewhere", 7, 7)))
    with pytest.raises(LeaseLost, match="another pipeline of this network runs at elsewhere, process 7"):
        await asyncio.wait_for(keeping, 10)


async def test_a_lease_that_ran_out_unnoticed_is_taken_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.0)
    lease = ProcessLease(table, "one")
    await lease.acquire()
    await table.delete(KEY)
    keeping = asyncio.create_task(lease.keep())
    while (cell := await table.get(KEY)) is None:
        await asyncio.sleep(0)
    assert msgspec.json.decode(cell.value)["run"] == "one"
    keeping.cancel()
