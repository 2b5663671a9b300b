"""A coordinator that reads a large state back, on a real loop: others have their turn meanwhile."""

from __future__ import annotations

import asyncio

import msgspec

from tocsin.coordinator.status import describe
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader import snapshot_writer as archivist
from tocsin.core.coordination.leader.snapshot_writer import Manifest
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import State
from tocsin.model.network import BrokerInfo, Role
from tocsin.ports import Record
from tocsin.runtime.machines.driver import Driver
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.commands import Joined, Said, Streams

DEADLINE_S = 60.0
PLACES = StoreNames("net")
STREAMS = 2_000
SLICE = 10


def large() -> State:
    state = State()
    info = BrokerInfo("north", "lan", Role.EDGE, "127.0.0.1", 1)
    streams = [Streams(f"client-{n}", 60, ((f"lamps/{n}", {"n": n}),)) for n in range(STREAMS)]
    state.apply(0, (Said("north", 7, 1, (Joined(info), *streams)),))
    return state


async def test_a_replica_that_catches_up_says_how_it_is() -> None:
    store = MemoryStore(MemoryServer())
    commands, snapshots = await store.log(PLACES.commands), await store.log(PLACES.snapshots)
    table = await store.table(PLACES.table)
    pieces = snapshot.take(large())
    records = [Record("net.s.x", piece, str(number)) for number, piece in enumerate(pieces)]
    first, *_ = await snapshots.append(records)
    manifest = Manifest(0, 1, "net.s.x", len(pieces), first)
    await table.put(archivist.KEY, msgspec.json.encode(manifest))
    options = Options(suspect_after_us=5_000_000, lease_us=2_000_000, snapshot_every=10**6, slice_size=SLICE)
    machine = Coordinator("c1", PLACES, options)
    driver = Driver(
        machine,
        "coordinator/c1",
        store,
        network="net",
        logs={PLACES.commands.name: commands, PLACES.snapshots.name: snapshots},
        tables={PLACES.table.name: table},
    )
    running = asyncio.create_task(driver.run())
    turns = 0
    async with asyncio.timeout(DEADLINE_S):
        while machine.state in ("new", "restoring"):
            turns += describe(machine, "here", 1).role == "restoring"
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert turns >= 2 * STREAMS // SLICE, "clients and streams"
    assert machine.replica.presence.streams.keys() == large().presence.streams.keys()
    await store.close()
