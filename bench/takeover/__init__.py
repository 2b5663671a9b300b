"""How long a backup needs to serve the clients of a lost broker, and what they miss or get twice.

A network of three brokers: the one that is lost, its local backup (the same cluster) and its remote backup (another
cluster). Clients with stored sessions hold different channel subscriptions at the first. It is killed (SIGKILL) and
stays down, and all its clients dial one backup at once. Time runs from the first dial until the last client has its
session back (CONNACK); nobody waits for detection. Beside it stands the processor time that the backup and the store
need until then: other work on the machine disturbs it less. The **local** backup has prepared the subscriptions. The
**remote** one has not, and writes them first. No pipeline runs: what is measured is what clients wait for before they
are served.

``--only topics``: the same with topic subscriptions at QoS 0, on one of which for each client a client of the third
broker publishes all the time. Time runs from each CONNACK until the first message; that of the last client counts.

``--only positions``: clients are sent QoS 1 messages, and go to the local backup by themselves when their broker is
killed. How many messages does each get again, and how many bytes went to the backups, by how often positions are copied
(``replication``)? The client drops repeats by their ids.

``python -m bench draw takeover`` draws what was kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.takeover.figures import Again, Point, Spent
from bench.takeover.network import AGAIN_S, BACKUPS, DEADLINE_S, LOST, STORE, network
from tocsin.client import AsyncClient

RESULTS: Final = Path(__file__).parents[1] / "results"
SIZES, QUICK_SIZES = (10, 100, 1_000, 10_000), (10, 100)
ROUNDS, QUICK_ROUNDS = 3, 1
CLIENTS: Final = 10  # so that the number of clients is the same at every size
REDIAL_S: Final = 0.2  # what a client waits for before it dials again, with some room
ARRIVE_S: Final = 2.0  # for the last messages
EVERY_S, LOOK_S = 0.005, 0.001  # between two messages on a topic, and two looks whether one has come
RATE, FLOW_S = 200, 8.0  # messages a second, and for how long
KILLED_S: Final = (3.0, 5.0)  # when the broker is killed: a moment in between, another one each time
PAYLOAD: Final = bytes(100)
WAYS: Final = (
    *(("mode=periodic", f"period_ms={period}") for period in (100, 300, 1_000, 5_000, 60_000)),
    *(("mode=threshold", f"threshold_bytes={size}") for size in (10_000, 100_000, 1_000_000, 10_000_000)),
)
QUICK_WAYS: Final = WAYS[:1]


async def takeover(subscriptions: int, backup: str) -> Spent:
    """What passes from the first dial until every client has its session at the backup."""
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
        processes = f"broker/{backup}", STORE
        before = [net.processor_s(each) for each in processes]
        began = time.perf_counter()
        await asyncio.gather(*(client.connect() for client in returning))
        took = time.perf_counter() - began
        broker_s, store_s = (
            net.processor_s(each) - spent for each, spent in zip(processes, before, strict=True)
        )
        for client in returning:
            await client.close()
    return Spent(took, broker_s, store_s)


async def first_message(subscriptions: int, backup: str) -> Spent:
    """From CONNACK at the backup until a message at QoS 0 comes to the last client that gets one."""
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
    return Spent(max(waited), 0.0, 0.0)


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


async def repeats(*settings: str) -> tuple[float, float]:
    """The messages that a client gets again because its broker was killed, and the bytes a second to the backups."""
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
        killed, copied = round(RATE * random.uniform(*KILLED_S)), await net.copied_bytes()
        began = time.perf_counter()
        for number in range(round(RATE * FLOW_S)):
            await publisher.publish("flow", str(number).encode() + PAYLOAD, qos=1)
            if number == killed:
                copied_s = (await net.copied_bytes() - copied) / (time.perf_counter() - began)
                net.kill()
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        await asyncio.sleep(ARRIVE_S)
        for task in reading:
            task.cancel()
        again = sum(client.duplicates for client in clients)
        for client in clients:
            await client.close(settle=False)
    return again / CLIENTS, copied_s


async def _read(inbox: Any) -> None:
    async for _ in inbox:
        pass


async def measure_repeats(ways: Sequence[tuple[str, ...]], rounds: int) -> list[Again]:
    points = []
    for way in ways:
        settings = [f"replication.{each}" for each in way]
        found = [await repeats(*settings) for _ in range(rounds)]
        point = Again(settings, [again for again, _ in found], [copied_s for _, copied_s in found])
        points.append(point)
        print(
            f"  {', '.join(way)}: {statistics.median(point.repeats):,.1f} repeats a client, "
            f"{statistics.median(point.copied_bytes_s):,.0f} bytes/s to the backups",
            flush=True,
        )
    return points


async def measure(
    what: str, run: Callable[[int, str], Coroutine[Any, Any, Spent]], sizes: Sequence[int], rounds: int
) -> list[Point]:
    points = []
    for size in sizes:
        found: dict[str, list[Spent]] = {way: [] for way in BACKUPS}
        for _ in range(rounds):
            for way, backup in BACKUPS.items():
                found[way].append(await run(size, backup))
        points.append(point := Point(size, found["local"], found["remote"]))
        shown = ", ".join(
            f"{way} {point.median_s(way) * 1e3:,.0f} ms"
            + (f" (processor: {point.processor_s(way) * 1e3:,.0f})" if point.processor_s(way) else "")
            for way in BACKUPS
        )
        print(f"  {size:6,} {what}: {shown}; remote ÷ local {point.ratio:.1f}", flush=True)
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
