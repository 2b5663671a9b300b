"""Figure 7c: subscribers that join, a thousand a second: how soon each is in force, and what that costs.

The coordinator and the store are processes of their own; brokers without clients join (``joiners``). Nothing is delayed
on its way, as the paper's brokers and its ZooKeeper server were in one cloud.
"""

from __future__ import annotations

import msgspec
import psutil

from tocsin.core.coordination.names import StoreNames
from tocsin.store.jetstream.store import JetStreamStore
from tocsin_demo.network import Running, network_of, running
from tocsin_demo.worker import Worker
from tocsin_labs.pubsubcoord import joiners
from tocsin_labs.pubsubcoord.joiners import Job, Told
from tocsin_labs.pubsubcoord.plan import Plan
from tocsin_labs.stage import Stage


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """So many joins."""

    told: Told
    log_entries: int
    log_bytes: int  # commands and notices, as they are in the coordinators' log
    leader_s: float  # of processor
    leader_mb: float

    @property
    def bytes_each(self) -> float:
        return self.log_bytes / self.told.joins


async def run(plan: Plan, stage: Stage, found: list[Joined]) -> None:
    """Add each number of joins, in a network of its own."""
    for number, count in enumerate(plan.joining.joins):
        if stage.is_cut:
            return
        stage.tell(f"Figure 7c: {count} subscribers join", number / len(plan.joining.joins))
        async with running(network_of()) as network:
            found.append(await _joined(plan, network, count))


async def _joined(plan: Plan, network: Running, count: int) -> Joined:
    settings = network.settings
    job = Job(settings.nats, settings.network, settings.membership.beat_ms * 1_000, plan.joining, count)
    worker = await Worker.start(joiners.MODULE, "joiners", job)
    store = await JetStreamStore.open(settings.nats, "operator", name="lab")
    try:
        await worker.until("ready")
        names = StoreNames(settings.network)
        log = await store.log(names.commands)
        first = await log.last() + 1
        pid = network.leader()
        assert pid is not None, "it has answered the brokers"
        leader = psutil.Process(pid)
        before_s = sum(leader.cpu_times()[:2])
        await worker.order(do="join")
        done = await worker.until("done")
        spent_s = sum(leader.cpu_times()[:2]) - before_s
        entries = size = 0
        last = await log.last()
        while first <= last:
            page = await log.read(f"{names.commands_subject}", first)
            entries += len(page.entries)
            size += sum(len(each.payload) for each in page.entries)
            first = page.next
        return Joined(
            told=msgspec.convert(done.found["told"], Told),
            log_entries=entries,
            log_bytes=size,
            leader_s=spent_s,
            leader_mb=leader.memory_info().rss / 1e6,
        )
    finally:
        await store.close()
        await worker.close()
