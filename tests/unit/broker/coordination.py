"""A real coordinator on a store in memory, for brokers that take part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.unit.broker.harness import DEADLINE_S, PLACES
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.names import Options
from tocsin.model.network import coordinator_address
from tocsin.runtime.machines.driver import Driver
from tocsin.store.memory.store import MemoryStore
from tocsin.wire.internal.commands import Limits


@asynccontextmanager
async def coordinator(store: MemoryStore, *, limits: Limits | None = None) -> AsyncIterator[Coordinator]:
    """One that leads."""
    options = Options(
        suspect_after_us=5_000_000, lease_us=2_000_000, snapshot_every=10_000, limits=limits or Limits()
    )
    machine = Coordinator("coordinator", PLACES, options)
    driver = Driver(
        machine,
        coordinator_address("coordinator"),
        store,
        network=PLACES.network,
        logs={spec.name: await store.log(spec) for spec in (PLACES.commands, PLACES.snapshots)},
        tables={PLACES.table.name: await store.table(PLACES.table)},
    )
    running = asyncio.create_task(driver.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while machine.leader is None:
                assert not running.done(), running.result()
                await asyncio.sleep(0.005)
        yield machine
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
