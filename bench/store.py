"""How fast the store is, beside plain nats-py on the same servers in the same run.

- **append**: durable records per second in batches of 1, 100 and 1 000, one call at a time and four at a time, beside
  nats-py's ``publish`` loop (one at a time) and ``publish_async`` (as many in flight as it allows);
- **read**: one subject's entries out of a thousand to a million subjects, beside a consumer made for each query;
- **hear**: processor time of a message that is heard, beside nats-py's subscription with a callback;
- **watch**: from a put to the moment another connection's watch says so.

Contestants take turns and ratios are taken within a turn, because the machine is shared. On one server and on three.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import nats
import structlog
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import ServiceUnavailableError
from rich.console import Console
from rich.table import Table as Grid

from tocsin.ports import Log, LogSpec, Record, TableSpec
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

RESULTS: Final = Path(__file__).parent / "results" / "store.json"
PAYLOAD: Final = b"x" * 256
HEARD: Final = 20_000  # messages of one turn
CONSOLE: Final = Console()


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    turn_s: float  # one contestant's turn
    turns: int
    subjects: tuple[int, ...]  # on one server
    subjects_of_three: tuple[int, ...]
    reads: int
    queries: int  # of the peer, which is slower
    puts: int


FULL: Final = Plan(1.2, 3, (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000, 100_000), 400, 60, 300)
QUICK: Final = Plan(0.4, 1, (1_000, 10_000), (1_000,), 150, 20, 80)


class AppendFigure(msgspec.Struct, frozen=True):
    servers: int
    batch: int
    in_flight: int
    records_per_s: float
    against_publish: float
    against_publish_async: float


class ReadFigure(msgspec.Struct, frozen=True):
    servers: int
    subjects: int
    p50_ms: float
    p95_ms: float
    consumer_p50_ms: float
    consumer_p95_ms: float
    ratio: float  # the peer's median over ours


class WatchFigure(msgspec.Struct, frozen=True):
    servers: int
    p50_ms: float
    p95_ms: float


class HearFigure(msgspec.Struct, frozen=True):
    bytes: int
    us: float
    nats_py_us: float


class Figures(msgspec.Struct, frozen=True):
    quick: bool
    payload_bytes: int
    hear: tuple[HearFigure, ...]
    append: tuple[AppendFigure, ...]
    read: tuple[ReadFigure, ...]
    watch: tuple[WatchFigure, ...]


class Ids:
    """Record ids that are never used twice."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> range:
        first = self._next
        self._next += count
        return range(first, first + count)


# ── append ───────────────────────────────────────────────────────────────────────────────────────────────────


async def rate(turn_s: float, work: Callable[[], Awaitable[int]], in_flight: int = 1) -> float:
    """Records per second of ``work``, which says how many each call wrote."""
    begin = time.perf_counter()
    end = begin + turn_s
    written = 0

    async def go_on() -> None:
        nonlocal written
        while time.perf_counter() < end:
            # Not in one line with the sum, which would be read before the others add to it.
            count = await work()
            written += count

    await asyncio.gather(*(go_on() for _ in range(in_flight)))
    return written / (time.perf_counter() - begin)


async def measure_append(plan: Plan, servers: LocalServers, store: JetStreamStore) -> list[AppendFigure]:
    count = len(servers.plans)
    log = await store.log(LogSpec("ours", ("ours.>",)))
    await store.log(LogSpec("peer", ("peer.>",)))
    client = await nats.connect(list(servers.urls), token=servers.token)
    jetstream = client.jetstream()
    ids = Ids()

    async def append(batch: int) -> int:
        await log.append([Record("ours.a", PAYLOAD, str(i)) for i in ids.take(batch)])
        return batch

    async def publish() -> int:
        (each,) = ids.take(1)
        await jetstream.publish("peer.a", PAYLOAD, headers={"Nats-Msg-Id": str(each)})
        return 1

    async def publish_async() -> int:
        for each in ids.take(100):
            await jetstream.publish_async("peer.a", PAYLOAD, headers={"Nats-Msg-Id": str(each)})
        return 100

    kinds = [(batch, in_flight) for batch in (1, 100, 1_000) for in_flight in (1, 4)]
    rates: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    one_by_one: list[float] = []
    pipelined: list[float] = []
    for _ in range(plan.turns):
        one_by_one.append(await rate(plan.turn_s, publish))
        pipelined.append(await rate(plan.turn_s, publish_async))
        await jetstream.publish_async_completed()
        for batch, in_flight in kinds:
            rates[batch, in_flight].append(
                await rate(plan.turn_s, lambda batch=batch: append(batch), in_flight)  # type: ignore[misc]
            )
    await client.close()
    return [
        AppendFigure(
            count,
            batch,
            in_flight,
            statistics.median(found),
            statistics.median(a / b for a, b in zip(found, one_by_one, strict=True)),
            statistics.median(a / b for a, b in zip(found, pipelined, strict=True)),
        )
        for (batch, in_flight), found in rates.items()
    ]


# ── read ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def timed(count: int, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """The median and the 95th percentile of ``work``, in milliseconds."""
    taken: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begin) * 1_000)
    return percentiles(taken)


def percentiles(taken: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(taken)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]


async def fill(log: Log, first: int, end: int) -> None:
    """One small record on each of the subjects from ``first`` to ``end``."""
    starts = iter(range(first, end, 1_000))

    async def go_on() -> None:
        for start in starts:
            batch = range(start, min(start + 1_000, end))
            await log.append([Record(f"wide.{i % 97}.{i}", b"value", str(i)) for i in batch])

    await asyncio.gather(*(go_on() for _ in range(4)))


async def fetch(subscription: Any) -> Sequence[object]:
    """The entries of a new consumer; in a cluster it may not be reachable at once."""
    while True:
        try:
            return await subscription.fetch(1, timeout=10)  # type: ignore[no-any-return]
        except ServiceUnavailableError:
            await asyncio.sleep(0)


async def measure_read(plan: Plan, servers: LocalServers, store: JetStreamStore) -> list[ReadFigure]:
    count = len(servers.plans)
    log = await store.log(LogSpec("wide", ("wide.>",)))
    client = await nats.connect(list(servers.urls), token=servers.token)
    jetstream = client.jetstream()
    chance = random.Random(7)
    figures: list[ReadFigure] = []
    filled = 0
    for subjects in plan.subjects if count == 1 else plan.subjects_of_three:
        await fill(log, filled, subjects)
        filled = subjects

        def subject(bound: int = subjects) -> str:
            i = chance.randrange(bound)
            return f"wide.{i % 97}.{i}"

        async def read() -> None:
            page = await log.read(subject(), 0, limit=100)
            assert len(page.entries) == 1

        async def query() -> None:
            config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True, num_replicas=1)
            subscription = await jetstream.pull_subscribe(subject(), stream="wide", config=config)
            assert len(await fetch(subscription)) == 1
            info = await subscription.consumer_info()
            await jetstream.delete_consumer("wide", info.name)
            await subscription.unsubscribe()

        p50, p95 = await timed(plan.reads, read)
        peer_p50, peer_p95 = await timed(plan.queries, query)
        figures.append(ReadFigure(count, subjects, p50, p95, peer_p50, peer_p95, peer_p50 / p50))
    await client.close()
    return figures


# ── watch ────────────────────────────────────────────────────────────────────────────────────────────────────


async def measure_watch(plan: Plan, servers: LocalServers, store: JetStreamStore) -> WatchFigure:
    other = await connect(servers)
    spec = TableSpec("watched")
    table, seen = await store.table(spec), await other.table(spec)
    taken: list[float] = []
    changes: Any = seen.watch()
    while (await anext(changes)).kind != "ready":
        pass
    for i in range(plan.puts):
        begin = time.perf_counter()
        told = asyncio.ensure_future(anext(changes))
        await table.put("key", str(i).encode())
        await told
        taken.append((time.perf_counter() - begin) * 1_000)
    await changes.aclose()
    await other.close()
    p50, p95 = percentiles(taken)
    return WatchFigure(len(servers.plans), p50, p95)


# ── hear ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def measure_hear(plan: Plan, servers: LocalServers, store: JetStreamStore) -> list[HearFigure]:
    """A third connection publishes; it is a process of its own, so that its work is not counted."""
    client = await nats.connect(list(servers.urls), token=servers.token)
    figures: list[HearFigure] = []
    for size in (64, 256, 4_096):
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(plan.turns):
            subject = f"hear.{size}.{turn}"
            heard = asyncio.Semaphore(0)

            def hear(message: object, heard: asyncio.Semaphore = heard) -> None:
                heard.release()

            async def hear_too(message: object, heard: asyncio.Semaphore = heard) -> None:
                heard.release()

            listener = await store.connection.listen(subject, "", hear)
            ours.append(await _heard(servers, subject, size, heard))
            await listener.stop()
            subscription = await client.subscribe(subject, cb=hear_too)
            await client.flush()
            theirs.append(await _heard(servers, subject, size, heard))
            await subscription.unsubscribe()
        figures.append(HearFigure(size, statistics.median(ours), statistics.median(theirs)))
    await client.close()
    return figures


async def _heard(servers: LocalServers, subject: str, size: int, heard: asyncio.Semaphore) -> float:
    """Processor time of this process for each message, in microseconds."""
    program = (
        "import asyncio, sys\n"
        "from tocsin.store.nats.connection import Connection\n"
        "from tocsin.store.nats.login import Login\n"
        "from tocsin.store.nats.protocol import frame\n"
        "async def main():\n"
        "    url, token, subject, size, count = sys.argv[1:]\n"
        "    connection = Connection([url], Login(token=token), 'bench')\n"
        "    await connection.open(30)\n"
        "    some = frame(subject, '', b'Nats-Msg-Id: 1\\r\\n', b'x' * int(size)) * 100\n"
        "    for _ in range(int(count) // 100):\n"
        "        await connection.send(some)\n"
        "        await asyncio.sleep(0.001)\n"
        "    await asyncio.sleep(0.5)\n"
        "    await connection.close()\n"
        "asyncio.run(main())\n"
    )
    begin = time.process_time()
    arguments = (servers.urls[0], servers.token, subject, str(size), str(HEARD))
    publisher = await asyncio.create_subprocess_exec(sys.executable, "-c", program, *arguments)
    for _ in range(HEARD):
        await heard.acquire()
    spent = time.process_time() - begin
    await publisher.wait()
    return spent / HEARD * 1e6


# ── all of it ────────────────────────────────────────────────────────────────────────────────────────────────


async def connect(servers: LocalServers) -> JetStreamStore:
    return await JetStreamStore.connect(
        servers.urls, token=servers.token, replicas=len(servers.plans), deadline_s=60
    )


async def measure(plan: Plan, directory: Path) -> Figures:
    append: list[AppendFigure] = []
    read: list[ReadFigure] = []
    watch: list[WatchFigure] = []
    hear: list[HearFigure] = []
    for count in (1, 3):
        with LocalServers(directory / str(count), servers=count) as servers:
            store = await connect(servers)
            if count == 1:
                hear += await measure_hear(plan, servers, store)
            watch.append(await measure_watch(plan, servers, store))
            append += await measure_append(plan, servers, store)
            read += await measure_read(plan, servers, store)
            await store.close()
    return Figures(plan is QUICK, len(PAYLOAD), tuple(hear), tuple(append), tuple(read), tuple(watch))


def show(figures: Figures) -> None:
    grid = Grid(title="processor time of a message that is heard", title_justify="left")
    for heading in ("bytes", "µs", "nats-py µs", "nats-py ÷ ours"):
        grid.add_column(heading, justify="right")
    for h in figures.hear:
        grid.add_row(f"{h.bytes:,}", f"{h.us:.1f}", f"{h.nats_py_us:.1f}", f"{h.nats_py_us / h.us:.1f}")
    CONSOLE.print(grid)
    grid = Grid(title="durable appends of 256 B", title_justify="left")
    for heading in ("servers", "batch", "calls at once", "records/s", "÷ publish", "÷ publish_async"):
        grid.add_column(heading, justify="right")
    for a in figures.append:
        grid.add_row(
            str(a.servers),
            str(a.batch),
            str(a.in_flight),
            f"{a.records_per_s:,.0f}",
            f"{a.against_publish:.1f}",
            f"{a.against_publish_async:.2f}",
        )
    CONSOLE.print(grid)
    grid = Grid(title="one subject's entries", title_justify="left")
    for heading in (
        "servers",
        "subjects",
        "p50 ms",
        "p95 ms",
        "consumer p50 ms",
        "p95 ms",
        "consumer ÷ read",
    ):
        grid.add_column(heading, justify="right")
    for r in figures.read:
        grid.add_row(
            str(r.servers),
            f"{r.subjects:,}",
            f"{r.p50_ms:.2f}",
            f"{r.p95_ms:.2f}",
            f"{r.consumer_p50_ms:.2f}",
            f"{r.consumer_p95_ms:.2f}",
            f"{r.ratio:.1f}",
        )
    CONSOLE.print(grid)
    grid = Grid(title="from a put to its watch", title_justify="left")
    for heading in ("servers", "p50 ms", "p95 ms"):
        grid.add_column(heading, justify="right")
    for w in figures.watch:
        grid.add_row(str(w.servers), f"{w.p50_ms:.2f}", f"{w.p95_ms:.2f}")
    CONSOLE.print(grid)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench store", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, in half a minute")
    parser.add_argument(
        "--directory", type=Path, help="where the servers keep their data (default: a temporary directory)"
    )
    arguments = parser.parse_args(argv)
    plan = QUICK if arguments.quick else FULL
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-", dir=arguments.directory) as directory:
        figures = uvloop.run(measure(plan, Path(directory)))
    show(figures)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    CONSOLE.print(f"written to {RESULTS}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
