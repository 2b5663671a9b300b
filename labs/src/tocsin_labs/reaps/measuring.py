"""Measures the rates of a takeover on real processes: three brokers, of which the first is killed.

Each run is a network of its own: the broker that is lost, its local backup (the same cluster) and its remote backup
(another one). All clients of the first dial one backup at once, as soon as the broker is killed. What is counted is
processor time, of the backup and of the store's server, from the kill until the last client has its session: a busy
neighbour disturbs that less than the time that passes. A rate is the difference between two runs that differ in one
thing alone, over how much they differ.

    few clients, many clients              → client_s
    few, many subscriptions, local backup  → prepared_s
    few, many subscriptions, remote backup → created_s
    one subscription after the other       → single_s
    large messages to one client           → byte_s
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec
import psutil

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.config import Broker, Limits, Settings
from tocsin.core.supervision.machine import Row
from tocsin.model.catalogue import Channel, Parameter, encode_definition, key_of
from tocsin.model.channel_names import ChannelNames
from tocsin.model.network import broker_address
from tocsin.store.jetstream.store import JetStreamStore
from tocsin_demo.network import Running, network_of, running
from tocsin_labs import record
from tocsin_labs.reaps.rates import Measured, Rates

Way = Literal["local", "remote"]
LOST: Final = "north-1"
BACKUPS: Final[dict[Way, str]] = {"local": "north-2", "remote": "south-1"}
CHANNEL: Final = Channel("Near", (Parameter("x", "BIGINT"),), (), "", every_s=3_600)
DEADLINE_S: Final = 120.0
LOOK_S: Final = 0.1
SETTLE_S: Final = 1.0  # after subscribing, for what a broker does behind it
STORE: Final = "store-1"
PAYLOAD: Final = bytes(256 << 10)


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    clients: tuple[int, int] = (20, 400)
    subscriptions: tuple[int, int] = (20, 2_000)  # of ten clients
    singles: int = 200
    messages: int = 400
    rounds: int = 3


QUICK: Final = Plan(clients=(5, 40), subscriptions=(10, 100), singles=20, messages=20, rounds=1)
HOLDERS: Final = 10  # clients that have the subscriptions


class _Spent(msgspec.Struct, frozen=True):
    """Seconds of processor time."""

    broker: float
    store: float


class _Network:
    """The three brokers, with their clients."""

    def __init__(self, network: Running, store: JetStreamStore) -> None:
        self._network = network
        self._store = store

    def _pid(self, holds: Callable[[Row], bool]) -> int:
        return next(row.pid for row in self._network.rows() if holds(row) and row.pid is not None)

    def client(self, number: int, broker: str) -> AsyncClient:
        server = Server(*self._network.servers[broker])
        return AsyncClient([server], client_id=f"c-{number}", session_expiry_s=600, deadline_s=DEADLINE_S)

    def spent(self, broker: str) -> _Spent:
        """What the processes of a broker and of the store have needed so far."""
        address = broker_address(broker)
        return _Spent(
            _processor_s(self._pid(lambda row: row.name == address)),
            _processor_s(self._pid(lambda row: row.name == STORE)),
        )

    async def define(self) -> None:
        names = ChannelNames(self._network.settings.network)
        table = await self._store.table(names.catalogue)
        await table.put(key_of(CHANNEL), encode_definition(CHANNEL))

    async def prepared(self, subscriptions: int) -> None:
        """Until the local backup has a standby cell for each of so many."""
        names = ChannelNames(self._network.settings.network)
        table = await self._store.table(names.subscriptions)
        async with asyncio.timeout(DEADLINE_S):
            while sum(key.endswith("._standby") for key in await table.keys()) < subscriptions:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)

    def kill(self) -> None:
        address = broker_address(LOST)
        psutil.Process(self._pid(lambda row: row.name == address)).kill()


def _processor_s(pid: int) -> float:
    """Of all its threads; ``cpu_times`` counts in hundredths of a second."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def _settings() -> Settings:
    brokers = tuple(Broker(id=each, cluster=each.partition("-")[0]) for each in (LOST, *BACKUPS.values()))
    return msgspec.structs.replace(network_of(brokers=brokers), limits=Limits(connection_rate=0))


@asynccontextmanager
async def _network() -> AsyncIterator[_Network]:
    async with running(_settings()) as network:
        store = await JetStreamStore.open(network.settings.nats, "operator", name="rates")
        try:
            found = _Network(network, store)
            await found.define()
            yield found
        finally:
            await store.close()


async def takeover(way: Way, clients: int, subscriptions: int, *, resident: bool = False) -> _Spent:
    """What one backup and the store need until all clients, with so many subscriptions in all, have their sessions.

    ``resident``: the backup has a subscriber of its own, so that it has loaded what reading results takes.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE_S * 3))
        network = await stack.enter_async_context(_network())
        if resident:
            own = await stack.enter_async_context(network.client(clients, BACKUPS[way]))
            await own.subscribe(f"$channel/Near/{subscriptions}", qos=1)
        there = [network.client(number, LOST) for number in range(clients)]
        await asyncio.gather(*(each.connect() for each in there))
        for number, each in enumerate(there):
            wanted = range(number, subscriptions, clients)
            await asyncio.gather(*(each.subscribe(f"$channel/Near/{x}", qos=1) for x in wanted))
        if subscriptions:
            await network.prepared(subscriptions)
        await asyncio.sleep(SETTLE_S)
        before = network.spent(BACKUPS[way])
        network.kill()
        for each in there:
            await each.close(settle=False)
        returning = [network.client(number, BACKUPS[way]) for number in range(clients)]
        await asyncio.gather(*(each.connect() for each in returning))
        after = network.spent(BACKUPS[way])
        for each in returning:
            await each.close()
    return _Spent(after.broker - before.broker, after.store - before.store)


async def singles(count: int) -> float:
    """Seconds that pass for one subscription that is created by itself: the median."""
    times = []
    async with (
        asyncio.timeout(DEADLINE_S),
        _network() as network,
        network.client(0, BACKUPS["remote"]) as client,
    ):
        for x in range(count):
            began = time.perf_counter()
            await client.subscribe(f"$channel/Near/{x}", qos=1)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


async def delivery(messages: int) -> float:
    """Processor seconds of a broker for each byte that it delivers, publishing and all."""
    broker = BACKUPS["remote"]
    async with (
        asyncio.timeout(DEADLINE_S),
        _network() as network,
        network.client(0, broker) as subscriber,
        network.client(1, broker) as publisher,
    ):
        inbox = await subscriber.subscribe("large")
        before = network.spent(broker)
        for _ in range(messages):
            await publisher.publish("large", PAYLOAD)
            await anext(inbox)
        return (network.spent(broker).broker - before.broker) / (messages * len(PAYLOAD))


async def measure(plan: Plan, command: str, tell: Callable[[str, float], None]) -> Measured:
    """All rates, each from the least that any round needed: what else ran can only add to it."""
    samples: dict[str, list[float]] = {}

    async def least(way: Way, clients: int, subscriptions: int) -> _Spent:
        found = []
        for turn in range(plan.rounds):
            words = f"{way} takeover of {clients} clients with {subscriptions} subscriptions"
            tell(f"{words}, {turn + 1} of {plan.rounds}", len(samples) / 16)
            found.append(await takeover(way, clients, subscriptions))
            samples.setdefault(f"{words}: broker", []).append(found[-1].broker)
            samples.setdefault(f"{words}: store", []).append(found[-1].store)
        return _Spent(min(each.broker for each in found), min(each.store for each in found))

    few, many = plan.clients
    lone, crowd = await least("local", few, 0), await least("local", many, 0)
    slopes = {}
    for way in BACKUPS:
        small, large = plan.subscriptions
        below, above = await least(way, HOLDERS, small), await least(way, HOLDERS, large)
        slopes[way] = _slope(below, above, large - small)
    tell("subscriptions one after the other", 0.8)
    single_s = await singles(plan.singles)
    tell("large messages", 0.9)
    byte_s = await delivery(plan.messages)
    samples |= {"a subscription by itself": [single_s], "a delivered byte": [byte_s]}
    client = _slope(lone, crowd, many - few)
    rates = Rates(
        client_s=client.broker,
        client_store_s=client.store,
        prepared_s=slopes["local"].broker,
        prepared_store_s=slopes["local"].store,
        created_s=slopes["remote"].broker,
        created_store_s=slopes["remote"].store,
        single_s=single_s,
        byte_s=byte_s,
    )
    return Measured(rates, command, record.today(), record.machine(), samples)


def _slope(below: _Spent, above: _Spent, difference: int) -> _Spent:
    """What one more needs; nothing, if noise has the larger of two runs need less."""
    return _Spent(
        max(0.0, above.broker - below.broker) / difference, max(0.0, above.store - below.store) / difference
    )
