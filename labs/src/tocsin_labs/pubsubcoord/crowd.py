"""The load: a publisher and subscribers for each topic, each with a connection of its own, in one process.

Its connections have the lag of a LAN, in each direction (``runtime.faults``), and it has one clock. A payload begins
with the message's number on its topic, when it was written, and the topic's number. Every message is published in its
own millisecond of the period, as the topics' numbers have it; how late the process is with that is found too, because
such lateness is the machine's and not the network's. With **trunks**, all publishers of a LAN share a connection, and
so do all its subscribers: a load of that kind costs the machine a fraction.

Orders: ``{"do": "begin"}`` lets messages count from now on; ``{"do": "pause"}`` ends that, and tells what became of
them, while publishing goes on; ``{"do": "period", "period_s": …}`` changes the rate; ``{"do": "end"}`` is a pause that
ends the work.
"""

from __future__ import annotations

import asyncio
import math
import socket
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
from tocsin_labs.figures import Spread, percentile
from tocsin_labs.pubsubcoord import places
from tocsin_labs.pubsubcoord.plan import Load
from tocsin_labs.pubsubcoord.speech import SPEECHES, Language, Speech

MODULE: Final = "tocsin_labs.pubsubcoord.crowd"
HEAD: Final = struct.Struct(
    "<QQI"
)  # the number on its topic; when it was written (monotonic, ns); which topic
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
    more: tuple[int, ...] = ()  # further LANs with subscribers
    readers: int = 1  # subscribers in each of these LANs
    offer: tuple[tuple[str, str], ...] = ()  # properties of its first message …
    request: tuple[tuple[str, str], ...] = ()  # … and of its subscriptions

    @property
    def is_local(self) -> bool:
        return self.source == self.target


class Job(msgspec.Struct, frozen=True):
    entrances: tuple[tuple[str, int], ...]  # by LAN
    topics: tuple[Topic, ...]
    load: Load
    lag_s: float
    speech: Language = "mqtt"
    spaces: tuple[str, ...] = ()  # the place of each LAN (``places``); none: all are here
    trunks: bool = False
    window_s: float = 0.0  # of a course of time that is told; 0: none is
    by_topic: bool = False  # whether each topic is told by itself


class Window(msgspec.Struct, frozen=True, array_like=True):
    """What arrived in one part of the time, from the beginning on."""

    at_s: float
    count: int
    p50_ms: float
    p99_ms: float


class Own(msgspec.Struct, frozen=True):
    """What became of the messages of one topic."""

    sent: int
    lost: int
    doubled: int
    disordered: int
    all_ms: Spread


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
    windows: tuple[Window, ...] = ()
    by_topic: dict[str, Own] = {}


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

    def __init__(
        self, speech: Speech, payload_bytes: int, hear: Callable[[bytes, int], None] | None = None
    ) -> None:
        self.transport: asyncio.Transport
        self.waiting: list[bytes] = []  # what a trunk is about to write
        self._speech, self._payload_bytes, self._hear = speech, payload_bytes, hear
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
        if self._hear is not None:
            for payload in payloads:
                self._hear(payload, now_ns)

    async def ask(self, words: bytes) -> None:
        """Say something, and wait for the answer."""
        self.transport.write(words)
        async with asyncio.timeout(READY_S):
            await self._answered.acquire()
        if self.problem:
            raise OperatorError(self.problem, "Look at the brokers' logs, and at `ulimit -n`")


class Ear:
    """One subscriber of a topic: what came of the messages that counted."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.is_told = False  # a message has come at all
        self.clear()

    def clear(self) -> None:
        self.times: dict[int, int] = {}  # by number: how often it came
        self.latencies = array("q")  # of those that came for the first time …
        self.firsts = array("q")  # … and when
        self.between = array("q")
        self.arrivals = array("q")
        self.disordered = 0
        self._highest = -1

    def hear(self, payload: bytes, now_ns: int) -> None:
        lane = self._lane
        if not self.is_told:
            self.is_told = True
            lane.on_first()
        if lane.first < 0:
            return
        number, sent_ns, _ = HEAD.unpack_from(payload)
        if number < lane.first or 0 <= lane.end <= number:
            return
        if self.arrivals:
            self.between.append(now_ns - self.arrivals[-1])
        self.arrivals.append(now_ns)
        times = self.times
        if number in times:
            times[number] += 1
        else:
            times[number] = 1
            self.latencies.append(now_ns - sent_ns)
            self.firsts.append(now_ns)
        if number < self._highest:
            self.disordered += 1
        else:
            self._highest = number

    @property
    def lost(self) -> int:
        return self._lane.sent - len(self.times)

    @property
    def doubled(self) -> int:
        return len(self.arrivals) - len(self.times)


class Lane:
    """One topic: what was published on it, and who hears it."""

    def __init__(self, index: int, topic: Topic, speech: Speech, load: Load) -> None:
        self.topic = topic
        self.number = 0  # of the next message
        self.first = -1  # the first that counts; -1: none does
        self.end = -1  # the first that does not any more
        self.on_first: Callable[[], None] = lambda: None  # called when a subscriber has its first message
        self.ears = {
            lan: [Ear(self) for _ in range(topic.readers)] for lan in (topic.target, *topic.more)
        }  # by LAN
        rest = bytes(load.payload_bytes - HEAD.size)
        self._index = index
        self._head, tail = speech.frame(topic.name, load.payload_bytes)
        self._opening, _ = speech.frame(topic.name, load.payload_bytes, topic.offer)
        self._tail = rest + tail
        self.publisher: Client

    @property
    def all_ears(self) -> list[Ear]:
        return [ear for ears in self.ears.values() for ear in ears]

    @property
    def sent(self) -> int:
        """How many count."""
        return (self.number if self.end < 0 else self.end) - self.first if self.first >= 0 else 0

    def write(self, now_ns: int) -> bytes:
        """The next message."""
        head = self._head if self.number else self._opening
        packet = head + HEAD.pack(self.number, now_ns, self._index) + self._tail
        self.number += 1
        return packet

    def publish(self, now_ns: int) -> None:
        self.publisher.transport.write(self.write(now_ns))

    def begin(self) -> None:
        self.first, self.end = self.number, -1
        for ear in self.all_ears:
            ear.clear()

    def own(self) -> Own | None:
        ears = self.all_ears
        spread = _ms(each for ear in ears for each in ear.latencies)
        if spread is None:
            return None
        return Own(
            sent=self.sent * len(ears),
            lost=sum(ear.lost for ear in ears),
            doubled=sum(ear.doubled for ear in ears),
            disordered=sum(ear.disordered for ear in ears),
            all_ms=spread,
        )


class Crowd:
    """All of them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        speech = SPEECHES[job.speech]
        self.lanes = [Lane(index, topic, speech, job.load) for index, topic in enumerate(job.topics)]
        self.period_s, self.settle_s = job.load.period_s, job.load.settle_s
        self._clients: list[Client] = []
        self._trunks: list[Client] = []  # those that publish
        self._late = array("q")
        self._began_ns = 0
        self.all_heard = asyncio.Event()  # a message of each topic has come to each subscriber
        self._unheard = sum(len(lane.all_ears) for lane in self.lanes)
        for lane in self.lanes:
            lane.on_first = self._first

    def _first(self) -> None:
        self._unheard -= 1
        if not self._unheard:
            self.all_heard.set()

    async def open(self) -> None:
        if self._job.trunks:
            return await self._open_trunks()
        subscribing = [
            self._subscribe(lane, lan, place, ear)
            for lane in self.lanes
            for lan, ears in lane.ears.items()
            for place, ear in enumerate(ears)
        ]
        publishing = [self._introduce(lane) for lane in self.lanes]
        for some in (subscribing, publishing):
            for at in range(0, len(some), AT_ONCE):
                await asyncio.gather(*some[at : at + AT_ONCE])

    async def _open_trunks(self) -> None:
        """A connection for each LAN's subscribers, and one for its publishers."""
        speech = SPEECHES[self._job.speech]
        for lan in sorted({lan for lane in self.lanes for lan in lane.ears}):
            client = await self._connect(lan, f"to-lan-{lan}", self._dispatch(lan))
            for lane in self.lanes:
                if lan in lane.ears:
                    await client.ask(speech.subscribe(lane.topic.name, lane.topic.request))
        for lan in sorted({lane.topic.source for lane in self.lanes}):
            client = await self._connect(lan, f"from-lan-{lan}")
            self._trunks.append(client)
            for lane in self.lanes:
                if lane.topic.source == lan:
                    lane.publisher = client

    def _dispatch(self, lan: int) -> Callable[[bytes, int], None]:
        ears = {at: lane.ears[lan][0] for at, lane in enumerate(self.lanes) if lan in lane.ears}

        def hear(payload: bytes, now_ns: int) -> None:
            ears[HEAD.unpack_from(payload)[2]].hear(payload, now_ns)

        return hear

    async def _subscribe(self, lane: Lane, lan: int, place: int, ear: Ear) -> None:
        name = f"to-{lan}-{place}-{lane.topic.name}"
        client = await self._connect(lan, name, ear.hear)
        await client.ask(SPEECHES[self._job.speech].subscribe(lane.topic.name, lane.topic.request))

    async def _introduce(self, lane: Lane) -> None:
        lane.publisher = await self._connect(lane.topic.source, f"from-{lane.topic.name}")

    async def _connect(self, lan: int, name: str, hear: Callable[[bytes, int], None] | None = None) -> Client:
        job, speech = self._job, SPEECHES[self._job.speech]
        loop = asyncio.get_running_loop()

        def made() -> Client:
            return Client(speech, job.load.payload_bytes, hear)

        if job.spaces:
            with places.within(job.spaces[lan]):
                plug = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            plug.setblocking(False)
            await loop.sock_connect(plug, job.entrances[lan])
            _, client = await loop.create_connection(made, sock=plug)
        else:
            _, client = await loop.create_connection(made, *job.entrances[lan])
        self._clients.append(client)
        await client.ask(speech.hello(name.replace("/", "-")))
        return client

    async def publish(self) -> None:
        """All topics, each once in a period, evenly over it; without end."""
        due_s = time.monotonic()
        while True:
            period_s = self.period_s
            ticks = max(1, round(period_s / TICK_S))
            for tick in range(ticks):
                wait_s = due_s - time.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                elif not tick:
                    await asyncio.sleep(0)  # so late that there was no pause: others have their turn
                self._publish(turn(self.lanes, tick, ticks), due_s)
                due_s += period_s / ticks

    def _publish(self, lanes: Sequence[Lane], due_s: float) -> None:
        counts = self.lanes[0].first >= 0 > self.lanes[0].end
        for lane in lanes:
            now_ns = time.monotonic_ns()
            if counts:
                self._late.append(max(0, now_ns - int(due_s * 1e9)))
            if self._trunks:
                lane.publisher.waiting.append(lane.write(now_ns))
            else:
                lane.publish(now_ns)
        for trunk in self._trunks:
            if trunk.waiting:
                trunk.transport.write(b"".join(trunk.waiting))
                trunk.waiting.clear()

    def begin(self) -> None:
        self._began_ns = time.monotonic_ns()
        self._late = array("q")
        for lane in self.lanes:
            lane.begin()

    def end(self) -> None:
        for lane in self.lanes:
            lane.end = lane.number

    def found(self) -> Heard:
        across = [ear for lane in self.lanes if not lane.topic.is_local for ear in lane.all_ears]
        local = [ear for lane in self.lanes if lane.topic.is_local for ear in lane.all_ears]
        ears = [*across, *local]
        latencies = _ms(each for ear in ears for each in ear.latencies)
        between = _ms(each for ear in ears for each in ear.between)
        late = _ms(self._late)
        if latencies is None or between is None or late is None:
            raise OperatorError("no message arrived", "Look at the brokers' logs")
        apart = {lane.topic.name: lane.own() for lane in self.lanes if self._job.by_topic}
        return Heard(
            sent=sum(lane.sent * len(lane.all_ears) for lane in self.lanes),
            lost=sum(ear.lost for ear in ears),
            doubled=sum(ear.doubled for ear in ears),
            disordered=sum(ear.disordered for ear in ears),
            all_ms=latencies,
            local_ms=_ms(each for ear in local for each in ear.latencies),
            across_ms=_ms(each for ear in across for each in ear.latencies),
            between_ms=between,
            late_ms=late,
            bins=binned((each - self._began_ns) / 1e9 for ear in across for each in ear.arrivals),
            silences_s=tuple(max(ear.between, default=0) / 1e9 for ear in across),
            windows=self._windows(ears),
            by_topic={name: own for name, own in apart.items() if own is not None},
        )

    def _windows(self, ears: Iterable[Ear]) -> tuple[Window, ...]:
        length_s = self._job.window_s
        if not length_s:
            return ()
        found: dict[int, list[float]] = {}
        for ear in ears:
            for at_ns, latency_ns in zip(ear.firsts, ear.latencies, strict=True):
                place = int((at_ns - self._began_ns) / 1e9 / length_s)
                found.setdefault(place, []).append(latency_ns / 1e6)
        windows = []
        for place in sorted(found):
            ordered = sorted(found[place])
            spread = percentile(ordered, 50), percentile(ordered, 99)
            windows.append(Window(place * length_s, len(ordered), *spread))
        return tuple(windows)

    def close(self) -> None:
        for client in self._clients:
            client.transport.abort()

    @property
    def problem(self) -> str:
        return next((client.problem for client in self._clients if client.problem), "")


def turn(lanes: Sequence[Lane], tick: int, ticks: int) -> Sequence[Lane]:
    """Those whose turn it is in one tick of a period: all are spread over it, and neighbours are in different ticks."""
    count = len(lanes)
    if ticks <= count:
        return lanes[tick::ticks]
    return lanes[-(-tick * count // ticks) : -(-(tick + 1) * count // ticks)]


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
        while await _obeyed(crowd, await desk.orders.get(), desk):
            pass
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        crowd.close()


async def _obeyed(crowd: Crowd, order: dict[str, Any], desk: Desk) -> bool:
    """Do what is ordered; whether there is more to come."""
    match order["do"]:
        case "begin":
            crowd.begin()
            return True
        case "period":
            crowd.period_s = order["period_s"]
            return True
    crowd.end()
    await asyncio.sleep(crowd.settle_s)
    if crowd.problem:
        raise OperatorError(crowd.problem, "Look at the brokers' logs")
    ends = order["do"] == "end"
    desk.tell("done" if ends else "progress", 0, heard=msgspec.to_builtins(crowd.found()))
    return not ends


if __name__ == "__main__":
    worker.main({"crowd": (Job, work)}, CuttableLoop)
