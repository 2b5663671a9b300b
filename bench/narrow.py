"""A link that is offered more than it can carry: how much of it is used, how often it breaks, how old messages are.

Two brokers in two clusters; the link from the first to the second goes through a proxy that passes so many bytes a
second on and holds little. A client at the first publishes three times as much at QoS 0. The **share** is what passed
the proxy, of what could have. The peer is a pair of NATS servers, with a leaf node's connection through the same proxy,
under the same load in the same run.

Each message carries the time at which it was published; both clients have one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.load.figures import Percentiles, percentiles
from tocsin.client import AsyncClient
from tocsin.store.servers.embedded import find_program

RESULTS: Final = Path(__file__).parent / "results"
PROXY: Final = "127.0.0.2"
RATES: Final = (20_000, 100_000, 1_000_000)  # bytes a second
QUICK_RATES: Final = (20_000,)
MESSAGE_BYTES: Final = 500
OFFERED: Final = 3  # times what the link can carry
LASTS_S, QUICK_LASTS_S = 40.0, 20.0
WARM_S: Final = 4.0  # before anything is counted: buffers fill
STEP_S: Final = 0.02
HELD_BYTES: Final = 16 << 10  # by the proxy, in the kernel, …
HELD_S: Final = 0.1  # … or what it passes on in this time
FILLING: Final = os.urandom(1 << 16).hex().encode()  # nothing that a peer could make smaller
DEADLINE_S: Final = 60.0


class Case(msgspec.Struct, frozen=True):
    """One rate."""

    system: str
    rate: int
    share: float  # of the rate, used
    connections: int  # made over the proxy while it was measured
    arrived: int
    published: int
    age: Percentiles | None  # of what arrived, in microseconds


class Narrow:
    """A proxy that passes ``rate`` bytes a second to a server, and everything back."""

    def __init__(self, port: int, to: tuple[str, int], rate: int) -> None:
        self.passed = 0
        self.connections = 0
        self._to, self._rate = to, rate
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Narrow:
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, max(HELD_BYTES, int(HELD_S * self._rate))
        )
        self._listening.bind((PROXY, self._port))
        self._listening.listen()
        self._listening.setblocking(False)
        self._spawn(self._accept())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listening.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(self._listening)
            self.connections += 1
            self._spawn(self._join(near))

    async def _join(self, near: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        far = socket.socket()
        near.setblocking(False)
        far.setblocking(False)
        with near, far, contextlib.suppress(OSError, ExceptionGroup):
            await loop.sock_connect(far, self._to)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(near, far, self._rate))
                both.create_task(self._pass(far, near, 0))

    async def _pass(self, one: socket.socket, other: socket.socket, rate: int) -> None:
        loop = asyncio.get_running_loop()
        free_s = loop.time()
        while True:
            data = await loop.sock_recv(one, max(1, int(rate * STEP_S)) if rate else 1 << 16)
            if not data:
                raise ConnectionResetError("the connection has ended")
            await loop.sock_sendall(other, data)
            if rate:
                self.passed += len(data)
                free_s = max(free_s, loop.time() - STEP_S) + len(data) / rate
                await asyncio.sleep(max(0.0, free_s - loop.time()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Load:
    """What is published, and what arrives."""

    def __init__(self) -> None:
        self.published = 0
        self.ages: list[float] = []
        self.counts = False

    def message(self) -> bytes:
        self.published += self.counts
        begin = self.published % 1_000 * 100
        return (b"%d " % (time.monotonic_ns() // 1_000) + FILLING[begin:])[:MESSAGE_BYTES]

    def heard(self, payload: bytes) -> None:
        if self.counts:
            self.ages.append(time.monotonic_ns() // 1_000 - int(payload.partition(b" ")[0]))


async def run(system: str, rate: int, lasts_s: float, proxy: Narrow, load: Load, send: Any) -> Case:
    """Publish for so long."""
    loop = asyncio.get_running_loop()
    began, sent, last = loop.time(), 0, 0.0
    passed = connections = 0
    while (now := loop.time() - began) < WARM_S + lasts_s:
        if now >= WARM_S and not load.counts:
            load.counts, passed, connections, last = True, proxy.passed, proxy.connections, now
        due = int(now * OFFERED * rate / MESSAGE_BYTES)
        if due > sent:
            await send([load.message() for _ in range(due - sent)])
            sent = due
        await asyncio.sleep(STEP_S)
    took_s = loop.time() - began - last
    share = (proxy.passed - passed) / (rate * took_s)
    made = proxy.connections - connections
    load.counts = False
    return Case(system, rate, share, made, len(load.ages), load.published, percentiles(load.ages))


@contextlib.asynccontextmanager
async def started(*argv: str, ready: bool) -> AsyncIterator[dict[str, Any]]:
    pipe = asyncio.subprocess.PIPE if ready else asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=1 << 20
    )
    try:
        if process.stdout is None:
            yield {}
        else:
            async with asyncio.timeout(DEADLINE_S):
                yield json.loads(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()


async def ours(rate: int, lasts_s: float) -> Case:
    near, far, link = free_port(), free_port(), free_port()
    brokers = [
        {"id": "north-1", "cluster": "north", "port": near},
        {"id": "south-1", "cluster": "south", "port": far, "link_port": link, "advertise": PROXY},
    ]
    sets = (
        f"brokers={json.dumps(brokers)}",
        "pipeline.enabled=never",
        "log.level=error",
    )
    options = ["--ephemeral", *(word for each in sets for word in ("--set", each))]
    argv = (sys.executable, "-P", "-m", "tocsin", "up", *options)
    async with (
        Narrow(link, ("127.0.0.1", link), rate) as proxy,
        started(*argv, ready=True),
        AsyncClient(f"mqtt://127.0.0.1:{near}", watch=False) as publisher,
        AsyncClient(f"mqtt://127.0.0.1:{far}", watch=False) as subscriber,
    ):
        load = Load()
        messages = await subscriber.subscribe("load")

        async def listen() -> None:
            async for message in messages:
                load.heard(message.payload)

        async def send(payloads: list[bytes]) -> None:
            for payload in payloads:
                await publisher.publish("load", payload)

        listening = asyncio.create_task(listen())
        case = await run("tocsin", rate, lasts_s, proxy, load, send)
        listening.cancel()
        return case


async def nats(rate: int, lasts_s: float) -> Case:
    near, far, leaf = free_port(), free_port(), free_port()
    program = str(find_program())
    hub = f'port: {far}, host: "127.0.0.1", leafnodes {{ host: "127.0.0.1", port: {leaf} }}'
    edge = f'port: {near}, host: "127.0.0.1", leafnodes {{ remotes: [ {{ url: "nats://{PROXY}:{leaf}" }} ] }}'
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Narrow(leaf, ("127.0.0.1", leaf), rate))
        for name, text in (("hub", hub), ("edge", edge)):
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / f"{name}.conf"
            path.write_text(text)
            await stack.enter_async_context(started(program, "-c", str(path), ready=False))
        reader, writer = await _connected(far)
        _, sender = await _connected(near)
        load = Load()
        writer.write(b"SUB load 1\r\n")
        await asyncio.sleep(WARM_S)

        async def listen() -> None:
            while line := await reader.readline():
                if line.startswith(b"MSG"):
                    load.heard(await reader.readexactly(MESSAGE_BYTES))
                elif line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")

        async def send(payloads: list[bytes]) -> None:
            for payload in payloads:
                sender.write(b"PUB load %d\r\n%b\r\n" % (MESSAGE_BYTES, payload))
            await sender.drain()

        listening = asyncio.create_task(listen())
        case = await run("nats leaf", rate, lasts_s, proxy, load, send)
        listening.cancel()
        writer.close()
        sender.close()
        return case


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(STEP_S)
                continue
            writer.write(b'CONNECT {"verbose":false}\r\n')
            return reader, writer


def show(case: Case) -> None:
    age = "nothing arrived"
    if case.age is not None:
        age = f"age p50 {case.age.p50 / 1e6:.2f} p99 {case.age.p99 / 1e6:.2f} s"
    print(
        f"  {case.system:10} {case.rate:>9,} B/s: {100 * case.share:5.1f} % used, {case.connections} reconnects, "
        f"{case.arrived:,} of {case.published:,} arrived, {age}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.narrow", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one rate, shorter")
    parser.add_argument("--rate", type=int, action="append", help="bytes a second; may be repeated")
    parser.add_argument("--only", choices=("tocsin", "nats"), help="one of the two")
    chosen = parser.parse_args(argv)
    lasts_s = QUICK_LASTS_S if chosen.quick else LASTS_S
    cases = []
    for rate in chosen.rate or (QUICK_RATES if chosen.quick else RATES):
        for name, measure in (("tocsin", ours), ("nats", nats)):
            if chosen.only in (None, name):
                cases.append(uvloop.run(measure(rate, lasts_s)))
                show(cases[-1])
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {"machine": machine, "cases": msgspec.to_builtins(cases)}
    (RESULTS / "narrow.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
