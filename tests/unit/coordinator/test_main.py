"""Coordinator processes on a real server: they elect one, say how they are, and let go when they stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from tocsin.config import Coordinator, Door, Nats, Settings
from tocsin.coordinator.main import options, serve
from tocsin.coordinator.status import Status, read_all
from tocsin.core.coordination.names import StoreNames
from tocsin.runtime.process import Process
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers
from tocsin.wire.internal.commands import Limits

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServers]:
    with LocalServers(Path(tmp_path_factory.mktemp("nats"))) as running:
        yield running


@pytest.fixture
async def store(servers: LocalServers) -> AsyncIterator[JetStreamStore]:
    opened = await JetStreamStore.connect(
        servers.urls, token=servers.token, replicas=1, deadline_s=DEADLINE_S
    )
    yield opened
    await opened.close()


async def until_leader(store: JetStreamStore, *, not_of: str = "") -> list[Status]:
    table = await store.table(StoreNames("tocsin").table)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await read_all(table)
            if any(each.role == "leader" and each.id != not_of for each in found):
                return found
            await asyncio.sleep(0.05)


async def test_one_leads_and_when_it_stops_another_does_at_once(
    servers: LocalServers, store: JetStreamStore
) -> None:
    settings = Settings(
        nats=Nats(urls=servers.urls, token=servers.token),
        door=Door(port=-1),
        coordinator=Coordinator(lease_s=60),  # so that only a lease that is given back is free in time
    )
    processes = [Process(name, settings) for name in ("coordinator-1", "coordinator-2")]
    tasks = [asyncio.create_task(serve(process, process.name)) for process in processes]
    finding = asyncio.create_task(until_leader(store))
    await asyncio.wait((finding, *tasks), return_when=asyncio.FIRST_COMPLETED)
    assert not any(task.done() for task in tasks), "a coordinator ended before it led"
    found = await finding
    (leader,) = [each.id for each in found if each.role == "leader"]
    stopping = next(process for process in processes if process.name == leader)
    stopping.stopping.set()
    after = await until_leader(store, not_of=leader)
    new = next(each for each in after if each.role == "leader" and each.id != leader)
    assert new.epoch == 2
    for process in processes:
        process.stopping.set()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*tasks)


def test_options_are_the_settings() -> None:
    settings = msgspec.structs.replace(
        Settings(),
        coordinator=Coordinator(
            lease_s=3,
            snapshot_every=500,
            snapshot_every_bytes=1 << 20,
            streams_max=7,
            queries_max=8,
            keep_s=9,
            publishers_max=10,
            streams_max_bytes=1 << 21,
            user_percent=25,
            queries_max_bytes=1 << 22,
            told_burst_bytes=1 << 23,
            told_rate_bytes=11,
        ),
    )
    chosen = options(settings)
    assert (chosen.lease_us, chosen.snapshot_every, chosen.suspect_after_us) == (3_000_000, 500, 5_000_000)
    assert (chosen.snapshot_every_bytes, chosen.wait_bytes) == (1 << 20, 1 << 22)
    assert chosen.limits == Limits(7, 8, 9, 10, 4_096, 1 << 21, 1 << 19, 1 << 22, 1 << 23, 11)
    judged = (chosen.heartbeat_us, chosen.phi, chosen.suspect_least_us)
    assert judged == (1_000_000, 6.0, 1_650_000)
