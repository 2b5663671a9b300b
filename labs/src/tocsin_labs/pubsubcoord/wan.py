"""Edge brokers in LANs of their own, routing brokers in a cloud, and the delays between them.

Delays are lag in the brokers' own connections (``runtime.faults``): each broker that dials another one of another
cluster is told to have it. The store and the coordinator are in the same place as the brokers: what they are needed for
is not delayed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tocsin.config import Broker
from tocsin.coordinator.reading import read_state
from tocsin.core.coordination.leader.balancing import KEY, ORDER, Order
from tocsin.core.coordination.leader.pinning import PIN, Pin, key_of
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.explaining import carriers_of
from tocsin.core.tiers.slots import slot_of
from tocsin.model.network import broker_address
from tocsin.runtime.faults import partition_socket
from tocsin.runtime.faults.partition_socket import SECONDS_MAX, socket_path
from tocsin.runtime.faults.weather import Weather
from tocsin_demo.network import network_of
from tocsin_demo.worker import Worker
from tocsin_labs import meter
from tocsin_labs.fleet import Fleet, fleet
from tocsin_labs.meter import Amount, Carried
from tocsin_labs.pubsubcoord import crowd
from tocsin_labs.pubsubcoord.crowd import Heard, Job, Topic
from tocsin_labs.pubsubcoord.plan import Load, Wan
from tocsin_labs.pubsubcoord.site import Site
from tocsin_labs.pubsubcoord.speech import Language

TIER: Final = "cloud"
SHARE_LEAST: Final = 0.5  # of an even part: with it a member counts as carrying its part
EVEN_S: Final = 20.0
LOOK_S: Final = 0.1


class Lans(Site):
    """Our network."""

    def __init__(self, fleet: Fleet, wan: Wan) -> None:
        brokers = fleet.settings.brokers
        super().__init__(
            [each.id for each in brokers if each.role == "edge"],
            [each.id for each in brokers if each.role == "routing"],
        )
        self.fleet, self.wan = fleet, wan
        self._names = StoreNames(fleet.settings.network)

    @property
    def entrances(self) -> list[tuple[str, int]]:
        return [self.fleet.address(name) for name in self.edges]

    def processes(self) -> dict[str, int]:
        running = self.fleet.pids()
        names = (name for name in (*self.edges, *self.hubs) if broker_address(name) in running)
        return {name: running[broker_address(name)] for name in names}

    async def delay(self) -> None:
        """Have all links delayed, for as long as it can be asked for: ask again before each measurement."""
        running = self.processes()
        weather, until_s = Weather(lag_s=self.wan.wan_lag_s), time.monotonic() + SECONDS_MAX - 1.0
        for some, others in ((self.edges, self.hubs), (self.hubs, self.edges)):
            addresses = [self._linked_at(name) for name in others]
            for name in some:
                if name in running:
                    path = socket_path(self.fleet.state, broker_address(name))
                    await partition_socket.ask(path, (), 0.0)
                    await partition_socket.ask(path, addresses, until_s, weather)

    def _linked_at(self, name: str) -> tuple[str, int]:
        return self.fleet.address(name)[0], self.fleet.link_port(name)

    async def carried(self, topics: Collection[str] = ()) -> dict[str, float]:
        """The share of these topics that each routing broker carries; of all slots, if none are named."""
        carriers = carriers_of(await read_state(self.fleet.store, self._names), TIER)
        slots = [slot_of(topic) for topic in topics] or range(len(carriers))
        counts = Counter(carriers[slot] for slot in slots if carriers)
        return {hub: counts[hub] / max(1, len(slots)) for hub in self.hubs}

    async def shared(self, deadline_s: float, topics: Collection[str] = ()) -> dict[str, float]:
        """Wait until all that run carry about as much as each other, within reason; what they carry."""
        end_s = time.monotonic() + deadline_s
        while True:
            running = self.processes()
            carried = await self.carried(topics)
            found = {hub: carried[hub] for hub in self.hubs if hub in running}
            if min(found.values()) * len(found) >= SHARE_LEAST or time.monotonic() > end_s:
                return found
            await asyncio.sleep(LOOK_S)

    async def emptied(self, hub: str, deadline_s: float) -> bool:
        """Wait until it carries nothing; whether that came."""
        end_s = time.monotonic() + deadline_s
        while (await self.carried())[hub]:
            if time.monotonic() > end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def drain(self, hub: str) -> None:
        """Order that it gives up all its slots, as ``tocsin routing drain`` does."""
        table = await self.fleet.store.table(self._names.table)
        await table.put(f"{KEY}{hub}", ORDER.write(Order(time.time_ns() // 1_000)))

    async def rotate(self, deadline_s: float) -> float | None:
        """Have every slot carried by the next routing broker, all at once, as ``tocsin routing move`` does; how long
        that took, None if it did not come."""
        table = await self.fleet.store.table(self._names.table)
        carriers = carriers_of(await read_state(self.fleet.store, self._names), TIER)
        wanted = [self.hubs[(self.hubs.index(each) + 1) % len(self.hubs)] for each in carriers]
        keys = [key_of(TIER, slot) for slot in range(len(wanted))]
        began_s = time.monotonic()
        try:
            for key, hub in zip(keys, wanted, strict=True):
                await table.put(key, PIN.write(Pin(hub, "lab")))
            while carriers_of(await read_state(self.fleet.store, self._names), TIER) != tuple(wanted):
                if time.monotonic() > began_s + deadline_s:
                    return None
                await asyncio.sleep(LOOK_S)
            return time.monotonic() - began_s
        finally:
            for key in keys:
                await table.delete(key)

    async def restore(self) -> None:
        """Have all hubs run, and carry again."""
        table = await self.fleet.store.table(self._names.table)
        for hub in self.hubs:
            await table.delete(f"{KEY}{hub}")
        running = self.processes()
        await self.fleet.start([hub for hub in self.hubs if hub not in running])

    def on_wan(self, carried: Carried) -> Amount:
        """Of that, what was between a LAN and the cloud, or between two LANs."""
        place = {broker_address(name): name for name in self.edges}
        place |= {broker_address(name): TIER for name in self.hubs}
        found = meter.NOTHING
        for (one, other), amount in carried.items():
            if one in place and other in place and place[one] != place[other]:
                found += amount
        return found


@asynccontextmanager
async def lans(wan: Wan, hubs: int | None = None) -> AsyncIterator[Lans]:
    """The network while the context lasts, with its delays; of its routing brokers only so many, if that is said."""
    brokers = [
        *(Broker(id=f"edge-{n}", cluster=f"lan-{n}") for n in range(1, wan.lans + 1)),
        *(Broker(id=f"hub-{n}", cluster=TIER, role="routing") for n in range(1, wan.hubs + 1)),
    ]
    async with fleet(network_of(brokers=tuple(brokers))) as network:
        made = Lans(network, wan)
        await network.start([*made.edges, *made.hubs[:hubs]])
        await made.delay()
        await made.shared(EVEN_S)
        yield made


class Running:
    """A load that runs. ``begin`` to count, then ``pause`` or ``end`` it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def begin(self) -> None:
        await self._worker.order(do="begin")

    async def period(self, period_s: float) -> None:
        """Each topic once in such a time, from its next turn on."""
        await self._worker.order(do="period", period_s=period_s)

    async def pause(self) -> Heard:
        """What became of the messages since ``begin``. The load goes on."""
        return await self._told("pause", "progress")

    async def end(self) -> Heard:
        return await self._told("end", "done")

    async def _told(self, order: str, kind: str) -> Heard:
        await self._worker.order(do=order)
        return msgspec.convert((await self._worker.until(kind)).found["heard"], Heard)


@asynccontextmanager
async def loaded(
    site: Site, topics: tuple[Topic, ...], load: Load, lag_s: float, speech: Language = "mqtt"
) -> AsyncIterator[Running]:
    """A load on a network while the context lasts, from when each topic's first message has come."""
    await site.delay()
    job = Job(entrances=tuple(site.entrances), topics=topics, load=load, lag_s=lag_s, speech=speech)
    async with working(job) as running:
        yield running


@asynccontextmanager
async def working(job: Job) -> AsyncIterator[Running]:
    """A load while the context lasts, from when each topic's first message has come."""
    worker = await Worker.start(crowd.MODULE, "crowd", job)
    try:
        await worker.until("ready")
        yield Running(worker)
    finally:
        await worker.close()
