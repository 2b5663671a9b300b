"""The costs of the coordinator: applying, snapshots, and a change on its way to another broker.

- *apply*: commands that a replica applies in a CPU second, each a change of one stream's metadata that one query
  follows;
- *snapshot*: CPU time and size of writing the state down, and of reading it back;
- *change*: from a broker's change of a stream until another, whose query it then satisfies, has heard of it, on a real
  server that syncs every write; and until the publisher's broker knows that the way is clear. Everything
  but the server runs in this process: the figures include the work of all machines on one core;
- *gap*: three coordinator processes, of which the leader is killed (SIGKILL) while changes are made one after the
  other: how long the longest of them took to be heard of.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from tocsin.config import Log as Logging
from tocsin.config import Nats, Settings, to_json
from tocsin.coordinator.status import Status, read_all
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    ChangesKnown,
    ClientsChanged,
    QueriesChanged,
    QuerySetKnown,
    StreamChanged,
    StreamJoined,
)
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo, Role, broker_address, coordinator_address
from tocsin.model.stream import LISTING
from tocsin.ports import Log, Table
from tocsin.query import parse
from tocsin.runtime.machines.driver import Driver
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers
from tocsin.wire.internal.commands import Elected, Joined, Limits, Queries, Said, Streams

RESULTS = Path(__file__).parent / "results"
STREAMS, QUICK_STREAMS = 100_000, 10_000
QUERIES, QUICK_QUERIES = 10_000, 1_000
CHANGES, QUICK_CHANGES = 500, 50
KILLS, QUICK_KILLS = 10, 2
DEADLINE_S = 60.0
PLACES = StoreNames("bench")
# A coordinator process whose settings are an argument: the token of a test server is none that settings may have.
PROGRAM = """
import sys
from tocsin.config import from_json
from tocsin.coordinator.main import serve
from tocsin.runtime.process import run
name, settings = sys.argv[1:]
sys.exit(run(name, from_json(settings.encode()), lambda process: serve(process, name)))
"""


def info(number: int) -> BrokerInfo:
    return BrokerInfo(f"broker-{number}", "lan", Role.EDGE, "127.0.0.1", 1)


def state_of(streams: int, queries: int) -> tuple[State, float]:
    """A state with so many streams and queries, and the commands that were applied in a CPU second of making it."""
    state = State()
    state.apply(0, (Elected("bench", Limits()), Said("broker-1", 1, 1, (Joined(info(1)),))))
    asked = tuple(
        (query.id, query.text) for query in (parse(f"room = {number}") for number in range(queries))
    )
    state.apply(0, (Said("broker-1", 1, 2, (Queries(asked),)),))
    changes = [
        Streams(
            f"client-{number}",
            60,
            ((f"building/{number}", {"room": number % queries, "kind": "lamp", "floor": number % 7}),),
        )
        for number in range(streams)
    ]
    began = time.process_time()
    for number, change in enumerate(changes, 3):
        state.apply(number, (Said("broker-1", 1, number, (change,)),))
    return state, streams / (time.process_time() - began)


def measure_state(streams: int, queries: int) -> dict[str, float]:
    state, rate = state_of(streams, queries)
    began = time.process_time()
    pieces = snapshot.take(state)
    taken = time.process_time() - began
    began = time.process_time()
    snapshot.restore(pieces)
    restored = time.process_time() - began
    size = sum(map(len, pieces))
    print(f"  {streams:,} streams, {queries:,} queries: {rate:,.0f} commands applied in a CPU second")
    print(
        f"  snapshot of {size / 1e6:.1f} MB: written in {taken:.2f}, read back in {restored:.2f} CPU seconds"
    )
    return {
        "streams": streams,
        "queries": queries,
        "commands_per_cpu_s": rate,
        "snapshot_bytes": size,
        "take_cpu_s": taken,
        "restore_cpu_s": restored,
    }


class Node:
    """A participant that says when it hears of something."""

    def __init__(self, store: JetStreamStore, log: Log, number: int) -> None:
        self.machine = Participant(info(number), PLACES, 1_000_000)
        self.heard: dict[str, asyncio.Future[float]] = {}
        self.driver = Driver(
            self.machine,
            broker_address(info(number).id),
            store,
            network=PLACES.network,
            own=self._own,
            logs={PLACES.commands.name: log},
        )

    def expect(self, what: str) -> asyncio.Future[float]:
        self.heard[what] = asyncio.get_running_loop().create_future()
        return self.heard[what]

    def _own(self, effect: Effect) -> None:
        match effect:
            case StreamJoined(metadata=metadata) | StreamChanged(metadata=metadata):
                self._note(f"mark {metadata['mark']}")
            case QuerySetKnown():
                self._note("known")
            case ChangesKnown(ticket=ticket):
                self._note(f"clear {ticket}")

    def _note(self, what: str) -> None:
        waiting = self.heard.pop(what, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(time.perf_counter())


async def measure_changes(directory: Path, changes: int, coordinators: int, servers: int) -> dict[str, float]:
    with LocalServers(directory, servers=servers) as running:
        replicas = 3 if servers == 3 else 1
        store = await JetStreamStore.connect(
            running.urls, token=running.token, replicas=replicas, name="bench", deadline_s=30
        )
        log, snapshots = await store.log(PLACES.commands), await store.log(PLACES.snapshots)
        tables = {PLACES.table.name: await store.table(PLACES.table)}
        options = Options(suspect_after_us=5_000_000, lease_us=2_000_000, snapshot_every=1_000_000)
        drivers = [
            Driver(
                Coordinator(f"coordinator-{number}", PLACES, options),
                coordinator_address(str(number)),
                store,
                network=PLACES.network,
                logs={PLACES.commands.name: log, PLACES.snapshots.name: snapshots},
                tables=tables,
            )
            for number in range(1, coordinators + 1)
        ]
        one, two = Node(store, log, 1), Node(store, log, 2)
        tasks = [asyncio.create_task(each.run()) for each in (*drivers, one.driver, two.driver)]
        try:
            async with asyncio.timeout(DEADLINE_S + changes):
                return await _measure(one, two, changes)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await store.close()


async def _ask(subscriber: Node) -> None:
    query = parse("kind = 'lamp'")
    known = subscriber.expect("known")
    subscriber.driver.post(QueriesChanged(added=((LISTING + query.id, query.text),)))
    await known


async def _measure(publisher: Node, subscriber: Node, changes: int) -> dict[str, float]:
    await _ask(subscriber)
    heard, clear = [], []
    for mark in range(1, changes + 1):
        change = Streams("anna", 60, ((f"lamp/{mark}", {"kind": "lamp", "mark": mark}),))
        joined, cleared = subscriber.expect(f"mark {mark}"), publisher.expect(f"clear {mark}")
        began = time.perf_counter()
        publisher.driver.post(ClientsChanged(ticket=mark, command=change))
        heard.append((await joined - began) * 1e3)
        clear.append((await cleared - began) * 1e3)
    return {**_spread("heard", heard), **_spread("clear", clear)}


async def measure_gap(directory: Path, rounds: int) -> list[float]:
    """Seconds without a leader, as a publisher sees them, of so many kills."""
    with LocalServers(directory) as running, contextlib.ExitStack() as stack:
        store = await JetStreamStore.connect(running.urls, token=running.token, name="bench", deadline_s=30)
        log, table = await store.log(PLACES.commands), await store.table(PLACES.table)
        settings = Settings(
            network=PLACES.network,
            nats=Nats(urls=running.urls, token=running.token),
            log=Logging(level="error"),
        )

        def start(name: str) -> None:
            process = subprocess.Popen((sys.executable, "-P", "-c", PROGRAM, name, to_json(settings)))
            stack.callback(process.wait)
            stack.callback(process.kill)

        for number in range(1, 4):
            start(f"coordinator-{number}")
        one, two = Node(store, log, 1), Node(store, log, 2)
        tasks = [asyncio.create_task(each.driver.run()) for each in (one, two)]
        try:
            gaps: list[float] = []
            async with asyncio.timeout(DEADLINE_S * (1 + rounds)):
                await _ask(two)
                for round_ in range(rounds):
                    leader = await _settled_leader(table)
                    os.kill(leader.pid, signal.SIGKILL)
                    changes = (1 + round_) * 1_000
                    times = [await _heard_s(one, two, changes + number) for number in range(5)]
                    gaps.append(max(times))
                    start(leader.id)
            return gaps
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await store.close()


async def _settled_leader(table: Table) -> Status:
    """The leader, once all three are there and one of them leads."""
    while True:
        found = await read_all(table)
        leaders = [each for each in found if each.role == "leader"]
        if len(found) == 3 and len(leaders) == 1 and all(each.role != "restoring" for each in found):
            await asyncio.sleep(2.0)  # so that what was said of a killed one is gone
            if leaders == [each for each in await read_all(table) if each.id == leaders[0].id]:
                return leaders[0]
        await asyncio.sleep(0.1)


async def _heard_s(publisher: Node, subscriber: Node, mark: int) -> float:
    change = Streams("anna", 60, ((f"lamp/{mark}", {"kind": "lamp", "mark": mark}),))
    joined = subscriber.expect(f"mark {mark}")
    began = time.perf_counter()
    publisher.driver.post(ClientsChanged(ticket=mark, command=change))
    return await joined - began


def _spread(name: str, times_ms: list[float]) -> dict[str, float]:
    return {
        f"{name}_mean_ms": statistics.fmean(times_ms),
        f"{name}_p50_ms": statistics.median(times_ms),
        f"{name}_p95_ms": statistics.quantiles(times_ms, n=20)[-1],
    }


def main(argv: Sequence[str] | None = None) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(prog="python -m bench.coordinator", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller")
    quick = parser.parse_args(argv).quick
    print("state")
    figures: dict[str, object] = {
        "state": measure_state(*((QUICK_STREAMS, QUICK_QUERIES) if quick else (STREAMS, QUERIES)))
    }
    print("change, heard by another broker / clear (ms: mean, median, 95th percentile)")
    cases: tuple[tuple[str, int, int], ...] = (("one of each", 1, 1), ("3 coordinators", 3, 1))
    if not quick:
        cases = (*cases, ("3 coordinators, 3 servers", 3, 3))
    for name, coordinators, servers in cases:
        changes = QUICK_CHANGES if quick else CHANGES
        with (
            tempfile.TemporaryDirectory() as directory,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            each = runner.run(measure_changes(Path(directory), changes, coordinators, servers))
        figures[name] = each
        shown = [
            " ".join(f"{each[f'{what}_{kind}_ms']:7.2f}" for kind in ("mean", "p50", "p95"))
            for what in ("heard", "clear")
        ]
        print(f"  {name:26} {shown[0]}  / {shown[1]}", flush=True)
    rounds = QUICK_KILLS if quick else KILLS
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        gaps = runner.run(measure_gap(Path(directory), rounds))
    figures["gap"] = {"kills": rounds, "median_s": statistics.median(gaps), "longest_s": max(gaps)}
    print(
        f"leader killed {rounds} times: median gap {statistics.median(gaps):.2f} s, longest {max(gaps):.2f} s"
    )
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    (RESULTS / "coordinator.json").write_text(json.dumps({"machine": machine, **figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
