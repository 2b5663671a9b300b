"""``tocsin demo``: a network of one's own for half a minute, with alerts across it and a broker that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from tocsin.client import AsyncClient, Message
from tocsin.client.address import Server
from tocsin.client.subscription import Subscription
from tocsin.errors import DeadlineExceeded, OperatorError
from tocsin.model.message import broker_address
from tocsin.runtime.directory import BrokerAddress
from tocsin.runtime.network import own_command

# Spark would take the machine's time from what is shown.
WITHOUT_SPARK: Final = ("--set", "pipeline.enabled=never")
READY_DEADLINE_S: Final = 60.0
STEP_DEADLINE_S: Final = 30.0
BURST: Final = 10_000
BURST_WINDOW: Final = 500  # messages between two waits for the broker to keep up
PROBE_S: Final = 0.02  # how long to wait for a message before the next try
ALERTS: Final = (
    ("alerts/north/flood", "water at 3.2 m and rising"),
    ("alerts/north/fire", "smoke over the old harbour"),
    ("alerts/south/flood", "sandbags at the town hall"),
)


class Ready(msgspec.Struct, frozen=True):
    """The line with which ``tocsin up`` says that everything runs."""

    seconds: float
    brokers: tuple[BrokerAddress, ...]
    pids: dict[str, int]

    def client(self, broker_id: str) -> AsyncClient:
        broker = next(broker for broker in self.brokers if broker.id == broker_id)
        return AsyncClient([Server(broker.host, broker.port)], client_id=f"demo-{broker_id}", redial=False)


def demo() -> None:
    """Start a network, send alerts across it, kill a broker with -9, watch it come back, and stop everything.

    It uses free ports and a temporary directory, and leaves nothing behind. Your own network is `tocsin up`.
    """
    console = Console()
    asyncio.run(_demo(console))


async def _demo(console: Console) -> None:
    console.print("[bold]1.[/] Start: NATS JetStream, a coordinator, and two clusters of three brokers")
    up = await asyncio.create_subprocess_exec(
        *own_command("up", "--ephemeral", "--auto-ports", "--set", "log.level=error", *WITHOUT_SPARK),
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is handled here, below
    )
    try:
        ready = await _ready(up)
        console.print(f"   eight processes, ready after {ready.seconds:.1f} s")
        console.print(_brokers(ready))
        await _alerts(console, ready)
        await _burst(console, ready)
        await _failure(console, ready)
    finally:
        if up.returncode is None:
            up.send_signal(signal.SIGTERM)
        code = await up.wait()
    console.print(f"[bold]5.[/] Stop: everything ended in order (exit code {code}) and left nothing behind")
    console.print("\nYour own network: [bold].venv/bin/tocsin up[/]; then any MQTT client on port 1883.")


async def _ready(up: asyncio.subprocess.Process) -> Ready:
    assert up.stdout is not None
    try:
        async with asyncio.timeout(READY_DEADLINE_S):
            line = await up.stdout.readline()
    except TimeoutError:
        remedy = "Run `tocsin up` to see which part is missing"
        raise OperatorError(f"the network was not ready within {READY_DEADLINE_S:g} s", remedy) from None
    if not line:
        raise OperatorError("the network did not start (its own words are above)", "Run `tocsin doctor`")
    return msgspec.json.decode(line, type=Ready)


def _brokers(ready: Ready) -> Table:
    table = Table("broker", "cluster", "role", "address", box=None, padding=(0, 3))
    for broker in ready.brokers:
        table.add_row(broker.id, broker.cluster, broker.role, f"{broker.host}:{broker.port}")
    return table


async def _alerts(console: Console, ready: Ready) -> None:
    console.print(
        "[bold]2.[/] Alerts, published at north-1; south-2 asked for alerts/#, north-2 for alerts/+/flood"
    )
    async with (
        ready.client("north-1") as publisher,
        ready.client("south-2") as south,
        ready.client("north-2") as north,
    ):
        everything = await south.subscribe("alerts/#")
        floods = await north.subscribe("alerts/+/flood")
        await _reach(publisher, "alerts/test/flood", everything, floods)
        heard = Table("topic", "message", "south-2", "north-2", box=None, padding=(0, 3))
        for topic, words in ALERTS:
            began = time.perf_counter()
            await publisher.publish(topic, words)
            row = [await _arrival(everything, topic, words, began)]
            row.append(await _arrival(floods, topic, words, began) if topic.endswith("flood") else "–")
            heard.add_row(topic, words, *row)
        console.print(heard)


async def _reach(publisher: AsyncClient, topic: str, *subscribers: Subscription) -> None:
    """Publish until every subscriber hears it, so that routes are in place; leave no such message behind."""
    for subscriber in subscribers:
        async with asyncio.timeout(STEP_DEADLINE_S):
            while True:
                await publisher.publish(topic)
                if await _next(subscriber, PROBE_S) is not None:
                    break
    for subscriber in subscribers:
        while await _next(subscriber, 5 * PROBE_S) is not None:
            pass


async def _next(subscriber: Subscription, deadline_s: float) -> Message | None:
    try:
        return await subscriber.get(deadline_s)
    except DeadlineExceeded:
        return None


async def _arrival(subscriber: Subscription, topic: str, words: str, began: float) -> str:
    message = await _next(subscriber, STEP_DEADLINE_S)
    if message is None or (message.topic, message.payload) != (topic, words.encode()):
        raise OperatorError(f"{topic} did not arrive as it was sent", "Run `tocsin doctor`")
    return f"{(time.perf_counter() - began) * 1e3:.1f} ms"


async def _burst(console: Console, ready: Ready) -> None:
    async with ready.client("north-1") as publisher, ready.client("south-1") as south:
        subscriber = await south.subscribe("burst")
        await _reach(publisher, "burst", subscriber)
        began = time.perf_counter()
        sending = asyncio.create_task(_send_burst(publisher))
        arrived = 0
        while arrived < BURST and await _next(subscriber, STEP_DEADLINE_S) is not None:
            arrived += 1
        await sending
        seconds = time.perf_counter() - began
    console.print(
        f"[bold]3.[/] Burst: {arrived:,} of {BURST:,} messages from north-1 by way of south-hub to south-1 in "
        f"{seconds:.2f} s ({arrived / seconds:,.0f} a second)"
    )


async def _send_burst(publisher: AsyncClient) -> None:
    for number in range(BURST):
        await publisher.publish("burst", b"message %d of a burst" % number)
        if number % BURST_WINDOW == BURST_WINDOW - 1:
            await publisher.flush()


async def _failure(console: Console, ready: Ready) -> None:
    victim = "south-hub"
    console.print(f"[bold]4.[/] Failure: {victim}, on the way from north to south, is killed with -9")
    async with ready.client("north-1") as publisher, ready.client("south-1") as south:
        subscriber = await south.subscribe("tick")
        await _reach(publisher, "tick", subscriber)
        os.kill(ready.pids[broker_address(victim)], signal.SIGKILL)
        killed = time.perf_counter()
        await asyncio.sleep(PROBE_S)  # the kernel needs a moment to end it
        sent, heard = 0, 0
        async with asyncio.timeout(STEP_DEADLINE_S):
            while not heard:
                await publisher.publish("tick")
                sent += 1
                heard += await _next(subscriber, PROBE_S) is not None
        back_s = time.perf_counter() - killed
        while await _next(subscriber, 10 * PROBE_S) is not None:
            heard += 1
    console.print(
        f"   it was restarted, and its peers held what they had for it: messages flow after {back_s:.1f} s; "
        f"{sent} were sent meanwhile, {heard} arrived (QoS 0 is best effort)"
    )
