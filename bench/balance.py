"""What ``balance.mode`` changes: the spread of clients over brokers, what brokers ask each other for, who notices.

A network of three brokers in a cluster. All clients come to the first: groups of them that are subscribed to the same
topic, at QoS 1. Every topic gets a message every second. With ``balance.mode = "on"`` clients move until the brokers
are about as full as each other; with ``off`` nothing moves. Measured in both modes, one after the other:

- how many clients each broker has in the end, and how long that took;
- how often a client was moved;
- **routes**: the topics that each broker asks for, in sum. Of whole groups that move a topic leaves its broker; of a
  group that is broken up two brokers ask for it;
- messages that a client missed, or got twice;
- the latency of a flow of messages at QoS 0 through the first broker, between two plain clients that stay: before,
  while clients move, and afterwards;
- the processor time of each broker afterwards, as a share of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.load.figures import Percentiles, percentiles
from bench.load.servers import _cpu_s
from bench.storm import flow
from bench.told import until
from tocsin.client import AsyncClient
from tocsin.client.options import Connection
from tocsin.client.subscription import Subscription

RESULTS: Final = Path(__file__).parent / "results"
BROKERS: Final = ("north-1", "north-2", "north-3")
GROUPS, QUICK_GROUPS = 30, 9
EACH: Final = 10  # clients of a group
THRESHOLD_PERCENT: Final = 10
REST_S: Final = 3
EVERY_S: Final = 1.0  # between two messages of a topic
CALM_S, QUICK_CALM_S = 15.0, 5.0  # before, and afterwards
STILL_S: Final = 15.0  # without a move: longer than the leader rests between two batches
MOVING_S: Final = 120.0  # at most
DEADLINE_S: Final = 60.0
AGAIN_S: Final = 0.05


class Case(msgspec.Struct, frozen=True):
    """One mode."""

    mode: str
    clients: int
    groups: int
    spread: dict[str, int]  # clients of each broker, in the end
    took_s: float  # from the first move to the last
    moves: int
    most_moves: int  # of one client
    routes: tuple[int, int]  # before, and in the end
    sent: int  # messages that were due to clients
    missed: int
    twice: int
    before: Percentiles | None  # of the flow, in microseconds
    moving: Percentiles | None
    after: Percentiles | None
    busy: dict[str, float]  # share of a core of each broker, afterwards


class Crowd:
    """Clients that come to one broker, where they are by now, and what they have heard."""

    def __init__(self, first: str, names: dict[str, str], groups: int) -> None:
        self._names = names  # server → broker
        self.at: dict[str, str] = {}
        self.moves: Counter[str] = Counter()
        self.moved_s: list[float] = []
        self.heard: dict[str, Counter[int]] = {}
        self.group: dict[str, int] = {}
        self.clients: list[AsyncClient] = []
        for number in range(groups * EACH):
            name = f"c-{number:04}"
            self.group[name], self.heard[name] = number % groups, Counter()
            told = partial(self._told, name)
            self.clients.append(
                AsyncClient(first, client_id=name, session_expiry_s=600, watch=False, on_connection=told)
            )

    def _told(self, name: str, connection: Connection) -> None:
        if not connection.up:
            return
        broker = self._names[connection.server]
        if name in self.at and self.at[name] != broker:
            self.moves[name] += 1
            self.moved_s.append(time.monotonic())
        self.at[name] = broker

    async def gather(self, name: str, messages: Subscription) -> None:
        async for message in messages:
            self.heard[name][int(message.payload)] += 1

    def has_heard(self, due: set[int]) -> bool:
        return all(due <= heard.keys() for heard in self.heard.values())

    @property
    def spread(self) -> dict[str, int]:
        counted = Counter(self.at.values())
        return {broker: counted[broker] for broker in BROKERS}

    @property
    def routes(self) -> int:
        return len({(broker, self.group[name]) for name, broker in self.at.items()})


@contextlib.asynccontextmanager
async def network(mode: str, room: int) -> AsyncIterator[dict[str, Any]]:
    brokers = json.dumps([{"id": each, "cluster": "north"} for each in BROKERS])
    sets = (
        f"brokers={brokers}",
        f"balance.mode={mode}",
        f"balance.threshold_percent={THRESHOLD_PERCENT}",
        f"balance.rest_s={REST_S}",
        f"limits.connections_max={room}",
        "pipeline.enabled=never",
        "log.level=error",
    )
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            ready = json.loads(await process.stdout.readline())
        yield ready
    finally:
        process.terminate()
        await process.wait()


async def publish(client: AsyncClient, groups: int, sent: list[int]) -> None:
    """A message to every topic, again and again."""
    for number in range(1 << 30):
        began = time.monotonic()
        await asyncio.gather(
            *(client.publish(f"room/{group}", str(number).encode(), qos=1) for group in range(groups))
        )
        sent.append(number)
        await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))


async def measure(mode: str, groups: int, calm_s: float) -> Case:
    clients = groups * EACH
    async with network(mode, 2 * clients) as ready, contextlib.AsyncExitStack() as stack:
        servers = {each["id"]: (each["host"], int(each["port"])) for each in ready["brokers"]}
        names = {f"{host}:{port}": name for name, (host, port) in servers.items()}
        pids = {name: ready["pids"][f"broker/{name}"] for name in BROKERS}
        crowd = Crowd("mqtt://{}:{}".format(*servers[BROKERS[0]]), names, groups)
        sender = await stack.enter_async_context(
            AsyncClient("mqtt://{}:{}".format(*servers[BROKERS[1]]), client_id="sender", watch=False)
        )
        ours, theirs = multiprocessing.Pipe()
        runner = multiprocessing.get_context("spawn").Process(target=flow, args=(servers[BROKERS[0]], theirs))
        runner.start()
        await asyncio.to_thread(ours.recv)
        began = time.monotonic()
        tasks = []
        for name, client in zip(crowd.group, crowd.clients, strict=True):
            await client.connect()
            stack.push_async_callback(client.close, settle=False)
            messages = await client.subscribe(f"room/{crowd.group[name]}", qos=1)
            tasks.append(asyncio.create_task(crowd.gather(name, messages)))
        routes, come = crowd.routes, time.monotonic()
        sent: list[int] = []
        publishing = asyncio.create_task(publish(sender, groups, sent))
        await asyncio.sleep(calm_s)
        while time.monotonic() - come < MOVING_S:
            last = crowd.moved_s[-1] if crowd.moved_s else come + calm_s
            if time.monotonic() - last > STILL_S:
                break
            await asyncio.sleep(AGAIN_S)
        still, before = time.monotonic(), {name: _cpu_s(pid) for name, pid in pids.items()}
        await asyncio.sleep(calm_s)
        took_s = time.monotonic() - still
        busy = {name: (_cpu_s(pid) - before[name]) / took_s for name, pid in pids.items()}
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        due = set(sent)
        patience = time.monotonic() + DEADLINE_S
        await until(lambda: crowd.has_heard(due) or time.monotonic() > patience)
        ours.send("stop")
        taken = await asyncio.to_thread(ours.recv)
        runner.join()
        for task in tasks:
            task.cancel()
    first = crowd.moved_s[0] if crowd.moved_s else still
    last = crowd.moved_s[-1] if crowd.moved_s else still
    return Case(
        mode,
        clients,
        groups,
        crowd.spread,
        last - first,
        crowd.moves.total(),
        max(crowd.moves.values(), default=0),
        (routes, crowd.routes),
        len(due) * clients,
        sum(len(due - set(heard)) for heard in crowd.heard.values()),
        sum(count - 1 for heard in crowd.heard.values() for count in heard.values()),
        percentiles([took for at_s, took in taken if began <= at_s < first]),
        percentiles([took for at_s, took in taken if first <= at_s <= last]),
        percentiles([took for at_s, took in taken if last < at_s]),
        busy,
    )


def show(case: Case) -> None:
    def of(each: Percentiles | None) -> str:
        return "none" if each is None else f"p50 {each.p50 / 1e3:.1f} p99 {each.p99 / 1e3:.1f} ms"

    spread = " · ".join(str(each) for each in case.spread.values())
    busy = " · ".join(f"{100 * each:.1f} %" for each in case.busy.values())
    print(
        f"  {case.mode:4} clients {spread}; {case.moves} moves in {case.took_s:.1f} s, of one client "
        f"{case.most_moves} at most; routes {case.routes[0]} → {case.routes[1]} of {case.groups} topics\n"
        f"       {case.sent:,} messages due: missed {case.missed}, twice {case.twice}; brokers busy {busy}\n"
        f"       flow before: {of(case.before)}; while clients move: {of(case.moving)}; after: {of(case.after)}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.balance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients, shorter")
    parser.add_argument("--groups", type=int, help=f"of {EACH} clients each")
    chosen = parser.parse_args(argv)
    groups = chosen.groups or (QUICK_GROUPS if chosen.quick else GROUPS)
    calm_s = QUICK_CALM_S if chosen.quick else CALM_S
    cases = []
    for mode in ("off", "on"):
        cases.append(uvloop.run(measure(mode, groups, calm_s)))
        show(cases[-1])
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {"machine": machine, "cases": msgspec.to_builtins(cases)}
    (RESULTS / "balance.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
