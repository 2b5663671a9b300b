"""End to end on a network that ``tocsin up`` started: publish at a broker, feed, channel, subscriber at a broker.

Clients are raw MQTT 5 on asyncio, in this process, which has to share the cores with everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from bench.channels.figures import Latency, Rate, latency
from bench.load.dialect import LoadError, Mqtt, packet, packet_end
from bench.load.figures import spread
from tocsin.config import Nats
from tocsin.errors import DeadlineExceeded, NoResponder
from tocsin.model.channel_names import ChannelNames
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream.store import JetStreamStore

START_S: Final = 300.0
ANSWER_S: Final = 120.0
SCRIPT: Final = """
CREATE DATASET IF NOT EXISTS Reports (id BIGINT, about STRING);
CREATE FEED IF NOT EXISTS Wire INTO Reports FROM TOPIC 'reports';
CREATE CHANNEL IF NOT EXISTS AtOnce(about STRING) CONTINUOUS AS
    SELECT r.id FROM NEW Reports r WHERE r.about = :about;
CREATE CHANNEL IF NOT EXISTS EverySecond(about STRING) EVERY 1 SECONDS AS
    SELECT r.id FROM NEW Reports r WHERE r.about = :about;
CREATE CHANNEL IF NOT EXISTS Many(about STRING, reader STRING) EVERY 1 DAYS AS
    SELECT r.id, r.about, :reader AS reader FROM NEW Reports r WHERE r.about = :about;
CREATE CHANNEL IF NOT EXISTS Pulse(about STRING) EVERY 1 SECONDS AS
    SELECT COUNT(*) AS n FROM Reports r WHERE r.about = :about
"""


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    warm: int
    messages: int  # of each latency
    subscriptions: int  # new ones, one after the other
    clients: int
    filters: int  # of each client
    publications: int  # of a run; each interests a tenth of all filters
    runs: int


class BenchClient(asyncio.Protocol):
    """A client that acknowledges what it gets, counts it, and says when something comes."""

    def __init__(self, heard: Callable[[bytes, float], None] | None = None) -> None:
        self._heard = heard
        self._held = b""
        self._answers: asyncio.Queue[int] = asyncio.Queue()
        self.count = 0
        self.last_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        received, at, replies = self._held + data, 0, []
        while at < len(received):
            body, end = packet_end(received, at)
            if not body or len(received) < end:
                break
            kind, qos = received[at] >> 4, received[at] >> 1 & 3
            if kind == 3:
                topic = body + 2 + int.from_bytes(received[body : body + 2], "big")
                if qos:
                    replies.append(packet(0x40, received[topic : topic + 2]))
                self.count += 1
                self.last_s = now
                if self._heard is not None:
                    self._heard(received[topic:end], now)
            else:
                self._answers.put_nowait(received[end - 1] if kind == 9 else received[body + 1])
            at = end
        self._held = received[at:]
        if replies:
            self.transport.write(b"".join(replies))

    async def ask(self, data: bytes) -> int:
        """Send something that is answered; the answer's last reason."""
        self.transport.write(data)
        async with asyncio.timeout(ANSWER_S):
            reason = await self._answers.get()
        if reason >= 0x80:
            raise LoadError(f"the broker refuses with {reason:#04x}")
        return reason


class Network:
    """A running one."""

    def __init__(self, ready: dict[str, Any], store: JetStreamStore, process: subprocess.Popen[str]) -> None:
        self.store = store
        self.process = process
        self.places = ChannelNames("tocsin")
        self._at = (ready["brokers"][0]["host"], ready["brokers"][0]["port"])
        self._names = 0
        self._chance = random.Random(1)

    async def sql(self, text: str) -> list[Any]:
        """Ask the pipeline, again until it is there."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                answer = await self.store.bus.request(
                    self.places.service("sql"),
                    msgspec.json.encode({"text": text, "limit": 10}),
                    deadline_s=ANSWER_S,
                )
                break
            except (NoResponder, DeadlineExceeded):
                if time.monotonic() > deadline:
                    raise LoadError("the pipeline does not answer") from None
                await asyncio.sleep(0.1)
        reply = msgspec.json.decode(answer)
        if reply["error"] is not None:
            raise LoadError(str(reply["error"]))
        results: list[Any] = reply["results"]
        return results

    async def client(
        self, heard: Callable[[bytes, float], None] | None = None, keep: bool = False
    ) -> BenchClient:
        self._names += 1
        _, client = await asyncio.get_running_loop().create_connection(lambda: BenchClient(heard), *self._at)
        await client.ask(Mqtt(keep_session=keep).hello(f"bench{self._names}"))
        return client

    async def publish(self, publisher: BenchClient, *records: dict[str, Any]) -> None:
        """Durably."""
        dialect = Mqtt()
        for number, record in enumerate(records, 1):
            data = dialect.publish_once_stored("reports", json.dumps(record).encode(), number)
            publisher.transport.write(data)
        async with asyncio.timeout(ANSWER_S):
            for _ in records:
                await publisher._answers.get()


def _started(directory: Path) -> subprocess.Popen[str]:
    options = ["--auto-ports", "--state", str(directory / "state")]
    for each in (
        'brokers=[{"id": "bench", "cluster": "bench"}]',
        "pipeline.enabled=always",
        "spark.ui_port=0",
    ):
        options += ["--set", each]
    directory.mkdir(parents=True, exist_ok=True)
    environment = {name: each for name, each in os.environ.items() if not name.startswith("TOCSIN_")}
    with (directory / "output.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tocsin", "up", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=environment,
        )


@contextlib.asynccontextmanager
async def up(directory: Path) -> AsyncIterator[Network]:
    """``tocsin up`` with one broker, the pipeline and the feeder, as anybody would start it."""
    process = _started(directory)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            raise LoadError(f"tocsin up did not start: {(directory / 'output.log').read_text()[-400:]}")
        ready = json.loads(line)
        nats = embedded(Nats(urls=tuple(ready["nats"])), directory / "state")
        store = await JetStreamStore.open(nats, "operator", name="bench", deadline_s=30)
        try:
            yield Network(ready, store, process)
        finally:
            await store.close()
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, START_S)
        process.stdout.close()


async def measure(directory: Path, plan: Plan) -> tuple[list[Latency], list[Rate]]:
    latencies: list[Latency] = []
    async with up(directory) as network:
        await network.sql(SCRIPT)
        latencies.append(await _subacks(network, plan.subscriptions))
        for channel, what in (("AtOnce", "continuous"), ("EverySecond", "every second")):
            latencies.append(await _latency(network, channel, what, plan))
        rate = await _delivered(network, plan)
        listener = await network.client(keep=True)
        await listener.ask(Mqtt().subscribe("$channel/Pulse/a", qos=1))
        await asyncio.sleep(3.0)  # until the session and its cell are stored
    latencies.append(await _first_execution(directory))
    return latencies, [rate]


async def _until(condition: Callable[[], Awaitable[bool]], every_s: float) -> None:
    deadline = time.monotonic() + START_S
    while not await condition():
        if time.monotonic() > deadline:
            raise LoadError(f"it did not happen within {START_S:g} s")
        await asyncio.sleep(every_s)


async def _subacks(network: Network, count: int) -> Latency:
    client = await network.client()
    taken = []
    for number in range(count + 5):
        began = time.perf_counter()
        await client.ask(Mqtt().subscribe(f"$channel/AtOnce/new-{number}", qos=1))
        taken.append(time.perf_counter() - began)
    client.transport.close()
    return latency("SUBACK of a new subscription", taken[5:])


async def _latency(network: Network, channel: str, what: str, plan: Plan) -> Latency:
    arrived: dict[int, asyncio.Future[float]] = {}

    def heard(data: bytes, now: float) -> None:
        begin = data.rindex(b"{")
        arrived[json.loads(data[begin:])["id"]].set_result(now)

    listener, publisher = await network.client(heard), await network.client()
    about = f"{channel}-latency"
    await listener.ask(Mqtt().subscribe(f"$channel/{channel}/{about}", qos=1))
    await asyncio.sleep(1.0)  # until the pipeline knows
    taken = []
    for number in range(plan.warm + plan.messages):
        arrived[number] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        await network.publish(publisher, {"id": number, "about": about})
        async with asyncio.timeout(ANSWER_S):
            taken.append(await arrived[number] - began)
        await asyncio.sleep(network._chance.random() * 1.2)  # at no particular moment of a period
    listener.transport.close()
    publisher.transport.close()
    return latency(f"publication → notification, {what}", taken[plan.warm :])


async def _delivered(network: Network, plan: Plan) -> Rate:
    """A channel that runs when it is asked to, its results to many clients: from the request to the last delivery."""
    clients = [await network.client() for _ in range(plan.clients)]
    for number, client in enumerate(clients):
        filters = [f"$channel/Many/t{i % 10}/r{number}-{i}" for i in range(plan.filters)]
        await client.ask(Mqtt().subscribe(*filters, qos=1))
    publisher = await network.client()
    results = plan.publications * plan.clients * plan.filters // 10
    rates = []
    published = 0
    for run in range(plan.runs + 1):
        records = [{"id": i, "about": f"t{i % 10}"} for i in range(plan.publications)]
        for start in range(0, len(records), 500):
            await network.publish(publisher, *records[start : start + 500])
        published += len(records)
        counting = "SELECT COUNT(*) AS n FROM Reports WHERE about LIKE 't%'"

        async def landed(counting: str = counting, published: int = published) -> bool:
            return bool((await network.sql(counting))[0]["rows"][0][0] >= published)

        await _until(landed, 0.1)
        before = sum(client.count for client in clients)
        began = time.perf_counter()
        await network.sql("RUN CHANNEL Many")

        async def heard(before: int = before) -> bool:
            return sum(client.count for client in clients) - before >= results

        await _until(heard, 0.005)
        if run:  # the first one warms up
            rates.append(results / (max(client.last_s for client in clients) - began))
    for client in clients:
        client.transport.close()
    publisher.transport.close()
    return Rate(f"from the request to delivered, {plan.clients} clients at QoS 1", results, spread(rates))


async def _first_execution(directory: Path) -> Latency:
    """Start the same network again: until a tick of the new pipeline is told."""
    began = time.perf_counter()
    async with up(directory) as network:
        notices = await network.store.log(network.places.notices)
        before = await notices.last()

        async def told() -> bool:
            return await notices.last() > before

        await _until(told, 0.02)
        return latency("`tocsin up` → first execution", [time.perf_counter() - began])
