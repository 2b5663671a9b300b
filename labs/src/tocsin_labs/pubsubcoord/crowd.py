"""The load: a publisher and a subscriber for each topic, each with a connection of its own, in one process.

Its connections have the lag of a LAN, in each direction (``runtime.faults``), and it has one clock. A payload begins
with the message's number on its topic, and when it was written. Every message is published in its own millisecond of
the period, as the topics' numbers have it; how late the process is with that is found too, because such lateness is the
machine's and not the network's.

Orders: ``{"do": "begin"}`` lets messages count from now on, ``{"do": "end"}`` ends that, and the work.
"""

from __future__ import annotations

import asyncio
import math
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from tocsin.errors import OperatorError
from tocsin.runtime.faults.partition import CuttableLoop
from tocsin.runtime.faults.weather import Weather
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.figures import Spread
from tocsin_labs.pubsubcoord.plan import Load
from tocsin_labs.pubsubcoord.speech import SPEECHES, Language, Speech

MODULE: Final = "tocsin_labs.pubsubcoord.crowd"
HEAD: Final = struct.Struct("<QQ")  # the message's number on its topic; when it was written (monotonic, ns)
AT_ONCE: Final = 50  # clients that connect at a time
READY_S: Final = 90.0
TICK_S: Final = 0.001
BIN_S: Final = 0.02  # of what is kept of the course of time
WEATHER_S: Final = 3_600.0


class Topic(msgspec.Struct, frozen=True):
    """Who publishes and who subscribes, as numbers of LANs."""

    name: str
    source: int
    target: int

    @property
    def is_local(self) -> bool:
        return self.source == self.target


class Job(msgspec.Struct, frozen=True):
    entrances: tuple[tuple[str, int], ...]  # by LAN
    topics: tuple[Topic, ...]
    load: Load
    lag_s: float
    speech: Language = "mqtt"


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages that counted."""

    sent: int
    lost: int
    doubled: int
    disordered: int  # behind one with a larger number
    all_ms: Spread
    local_ms: Spread | None
    across_ms: Spread | None
    between_ms: Spread  # from one arrival to the next of the same topic
    late_ms: Spread  # how much later than it should a message was written
    bins: tuple[int, ...]  # of messages across: arrivals in each BIN_S from the beginning
    silences_s: tuple[float, ...]  # of each topic across: the longest time between two arrivals


def topics(lans: int, each: int, locality: float) -> tuple[Topic, ...]:
    """The topics of all LANs: so many local ones, and others that the next LAN subscribes to."""
    local = round(each * locality)
    return tuple(
        Topic(f"lan-{lan}/topic-{number}", lan, lan if number < local else (lan + 1) % lans)
        for lan in range(lans)
        for number in range(each)
    )


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, speech: Speech, payload_bytes: int, lane: Lane | None = None) -> None:
        self.transport: asyncio.Transport
        self._speech, self._payload_bytes, self._lane = speech, payload_bytes, lane
        self._rest = b""
        self._answered = asyncio.Semaphore(0)
        self.problem = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.problem = self.problem or f"a broker has closed a connection ({error})"
        self._answered.release()

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        received = self._rest + data if self._rest else data
        try:
            answers, payloads, end = self._speech.read(received, self._payload_bytes)
        except Exception as error:
            self.problem = str(error)
            self.transport.abort()
            return
        self._rest = received[end:]
        for _ in range(answers):
            self._answered.release()
        if self._lane is not None:
            for payload in payloads:
                self._lane.hear(payload, now_ns)

    async def ask(self, words: bytes) -> None:
        """Say something, and wait for the answer."""
        self.transport.write(words)
        async with asyncio.timeout(READY_S):
            await self._answered.acquire()
        if self.problem:
            raise OperatorError(self.problem, "Look at the brokers' logs, and at `ulimit -n`")


class Lane:
    """One topic: what was published on it, and what came of that."""

    def __init__(self, topic: Topic, speech: Speech, load: Load) -> None:
        self.topic = topic
        self.number = 0  # of the next message
        self.first = -1  # the first that counts; -1: none does yet
        self.end = -1  # the first that does not any more
        self.times: list[int] = []  # how often each of those came
        self.latencies = array("q")
        self.between = array("q")
        self.arrivals = array("q")
        self.disordered = 0
        self._heard = False
        self.on_first: Callable[[], None] = lambda: None  # called when the first message has come
        self._highest = -1
        self._head, self._tail = speech.frame(topic.name, load.payload_bytes)
        self._tail = bytes(load.payload_bytes - HEAD.size) + self._tail
        self.publisher: Client

    def publish(self, now_ns: int) -> None:
        self.publisher.transport.write(self._head + HEAD.pack(self.number, now_ns) + self._tail)
        self.number += 1
        if self.first >= 0 and self.end < 0:
            self.times.append(0)

    def hear(self, payload: bytes, now_ns: int) -> None:
        if self.first < 0:
            if not self._heard:
                self._heard = True
                self.on_first()
            return
        number, sent_ns = HEAD.unpack_from(payload)
        if number < self.first or 0 <= self.end <= number:
            return
        if self.arrivals:
            self.between.append(now_ns - self.arrivals[-1])
        self.arrivals.append(now_ns)
        self.times[number - self.first] += 1
        if self.times[number - self.first] == 1:
            self.latencies.append(now_ns - sent_ns)
        self.disordered += number < self._highest
        self._highest = max(self._highest, number)


class Crowd:
    """All of them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        speech = SPEECHES[job.speech]
        self.lanes = [Lane(topic, speech, job.load) for topic in job.topics]
        self._clients: list[Client] = []
        self._late = array("q")
        self._began_ns = 0
        self.all_heard = asyncio.Event()  # a message of each topic has come
        self._unheard = len(self.lanes)
        for lane in self.lanes:
            lane.on_first = self._first

    def _first(self) -> None:
        self._unheard -= 1
        if not self._unheard:
            self.all_heard.set()

    async def open(self) -> None:
        subscribing = [self._subscribe(lane) for lane in self.lanes]
        publishing = [self._introduce(lane) for lane in self.lanes]
        for some in (subscribing, publishing):
            for at in range(0, len(some), AT_ONCE):
                await asyncio.gather(*some[at : at + AT_ONCE])

    async def _subscribe(self, lane: Lane) -> None:
        client = await self._connect(lane.topic.target, f"to-{lane.topic.name}", lane)
        await client.ask(SPEECHES[self._job.speech].subscribe(lane.topic.name))

    async def _introduce(self, lane: Lane) -> None:
        lane.publisher = await self._connect(lane.topic.source, f"from-{lane.topic.name}")

    async def _connect(self, lan: int, name: str, lane: Lane | None = None) -> Client:
        job, speech = self._job, SPEECHES[self._job.speech]
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(
            lambda: Client(speech, job.load.payload_bytes, lane), *job.entrances[lan]
        )
        self._clients.append(client)
        await client.ask(speech.hello(name.replace("/", "-")))
        return client

    async def publish(self) -> None:
        """All topics, each once in a period, evenly over it; without end."""
        period_s = self._job.load.period_s
        ticks = max(1, round(period_s / TICK_S))
        slots = [self.lanes[at::ticks] for at in range(ticks)]
        began_s, tick = time.monotonic(), 0
        while True:
            due_s = began_s + tick * period_s / ticks
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            elif tick % ticks == 0:
                await asyncio.sleep(0)  # so late that there was no pause: others have their turn
            counts = self.lanes[0].first >= 0 > self.lanes[0].end
            for lane in slots[tick % ticks]:
                now_ns = time.monotonic_ns()
                if counts:
                    self._late.append(max(0, now_ns - int(due_s * 1e9)))
                lane.publish(now_ns)
            tick += 1

    def begin(self) -> None:
        self._began_ns = time.monotonic_ns()
        for lane in self.lanes:
            lane.first = lane.number

    def end(self) -> None:
        for lane in self.lanes:
            lane.end = lane.number

    def found(self) -> Heard:
        across = [lane for lane in self.lanes if not lane.topic.is_local]
        local = [lane for lane in self.lanes if lane.topic.is_local]
        latencies = _ms(each for lane in self.lanes for each in lane.latencies)
        between = _ms(each for lane in self.lanes for each in lane.between)
        late = _ms(self._late)
        if latencies is None or between is None or late is None:
            raise OperatorError("no message arrived", "Look at the brokers' logs")
        counts = [count for lane in self.lanes for count in lane.times]
        return Heard(
            sent=len(counts),
            lost=counts.count(0),
            doubled=sum(count - 1 for count in counts if count > 1),
            disordered=sum(lane.disordered for lane in self.lanes),
            all_ms=latencies,
            local_ms=_ms(each for lane in local for each in lane.latencies),
            across_ms=_ms(each for lane in across for each in lane.latencies),
            between_ms=between,
            late_ms=late,
            bins=binned((each - self._began_ns) / 1e9 for lane in across for each in lane.arrivals),
            silences_s=tuple(max(lane.between, default=0) / 1e9 for lane in across),
        )

    def close(self) -> None:
        for client in self._clients:
            client.transport.abort()

    @property
    def problem(self) -> str:
        return next((client.problem for client in self._clients if client.problem), "")


def binned(times_s: Iterable[float]) -> tuple[int, ...]:
    """How many are in each BIN_S from zero on."""
    counts: list[int] = []
    for each in times_s:
        place = max(0, math.floor(each / BIN_S))
        counts.extend([0] * (place + 1 - len(counts)))
        counts[place] += 1
    return tuple(counts)


def _ms(values_ns: Iterable[int]) -> Spread | None:
    return Spread.of(each / 1e6 for each in values_ns)


def lagged(entrances: Sequence[tuple[str, int]], lag_s: float) -> None:
    """What this process dials there has that lag from now on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CuttableLoop), "so the worker was started"
    if lag_s:
        loop.cuts.trouble(entrances, Weather(lag_s=lag_s), WEATHER_S)


async def work(job: Job, desk: Desk) -> None:
    lagged(job.entrances, job.lag_s)
    crowd = Crowd(job)
    await crowd.open()
    publishing = asyncio.create_task(crowd.publish())
    try:
        async with asyncio.timeout(READY_S):
            await crowd.all_heard.wait()
        await asyncio.sleep(job.load.warm_s)
        desk.tell("ready")
        while not desk.stop.is_set():
            order: dict[str, Any] = await desk.orders.get()
            if order["do"] == "begin":
                crowd.begin()
            else:
                break
        crowd.end()
        publishing.cancel()
        await asyncio.sleep(job.load.settle_s)
        if crowd.problem:
            raise OperatorError(crowd.problem, "Look at the brokers' logs")
        desk.tell("done", 0, heard=msgspec.to_builtins(crowd.found()))
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        crowd.close()


if __name__ == "__main__":
    worker.main({"crowd": (Job, work)}, CuttableLoop)
