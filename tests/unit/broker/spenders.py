"""Clients that only spend: they never read, never acknowledge, and send the largest that is allowed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Final, cast

import msgspec
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tocsin.broker.delivery.message_log import Batch, MessageLog
from tocsin.ports import READ_MAX, Begun, Entry, Log, Reached, Record, Selection
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

PACKET_MAX: Final = 64 << 10
LARGEST: Final = PACKET_MAX - (4 << 10)  # of a payload: leaves room for topic and properties
METADATA_MAX: Final = 4_096
WELCOME_S: Final = 0.2  # for CONNACK: what is sent before it has a bound of its own
UNSENT_MAX: Final = 1 << 20  # of what a spender has written, and the broker has not read
FILTERS: Final = ("#", "spend/#", "", "$query/k IS NOT NULL", "$streams/k = 1", "a/" * 40)


class HeldLog:
    """A broker's message log on a server of its own, as far as memory goes: whatever is read is a copy. While it hangs
    nothing is appended, and pages that are read stay on their way."""

    def __init__(self, message_log: MessageLog) -> None:
        self._log = message_log._log
        self._read = message_log.read
        self.go = asyncio.Event()
        self.go.set()
        self.on_its_way = 0  # bytes of pages
        message_log._log = cast(Log, self)
        message_log.read = self.page  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        await self.go.wait()
        return await self._log.append(records, expected=expected)

    async def page(
        self, filters: Collection[str], start: int, *, critical: bool | None = None, limit: int = READ_MAX
    ) -> Batch:
        batch = await self._read(filters, start, critical=critical, limit=limit)
        batch = msgspec.structs.replace(batch, entries=list(map(_copied, batch.entries)))
        size = sum(len(each.payload) for each in batch.entries)
        self.on_its_way += size
        try:
            await self.go.wait()
        finally:
            self.on_its_way -= size
        return batch

    def select(self, patterns: Sequence[str], start: int) -> Selection:
        return _Copies(self._log.select(patterns, start))


class _Copies:
    """A selection whose entries are copies."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    async def items(self) -> AsyncGenerator[Entry | Begun | Reached, None]:
        async for item in self._selection.items():
            yield _copied(item) if isinstance(item, Entry) else item

    async def hasten(self) -> None:
        await self._selection.hasten()


def _copied(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, payload=bytes(bytearray(entry.payload)))


class Spender:
    """A client that sends and never reads, with as small a receive buffer as there is."""

    def __init__(self, port: int, number: int) -> None:
        self._port = port
        self._number = number
        self._name = f"spender-{number}"
        self._transport: asyncio.Transport | None = None
        self._knocking: list[asyncio.Transport] = []  # connections that never come in
        self._ids = 0

    async def spend(self, what: str, size: int, number: int) -> None:
        if self._transport is None or self._transport.is_closing():
            await self._begin()
        assert self._transport is not None
        if self._transport.get_write_buffer_size() > UNSENT_MAX and what not in COMING:
            return  # the broker does not read it: more would only take our own memory
        if what == "bequeath":
            await self._bequeath(size, number)
        elif what == "knock":
            await self._knock(size)
        elif what == "come_back":
            await self._begin()
        else:
            STEPS[what](self, size, number)

    def die(self) -> None:
        for transport in (*self._knocking, self._transport):
            if transport is not None:
                transport.abort()
        self._transport = None
        self._knocking.clear()

    async def _connection(self, first: bytes, *, welcome: bool = False) -> asyncio.Transport:
        """One that begins with these bytes; ``welcome``: it waits for an answer, the last thing that is read."""
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(end, ("127.0.0.1", self._port))
        if welcome:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(WELCOME_S):
                    await loop.sock_sendall(end, first)
                    await loop.sock_recv(end, 1_000)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=end)
        transport.pause_reading()
        if not welcome:
            transport.write(first)
        return transport

    async def _knock(self, size: int) -> None:
        """Begin many CONNECT packets, and finish none."""
        while self._knocking:
            self._knocking.pop().abort()
        for _ in range(5):
            beginning = b"\x10\xff\xff\x03\x00\x04MQTT\x05" + b"x" * size
            self._knocking.append(await self._connection(beginning))

    async def _begin(self, *, clean: bool = False, will: Will | None = None) -> None:
        if self._transport is not None:
            self._transport.abort()
        packet = ConnectPacket(
            self._name,
            clean_start=clean,
            session_expiry_interval=60,
            will=will,
            keep_alive=0,
            receive_max=1 if self._number % 3 == 0 else 65_535,
        )
        self._transport = await self._connection(encode(packet, V5), welcome=True)

    async def _bequeath(self, size: int, number: int) -> None:
        """Leave a will, and come again with another one."""
        for each in range(4):
            topic = f"spend/{self._name}/will"
            qos = QoS(number % 3)
            will = Will(
                topic=topic, payload=b"x" * size, qos=qos, will_delay_interval=(number + each) % 2 * 60
            )
            await self._begin(clean=number % 4 == 0, will=will)
            await asyncio.sleep(0)

    def _send(self, data: bytes) -> None:
        """Send it as fast as the broker takes it."""
        assert self._transport is not None
        self._transport.write(data)

    def _next_id(self) -> int:
        self._ids = self._ids % 60_000 + 1
        return self._ids

    # ── what it spends ──────────────────────────────────────────────────────────────────────────────────────

    def publish(self, size: int, number: int) -> None:
        qos, retain = QoS(number % 3), number % 4 == 0
        for _ in range(1 + number % 20):
            topic = f"spend/{self._name}/{self._ids % 8 if retain else number % 5}"
            packet_id = self._next_id() if number % 3 else None
            packet = PublishPacket(topic, b"x" * size, qos=qos, retain=retain, packet_id=packet_id)
            self._send(encode(packet, V5))

    def subscribe(self, size: int, number: int) -> None:
        name = FILTERS[number % len(FILTERS)] or f"$share/{self._name}/spend/#"
        asked = SubscribePacket(self._next_id(), [TopicFilter(name, max_qos=QoS(1 + number % 2))])
        again = UnsubscribePacket(self._next_id(), [name])
        self._send((encode(asked, V5) + encode(again, V5)) * (size // 6_000) + encode(asked, V5))

    def flood(self, size: int, number: int) -> None:
        """Ask for what is answered at once, and at length."""
        wrong = encode(SubscribePacket(1, [TopicFilter("/".join("a" * 40))]), V5)
        absent = encode(UnsubscribePacket(1, ["a"] * 1_000), V5)
        asked = (wrong, absent, encode(PingReqPacket(), V5))[number % 3]
        self._send(asked * (10 * size // len(asked)))

    def filters(self, size: int, number: int) -> None:
        for first in range(0, 100, 20):
            names = [f"{self._name}/{number}/{first + n}/{'f' * (size % 900)}" for n in range(20)]
            self._send(encode(SubscribePacket(self._next_id(), list(map(TopicFilter, names))), V5))

    def part(self, size: int, number: int) -> None:
        self._send(encode(PublishPacket(f"spend/{self._name}", b"x" * size), V5)[:-1])

    def describe(self, size: int, number: int) -> None:
        """Describe topics on which it does not publish, at all lengths, and for good."""
        value = b"v" * min(size, 900)
        said = b'{"$permanent": true, "k": "%b", "l": "%b", "m": "%b"}' % (value, value, value)
        for each in range(20):
            topic = f"$meta/described/{self._name}/{number}/{each}"
            self._send(encode(PublishPacket(topic, said), V5))

    def leave(self, size: int, number: int) -> None:
        if number % 2:
            self._send(encode(DisconnectPacket(), V5))
        self.die()


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
COMING: Final = ("bequeath", "come_back", "knock", "leave")  # steps that begin or end a connection
