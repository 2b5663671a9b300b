"""V-B, the coordinator: alone, and with replicas whose leader is killed (SIGKILL) on the way.

Publishers come one after the other; then their metadata change. The **gap** is the longest silence at the subscribers
that lasts at the kill, or begins within seconds of it. Changes that were made in the gap are told after it, and so have
latencies of up to its length; the paper's brokers could send none in that time. So the spread is of the others, and
that of all stands beside it.
"""

from __future__ import annotations

import csv
import os
import signal
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import msgspec

from tocsin_demo.network import Running, network_of, running
from tocsin_demo.worker import News, Worker
from tocsin_labs.cqbs.dummies import Job
from tocsin_labs.cqbs.plan import Coordination
from tocsin_labs.figures import Spread
from tocsin_labs.stage import Stage

DUMMIES: Final = "tocsin_labs.cqbs.dummies"
NEAR_S: Final = 5.0  # after the kill: a silence that begins later has another cause


class Coordinated(msgspec.Struct, frozen=True):
    """The outcome of the changes."""

    coordinators: int
    servers: int
    changes: int  # made, those by which publishers came among them
    expected: int  # notices that subscribers are due, by asking every query about every change
    lost: int  # of those
    unexpected: int
    queries: int
    sets_wrong: int  # queries whose streams, at the end, are not those that satisfy it
    undisturbed: Spread | None  # milliseconds from a change until a subscriber's broker has heard of it
    first: Spread | None  # the same of the subscriber that heard of a change first
    all: Spread | None  # of every subscriber, with changes that were made in the gap
    switched_s: float | None  # when the last publisher came
    killed_s: float | None = None
    gap_s: float | None = None
    partial: bool = False


class Sample(msgspec.Struct, frozen=True):
    """One notice."""

    sent_s: float
    latency_ms: float
    change: int

    @property
    def heard_s(self) -> float:
        return self.sent_s + self.latency_ms / 1e3


async def run(
    plan: Coordination,
    seed: int,
    stage: Stage,
    *,
    coordinators: Literal[1, 3, 5],
    servers: Literal[1, 3],
) -> Coordinated:
    name = "replicated" if coordinators > 1 else "alone"
    words = f"coordinator, {name}: {plan.subscribers} subscribers, {plan.publishers} publishers"
    stage.tell(f"coordinator, {name}: the network starts", 0.0)
    raw = stage.out / f"coordinator-{name}.csv"
    async with (
        running(network_of(coordinators=coordinators, servers=servers)) as network,
        AsyncExitStack() as stack,
    ):
        dummies = await Worker.start(DUMMIES, "dummies", _job(plan, network, seed, raw))
        stack.push_async_callback(dummies.close)
        await dummies.until("ready")
        total = plan.publishers + plan.changes
        kill_at = plan.publishers + plan.changes * plan.kill_after if coordinators > 1 else None
        killed_ns: int | None = None

        def hear(news: News) -> None:
            nonlocal killed_ns
            stage.tell(words, news.count / total)
            if kill_at is not None and news.count >= kill_at and killed_ns is None:
                killed_ns = _kill(network)

        async with stage.ends(dummies):
            done = await dummies.until("done", hear)
    return account(plan, done, raw, killed_ns, coordinators, servers, partial=stage.is_cut)


def _job(plan: Coordination, network: Running, seed: int, raw: Path) -> Job:
    settings = network.settings
    return Job(
        nats=settings.nats,
        network=settings.network,
        heartbeat_us=settings.membership.beat_ms * 1_000,
        plan=plan,
        seed=seed,
        raw=str(raw),
    )


def _kill(network: Running) -> int | None:
    """Kill the leader; when that was. None if nobody leads just now: to be tried again."""
    pid = network.leader()
    if pid is None:
        return None
    os.kill(pid, signal.SIGKILL)
    return time.monotonic_ns()


def account(
    plan: Coordination,
    done: News,
    raw: Path,
    killed_ns: int | None,
    coordinators: int,
    servers: int,
    *,
    partial: bool,
) -> Coordinated:
    """The result of the samples in the file ``raw``."""
    samples = read(raw)
    killed_s = None if killed_ns is None else (killed_ns - done.found["began_ns"]) / 1e9
    silence = None if killed_s is None else gap(samples, killed_s)
    calm = [each for each in samples if silence is None or not silence[0] <= each.sent_s <= silence[1]]
    first: dict[int, float] = {}
    for each in calm:
        first[each.change] = min(each.latency_ms, first.get(each.change, each.latency_ms))
    switched = [each.sent_s for each in samples if each.change > plan.publishers]
    return Coordinated(
        coordinators=coordinators,
        servers=servers,
        changes=done.count,
        expected=done.found["expected"],
        lost=done.found["lost"],
        unexpected=done.found["unexpected"],
        queries=done.found["queries"],
        sets_wrong=done.found["sets_wrong"],
        undisturbed=Spread.of(each.latency_ms for each in calm),
        first=Spread.of(first.values()),
        all=Spread.of(each.latency_ms for each in samples),
        switched_s=min(switched, default=None),
        killed_s=killed_s,
        gap_s=None if silence is None else silence[1] - silence[0],
        partial=partial,
    )


def gap(samples: list[Sample], killed_s: float) -> tuple[float, float] | None:
    """The longest silence that lasts at the kill, or begins soon after it: from when to when."""
    heard = sorted(each.heard_s for each in samples)
    silences = [
        (before, after)
        for before, after in pairwise(heard)
        if after > killed_s and before < killed_s + NEAR_S
    ]
    return max(silences, key=lambda each: each[1] - each[0], default=None)


def read(path: Path) -> list[Sample]:
    with path.open(newline="") as file:
        return [
            Sample(float(row["sent_s"]), float(row["latency_ms"]), int(row["change"]))
            for row in csv.DictReader(file)
        ]
