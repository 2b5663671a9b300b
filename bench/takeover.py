"""How long a backup needs to serve the clients of a lost broker, and what they miss or get twice.

A network of three brokers: the one that is lost, its local backup (the same cluster) and its remote backup (another
cluster). Clients with stored sessions hold different channel subscriptions at the first. It is killed (SIGKILL), and
all its clients dial one backup at once. Time runs from the first dial until the last client has its session back
(CONNACK); nobody waits for detection. The **local** backup has prepared the subscriptions. The **remote** one has not,
and writes them first. No pipeline runs: what is measured is what clients wait for before they are served.

``--only topics``: the same with topic subscriptions at QoS 0, on one of which for each client a client of the third
broker publishes all the time. Time runs from each CONNACK until the first message; that of the last client counts.

``--only positions``: clients are sent QoS 1 messages, and go to the local backup by themselves when their broker is
killed. How many messages does each get again, by how often positions are copied (``replication``)? The client drops
them by their ids.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from tocsin.client import AsyncClient
from tocsin.config import Nats
from tocsin.model.catalogue import Channel, Parameter, encode_definition, key_of
from tocsin.model.channel_names import ChannelNames
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream.store import JetStreamStore

RESULTS: Final = Path(__file__).parent / "results"
SIZES, QUICK_SIZES = (10, 100, 1_000, 10_000), (10, 100)
ROUNDS, QUICK_ROUNDS = 3, 1
CLIENTS: Final = 10  # so that the number of clients is the same at every size
LOST: Final = "north-1"
BACKUPS: Final = {"local": "north-2", "remote": "south-1"}
CHANNEL: Final = Channel("Near", (Parameter("x", "BIGINT"),), (), "", every_s=3_600)
DEADLINE_S: Final = 120.0
AGAIN_S: Final = 0.2
REDIAL_S: Final = 0.2  # what a client waits for before it dials again, with some room
COPIED_BYTES: Final = 150  # of a subscription in a copy, at least
ARRIVE_S: Final = 2.0  # for the last messages
EVERY_S, LOOK_S = 0.005, 0.001  # between two messages on a topic, and two looks whether one has come
RATE, FLOW_S, KILLED_S = 200, 8.0, 4.0  # messages a second, for how long, and when the broker is killed
WAYS: Final = (
    ("mode=periodic", "period_ms=100"),
    ("mode=periodic", "period_ms=300"),
    ("mode=periodic", "period_ms=1000"),
    ("mode=periodic", "period_ms=5000"),
    ("mode=periodic", "period_ms=60000"),
)
QUICK_WAYS: Final = WAYS[:1]


class Point(msgspec.Struct, frozen=True):
    """One size: seconds until all clients are served, or have a message, in each round."""

    subscriptions: int
    local: list[float]
    remote: list[float]

    @property
    def ratio(self) -> float:
        """How many times longer the remote backup takes."""
        return statistics.median(self.remote) / statistics.median(self.local)


class Again(msgspec.Struct, frozen=True):
    """One way of copying positions: repeats for each client, in each round."""

    settings: list[str]
    repeats: list[float]


class Network:
    """A network that ``tocsin up`` started, from its ready line."""

    def __init__(self, ready: dict[str, Any], store: JetStreamStore) -> None:
        self._pids: dict[str, int] = ready["pids"]
        self._addresses = {each["id"]: f"mqtt://{each['host']}:{each['port']}" for each in ready["brokers"]}
        self._names = ChannelNames(ready["network"])
        self._store = store

    async def define(self) -> None:
        table = await self._store.table(self._names.catalogue)
        await table.put(key_of(CHANNEL), encode_definition(CHANNEL))

    def publisher(self, broker: str) -> AsyncClient:
        return AsyncClient([self._addresses[broker]], client_id="publisher", deadline_s=DEADLINE_S)

    def client(self, number: int, broker: str) -> AsyncClient:
        return AsyncClient(
            [self._addresses[broker]], client_id=f"c-{number}", session_expiry_s=600, deadline_s=DEADLINE_S
        )

    async def until_prepared(self, subscriptions: int) -> None:
        """Until the local backup has a standby cell for each of them."""
        table = await self._store.table(self._names.subscriptions)
        while True:
            keys = await table.keys()
            if sum(key.endswith("._standby") for key in keys) >= subscriptions:
                return
            await asyncio.sleep(AGAIN_S)

    async def until_copied(self, subscriptions: int) -> None:
        """Until the local backup has all subscriptions in its copy."""
        topic = "$SYS/broker/replication/copies/bytes"
        async with AsyncClient([self._addresses[BACKUPS["local"]]]) as client:
            async for message in await client.subscribe(topic):
                if int(message.payload) >= subscriptions * COPIED_BYTES:
                    return

    def kill(self) -> None:
        os.kill(self._pids[f"broker/{LOST}"], signal.SIGKILL)


@contextlib.asynccontextmanager
async def network(*more: str) -> AsyncIterator[Network]:
    brokers = [{"id": each, "cluster": each.partition("-")[0]} for each in (LOST, *BACKUPS.values())]
    sets = (
        f"brokers={json.dumps(brokers)}",
        "pipeline.enabled=never",
        "log.level=error",
        "limits.connection_rate=0",
        *more,
    )
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            ready = json.loads(await process.stdout.readline())
        nats = embedded(Nats(urls=tuple(ready["nats"])), ready["state"])
        store = await JetStreamStore.open(nats, "operator", name="bench", deadline_s=30)
        try:
            yield Network(ready, store)
        finally:
            await store.close()
    finally:
        process.terminate()
        await process.wait()


async def takeover(subscriptions: int, backup: str) -> float:
    """Seconds from the first dial until every client has its session at the backup."""
    async with asyncio.timeout(DEADLINE_S * 3), network() as net:
        await net.define()
        each = subscriptions // CLIENTS
        clients = [net.client(number, LOST) for number in range(CLIENTS)]
        await asyncio.gather(*(client.connect() for client in clients))
        for number, client in enumerate(clients):
            wanted = range(number * each, (number + 1) * each)
            await asyncio.gather(*(client.subscribe(f"$channel/Near/{x}", qos=1) for x in wanted))
        await net.until_prepared(subscriptions)
        net.kill()
        for client in clients:
            await client.close(settle=False)
        await asyncio.sleep(REDIAL_S)
        returning = [net.client(number, backup) for number in range(CLIENTS)]
        began = time.perf_counter()
        await asyncio.gather(*(client.connect() for client in returning))
        took = time.perf_counter() - began
        for client in returning:
            await client.close()
    return took


async def first_message(subscriptions: int, backup: str) -> float:
    """Seconds from CONNACK at the backup until a message at QoS 0 comes to the last client that gets one."""
    (third,) = (each for each in BACKUPS.values() if each != backup)
    async with asyncio.timeout(DEADLINE_S * 3), network() as net, net.publisher(third) as publisher:
        each = subscriptions // CLIENTS
        clients = [net.client(number, LOST) for number in range(CLIENTS)]
        await asyncio.gather(*(client.connect() for client in clients))
        for number, client in enumerate(clients):
            wanted = range(number * each, (number + 1) * each)
            await asyncio.gather(*(client.subscribe(f"t/{x}") for x in wanted))
        await net.until_copied(subscriptions)
        net.kill()
        for client in clients:
            await client.close(settle=False)
        last = [f"t/{(number + 1) * each - 1}" for number in range(CLIENTS)]
        publishing = asyncio.create_task(_publish(publisher, last))
        await asyncio.sleep(REDIAL_S)
        returning = [net.client(number, backup) for number in range(CLIENTS)]
        waited = await asyncio.gather(*(_wait(client) for client in returning))
        publishing.cancel()
        for client in returning:
            await client.close()
    return max(waited)


async def _publish(publisher: AsyncClient, topics: Sequence[str]) -> None:
    """On each of these topics, again and again."""
    while True:
        for topic in topics:
            await publisher.publish(topic, b"now")
        await asyncio.sleep(EVERY_S)


async def _wait(client: AsyncClient) -> float:
    """Connect; how long the first message takes then."""
    await client.connect()
    began = time.perf_counter()
    while not client.unasked:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    return time.perf_counter() - began


async def repeats(*settings: str) -> float:
    """The messages that a client gets again because its broker was killed."""
    async with (
        asyncio.timeout(DEADLINE_S),
        network(*settings) as net,
        net.publisher(BACKUPS["remote"]) as publisher,
    ):
        clients = [net.client(number, LOST) for number in range(CLIENTS)]
        await asyncio.gather(*(client.connect() for client in clients))
        inboxes = [await client.subscribe("flow", qos=1) for client in clients]
        reading = [asyncio.create_task(_read(inbox)) for inbox in inboxes]
        while not all(client.others for client in clients):  # noqa: ASYNC110
            await asyncio.sleep(AGAIN_S)
        began = time.perf_counter()
        for number in range(round(RATE * FLOW_S)):
            await publisher.publish("flow", str(number).encode(), qos=1)
            if number == round(RATE * KILLED_S):
                net.kill()
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        await asyncio.sleep(ARRIVE_S)
        for task in reading:
            task.cancel()
        again = sum(client.duplicates for client in clients)
        for client in clients:
            await client.close(settle=False)
    return again / CLIENTS


async def _read(inbox: Any) -> None:
    async for _ in inbox:
        pass


async def measure_repeats(ways: Sequence[tuple[str, ...]], rounds: int) -> list[Again]:
    points = []
    for way in ways:
        settings = [f"replication.{each}" for each in way]
        points.append(point := Again(settings, [await repeats(*settings) for _ in range(rounds)]))
        print(f"  {', '.join(way)}: {statistics.median(point.repeats):,.1f} repeats a client", flush=True)
    return points


async def measure(
    what: str, run: Callable[[int, str], Coroutine[Any, Any, float]], sizes: Sequence[int], rounds: int
) -> list[Point]:
    points = []
    for size in sizes:
        took: dict[str, list[float]] = {way: [] for way in BACKUPS}
        for _ in range(rounds):
            for way, backup in BACKUPS.items():
                took[way].append(await run(size, backup))
        points.append(point := Point(size, took["local"], took["remote"]))
        shown = (f"{way} {statistics.median(took[way]) * 1e3:,.0f} ms" for way in BACKUPS)
        print(f"  {size:6,} {what}: {', '.join(shown)}; remote ÷ local {point.ratio:.1f}", flush=True)
    return points


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.takeover", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes, once each")
    parser.add_argument("--only", choices=("channels", "topics", "positions"), help="one of the three")
    parser.add_argument("--sizes", type=int, nargs="+", help="these numbers of subscriptions")
    parser.add_argument("--rounds", type=int, help="so often each")
    chosen = parser.parse_args(argv)
    quick = chosen.quick
    sizes = chosen.sizes or (QUICK_SIZES if quick else SIZES)
    rounds = chosen.rounds or (QUICK_ROUNDS if quick else ROUNDS)
    runs: dict[str, Callable[[], Coroutine[Any, Any, Sequence[msgspec.Struct]]]] = {
        "channels": lambda: measure("channel subscriptions", takeover, sizes, rounds),
        "topics": lambda: measure("topics, first message", first_message, sizes, rounds),
        "positions": lambda: measure_repeats(QUICK_WAYS if quick else WAYS, rounds),
    }
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    for name, run in runs.items():
        if chosen.only in (None, name):
            points = uvloop.run(run())
            report = {
                "machine": machine,
                "clients": CLIENTS,
                "points": [msgspec.to_builtins(each) for each in points],
            }
            suffix = "" if name == "channels" else f"_{name}"
            (RESULTS / f"takeover{suffix}.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
