"""A broker's entrance and middle on a real socket, with a participant that finds a coordinator if there is one
(``coordination.py``); and peers that speak packets to it."""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec
from mqtt5 import ConnAckPacket, ConnectPacket, Packet, SubAckPacket, SubscribePacket, TopicFilter

from tocsin.broker.channels.result_reader import ResultFiles
from tocsin.broker.entrance.listener import Listener, listening_socket
from tocsin.broker.entrance.redirects import Redirects
from tocsin.broker.forwarding.exchange import Counts, Exchange
from tocsin.broker.forwarding.fanout import Outbox
from tocsin.broker.links.link import Link, LinkSecurity
from tocsin.broker.links.listener import LinkListener
from tocsin.broker.links.pool import LinkPool
from tocsin.broker.parts import Parts, Ports, Stored
from tocsin.config import Budgets, Limits, Messages, Settings
from tocsin.core.budgets.budget import Budget, bounds_of
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    Adopted,
    AllDispatched,
    AwaitAll,
    AwaitDispatch,
    BackupsKnown,
    Dispatched,
    InterestsChanged,
    Orphaned,
    RoutesChanged,
    StandInsChanged,
)
from tocsin.core.machine import Effect, Event
from tocsin.core.replication.signals import Policy
from tocsin.errors import WireError
from tocsin.model.network import BrokerInfo, Role, Scheme, broker_address
from tocsin.runtime.machines.driver import Driver
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import PeerTls
from tocsin.runtime.security.files import Guard
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5, Version

PacketT = TypeVar("PacketT")
DEADLINE_S = 10.0
NETWORK = "net"
OWN = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 0)
PLACES = StoreNames(NETWORK)
HEARTBEAT_US = 500_000


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


@functools.cache
def _authority() -> Authority:
    """One for all tests of this process: to issue certificates takes a moment."""
    directory = Path(tempfile.mkdtemp(prefix="tocsin-test-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Authority.open_or_make(directory, NETWORK)


@functools.cache
def coordinator_tls(name: str = "coordinator-1") -> PeerTls:
    """With what a coordinator of this name proves that it is one."""
    return PeerTls(_authority().ensure(name, role="coordinator"))


@functools.cache
def security_of(broker: str) -> LinkSecurity:
    """With what a broker of this name proves that it is one."""
    return LinkSecurity(NETWORK, PeerTls(_authority().ensure(broker, role="broker")))


def exchange_of(outbox: Outbox, make_link: Callable[[BrokerInfo], Link]) -> Exchange:
    """An exchange by itself: nothing durable, no channels, no streams."""
    nothing: Any = None
    registry: Any = SimpleNamespace(is_registered=lambda topic: False)
    return Exchange(
        outbox,
        LinkPool(lambda peer, quiet, watcher: make_link(peer)),
        Counts(),
        Budget(bounds_of(Budgets())),
        nothing,
        nothing,
        nothing,
        registry,
        nothing,
        network=NETWORK,
        own=OWN,
        gone=tuple,
        interests_changed=lambda added, removed: None,
        queries_changed=lambda added, removed, user: None,
        filters_max=100,
        held_max_bytes=1 << 20,
        failed=nothing,
    )


class NotingSocket(socket.socket):
    """A listening socket that knows the connections it has accepted."""

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self.accepted: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, peer = super().accept()
        self.accepted.append(accepted)
        return accepted, peer


class Door:
    """A listener and its exchange. ``takes_part``: the participant runs."""

    def __init__(
        self,
        limits: Limits,
        *,
        port: int = 0,
        link_port: int = 0,
        store: MemoryStore | None = None,
        broker: str = OWN.id,
        cluster: str = OWN.cluster,
        takes_part: bool = False,
        results: ResultFiles | None = None,
        policy: Policy | None = None,
        redirects: Redirects | None = None,
        budget: Budget | None = None,
        others: tuple[str, ...] = (),
        retained_bytes: int = 64 << 20,
        retained_held_bytes: int = 64 << 20,
        kernel_bytes: int = 0,
        outward: bool = False,
    ) -> None:
        self.refuges: dict[Scheme, str] = {}  # where clients are sent that cannot be here
        self._broker = broker
        self._info = msgspec.structs.replace(OWN, id=broker, cluster=cluster, outward=outward)
        self._takes_part = takes_part
        self._results = results
        self._policy = policy
        self._others = others
        self._redirects = redirects
        self._budget = budget
        self._kernel_bytes = kernel_bytes  # that the kernel takes for one client; 0: as many as it likes
        budgets = Budgets(
            retained_bytes=retained_bytes, retained_held_bytes=retained_held_bytes, user_percent=50
        )
        reading = Messages(read="wanted")
        self.settings = Settings(network=NETWORK, limits=limits, budgets=budgets, messages=reading)
        self.guard = Guard()
        self.store = store or MemoryStore(MemoryServer())
        self.interests: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.security = security_of(broker)
        self.port = port
        self.link_port = link_port
        self._peers: list[Peer] = []

    def _post(self, event: Event) -> None:
        if isinstance(event, InterestsChanged):
            self.interests.append((event.added, event.removed))
        self.driver.post(event)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RoutesChanged(added=added, removed=removed, peers=peers, quiet=quiet, tiers=tiers):
                self.exchange.change_routes(added, removed, peers, quiet, tiers)
            case AwaitDispatch(position=position):
                dispatched = Dispatched(position=position)
                self.parts.message_log.when_dispatched(position, lambda: self.driver.post(dispatched))
            case AwaitAll(number=number):
                everything = AllDispatched(number=number)
                self.parts.message_log.when_all_dispatched(lambda: self.driver.post(everything))
            case BackupsKnown(local=local, remote=remote, locally=locally, remotely=remotely):
                self.parts.replication.set_backups(local, remote)
                self.parts.replication.set_primaries((*locally, *remotely))
            case StandInsChanged(lost=lost):
                self.parts.losses.told(lost)
            case Orphaned() | Adopted():
                pass
            case _:
                self.exchange.apply_coordination(effect)

    @property
    def exchange(self) -> Exchange:
        return self.parts.exchange

    @property
    def listener(self) -> Listener:
        return self.parts.listener

    @property
    def link_listener(self) -> LinkListener:
        return self.parts.link_listener

    async def __aenter__(self) -> Self:
        listening = listening_socket("127.0.0.1", self.port, "north-1")
        self.port = listening.getsockname()[1]
        if self._kernel_bytes:  # the connections inherit it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._kernel_bytes)
        self._links = NotingSocket(fileno=listening_socket("127.0.0.1", self.link_port, "north-1").detach())
        self._links.setblocking(False)
        self.link_port = self._links.getsockname()[1]
        self._info = msgspec.structs.replace(self._info, port=self.link_port)
        self.participant = Participant(self._info, PLACES, HEARTBEAT_US)
        self.driver = Driver(
            self.participant,
            broker_address(self._broker),
            self.store,
            network="net",
            own=self._carry_out,
            logs={PLACES.commands.name: await self.store.log(PLACES.commands)},
        )
        stored = await Stored.open(self.store, self.settings)
        self.parts = Parts(self._ports(), stored)
        await self.parts.open()
        self._running = asyncio.create_task(self.parts.run())
        await self.listener.open(listening)
        self.link_listener.open(self._links)
        self._taking_part = asyncio.create_task(self.driver.run()) if self._takes_part else None
        if self._takes_part:
            await until(lambda: self.participant.state == "member")
        return self

    def fall_silent(self) -> None:
        """Say nothing more to other brokers or to the coordinator, as a process that is killed."""
        self._running.cancel()
        if self._taking_part is not None:
            self._taking_part.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.exchange.peers.close()
        await self.listener.close()
        await self.link_listener.close()
        for peer in self._peers:
            peer.writer.transport.abort()
        await self.parts.drain(DEADLINE_S)
        tasks = [self._running, *([self._taking_part] if self._taking_part else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):  # for the loop to end what was aborted and closed
            await asyncio.sleep(0)
        for link in self._links.accepted:  # TLS waits for a peer's goodbye, and the peer may be gone
            link.close()

    def _ports(self) -> Ports:
        budget = self._budget or Budget(bounds_of(self.settings.budgets))
        return Ports(
            own=self._info,
            incarnation="1",
            settings=self.settings,
            guard=self.guard,
            policy=self._policy or Policy(),
            budget=budget,
            others=self._others,
            asks=False,
            borrowed=False,
            security=self.security,
            results=self._results,
            member=self.participant,
            post=self._post,
            refuge=self.refuges.get,
            destinations=lambda scheme: [self.refuges[scheme]] if scheme in self.refuges else [],
            redirects=lambda isolation: self._redirects,
        )

    def info(self, broker: str, cluster: str, role: Role = Role.EDGE) -> BrokerInfo:
        """This broker, as one that goes by another name: peers that dial it look for its own certificate."""
        info = BrokerInfo(broker, cluster, role, "127.0.0.1", self.link_port, certified=self._broker)
        return msgspec.structs.replace(info, outward=self._info.outward)

    async def link(
        self, broker: str, cluster: str, *, connect: ConnectPacket | None = None, accepted: bool = True
    ) -> Peer:
        """A broker's link to this one, in packets."""
        context = security_of(broker).tls.client
        reader, writer = await asyncio.open_connection("127.0.0.1", self.link_port, ssl=context)
        peer = Peer(reader, writer, V5)
        self.look_after(peer)
        said = [("cluster", cluster)]
        peer.send(connect or ConnectPacket(f"$link/{broker}", clean_start=True, user_properties=said))
        if accepted:
            answer = await peer.receive(ConnAckPacket)
            assert int(answer.reason_code) == 0, answer
        return peer

    def look_after(self, peer: Peer) -> None:
        """End this peer's connection with the door."""
        self._peers.append(peer)

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
        self.look_after(peer)
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

    def resume_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()
