"""Loads on what a broker keeps: QoS 1 publishes that are acknowledged once stored, and retained messages.

Publishing: fifty publishers, each with so many unacknowledged messages and no more. Mosquitto keeps a message only
if a session waits for it, so that one does. NATS answers from a JetStream stream that syncs every write. The time of
all processes counts, the store's included. Retained: a thousand topics, replayed to one new subscriber after another.
"""

from __future__ import annotations

import json
import time
from typing import Final

from bench.load.crowd import DEADLINE_S, Crowd
from bench.load.dialect import Capabilities, LoadError, Mqtt, Nats, packet_end
from bench.load.figures import Reading
from bench.load.loads import PAYLOAD
from bench.load.servers import Server

PUBLISHERS: Final = 50
WINDOW: Final = 10  # unacknowledged messages of one publisher; mosquitto allows 20
RETAINED: Final = 1_000
STREAM: Final = "BENCH"
TOPIC: Final = "bench/stored"
SUBACK_BYTES: Final = 6
QUIET_S: Final = 0.5  # after which nothing more is expected


def capabilities(server: Server) -> Capabilities:
    """The features that the broker's CONNACK announces."""
    with Crowd(server.address, Mqtt(), 1, "offer") as crowd:
        return Capabilities(crowd.welcome)


class _Publisher:
    """One publisher's unacknowledged messages."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent_at: list[float] = []
        self.held = b""
        self.next_id = 1


class Stored:
    """Publishers that wait for acknowledgements."""

    def __init__(self, server: Server) -> None:
        self._server = server
        if isinstance(server.dialect, Mqtt):
            self._wait_for_it()
        self._crowd = Crowd(server.address, server.dialect, PUBLISHERS, "q")
        if isinstance(server.dialect, Nats):
            self._make_stream(server.dialect)
        self._crowd.settle()

    def _wait_for_it(self) -> None:
        with Crowd(self._server.address, Mqtt(keep_session=True), 1, "waits") as waits:
            waits.ask(0, Mqtt().subscribe(TOPIC, qos=1))

    def _make_stream(self, dialect: Nats) -> None:
        self._crowd.subscribe(lambda number: [f"inbox/{number}"])
        settings = json.dumps({"name": STREAM, "subjects": ["bench.stored"], "storage": "file"}).encode()
        asked = dialect.publish(f"$JS/API/STREAM/CREATE/{STREAM}", settings, reply="inbox.0")
        first = self._crowd.sockets[0]
        first.settimeout(DEADLINE_S)
        first.sendall(asked)
        answer = b""
        while not answer.endswith(b"}\r\n"):
            answer += first.recv(65_536)
        first.setblocking(False)
        if b'"error"' in answer:
            raise LoadError(f"JetStream refuses the stream: {answer[:200]!r}")

    def turn(self, seconds: float) -> Reading:
        publishers = {each.fileno(): _Publisher(n) for n, each in enumerate(self._crowd.sockets)}
        latencies: list[float] = []
        cpu_s, began = self._server.family_cpu_s(), time.perf_counter()
        end = began + seconds
        waiting = 0
        for publisher in publishers.values():
            self._send(publisher, WINDOW)
            waiting += WINDOW
        while waiting:
            ready = self._crowd.ready(DEADLINE_S)
            if not ready:
                raise LoadError(f"{waiting} messages were not acknowledged within {DEADLINE_S:g} s")
            for each in ready:
                publisher = publishers[each.fileno()]
                now = time.perf_counter()
                count = self._acknowledged(publisher, each.recv(65_536))
                latencies += [(now - at) * 1e6 for at in publisher.sent_at[:count]]
                del publisher.sent_at[:count]
                waiting -= count
                if now < end and count:
                    self._send(publisher, count)
                    waiting += count
        wall_s = time.perf_counter() - began
        return Reading(len(latencies), self._server.family_cpu_s() - cpu_s, wall_s, tuple(latencies))

    def _send(self, publisher: _Publisher, count: int) -> None:
        dialect, frames = self._server.dialect, b""
        for _ in range(count):
            if isinstance(dialect, Mqtt):
                frames += dialect.publish_once_stored(TOPIC, PAYLOAD, publisher.next_id)
                publisher.next_id = publisher.next_id % 65_535 + 1
            elif isinstance(dialect, Nats):
                frames += dialect.publish(TOPIC, PAYLOAD, reply=f"inbox.{publisher.number}")
        publisher.sent_at += [time.perf_counter()] * count
        self._crowd.send(publisher.number, frames)

    def _acknowledged(self, publisher: _Publisher, data: bytes) -> int:
        """How many acknowledgements these bytes complete."""
        if not data:
            raise LoadError("the broker closed the connection of a publisher")
        data = publisher.held + data
        if isinstance(self._server.dialect, Nats):
            if b'"error"' in data:
                raise LoadError(f"JetStream refuses a message: {data[:200]!r}")
            end = data.rfind(b"}\r\n") + 3
            publisher.held = data[end:] if end > 2 else data
            return data[:end].count(b"}\r\n") if end > 2 else 0
        at = count = 0
        while at < len(data):
            body, end = packet_end(data, at)
            if not body or end > len(data):
                break
            if data[at] != 0x40 or (end - body > 2 and data[body + 2] >= 0x80):
                raise LoadError(f"a publisher got {data[at:end]!r} and not an acknowledgement")
            at = end
            count += 1
        publisher.held = data[at:]
        return count

    def close(self) -> None:
        self._crowd.close()


class Retained:
    """A broker that has retained messages, and new subscribers who get them all."""

    def __init__(self, server: Server) -> None:
        self._server = server
        mqtt = Mqtt()
        frames = [mqtt.publish(f"bench/retained/{n:04}", PAYLOAD, retain=True) for n in range(RETAINED)]
        self._bytes = sum(map(len, frames))
        with Crowd(server.address, mqtt, 1, "r") as publisher:
            publisher.send(0, b"".join(frames))
            publisher.send(0, b"\xc0\x00")  # PINGREQ: its answer comes when all of them were read
            publisher.collect(2)
        deadline = time.monotonic() + DEADLINE_S
        while (there := self._there()) != SUBACK_BYTES + self._bytes:  # read, but perhaps not yet stored
            if time.monotonic() > deadline:
                raise LoadError(f"{server.name} gives {there} of {self._bytes} bytes of retained messages")

    def _there(self) -> int:
        """How much a new subscriber gets until nothing comes any more."""
        found = 0
        with Crowd(self._server.address, Mqtt(), 1, "r") as subscriber:
            subscriber.send(0, Mqtt().subscribe("bench/retained/#"))
            while ready := subscriber.ready(QUIET_S):
                found += len(ready[0].recv(65_536))
        return found

    def turn(self, seconds: float) -> Reading:
        latencies: list[float] = []
        question = Mqtt().subscribe("bench/retained/#")
        cpu_s, began = self._server.cpu_s(), time.perf_counter()
        while time.perf_counter() < began + seconds:
            with Crowd(self._server.address, Mqtt(), 1, "r") as subscriber:
                asked = time.perf_counter()
                subscriber.send(0, question)
                subscriber.collect(SUBACK_BYTES + self._bytes)
                latencies.append((time.perf_counter() - asked) * 1e6)
        wall_s = time.perf_counter() - began
        return Reading(len(latencies) * RETAINED, self._server.cpu_s() - cpu_s, wall_s, tuple(latencies))

    def close(self) -> None:
        """Nothing is open between turns."""
