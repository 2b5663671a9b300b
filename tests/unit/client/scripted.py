"""A broker on a real socket that does what a test says, packet by packet."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PubAckPacket,
    PublishPacket,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    UnsubAckPacket,
    UnsubAckReasonCode,
    UnsubscribePacket,
)

from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import Decoder, encode

PacketT = TypeVar("PacketT")
DEADLINE_S = 10.0


class Caller:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(1 << 24)
        self._packets: list[Packet] = []

    def send(self, *packets: Packet) -> None:
        self._writer.write(b"".join(encode(packet, 5) for packet in packets))

    async def receive(self, kind: type[PacketT]) -> PacketT:
        """The next packet, which must be of that kind."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._packets:
                data = await self._reader.read(65_536)
                if not data:
                    raise ConnectionResetError("the client closed the connection")
                for item in self._decoder.feed(data):
                    assert not isinstance(item, WireError), item
                    self._packets.append(item)
        packet = self._packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def accept(self, answer: ConnAckPacket | None = None) -> ConnectPacket:
        connect = await self.receive(ConnectPacket)
        self.send(answer or ConnAckPacket())
        return connect

    async def grant(self, *before: Packet) -> SubscribePacket:
        """Grant the subscription that is asked for, and send this first."""
        asked = await self.receive(SubscribePacket)
        granted = SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE
        self.send(*before, SubAckPacket(asked.packet_id, [granted]))
        return asked

    async def take(self) -> PublishPacket:
        """Take and acknowledge a message at QoS 1."""
        packet = await self.receive(PublishPacket)
        assert packet.packet_id is not None
        self.send(PubAckPacket(packet.packet_id))
        return packet

    def answer(self, asked: UnsubscribePacket) -> None:
        self.send(UnsubAckPacket(asked.packet_id, [UnsubAckReasonCode.SUCCESS]))

    def hang_up(self) -> None:
        self._writer.transport.abort()


class Scripted:
    """Listens; ``call`` is the next connection that a client makes."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[Caller] = asyncio.Queue()
        self._made: list[Caller] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for caller in self._made:
            caller.hang_up()
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = Caller(reader, writer)
        self._made.append(caller)
        self._calls.put_nowait(caller)

    async def call(self) -> Caller:
        async with asyncio.timeout(DEADLINE_S):
            return await self._calls.get()

    async def accepted(self, answer: ConnAckPacket | None = None) -> Caller:
        caller = await self.call()
        await caller.accept(answer)
        return caller
