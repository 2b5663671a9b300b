"""What durable messages cost a broker where nobody wants them, and how soon a new filter is read.

- **idle**: processor time a message of brokers with clients for other topics, while one publisher's messages are
  committed and one broker reads them: with ``messages.read = "all"`` and ``"wanted"`` in turn, and of the store beside;
- **filter**: from a filter's coming to the moment where everything that matches it is read, one by one;
- **burst**: ten thousand different filters at once: until all are read, and how many readers were made for them.

A broker is here what each broker has of the message log (``broker.delivery.message_log``) in a process of its own, over
a real server. What the sockets of clients cost is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import uvloop
from rich.console import Console
from rich.table import Table as Grid

from tocsin.broker.delivery.message_log import MessageLog
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Entry, Log, Record
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

RESULTS: Final = Path(__file__).parent / "results" / "locality.json"
NETWORK: Final = "bench"
PAYLOAD: Final = b"x" * 100
TOPICS: Final = 100
BATCH: Final = 50  # of a group commit
SELDOM_S: Final = 1.8  # between filters, so that each makes a reader of its own (``core.delivery.reading``)
FILTERS: Final = 16  # of the clients of a broker
MODES: Final = ("all", "wanted")
CONSOLE: Final = Console()
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    brokers: tuple[int, ...]
    messages: int
    turns: int
    filters: int
    burst: int


FULL: Final = Plan((1, 4, 10, 20), 20_000, 3, 40, 10_000)
QUICK: Final = Plan((1, 4), 5_000, 1, 10, 10_000)


class IdleFigure(msgspec.Struct, frozen=True):
    brokers: int
    mode: str
    idle_us: float  # a message, at a broker where nobody wants it
    reader_us: float  # … at the one where somebody does
    store_us: float


class FilterFigure(msgspec.Struct, frozen=True):
    p50_ms: float
    p95_ms: float


class BurstFigure(msgspec.Struct, frozen=True):
    filters: int
    seconds: float
    readers: int


class Figures(msgspec.Struct, frozen=True):
    quick: bool
    idle: tuple[IdleFigure, ...]
    filter: FilterFigure
    burst: BurstFigure


# ── one broker ───────────────────────────────────────────────────────────────────────────────────────────────


async def opened(urls: Sequence[str], token: str) -> tuple[JetStreamStore, Log]:
    store = await JetStreamStore.connect(tuple(urls), token=token, name="locality", deadline_s=30)
    return store, await store.log(messages_log(NETWORK, None, None))


async def serve(job: dict[str, Any]) -> None:
    """A process: reads as a broker does, and answers what it spent. Its input says when."""
    store, log = await opened(job["urls"], job["token"])
    seen, wanted, all_seen = 0, 0, asyncio.Event()

    def dispatch(entry: Entry, publication: Publication) -> bool:
        nonlocal seen
        seen += 1
        if seen == wanted:
            all_seen.set()
        return bool(job["reads"])

    message_log = MessageLog(log, NETWORK, records_max=100, pressure=lambda held: None, mode=job["mode"])
    await message_log.open()
    following = asyncio.create_task(message_log.follow(dispatch))
    filters = ["plant/#"] if job["reads"] else [f"other/{job['number']}/{i}/#" for i in range(FILTERS)]
    for each in filters:
        message_log.want(each)
    await message_log.cover(filters)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    began = time.process_time()
    while line := (await lines.readline()).decode().strip():
        if line.startswith("begin"):
            began, seen, wanted = time.process_time(), 0, int(line.split()[1])
            all_seen.clear()
        elif line == "spent":
            if job["reads"]:
                await all_seen.wait()
            print(json.dumps({"s": time.process_time() - began}), flush=True)
        else:
            print(json.dumps(await _cover(message_log, line)), flush=True)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()


async def _cover(message_log: MessageLog, line: str) -> dict[str, Any]:
    kind, count = line.split()
    taken: list[float] = []
    if kind == "filters":
        for number in range(int(count)):
            await asyncio.sleep(SELDOM_S)
            begin = time.perf_counter()
            message_log.want(each := f"new/{number}")
            await message_log.cover([each])
            taken.append(1_000 * (time.perf_counter() - begin))
        return {"ms": taken}
    readers, begin = message_log.reading.switches, time.perf_counter()
    names = [f"burst/{number % 100}/{number}" for number in range(int(count))]
    await asyncio.gather(*(message_log.cover([each]) for each in names))
    return {"s": time.perf_counter() - begin, "readers": message_log.reading.switches - readers}


class Broker:
    """Such a process, as its parent sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, servers: LocalServers, number: int, mode: str, *, reads: bool) -> Broker:
        urls, token = servers.urls, servers.token
        job = json.dumps({"urls": urls, "token": token, "mode": mode, "number": number, "reads": reads})
        command = (sys.executable, "-m", "bench.locality", "--broker", job)
        pipe = asyncio.subprocess.PIPE
        found = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
        assert await found._line() == "ready"
        return found

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def ask(self, line: str) -> dict[str, Any]:
        self.tell(line)
        found: dict[str, Any] = json.loads(await self._line())
        return found

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


# ── what is measured ─────────────────────────────────────────────────────────────────────────────────────────


def spent_s(pid: int) -> float:
    """Processor time of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def publish(servers: LocalServers, messages: int, turn: int) -> None:
    store, log = await opened(servers.urls, servers.token)
    payloads = [
        (
            subject_of(f"plant/{topic}", NETWORK),
            encode_publication(Publication(f"plant/{topic}", PAYLOAD, 1, "p")),
        )
        for topic in range(TOPICS)
    ]
    for first in range(0, messages, BATCH):
        lot = [(i, payloads[i % TOPICS]) for i in range(first, first + BATCH)]
        await log.append([Record(subject, payload, f"{turn}-{i}") for i, (subject, payload) in lot])
    await store.close()


async def one_turn(
    servers: LocalServers, plan: Plan, count: int, mode: str, turn: int
) -> tuple[float, float, float]:
    """What a message costs: an idle broker, the one that reads it, the store."""
    reader = await Broker.start(servers, count, mode, reads=True)
    idle = [await Broker.start(servers, number, mode, reads=False) for number in range(count)]
    for each in (reader, *idle):
        each.tell(f"begin {plan.messages}")
    await asyncio.sleep(0.5)
    pid = servers.pid(servers.names[0])
    before_s = spent_s(pid)
    await publish(servers, plan.messages, turn)
    read = await reader.ask("spent")
    await asyncio.sleep(0.5)
    store_s = spent_s(pid) - before_s
    spent = [(await each.ask("spent"))["s"] for each in idle]
    for each in (reader, *idle):
        await each.end()
    return (
        1e6 * statistics.mean(spent) / plan.messages,
        1e6 * read["s"] / plan.messages,
        1e6 * store_s / plan.messages,
    )


async def measure_idle(plan: Plan, servers: LocalServers) -> list[IdleFigure]:
    figures, turn = [], 0
    for count in plan.brokers:
        found: dict[str, list[tuple[float, float, float]]] = {mode: [] for mode in MODES}
        for _ in range(plan.turns):
            for mode in MODES:
                turn += 1
                found[mode].append(await one_turn(servers, plan, count, mode, turn))
        for mode, turns in found.items():
            figures.append(IdleFigure(count, mode, *map(statistics.median, zip(*turns, strict=True))))
            CONSOLE.print(figures[-1])
    return figures


async def measure_filters(plan: Plan, servers: LocalServers) -> tuple[FilterFigure, BurstFigure]:
    one = await Broker.start(servers, 0, "wanted", reads=False)
    taken = sorted((await one.ask(f"filters {plan.filters}"))["ms"])
    await one.end()
    another = await Broker.start(servers, 0, "wanted", reads=False)
    burst = await another.ask(f"burst {plan.burst}")
    await another.end()
    middle, late = taken[len(taken) // 2], taken[int(len(taken) * 0.95)]
    return FilterFigure(middle, late), BurstFigure(plan.burst, burst["s"], burst["readers"])


def show(figures: Figures) -> None:
    grid = Grid("brokers", "messages.read", "idle broker", "reading broker", "store", title="µs a message")
    for each in figures.idle:
        figures_us = (each.idle_us, each.reader_us, each.store_us)
        grid.add_row(str(each.brokers), each.mode, *(f"{value:.2f}" for value in figures_us))
    CONSOLE.print(grid)
    CONSOLE.print(
        f"a new filter is read after {figures.filter.p50_ms:.1f} ms (p95 {figures.filter.p95_ms:.1f})"
    )
    burst = figures.burst
    CONSOLE.print(f"{burst.filters} filters at once: {burst.seconds:.2f} s, {burst.readers} readers")


async def measure(plan: Plan, *, quick: bool) -> Figures:
    with tempfile.TemporaryDirectory() as directory, LocalServers(Path(directory)) as servers:
        idle = await measure_idle(plan, servers)
        found = await measure_filters(plan, servers)
    return Figures(quick, tuple(idle), *found)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.locality", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer brokers and messages")
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if chosen.broker is not None:
        uvloop.run(serve(json.loads(chosen.broker)))
        return 0
    figures = uvloop.run(measure(QUICK if chosen.quick else FULL, quick=chosen.quick))
    show(figures)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
