"""How long clients of a frozen broker are without service, told of its loss (``watch``) and not.

A network of two brokers in a cluster and one in another. Clients with stored sessions subscribe at the first. It is
frozen (SIGSTOP): its sockets stay open, so that nothing but silence tells its clients. Time runs from there until each
client is served by another broker (CONNACK with its session). Without the watch connection that takes up to the
keep-alive (30 s by default: given up after the second PINGREQ).

The last figure is what watchers cost the broker that they are connected to, in memory and processor time, for as long
as nothing happens.
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
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import uvloop

from tocsin.client import AsyncClient
from tocsin.client.options import Connection
from tocsin.core.links import watch
from tocsin.runtime.machines.line import Endpoint, Line

RESULTS: Final = Path(__file__).parent / "results"
LOST, BACKUP, REMOTE = "north-1", "north-2", "south-1"
CLIENTS, QUICK_CLIENTS = 100, 20
ROUNDS, QUICK_ROUNDS = 3, 1
WATCHERS, QUICK_WATCHERS = 2_000, 500
IDLE_S, QUICK_IDLE_S = 30.0, 10.0
DEADLINE_S: Final = 120.0
AGAIN_S: Final = 0.02
SETTLE_S: Final = 3.0  # for the detector to know its brokers' pace


class Case(msgspec.Struct, frozen=True):
    """One way to run: milliseconds from SIGSTOP until a client is served elsewhere, of all clients and rounds."""

    detect: str
    watch: bool
    clients: int
    served_ms: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.served_ms)

    @property
    def p95(self) -> float:
        return sorted(self.served_ms)[int(0.95 * (len(self.served_ms) - 1))]


class Cost(msgspec.Struct, frozen=True):
    """What watchers cost the broker that they are connected to."""

    watchers: int
    bytes_each: float
    idle_us_per_s: float  # of processor time, each
    connect_us: float  # of processor time, each


class Network:
    """A network that ``tocsin up`` started, from its ready line."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.pids: dict[str, int] = ready["pids"]
        self.addresses = {each["id"]: (each["host"], int(each["port"])) for each in ready["brokers"]}

    def url(self, broker: str) -> str:
        return "mqtt://{}:{}".format(*self.addresses[broker])

    def process(self, broker: str) -> psutil.Process:
        return psutil.Process(self.pids[f"broker/{broker}"])


@contextlib.asynccontextmanager
async def network(detect: str, *more: str, standby: str = "") -> AsyncIterator[Network]:
    """A network with these settings, and perhaps with a standby."""
    brokers = [{"id": each, "cluster": each.partition("-")[0]} for each in (LOST, BACKUP, REMOTE)]
    if standby:
        brokers.append({"id": standby, "cluster": standby.partition("-")[0], "role": "standby"})
    sets = (
        *more,
        f"brokers={json.dumps(brokers)}",
        f"membership.detect={detect}",
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
        yield Network(ready)
    finally:
        process.terminate()
        await process.wait()


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(AGAIN_S)


async def frozen(detect: str, watched: bool, count: int) -> list[float]:
    """Freeze a broker with so many clients; milliseconds until each is served elsewhere."""
    served: dict[str, float] = {}
    began = 0.0

    def told(name: str, connection: Connection) -> None:
        if began and connection.up:
            served.setdefault(name, (time.perf_counter() - began) * 1e3)

    async with asyncio.timeout(DEADLINE_S * 2), network(detect) as net, contextlib.AsyncExitStack() as stack:
        clients = [
            AsyncClient(
                net.url(LOST),
                client_id=f"c-{number}",
                session_expiry_s=600,
                watch=watched,
                on_connection=lambda connection, name=f"c-{number}": told(name, connection),  # type: ignore[misc]
            )
            for number in range(count)
        ]
        for client in clients:
            await stack.enter_async_context(client)
            await client.subscribe(f"a/{client.client_id}", qos=1)
        local = "{}:{}".format(*net.addresses[BACKUP])
        await until(lambda: all(each.others[:1] == (local,) and each.watched is watched for each in clients))
        await asyncio.sleep(SETTLE_S)
        began = time.perf_counter()
        os.kill(net.pids[f"broker/{LOST}"], signal.SIGSTOP)
        try:
            await until(lambda: len(served) == count)
        finally:
            os.kill(net.pids[f"broker/{LOST}"], signal.SIGCONT)
    return list(served.values())


async def cost(count: int, idle_s: float) -> Cost:
    """Connect so many watchers to one broker, and look at its process."""
    async with asyncio.timeout(DEADLINE_S * 2), network("default") as net:
        broker = net.process(BACKUP)
        await asyncio.sleep(SETTLE_S)
        rest_rate = await _processor_s(broker, idle_s) / idle_s
        rss, spent = broker.memory_info().rss, _spent(broker)
        owner = _Owner()
        began = time.perf_counter()
        for number in range(count):
            hello = watch.greeting(f"w-{number}", LOST, None, None)
            place = Endpoint(*net.addresses[BACKUP])
            owner.lines.append(
                Line([place], hello, owner, redial=False, packet_max_bytes=watch.PACKET_MAX_BYTES)
            )
            owner.lines[-1].open()
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: owner.up == count)
        took = time.perf_counter() - began
        connect_us = (_spent(broker) - spent - rest_rate * took) / count * 1e6
        each = (broker.memory_info().rss - rss) / count
        idle = (await _processor_s(broker, idle_s) / idle_s - rest_rate) / count * 1e6
        for line in owner.lines:
            line.close()
    return Cost(count, each, idle, connect_us)


class _Owner:
    """Of lines that only watch."""

    def __init__(self) -> None:
        self.up = 0
        self.lines: list[Line] = []

    def line_up(self, answer: object) -> None:
        self.up += 1

    def line_down(self, down: object) -> None:
        self.up -= 1

    def line_heard(self, packet: object) -> None:
        pass


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _processor_s(process: psutil.Process, seconds: float) -> float:
    before = _spent(process)
    await asyncio.sleep(seconds)
    return _spent(process) - before


async def measure(clients: int, rounds: int, watchers: int, idle_s: float) -> tuple[list[Case], Cost]:
    cases = []
    for detect in ("default", "aggressive"):
        for watched in (True, False):
            served: list[float] = []
            for _ in range(rounds if watched else 1):
                served += await frozen(detect, watched, clients)
            cases.append(case := Case(detect, watched, clients, served))
            way = "told" if watched else "keep-alive only"
            print(
                f"  {detect:10} {way:15} median {case.median:8,.0f} ms, p95 {case.p95:8,.0f}, most {max(served):8,.0f}",
                flush=True,
            )
    spent = await cost(watchers, idle_s)
    print(
        f"  {spent.watchers:,} watchers cost {spent.bytes_each / 1024:.1f} KiB each, {spent.connect_us:.0f} µs of "
        f"processor to connect, and {spent.idle_us_per_s:.1f} µs a second at rest",
        flush=True,
    )
    return cases, spent


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.told", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients, once each")
    chosen = parser.parse_args(argv)
    sizes = (
        (QUICK_CLIENTS, QUICK_ROUNDS, QUICK_WATCHERS, QUICK_IDLE_S)
        if chosen.quick
        else (CLIENTS, ROUNDS, WATCHERS, IDLE_S)
    )
    cases, spent = uvloop.run(measure(*sizes))
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {
        "machine": machine,
        "cases": [msgspec.to_builtins(each) for each in cases],
        "cost": msgspec.to_builtins(spent),
    }
    (RESULTS / "told.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
