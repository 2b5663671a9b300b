"""How long a backup needs to serve the clients of a lost broker, by the number of channel subscriptions that they have.

A network of three brokers: the one that is lost, its local backup (the same cluster) and its remote backup (another
cluster). Clients with stored sessions hold different channel subscriptions at the first. It is killed (SIGKILL), and
all its clients dial one backup at once. Time runs from the first dial until the last client has its session back
(CONNACK); nobody waits for detection. The **local** backup has prepared the subscriptions. The **remote** one has not,
and writes them first.

No pipeline runs: what is measured is what clients wait for before they are served.
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
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from tocsin.client import AsyncClient
from tocsin.config import Nats
from tocsin.model.catalogue import Channel, Parameter, encode_definition, key_of
from tocsin.model.channel_places import ChannelNames
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream import JetStreamStore

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


class Point(msgspec.Struct, frozen=True):
    """One size: seconds until all clients are served, in each round."""

    subscriptions: int
    local: list[float]
    remote: list[float]

    @property
    def ratio(self) -> float:
        """How many times longer the remote backup takes."""
        return statistics.median(self.remote) / statistics.median(self.local)


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

    def kill(self) -> None:
        os.kill(self._pids[f"broker/{LOST}"], signal.SIGKILL)


@contextlib.asynccontextmanager
async def network() -> AsyncIterator[Network]:
    brokers = [{"id": each, "cluster": each.partition("-")[0]} for each in (LOST, *BACKUPS.values())]
    sets = (
        f"brokers={json.dumps(brokers)}",
        "pipeline.enabled=never",
        "log.level=error",
        "limits.connection_rate=0",
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


async def measure(sizes: Sequence[int], rounds: int) -> list[Point]:
    points = []
    for size in sizes:
        took: dict[str, list[float]] = {way: [] for way in BACKUPS}
        for _ in range(rounds):
            for way, backup in BACKUPS.items():
                took[way].append(await takeover(size, backup))
        points.append(point := Point(size, took["local"], took["remote"]))
        shown = (f"{way} {statistics.median(took[way]) * 1e3:,.0f} ms" for way in BACKUPS)
        print(f"  {size:6,} subscriptions: {', '.join(shown)}; remote ÷ local {point.ratio:.1f}", flush=True)
    return points


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.takeover", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes, once each")
    chosen = parser.parse_args(argv)
    sizes, rounds = (QUICK_SIZES, QUICK_ROUNDS) if chosen.quick else (SIZES, ROUNDS)
    points = uvloop.run(measure(sizes, rounds))
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {
        "machine": machine,
        "clients": CLIENTS,
        "points": [msgspec.to_builtins(each) for each in points],
    }
    (RESULTS / "takeover.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
