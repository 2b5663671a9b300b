"""A coordinator process: the machine on the substrate."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

from tocsin.config import Settings
from tocsin.coordinator.planning import Planner
from tocsin.coordinator.status import describe, tell
from tocsin.core.coordination.coordinator import Coordinator, Resigning
from tocsin.core.coordination.places import Options, Places
from tocsin.core.coordination.planning import WantPlan
from tocsin.model.message import coordinator_address
from tocsin.model.subjects import messages_log
from tocsin.runtime.driver import Driver
from tocsin.runtime.process import Process
from tocsin.store.jetstream import JetStreamStore
from tocsin.wire.commands import Limits

REPORT_S: Final = 1.0
RESIGN_S: Final = 2.0  # for the lease to be given back; if it is not, it ends by itself


async def serve(process: Process, name: str) -> None:
    """Run one coordinator until the process is asked to stop."""
    settings = process.settings
    process.report("starting")
    store = await JetStreamStore.open(settings.nats, "coordinator", name=name)
    store.shares = settings.shares.by_name(settings.network)
    places = Places(settings.network)
    machine = Coordinator(name, places, options(settings))
    try:
        table = await store.table(places.table)
        # Brokers write to the message log and may not change its bounds; so what settings say is seen to here.
        await store.log(
            messages_log(settings.network, settings.messages.keep_s, settings.messages.keep_bytes)
        )
        driver = Driver(
            machine,
            coordinator_address(name),
            store,
            network=settings.network,
            logs={spec.name: await store.log(spec) for spec in (places.commands, places.snapshots)},
            tables={places.table.name: table},
            own=lambda effect: planner.want(effect) if isinstance(effect, WantPlan) else None,
        )
        planner = Planner(store.bus, table, settings.network, driver.post, settings.recovery.weights())
        serving = asyncio.create_task(driver.run())
        stopped = asyncio.create_task(process.stopped())
        try:
            while not stopped.done() and not serving.done():
                status = describe(machine, socket.gethostname(), os.getpid())
                _report(process, machine)
                telling = asyncio.create_task(tell(table, status))
                await asyncio.wait((serving, stopped), timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED)
                telling.cancel()
            if serving.done():
                serving.result()  # the machine has a bug: let it be seen
            process.report("stopping")
            driver.post(Resigning(cause=f"{name}:stop"))
            await asyncio.wait((serving,), timeout=RESIGN_S)
        finally:
            for task in (serving, stopped):
                task.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
            await planner.close()
    finally:
        await store.close()


def options(settings: Settings) -> Options:
    chosen = settings.coordinator
    return Options(
        suspect_after_us=settings.membership.suspect_after_ms * 1_000,
        suspect_least_us=settings.membership.least_ms * 1_000,
        heartbeat_us=settings.membership.beat_ms * 1_000,
        phi=settings.membership.threshold,
        lease_us=chosen.lease_s * 1_000_000,
        promote_after_us=settings.recovery.promote_after_ms * 1_000,
        snapshot_every=chosen.snapshot_every,
        snapshot_every_bytes=chosen.snapshot_every_bytes,
        wait_bytes=4 * chosen.snapshot_every_bytes,
        limits=Limits(
            chosen.streams_max,
            chosen.queries_max,
            chosen.keep_s,
            chosen.publishers_max,
            settings.limits.metadata_max_bytes,
            chosen.streams_max_bytes,
            chosen.streams_max_bytes * chosen.user_percent // 100,
            chosen.queries_max_bytes,
            chosen.told_burst_bytes,
            chosen.told_rate_bytes,
        ),
    )


def _report(process: Process, machine: Coordinator) -> None:
    state = machine.replica
    facts = {
        "brokers": len(state.members),
        "streams": len(state.presence.streams),
        "queries": len(state.matching),
        "cut_links": len(state.detours),
    }
    if machine.state in ("new", "restoring"):
        process.report("starting", problem=machine.problem or "reading the command log", **facts)
    else:
        process.report(
            "ready", epoch=machine.epoch, level=state.level, leads=machine.leader is not None, **facts
        )
