"""The loads on the fast path: a stage of connected clients for one broker, and turns that are measured on it.

| load | what happens |
| --- | --- |
| fan-out | one publisher, many subscribers of one topic; a message (or a burst of 32) when all got the last |
| pairs | a hundred publishers, each with a topic and a subscriber of its own; ten messages from each at a time |
| mesh | the same publishers; each topic has ten of the hundred subscribers, each subscriber ten topics |
| cqbs | a thousand publishers, five messages a second from each, ten publishers to a subscriber: steady |
"""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Callable
from typing import Final, Protocol

from bench.load.crowd import Crowd
from bench.load.dialect import LoadError
from bench.load.figures import Reading
from bench.load.servers import Server

PAYLOAD: Final = bytes(range(32, 127))[:64].ljust(100, b".")  # 100 bytes: a sensor's reading in JSON
PUBLISHERS: Final = 100
SUBSCRIBERS: Final = 100
AT_A_TIME: Final = 10  # messages of one publisher in a round of pairs and mesh
MESH_WIDTH: Final = 10
CQBS_PUBLISHERS: Final = 1_000
CQBS_RATE_HZ: Final = 5.0
CQBS_GROUP: Final = 10  # publishers to a subscriber
DRAIN_S: Final = 10.0


class Stage(Protocol):
    """Clients in place, ready to be measured any number of times."""

    def turn(self, seconds: float) -> Reading: ...

    def close(self) -> None: ...


class Measured:
    """The broker's time and the clock around a turn; the generator collects no garbage in that time."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> Measured:
        gc.collect()
        gc.disable()
        self._cpu_s = self._server.cpu_s()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._began
        self.cpu_s = self._server.cpu_s() - self._cpu_s
        gc.enable()

    def reading(self, deliveries: int, latencies_us: list[float]) -> Reading:
        return Reading(deliveries, self.cpu_s, self.wall_s, tuple(latencies_us))


class Rounds:
    """Publishers that send, and wait until every subscriber has everything, again and again."""

    def __init__(
        self,
        server: Server,
        publishers: int,
        subscribers: int,
        filters_of: Callable[[int], list[str]],
        topic_of: Callable[[int], str],
    ) -> None:
        self._server = server
        dialect = server.dialect
        self._publishers = Crowd(server.address, dialect, publishers, "p")
        try:
            self._subscribers = Crowd(server.address, dialect, subscribers, "s")
        except LoadError:
            self._publishers.close()
            raise
        self._filters = [filters_of(number) for number in range(subscribers)]
        self._topics = [topic_of(number) for number in range(publishers)]
        self._subscribers.subscribe(self._filters.__getitem__)
        self._publishers.settle()
        self._subscribers.settle()
        readers = sum(filters.count(topic) for filters in self._filters for topic in set(self._topics))
        self._deliveries = readers  # that one message from each publisher causes
        self._check()

    def _check(self) -> None:
        """One message from each publisher, one publisher at a time, compared byte by byte."""
        dialect = self._server.dialect
        for number, topic in enumerate(self._topics):
            self._publishers.send(number, dialect.publish(topic, PAYLOAD))
            if number % 10 == 9 or number == len(self._topics) - 1:
                time.sleep(0.002)  # so that messages of different publishers arrive in a known order
        frames = {topic: dialect.delivery(topic, PAYLOAD) for topic in self._topics}
        # NATS numbers each subscription of a client, so that all have the same size but not the same bytes.
        if all(len(filters) == 1 for filters in self._filters):
            self._subscribers.expect(lambda number: frames[self._filters[number][0]])
        else:
            self._subscribers.collect(self._bytes(1))

    def _bytes(self, each: int) -> int:
        """How much the subscribers get for ``each`` messages of every publisher."""
        dialect = self._server.dialect
        total = 0
        for filters in self._filters:
            for number, topic in enumerate(filters, 1):
                total += len(dialect.delivery(topic, PAYLOAD)) + (len(str(number)) - 1) * (
                    dialect.settle_s > 0
                )
        return total * each

    def turn(self, seconds: float, each: int = 1) -> Reading:
        """Rounds of ``each`` messages from every publisher; the latency is that of a round."""
        dialect, wanted = self._server.dialect, self._bytes(each)
        batches = [dialect.publish(topic, PAYLOAD) * each for topic in self._topics]
        send, collect, clock = self._publishers.send, self._subscribers.collect, time.perf_counter
        latencies: list[float] = []
        with Measured(self._server) as measured:
            now = clock()
            end = now + seconds
            while now < end:
                for number, batch in enumerate(batches):
                    send(number, batch)
                collect(wanted)
                then, now = now, clock()
                latencies.append((now - then) * 1e6)
        return measured.reading(len(latencies) * each * self._deliveries, latencies)

    def close(self) -> None:
        self._publishers.close()
        self._subscribers.close()


def fan_out(server: Server, subscribers: int) -> Rounds:
    return Rounds(server, 1, subscribers, lambda _: ["bench/fan-out"], lambda _: "bench/fan-out")


def pairs(server: Server) -> Rounds:
    def topic(number: int) -> str:
        return f"bench/pairs/{number:04}"

    return Rounds(server, PUBLISHERS, SUBSCRIBERS, lambda number: [topic(number)], topic)


def mesh(server: Server) -> Rounds:
    """Every topic has other subscribers than every other topic, so that no two share a group."""

    def topic(number: int) -> str:
        return f"bench/mesh/{number:04}"

    def filters(number: int) -> list[str]:
        return [topic((number + step * step) % PUBLISHERS) for step in range(MESH_WIDTH)]

    return Rounds(server, PUBLISHERS, SUBSCRIBERS, filters, topic)


class Cqbs:
    """The load of the CQBS paper: many slow publishers, a message every fifth of a millisecond altogether."""

    _TIME = struct.Struct("<q")

    def __init__(self, server: Server) -> None:
        self._server = server
        dialect = server.dialect
        subscribers = CQBS_PUBLISHERS // CQBS_GROUP
        self._publishers = Crowd(server.address, dialect, CQBS_PUBLISHERS, "p")
        self._subscribers = Crowd(server.address, dialect, subscribers, "s")
        self._subscribers.subscribe(lambda number: [f"bench/cqbs/{number:04}/+"])
        self._publishers.settle()
        self._subscribers.settle()
        self._heads: list[bytes] = []  # of each publisher's message, up to the time that it carries
        for number in range(CQBS_PUBLISHERS):
            topic = f"bench/cqbs/{number // CQBS_GROUP:04}/{number % CQBS_GROUP}"
            frame = dialect.publish(topic, PAYLOAD)
            self._heads.append(frame[: frame.index(PAYLOAD)])
        delivered = dialect.delivery("bench/cqbs/0000/0", PAYLOAD)
        self._frame_bytes = len(delivered)
        self._time_at = delivered.index(PAYLOAD)
        published = dialect.publish("bench/cqbs/0000/0", PAYLOAD)
        self._tail = published[published.index(PAYLOAD) + self._TIME.size :]

    def turn(self, seconds: float) -> Reading:
        count = int(seconds * CQBS_PUBLISHERS * CQBS_RATE_HZ)
        pause = 1.0 / (CQBS_PUBLISHERS * CQBS_RATE_HZ)
        held: dict[int, bytes] = {}
        latencies: list[float] = []
        stamp, clock, clock_ns = self._TIME.pack, time.perf_counter, time.perf_counter_ns
        with Measured(self._server) as measured:
            began = clock()
            sent = 0
            while len(latencies) < count:
                now = clock()
                while sent < count and began + sent * pause <= now:
                    number = sent * 7 % CQBS_PUBLISHERS  # neighbours in time are not neighbours in topic
                    self._publishers.send(number, self._heads[number] + stamp(clock_ns()) + self._tail)
                    sent += 1
                self._receive(held, latencies)
                if now > began + seconds + DRAIN_S:
                    raise LoadError(
                        f"{count - len(latencies)} of {count} messages were lost or late by {DRAIN_S:g} s"
                    )
        return measured.reading(count, latencies)

    def _receive(self, held: dict[int, bytes], latencies: list[float]) -> None:
        size, at = self._frame_bytes, self._time_at
        for each in self._subscribers.ready():
            data = held.pop(each.fileno(), b"") + each.recv(65_536)
            now = time.perf_counter_ns()
            whole = len(data) - len(data) % size
            for start in range(0, whole, size):
                latencies.append((now - self._TIME.unpack_from(data, start + at)[0]) / 1_000)
            if whole < len(data):
                held[each.fileno()] = data[whole:]

    def close(self) -> None:
        self._publishers.close()
        self._subscribers.close()
