"""Figure 7c's brokers, without clients: the machines that brokers have, on the real bus and log, in one process.

A **join** is a topic's first subscription at an edge broker. It is in force when every routing broker would carry the
topic there, and the topic's publisher's broker would send it to them: from then on no message is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
import structlog

from tocsin.config import Nats
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import ClientsChanged, InterestsChanged, RoutesChanged
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo, Role, Route, Scope, broker_address
from tocsin.runtime.machines.driver import Driver
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.internal.commands import Streams
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.cqbs.dummies import keep
from tocsin_labs.figures import Spread
from tocsin_labs.pubsubcoord.plan import Joining

MODULE: Final = "tocsin_labs.pubsubcoord.joiners"
READY_S: Final = 90.0
LOOK_S: Final = 0.05
SETTLE_S: Final = 1.0
LATE_S: Final = 60.0  # after the last join, for those that are still to come
CLOUD: Final = "cloud"


class Job(msgspec.Struct, frozen=True):
    nats: Nats
    network: str
    heartbeat_us: int
    plan: Joining
    joins: int


class Told(msgspec.Struct, frozen=True):
    """What became of the joins."""

    joins: int
    missing: int  # never in force
    force_ms: Spread  # from the join until it was in force
    took_s: float  # from the first join until all were


def joins(plan: Joining, count: int) -> list[tuple[int, str]]:
    """Which edge broker wants which topic: each pair once, each topic at as many brokers, the brokers in turn."""
    shift = plan.topics // plan.edges
    found = []
    for number in range(count):
        turn, edge = divmod(number, plan.edges)
        found.append((edge, topic_of((turn + edge * shift) % plan.topics)))
    return found


def topic_of(number: int) -> str:
    return f"topic/{number}"


class Waiting:
    """The joins that are not in force yet."""

    def __init__(self, hubs: int) -> None:
        self.force_ms: list[float] = []
        self.done = asyncio.Event()
        self._hubs = hubs
        self._sent: dict[tuple[str, str], int] = {}  # by edge broker and topic
        self._told: dict[tuple[str, str], int] = {}  # how many hubs have the route
        self._wanting: dict[
            str, list[tuple[str, str]]
        ] = {}  # by topic that its publisher's broker does not send yet
        self._sends: set[str] = set()
        self.all_sent = False

    @property
    def missing(self) -> int:
        return len(self._sent)

    def send(self, edge: str, topic: str, now_ns: int) -> None:
        self._sent[edge, topic] = now_ns
        self._wanting.setdefault(topic, [])

    def onward(self, edge: str, topic: str, now_ns: int) -> None:
        """A hub would carry it there from now on."""
        join = edge, topic
        self._told[join] = self._told.get(join, 0) + 1
        if self._told[join] == self._hubs:
            if topic in self._sends:
                self._in_force(join, now_ns)
            else:
                self._wanting[topic].append(join)

    def sends(self, topic: str, now_ns: int) -> None:
        """Its publisher's broker would send it to the hubs from now on."""
        self._sends.add(topic)
        for join in self._wanting.pop(topic, ()):
            self._in_force(join, now_ns)

    def _in_force(self, join: tuple[str, str], now_ns: int) -> None:
        self.force_ms.append((now_ns - self._sent.pop(join)) / 1e6)
        if self.all_sent and not self._sent:
            self.done.set()


class Joiner:
    """One broker."""

    def __init__(self, info: BrokerInfo, job: Job, store: JetStreamStore, log: Any, waiting: Waiting) -> None:
        places = StoreNames(job.network)
        self.info = info
        self.machine = Participant(info, places, job.heartbeat_us)
        self._waiting = waiting
        self._tickets = 0
        self.driver = Driver(
            self.machine,
            broker_address(info.id),
            store,
            network=places.network,
            own=self._own,
            logs={places.commands.name: log},
        )

    def join(self, topic: str) -> None:
        self._waiting.send(self.info.id, topic, time.monotonic_ns())
        self.driver.post(InterestsChanged(added=(topic,)))

    def publishes(self, topics: Sequence[str]) -> None:
        self._tickets += 1
        changes: tuple[tuple[str, dict[str, Any] | None], ...] = tuple((topic, {}) for topic in topics)
        command = Streams(f"publisher-{self.info.id}", 3_600, changes)
        self.driver.post(ClientsChanged(ticket=self._tickets, command=command))

    def _own(self, effect: Effect) -> None:
        if not isinstance(effect, RoutesChanged):
            return
        now_ns = time.monotonic_ns()
        for route in effect.added:
            self._note(route, now_ns)

    def _note(self, route: Route, now_ns: int) -> None:
        if not route.filter.startswith("topic/"):
            return
        if self.info.role == Role.ROUTING and route.scope == Scope.TRANSIT:
            self._waiting.onward(route.peer, route.filter, now_ns)
        elif self.info.cluster.startswith("source") and route.scope == Scope.ORIGIN:
            self._waiting.sends(route.filter, now_ns)


async def work(job: Job, desk: Desk) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    plan, waiting = job.plan, Waiting(job.plan.hubs)
    async with AsyncExitStack() as stack:
        hubs = [BrokerInfo(f"hub-{n}", CLOUD, Role.ROUTING, "127.0.0.1", 1) for n in range(plan.hubs)]
        edges = [BrokerInfo(f"edge-{n}", f"lan-{n}", Role.EDGE, "127.0.0.1", 1) for n in range(plan.edges)]
        sources = [
            BrokerInfo(f"source-{n}", f"source-{n}", Role.EDGE, "127.0.0.1", 1)
            for n in range(plan.publishers)
        ]
        made = {info.id: await _joiner(info, job, waiting, stack) for info in (*hubs, *edges, *sources)}
        for number, info in enumerate(sources):
            mine = [topic_of(each) for each in range(number, plan.topics, plan.publishers)]
            made[info.id].publishes(mine)
        await _all_told([broker.machine for broker in made.values()])
        await asyncio.sleep(SETTLE_S)
        desk.tell("ready")
        await desk.orders.get()
        began_s = time.monotonic()
        for number, (edge, topic) in enumerate(joins(plan, job.joins)):
            wait_s = began_s + number / plan.rate - time.monotonic()
            if wait_s > 0 and not await desk.pause(wait_s):
                break
            made[edges[edge].id].join(topic)
        waiting.all_sent = True
        if waiting.missing:
            with contextlib.suppress(TimeoutError):  # those that are missing are counted
                async with asyncio.timeout(LATE_S):
                    await waiting.done.wait()
        took_s = time.monotonic() - began_s
    spread = Spread.of(waiting.force_ms)
    told = None if spread is None else Told(job.joins, waiting.missing, spread, took_s)
    desk.tell("done", len(waiting.force_ms), told=msgspec.to_builtins(told))


async def _all_told(machines: Sequence[Participant]) -> None:
    """Wait until the coordinator knows all of them."""
    async with asyncio.timeout(READY_S):
        while True:
            if all(machine.told for machine in machines):
                return
            await asyncio.sleep(LOOK_S)


async def _joiner(info: BrokerInfo, job: Job, waiting: Waiting, stack: AsyncExitStack) -> Joiner:
    store = await JetStreamStore.open(job.nats, "broker", name=info.id, deadline_s=30.0)
    stack.push_async_callback(store.close)
    made = Joiner(info, job, store, await store.log(StoreNames(job.network).commands), waiting)
    keep(made.driver.run(), stack)
    return made


if __name__ == "__main__":
    worker.main({"joiners": (Job, work)})
