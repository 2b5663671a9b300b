"""All brokers and coordinators of one design, in a process of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec
import structlog

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.model.network import coordinator_address
from tocsin.ports import Log
from tocsin.runtime.machines.driver import Driver
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.cqbs.designs.ahead import AheadLog
from tocsin_labs.cqbs.designs.broadcast import Evaluator
from tocsin_labs.cqbs.dummies import READY_S, Broker, Dummy, Ears, keep, play
from tocsin_labs.cqbs.plan import Coordination, Design

NAMES: Final = StoreNames("lab")
LOOK_S: Final = 0.01  # between two looks whether the brokers have joined
HEARTBEAT_US: Final = 500_000  # the default of brokers
OPTIONS: Final = Options(suspect_after_us=5_000_000, lease_us=2_000_000, snapshot_every=1_000_000)


class Job(msgspec.Struct, frozen=True):
    """The work of this process."""

    design: Design
    urls: tuple[str, ...]
    token: str
    servers: int
    plan: Coordination
    seed: int
    raw: str  # the file to write

    @property
    def coordinators(self) -> int:
        if self.design == "broadcast":
            return 0
        return self.plan.coordinators if self.servers > 1 else 1


async def work(job: Job, desk: Desk) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    ears = Ears()
    async with AsyncExitStack() as stack:
        store = await JetStreamStore.connect(
            job.urls, token=job.token, replicas=job.servers, name="designs", deadline_s=30.0
        )
        stack.push_async_callback(store.close)
        log: Log | None = None if job.design == "broadcast" else await store.log(NAMES.commands)
        if log is not None and job.design == "ahead":
            newest = await MemoryStore(MemoryServer()).log(NAMES.commands)
            log = AheadLog(newest, log, store.bus)
            keep(log.write(), stack)
        if log is None:
            brokers = await _evaluators(job, store, ears, stack)
        else:
            brokers = await _dummies(job, store, log, ears, stack)
        found = await play(job.plan, job.seed, Path(job.raw), brokers, ears, desk)
    behind = log.behind_ms if isinstance(log, AheadLog) else []
    desk.tell("done", **found, behind_ms=behind)


async def _evaluators(job: Job, store: JetStreamStore, ears: Ears, stack: AsyncExitStack) -> Sequence[Broker]:
    brokers = [Evaluator(store.bus, ears) for _ in range(job.plan.brokers)]
    for each in brokers:
        keep(each.run(), stack)
    for each in brokers:
        await each.ready.wait()
    return brokers


async def _dummies(
    job: Job, store: JetStreamStore, log: Log, ears: Ears, stack: AsyncExitStack
) -> Sequence[Broker]:
    logs = {NAMES.commands.name: log, NAMES.snapshots.name: await store.log(NAMES.snapshots)}
    tables = {NAMES.table.name: await store.table(NAMES.table)}
    for number in range(1, job.coordinators + 1):
        machine = Coordinator(f"coordinator-{number}", NAMES, OPTIONS)
        address = coordinator_address(machine.name)
        driver = Driver(machine, address, store, network=NAMES.network, logs=logs, tables=tables)
        keep(driver.run(), stack)
    shares = job.design != "unshared"
    brokers = [
        Dummy(number, store, log, NAMES, HEARTBEAT_US, ears, shares=shares)
        for number in range(1, job.plan.brokers + 1)
    ]
    for each in brokers:
        keep(each.driver.run(), stack)
    async with asyncio.timeout(READY_S):
        while not all(each.machine.told for each in brokers):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    return brokers


if __name__ == "__main__":
    worker.main({"design": (Job, work)})
