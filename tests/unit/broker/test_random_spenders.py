"""Random clients that only spend cannot make a broker hold more than its budgets state.

They never read, never acknowledge, and send the largest that is allowed: publishes at every QoS, retained or not,
floods of requests, packets that are never finished, filters, groups and queries, wills, sessions that are left and come
back, in any order. What the broker really holds is measured where it lies, in buffers of sockets, decoders, queues and
the copy of retained messages, and not only by the account of it. The integration test of the same name does it to
processes, whose memory it measures.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tests.unit.broker.harness import Door
from tocsin.config import Budgets, Limits
from tocsin.core.budgets.budget import SLACK, Budget, Kind, bounds_of
from tocsin.core.budgets.stated_sum import CONNECTION_BYTES
from tocsin.ports import Log, Record
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

MIB: Final = 1 << 20
DEADLINE_S: Final = 120.0  # what was sent may take long to work off where others work, too
LARGEST: Final = MIB - (20 << 10)  # of a payload: leaves room for topic and properties
SMALL: Final = Budgets(
    outbound_bytes=16 * MIB,
    commits_bytes=16 * MIB,
    held_bytes=16 * MIB,
    packets_bytes=16 * MIB,
    pages_bytes=32 * MIB,
    sessions_bytes=16 * MIB,
    groups_bytes=16 * MIB,
)
SPENDERS: Final = 12  # together they have what one user may have, and more than one client may
# What each connection may have beside the budgets: unread answers until it is not read any more, one read, nothing.
EACH_BYTES: Final = {
    Kind.OUTBOUND: CONNECTION_BYTES + (64 << 10),
    Kind.PACKETS: 256 << 10,
    Kind.COMMITS: 0,
}
UNSENT_MAX: Final = 8 * MIB  # of what a spender has written, and the broker has not read
FILTERS: Final = (
    "#",
    "spend/#",
    "+/+",
    "$share/team/spend/#",
    "$query/k IS NOT NULL",
    "$streams/k = 1",
    "a/" * 40,
)

Step = tuple[tuple[int, int], str, int, int]  # from which spender to which, what, of which size; and a number


class Held:
    """A log that appends while it may, and hangs while not."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.go = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        await self.go.wait()
        return await self._log.append(records, expected=expected)


class Spender:
    """A client that sends and never reads, with as small a receive buffer as there is."""

    def __init__(self, door: Door, number: int) -> None:
        self._door = door
        self._name = f"spender-{number}"
        self._transport: asyncio.Transport | None = None
        self._ids = 0

    async def _begin(self, *, clean: bool = False, will: Will | None = None) -> None:
        self.die()
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(end, ("127.0.0.1", self._door.port))
        self._transport, _ = await loop.create_connection(asyncio.Protocol, sock=end)
        self._transport.pause_reading()
        packet = ConnectPacket(
            self._name, clean_start=clean, session_expiry_interval=60, will=will, keep_alive=0
        )
        self._send(encode(packet, V5))

    def _send(self, data: bytes) -> None:
        """Send it as fast as the broker takes it."""
        assert self._transport is not None
        self._transport.write(data)

    async def spend(self, what: str, size: int, number: int) -> None:
        if self._transport is None or self._transport.is_closing():
            await self._begin()
        assert self._transport is not None
        if self._transport.get_write_buffer_size() > UNSENT_MAX and what not in ("leave", "bequeath"):
            return  # the broker does not read it: more would only take our own memory
        if what == "bequeath":
            await self._bequeath(size, number)
        else:
            STEPS[what](self, size, number)

    def die(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _next_id(self) -> int:
        self._ids = self._ids % 60_000 + 1
        return self._ids

    def publish(self, size: int, number: int) -> None:
        qos, retain = QoS(number % 3), number % 4 == 0
        for _ in range(1 + number % 20):
            topic = f"spend/{self._name}/{self._ids if retain else number % 5}"
            packet_id = self._next_id() if number % 3 else None
            packet = PublishPacket(topic, b"x" * size, qos=qos, retain=retain, packet_id=packet_id)
            self._send(encode(packet, V5))

    def subscribe(self, size: int, number: int) -> None:
        name = FILTERS[number % len(FILTERS)]
        asked = SubscribePacket(self._next_id(), [TopicFilter(name, max_qos=QoS(number % 3))])
        again = UnsubscribePacket(self._next_id(), [name])
        self._send((encode(asked, V5) + encode(again, V5)) * (size // 4_096) + encode(asked, V5))

    def flood(self, size: int, number: int) -> None:
        wrong = encode(SubscribePacket(1, [TopicFilter("/".join("a" * 40))]), V5)
        self._send((wrong, encode(PingReqPacket(), V5))[number % 2] * (size // 20))

    def filters(self, size: int, number: int) -> None:
        for first in range(0, 200, 20):
            names = [f"{self._name}/{number}/{first + n}/{'f' * (size % 900)}" for n in range(20)]
            self._send(encode(SubscribePacket(self._next_id(), list(map(TopicFilter, names))), V5))

    def part(self, size: int, number: int) -> None:
        self._send(encode(PublishPacket(f"spend/{self._name}", b"x" * size), V5)[:-1])

    def describe(self, size: int, number: int) -> None:
        said = b'{"$permanent": true, "k": "' + b"v" * min(size, 60_000) + b'"}'
        self._send(encode(PublishPacket(f"$meta/spend/{self._name}/{number}", said), V5))

    def leave(self, size: int, number: int) -> None:
        if number % 2:
            self._send(encode(DisconnectPacket(), V5))
        self.die()

    async def _bequeath(self, size: int, number: int) -> None:
        payload, topic = b"x" * min(size, 65_000), f"spend/{self._name}/will"
        will = Will(topic=topic, payload=payload, will_delay_interval=number % 2 * 60)
        await self._begin(clean=number % 3 == 0, will=will)


STEPS: Final[dict[str, Callable[[Spender, int, int], None]]] = {
    each.__name__: each
    for each in (
        Spender.publish,
        Spender.subscribe,
        Spender.flood,
        Spender.filters,
        Spender.part,
        Spender.describe,
        Spender.leave,
    )
}


def really_held(door: Door) -> dict[Kind, int]:
    """The bytes that lie in the broker, by what for."""
    connections: list[Any] = list(door.listener._connections)
    transports = [each._transport for each in connections if each._transport is not None]
    queue = door.parts.message_log._queue
    return {
        Kind.OUTBOUND: sum(each.get_write_buffer_size() for each in transports),
        Kind.PACKETS: sum(each._decoder.held_bytes for each in connections),
        Kind.COMMITS: sum(len(each[0].payload) for each in (*queue._waiting, *queue._batch)),
    }


def look(door: Door) -> None:
    """Hold the broker to its budgets."""
    figures = door.exchange.budget.figures()
    for kind, figure in figures.items():  # clients without a name are one user
        share = figure.limit * SMALL.user_percent // 100
        assert figure.most <= share + share // SLACK, (kind, figure)
    for kind, size in really_held(door).items():
        share = figures[kind].limit * SMALL.user_percent // 100
        stated = share + share // SLACK + len(door.listener._connections) * EACH_BYTES[kind]
        assert size <= stated, (kind, size, stated)
    room = door.parts.retained._machine.room
    assert room.kept + room.reserved <= room.bytes_max + room.bytes_max // SLACK


async def spend(steps: list[Step]) -> None:
    async with Door(Limits(), budget=Budget(bounds_of(SMALL)), retained_bytes=16 * MIB) as door:
        spenders = [Spender(door, number) for number in range(SPENDERS)]
        honest = await door.peer("honest")
        held = Held(door.parts.message_log._log)
        door.parts.message_log._log = cast(Log, held)
        for (first, last), what, size, number in steps:
            if what == "store":  # it answers, or hangs
                (held.go.clear if number % 2 else held.go.set)()
                continue
            for spender in spenders[first : last + 1]:
                await spender.spend(what, size, number)
            for _ in range(number % 20):
                await asyncio.sleep(0)
                look(door)
        held.go.set()
        async with asyncio.timeout(DEADLINE_S):  # it is served beside them
            honest.send(PingReqPacket())
            await honest.first(PingRespPacket)
        for spender in spenders:
            spender.die()
        figures = door.exchange.budget.figures
        passing = (Kind.OUTBOUND, Kind.COMMITS, Kind.HELD, Kind.PACKETS, Kind.PAGES)
        async with asyncio.timeout(DEADLINE_S):
            while door.listener.clients > 1 or any(figures()[each].used for each in passing):
                await asyncio.sleep(0.01)
        look(door)


STEPS_DRAWN: Final = st.lists(
    st.tuples(
        st.tuples(st.integers(0, SPENDERS - 1), st.integers(0, SPENDERS - 1)),
        st.sampled_from([*STEPS, "bequeath", "store"]),
        st.sampled_from([1, 5_000, 60_000, 300_000, LARGEST]),
        st.integers(0, 99),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS_DRAWN)
def test_random_spenders_stay_within_the_budgets(steps: list[Step]) -> None:
    asyncio.run(spend(steps))
