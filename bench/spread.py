"""How many durable messages a second brokers with disjoint interests carry together, beside the store's own limit.

Each broker commits its publishers' messages, so many unacknowledged at a time, and reads its own back from the log, and
nobody else's. A broker is here what each broker has of the message log (``broker.delivery.message_log``) in a process
of its own, over a real server. What the sockets of clients cost is not in it.

The limit is what appends bring that nobody reads: batches of a thousand, four at a time, from one process, as in
``bench store``. It is measured in turn with the brokers. How busy each process was says which one is the limit.
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

from bench.locality import NETWORK, opened, spent_s
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import subject_of
from tocsin.ports import Entry, Record
from tocsin.store.servers.testing import LocalServers

RESULTS: Final = Path(__file__).parent / "results" / "spread.json"
PAYLOAD: Final = b"x" * 256  # as ``bench store`` has it
TOPICS: Final = 10  # of a broker
IN_FLIGHT: Final = 3_000  # messages of a broker that are not acknowledged: enough for appends of a thousand
RECORDS_MAX: Final = 10_000  # that wait for the store: ``limits.inflight_commits_max`` as it ships
BATCH: Final = 1_000
APPENDS: Final = 4
LIMIT_DEPTH: Final = "batches of 1 000, four at a time"
CONSOLE: Final = Console()


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    brokers: tuple[int, ...]
    turn_s: float
    turns: int


FULL: Final = Plan((1, 2, 4, 8), 2.0, 2)
QUICK: Final = Plan((1, 2), 1.5, 1)


class SpreadFigure(msgspec.Struct, frozen=True):
    brokers: int
    mode: str
    per_s: float  # messages, committed and read back, of all brokers
    share: float  # of the store's limit in the same turn
    store_busy: float  # of a core
    brokers_busy: float  # of a core, all of them


class Turn(msgspec.Struct, frozen=True):
    """What one turn of some brokers found."""

    per_s: float
    share: float
    store_busy: float
    brokers_busy: float


class Committer:
    """One broker's publishers: keeps so many messages unacknowledged, until its time is over."""

    def __init__(self, log: MessageLog, number: int, turn: int) -> None:
        self._log = log
        self._topics = [f"hall/{number}/{topic}" for topic in range(TOPICS)]
        self._name = f"{turn}.{number}"
        self._sent = self._acknowledged = 0
        self._going = True
        self.over = asyncio.Event()

    @property
    def acknowledged(self) -> int:
        return self._acknowledged

    def begin(self, turn_s: float) -> None:
        asyncio.get_running_loop().call_later(turn_s, self._stop)
        for _ in range(IN_FLIGHT):
            self._send()

    def _stop(self) -> None:
        self._going = False

    def _send(self) -> None:
        topic = self._topics[self._sent % TOPICS]
        self._sent += 1
        self._log.commit(Publication(topic, PAYLOAD, 1, "p"), f"{self._name}.{self._sent}", self._stored)

    def _stored(self, error: TocsinError | None, position: int) -> None:
        assert error is None, error
        self._acknowledged += 1
        if self._going:
            self._send()
        elif self._acknowledged == self._sent:
            self.over.set()


async def serve(job: dict[str, Any]) -> None:
    """A process: one broker, for one turn."""
    store, log = await opened(job["urls"], job["token"])
    number, read, want = job["number"], 0, 1 << 60
    prefix, all_read = f"hall/{number}/", asyncio.Event()

    def dispatch(entry: Entry, publication: Publication) -> bool:
        nonlocal read
        if not publication.topic.startswith(prefix):
            return False
        read += 1
        if read >= want:
            all_read.set()
        return True

    message_log = MessageLog(
        log, NETWORK, records_max=RECORDS_MAX, pressure=lambda held: None, mode=job["mode"]
    )
    await message_log.open()
    tasks = [asyncio.create_task(message_log.follow(dispatch)), asyncio.create_task(message_log.commit_all())]
    message_log.want(f"{prefix}#")
    await message_log.cover([f"{prefix}#"])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    committer, begin, cpu = (
        Committer(message_log, number, job["turn"]),
        time.perf_counter(),
        time.process_time(),
    )
    committer.begin(job["turn_s"])
    await committer.over.wait()
    want = committer.acknowledged
    if read < want:
        await all_read.wait()
    taken_s = time.perf_counter() - begin
    told = {"messages": want, "s": taken_s, "cpu_s": time.process_time() - cpu}
    print(json.dumps(told), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()


async def brokers_turn(
    servers: LocalServers, count: int, mode: str, turn: int, turn_s: float
) -> tuple[float, float, float]:
    """Messages a second, and how busy the store and the brokers were."""
    job = {"urls": servers.urls, "token": servers.token, "mode": mode, "turn": turn, "turn_s": turn_s}
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "bench.spread", "--broker")
    started = [
        await asyncio.create_subprocess_exec(
            *command, json.dumps({**job, "number": number}), stdin=pipe, stdout=pipe
        )
        for number in range(count)
    ]
    for each in started:
        assert each.stdout is not None
        assert (await each.stdout.readline()).strip() == b"ready"
    pid = servers.pid(servers.names[0])
    before_s, begin = spent_s(pid), time.perf_counter()
    for each in started:
        assert each.stdin is not None
        each.stdin.write(b"go\n")
    lines = [await each.stdout.readline() for each in started if each.stdout is not None]
    taken_s, store_s = time.perf_counter() - begin, spent_s(pid) - before_s
    for each in started:
        await each.wait()
    told = [json.loads(line) for line in lines]
    per_s = sum(each["messages"] / each["s"] for each in told)
    return per_s, store_s / taken_s, sum(each["cpu_s"] for each in told) / taken_s


async def limit(servers: LocalServers, turn: int, turn_s: float) -> float:
    """Appends a second that nobody reads."""
    store, log = await opened(servers.urls, servers.token)
    topic = "limit/0"
    subject = subject_of(topic, NETWORK)
    payload = encode_publication(Publication(topic, PAYLOAD, 1, "p"))
    written, begin = 0, time.perf_counter()

    async def append(lane: int) -> None:
        nonlocal written
        number = 0
        while time.perf_counter() - begin < turn_s:
            records = [Record(subject, payload, f"limit.{turn}.{lane}.{number + i}") for i in range(BATCH)]
            await log.append(records)
            number += BATCH
            written += BATCH

    await asyncio.gather(*(append(lane) for lane in range(APPENDS)))
    per_s = written / (time.perf_counter() - begin)
    await store.close()
    return per_s


async def measure(plan: Plan) -> list[SpreadFigure]:
    found: dict[tuple[int, str], list[Turn]] = {}
    turn = 0
    with tempfile.TemporaryDirectory() as directory, LocalServers(Path(directory)) as servers:
        for _ in range(plan.turns):
            for count in plan.brokers:
                for mode in ("wanted", "all"):
                    turn += 1
                    most = await limit(servers, turn, plan.turn_s)
                    per_s, store, brokers = await brokers_turn(servers, count, mode, turn, plan.turn_s)
                    figures = found.setdefault((count, mode), [])
                    figures.append(Turn(per_s, per_s / most, store, brokers))
    return [
        SpreadFigure(
            count, mode, *(statistics.median(column) for column in zip(*map(_row, turns), strict=True))
        )
        for (count, mode), turns in found.items()
    ]


def _row(turn: Turn) -> tuple[float, float, float, float]:
    return turn.per_s, turn.share, turn.store_busy, turn.brokers_busy


def show(figures: Sequence[SpreadFigure]) -> None:
    grid = Grid("brokers", "messages.read", "messages/s", "of the limit", "store busy", "brokers busy")
    for each in figures:
        grid.add_row(
            str(each.brokers),
            each.mode,
            f"{each.per_s:,.0f}",
            f"{each.share:.0%}",
            f"{each.store_busy:.0%}",
            f"{each.brokers_busy:.0%}",
        )
    CONSOLE.print(grid)
    CONSOLE.print(f"limit: appends that nobody reads, {LIMIT_DEPTH}; busy: of one core of {os.cpu_count()}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spread", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer brokers, shorter turns")
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if chosen.broker is not None:
        uvloop.run(serve(json.loads(chosen.broker)))
        return 0
    figures = uvloop.run(measure(QUICK if chosen.quick else FULL))
    show(figures)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
