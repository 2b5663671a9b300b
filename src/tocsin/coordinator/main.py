"""A coordinator process: the registry of brokers on the substrate."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.core.registry import Registry
from tocsin.model.message import COORDINATOR
from tocsin.runtime.driver import Driver
from tocsin.runtime.process import Process
from tocsin.store.jetstream import JetStreamStore

REPORT_S: Final = 1.0


async def serve(process: Process) -> None:
    """Run the coordinator until the process is asked to stop."""
    settings = process.settings
    process.report("starting")
    store = await JetStreamStore.connect(
        settings.nats.addresses(),
        token=process.token,
        replicas=settings.nats.replicas(),
        name="coordinator",
        deadline_s=settings.nats.deadline_s,
    )
    membership = settings.membership
    registry = Registry(membership.heartbeat_ms * 1_000, membership.suspect_after_ms * 1_000)
    driver = Driver(registry, COORDINATOR, store, network=settings.network)
    serving = asyncio.create_task(driver.run())
    stopped = asyncio.create_task(process.stopped())
    try:
        while not stopped.done() and not serving.done():
            process.report("ready", brokers=len(registry.brokers))
            await asyncio.wait((serving, stopped), timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()  # the machine has a bug: let it be seen
        process.report("stopping")
    finally:
        for task in (serving, stopped):
            task.cancel()
        await asyncio.gather(serving, stopped, return_exceptions=True)
        await store.close()
