"""A broker's door and middle on a real socket, without a coordinator; and peers that speak packets to it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar, cast

from mqtt5 import ConnAckPacket, ConnectPacket, Packet, SubAckPacket, SubscribePacket, TopicFilter

from tocsin.broker.durability import Durability
from tocsin.broker.exchange import Exchange
from tocsin.broker.fanout import Outbox
from tocsin.broker.links import Link
from tocsin.broker.listener import Listener, listening_socket
from tocsin.config import Limits
from tocsin.core.admission import Admission
from tocsin.errors import WireError
from tocsin.model.network import BrokerInfo, Role
from tocsin.store.memory import MemoryServer, MemoryStore
from tocsin.wire.codec import V5, Decoder, Version, encode

PacketT = TypeVar("PacketT")
DEADLINE_S = 10.0
SECRET = b"secret"
OWN = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 0)


class Door:
    """A listener and its exchange."""

    def __init__(
        self, limits: Limits, *, port: int = 0, store: MemoryStore | None = None, broker: str = OWN.id
    ) -> None:
        self._broker = broker
        self.store = store or MemoryStore(MemoryServer())
        self.interests: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.exchange = Exchange(Outbox(asyncio.get_running_loop().call_soon), self._link, self._interests)
        self.listener = Listener(OWN, limits, self.exchange, Admission(SECRET, limits.connections_max))
        self.port = port
        self._peers: list[Peer] = []

    def _interests(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        self.interests.append((added, removed))

    def _link(self, peer: BrokerInfo) -> Link:
        return Link(OWN, peer, SECRET, outbound_max_bytes=1 << 20, dropped=self._dropped)

    def _dropped(self, messages: int) -> None:
        self.exchange.counts.dropped += messages

    async def __aenter__(self) -> Self:
        self.exchange.durability = await Durability.open(
            self.store,
            network="net",
            broker=self._broker,
            life="1",
            commits_max=1_000,
            retained_max=1_000,
            dispatch=self.exchange.take,
            announce=self.exchange.announce,
            pressure=self.listener.hold_back,
        )
        self._running = asyncio.create_task(self.exchange.durability.run(self.listener.let_go, self.store))
        listening = listening_socket("127.0.0.1", self.port, "north-1")
        self.port = listening.getsockname()[1]
        await self.listener.open(listening)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.exchange.change_routes((), (), ())
        await self.listener.close()
        for peer in self._peers:
            peer.writer.transport.abort()
        await self.exchange.durability.drain(DEADLINE_S)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        for _ in range(3):  # for the loop to end what was aborted and closed
            await asyncio.sleep(0)

    async def peer(
        self,
        client_id: str = "",
        *,
        version: Version = V5,
        connect: ConnectPacket | None = None,
        accepted: bool = True,
    ) -> Peer:
        """A connected peer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        peer = Peer(reader, writer, version)
        self._peers.append(peer)
        peer.send(connect or ConnectPacket(client_id, clean_start=True))
        if accepted:
            answer = await peer.receive(ConnAckPacket)
            assert int(answer.reason_code) == 0, answer
        return peer


class Peer:
    """One side of a connection, in packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: Version) -> None:
        self.version = version
        self.reader = reader
        self.writer = writer
        self._decoder = Decoder(1 << 24, role="client", version=version)
        self._packets: list[Packet] = []

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            self.writer.write(encode(packet, self.version))

    async def next(self) -> Packet:
        while not self._packets:
            await self._read()
        return self._packets.pop(0)

    async def _read(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            data = await self.reader.read(65_536)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        for item in self._decoder.feed(data):
            assert not isinstance(item, WireError), item
            self._packets.append(item)

    async def first(self, kind: type[PacketT]) -> PacketT:
        """The next packet of a kind, whatever else comes before it; that waits."""
        while True:
            for index, packet in enumerate(self._packets):
                if isinstance(packet, kind):
                    del self._packets[index]
                    return packet
            await self._read()

    async def receive(self, kind: type[PacketT]) -> PacketT:
        packet = await self.next()
        assert isinstance(packet, kind), packet
        return packet

    async def subscribe(self, *filters: TopicFilter, subscription_id: int | None = None) -> None:
        self.send(SubscribePacket(1, list(filters), subscription_id=subscription_id))
        answer = await self.receive(SubAckPacket)
        assert all(int(code) < 0x80 for code in answer.reason_codes)

    async def closed(self) -> bool:
        """Whether the broker ends the connection, with nothing more to say."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read(1) == b""

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Forget what came: this is another connection now."""
        self._decoder = Decoder(1 << 24, role="client", version=self.version)
        self._packets.clear()

    def stop_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).pause_reading()
