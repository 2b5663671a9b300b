"""V-B's brokers without clients: the machines that brokers have, on the real bus and log, in one process.

A change is sent when its broker's machine is given it, and heard when the machine of a subscriber's broker says so:
what a subscriber would be told at that moment. All of it is kept, and in the end held against what had to be heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import structlog

from tocsin.config import Nats
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    ClientsChanged,
    QueriesChanged,
    QuerySetKnown,
    StreamChanged,
    StreamJoined,
    StreamLeft,
)
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo, Role, broker_address
from tocsin.model.stream import LISTING, Metadata
from tocsin.ports import Log, Store
from tocsin.query import Query
from tocsin.runtime.machines.driver import Driver
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.internal.commands import Streams
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.cqbs.changes import MARK, Change, Notice, changes, differing, expected, queries
from tocsin_labs.cqbs.plan import Coordination

READY_S: Final = 60.0
SETTLE_S: Final = (
    1.0  # after the last change, before anything else is done here that would delay the news of it
)
HEAR_S: Final = 20.0  # after the last change, for what is still under way
NEWS_EVERY: Final = 10  # changes


class Job(msgspec.Struct, frozen=True):
    """The work of these brokers."""

    nats: Nats
    network: str
    heartbeat_us: int
    plan: Coordination
    seed: int
    raw: str  # the file to write


class Broker(Protocol):
    """A broker without clients, of whatever design."""

    def ask(self, asked: Sequence[tuple[int, Query]]) -> None: ...

    def say(self, change: Change) -> int: ...

    def known(self, number: int) -> Mapping[str, Metadata] | None: ...


class Ears:
    """The changes that the brokers have heard."""

    def __init__(self) -> None:
        self.unanswered: set[tuple[str, str]] = set()  # brokers with ids of queries
        self.notices: list[tuple[int, Notice]] = []  # with when it was heard
        self._news = asyncio.Event()

    def answer(self, broker: str, query: str) -> None:
        self.unanswered.discard((broker, query))
        self._news.set()

    def hear(self, notice: Notice) -> None:
        self.notices.append((time.monotonic_ns(), notice))
        self._news.set()

    async def wait(self) -> None:
        """Until there is news."""
        self._news.clear()
        await self._news.wait()


def _set_of(query: Query) -> str:
    """The listing of a query: so a broker is told each stream's metadata, and each change of them."""
    return LISTING + query.id


class Dummy:
    """One broker.

    It asks the coordinator once what several of its subscribers ask, as a broker does: or, if it does not *share*, for
    each of them, under an id of its own.
    """

    def __init__(
        self,
        number: int,
        store: Store,
        log: Log,
        places: StoreNames,
        heartbeat_us: int,
        ears: Ears,
        *,
        shares: bool = True,
    ) -> None:
        info = BrokerInfo(f"dummy-{number}", "lab", Role.EDGE, "127.0.0.1", 1)
        self._name = info.id
        self.machine = Participant(info, places, heartbeat_us)
        self._tickets = 0
        self._ears = ears
        self._shares = shares
        self._numbers: dict[str, list[int]] = {}  # of subscribers, by their query's id
        self._ids: dict[int, str] = {}  # the reverse
        self.driver = Driver(
            self.machine,
            broker_address(info.id),
            store,
            network=places.network,
            own=self._own,
            logs={places.commands.name: log},
        )

    def ask(self, asked: Sequence[tuple[int, Query]]) -> None:
        texts: dict[str, str] = {}
        for number, query in asked:
            identifier = _set_of(query) if self._shares else f"{_set_of(query)}.{number}"
            texts[identifier] = query.text
            self._numbers.setdefault(identifier, []).append(number)
            self._ids[number] = identifier
        self._ears.unanswered |= {(self._name, identifier) for identifier in texts}
        self.driver.post(QueriesChanged(added=tuple(texts.items())))

    def say(self, change: Change) -> int:
        """Send a change; when that was."""
        self._tickets += 1
        command = Streams(change.topic, 3_600, ((change.topic, dict(change.metadata)),))
        sent_ns = time.monotonic_ns()
        self.driver.post(ClientsChanged(ticket=self._tickets, command=command))
        return sent_ns

    def known(self, number: int) -> Mapping[str, Metadata] | None:
        """The set of a query of this broker."""
        return self.machine.streams(self._ids[number])

    def _own(self, effect: Effect) -> None:
        match effect:
            case StreamJoined(query=query, metadata=metadata):
                kind = "joined"
            case StreamChanged(query=query, metadata=metadata):
                kind = "changed"
            case StreamLeft(query=query, metadata=metadata):
                kind = "left"
            case QuerySetKnown(query=query):
                self._ears.answer(self._name, query)
                return
            case _:
                return
        mark = metadata[MARK]
        assert isinstance(mark, int)
        for number in self._numbers[query]:
            self._ears.hear((mark, number, kind))


async def work(job: Job, desk: Desk) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    ears = Ears()
    async with AsyncExitStack() as stack:
        dummies = [await _dummy(number, job, ears, stack) for number in range(1, job.plan.brokers + 1)]
        found = await play(job.plan, job.seed, Path(job.raw), dummies, ears, desk)
    desk.tell("done", **found)


async def play(
    plan: Coordination, seed: int, raw: Path, brokers: Sequence[Broker], ears: Ears, desk: Desk
) -> dict[str, Any]:
    """Ask all queries, send all changes, and hold what was heard against what is due."""
    asked = queries(plan.subscribers, plan.different)
    planned = changes(plan.publishers, plan.changes, seed)
    asked_s, asking_cpu_s = time.perf_counter(), time.process_time()
    for number, broker in enumerate(brokers):
        broker.ask(list(enumerate(asked))[number :: len(brokers)])
    async with asyncio.timeout(READY_S):
        while ears.unanswered:
            await ears.wait()
    asked_s, asking_cpu_s = time.perf_counter() - asked_s, time.process_time() - asking_cpu_s
    desk.tell("ready")
    cpu_s = time.process_time()
    sent = await _say_all(plan, seed, planned, brokers, desk)
    said = planned[: len(sent)]
    await asyncio.sleep(SETTLE_S)
    cpu_s = time.process_time() - cpu_s
    due, sets = expected(asked, said)
    got = await _hear_all(due, ears)
    known = [brokers[number % len(brokers)].known(number) for number in range(len(asked))]
    _write(raw, sent, ears.notices, len(brokers))
    return {
        "count": len(sent),
        "expected": len(due),
        "lost": len(due - got),
        "unexpected": len(got - due),
        "queries": len(asked),
        "sets_wrong": differing(sets, known),
        "began_ns": min(sent, default=0),
        "asked_s": asked_s,
        "asking_cpu_s": asking_cpu_s,
        "cpu_s": cpu_s,
    }


async def _dummy(number: int, job: Job, ears: Ears, stack: AsyncExitStack) -> Dummy:
    store = await JetStreamStore.open(job.nats, "broker", name=f"dummy-{number}", deadline_s=30.0)
    stack.push_async_callback(store.close)
    places = StoreNames(job.network)
    dummy = Dummy(number, store, await store.log(places.commands), places, job.heartbeat_us, ears)
    keep(dummy.driver.run(), stack)
    return dummy


def keep(running: Coroutine[Any, Any, None], stack: AsyncExitStack) -> None:
    """Run it until the stack is left; a failure shows then."""
    task = asyncio.create_task(running)

    async def end() -> None:
        if task.done():
            task.result()  # it has a bug: let it be seen
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def _say_all(
    plan: Coordination, seed: int, planned: Sequence[Change], brokers: Sequence[Broker], desk: Desk
) -> list[int]:
    """Send one change after the other, each at its stream's broker; when each was sent."""
    chance = random.Random(seed)
    sent: list[int] = []
    for change in planned:
        if not await desk.pause(chance.uniform(*plan.interval_s)):
            break
        home = int(change.topic.rpartition("/")[2]) % len(brokers)
        sent.append(brokers[home].say(change))
        if len(sent) % NEWS_EVERY == 0:
            desk.tell("progress", len(sent))
    return sent


async def _hear_all(due: set[Notice], ears: Ears) -> set[Notice]:
    """Wait until everything that is due was heard, within reason; what was."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAR_S):
            while due - {notice for _, notice in ears.notices}:
                await ears.wait()
    return {notice for _, notice in ears.notices}


def _write(path: Path, sent: Sequence[int], heard: Sequence[tuple[int, Notice]], brokers: int) -> None:
    began = min(sent, default=0)
    with path.open("w") as file:
        file.write("change,sent_s,latency_ms,subscriber,broker,kind\n")
        for heard_ns, (mark, number, kind) in heard:
            sent_ns = sent[mark - 1]
            file.write(
                f"{mark},{(sent_ns - began) / 1e9:.6f},{(heard_ns - sent_ns) / 1e6:.3f},"
                f"{number},dummy-{number % brokers + 1},{kind}\n"
            )


if __name__ == "__main__":
    worker.main({"dummies": (Job, work)})
