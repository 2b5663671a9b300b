"""Servers of an earlier release, whose streams are in the global account, go on with an account of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.store.secured import NETWORK, SecuredServers
from tocsin.config import Settings
from tocsin.errors import StoreUnavailable
from tocsin.model.subjects import messages_log
from tocsin.ports import Record, TableSpec
from tocsin.runtime.network import moving
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.directory import StateDirectory
from tocsin.runtime.network.store_access import is_global
from tocsin.store.jetstream import snapshots
from tocsin.store.jetstream.store import JetStreamStore

MESSAGES = messages_log(NETWORK, 3_600, 1 << 30)
SESSIONS = TableSpec(f"{NETWORK}-sessions")
RECORDS = [Record(f"{NETWORK}.m.{number % 7}", b"%d" % number, f"id {number}") for number in range(200)]


async def fill(state: Path, servers: int) -> None:
    with SecuredServers(state, servers=servers, one_account=True) as running:
        await running.prepare()
        broker = await running.store("broker", deadline_s=30)
        log, table = await broker.log(MESSAGES), await broker.table(SESSIONS)
        await log.append(RECORDS)
        await table.put("kept", b"1")
        await table.put("gone", b"2")
        await table.delete("gone")
        assert (await log.read(f"{NETWORK}.m.1", 0, limit=1)).entries, "without a second connection"
        stream = await broker.stream(MESSAGES.name)
        assert stream._reads.connection is broker.connection
        await broker.close()
    assert is_global(state)


async def check(settings: Settings, directory: StateDirectory, *, two_accounts: bool = True) -> None:
    async with moving.running(settings, directory, "test.log"):
        broker = await JetStreamStore.open(settings.nats, "broker", name="check", deadline_s=30)
        stream = await broker.stream(MESSAGES.name)
        assert (stream._reads.connection is not broker.connection) == two_accounts
        log, table = await broker.log(MESSAGES), await broker.table(SESSIONS)
        page = await log.read(f"{NETWORK}.m.>", 0, limit=500)
        assert [(each.position, each.payload) for each in page.entries] == [
            (number + 1, each.payload) for number, each in enumerate(RECORDS)
        ]
        assert await log.append(RECORDS[-1:]) == (len(RECORDS),), "ids are known still"
        assert await table.keys() == ("kept",)
        await broker.close()
    assert is_global(directory.path) != two_accounts


@asynccontextmanager
async def held(state: Path, servers: int) -> AsyncIterator[tuple[Settings, StateDirectory]]:
    directory = StateDirectory.hold(state)
    try:
        chosen = SecuredServers(state, servers=servers).settings
        yield network.prepare(chosen, directory, auto_ports=True), directory
    finally:
        directory.release()


async def test_one_server_goes_on_with_what_it_has(tmp_path: Path) -> None:
    await fill(tmp_path, 1)
    async with held(tmp_path, 1) as (settings, directory):
        await check(settings, directory)


async def test_a_cluster_is_moved_also_if_that_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(tmp_path, 3)
    async with held(tmp_path, 3) as (settings, directory):
        load = snapshots.load
        loaded: list[str] = []

        async def broken_off(store: JetStreamStore, saved: snapshots.Saved, path: Path, **more: int) -> None:
            if len(loaded) == 5:
                raise asyncio.CancelledError
            loaded.append(saved.stream)
            await load(store, saved, path, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(snapshots, "load", broken_off)
        with pytest.raises(asyncio.CancelledError):
            await moving.move(settings, directory)
        monkeypatch.undo()
        await moving.move(settings, directory)
        await check(settings, directory)
        await moving.move(settings, directory)  # nothing is left to do
        left = {path.name for path in directory.nats.iterdir()} - {"keys"}
        assert left == {"store-1", "store-2", "store-3"}
        assert not list(directory.nats.glob(f"store-*/{moving.BEFORE}"))


async def test_a_cluster_that_cannot_be_moved_goes_on_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(tmp_path, 3)
    async with held(tmp_path, 3) as (settings, directory):

        async def fails(*_: object, **more: object) -> None:
            raise StoreUnavailable("restore", "a test")

        monkeypatch.setattr(snapshots, "load", fails)
        await moving.move(settings, directory)
        monkeypatch.undo()
        await check(settings, directory, two_accounts=False)
