"""The listener for links, which only brokers of this network pass.

    accepted ──► TLS handshake, both sides show certificates ──► the certificate names a broker of this network
             ──► CONNECT under that name (``core.links.incoming``) ──► what it brings is relayed

Nothing of a client's is here: no sessions, no users, no rules. The messages of a link were checked at their first
broker. Bounds are those of a listener that strangers may come to as well: connections a second from one address,
handshakes at a time, links in all. A peer has one link to us; its next one ends the one before. A probe
(``core.links.incoming``) is no link, and ends none. A peer may make PROBES_BURST probes at once, and one every
PROBE_EVERY_S.

A coordinator of this network is no peer: it passes clients on (``broker.entrance.passed_on``), and is handed to
``pass_on``. Those connections count as clients, not as links.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, cast

import structlog
from mqtt5 import Packet, PingRespPacket, PublishPacket, QoS

from tocsin.broker.links.link import BROKER_ROLE, PACKET_MARGIN_BYTES, LinkSecurity
from tocsin.broker.links.turned import TurnedConnections
from tocsin.config import Limits
from tocsin.core.access.admission import is_loopback, source_of
from tocsin.core.links.incoming import IncomingLink, LinkUp, ProbeTaken, TurnedAround
from tocsin.core.machine import Effect, Event
from tocsin.core.rates import Buckets
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.signals import (
    Close,
    Opened,
    PacketArrived,
    PeerClosed,
    SendPacket,
    ServerStopping,
    TakenOver,
    WireFailed,
)
from tocsin.errors import OperatorError, WireError
from tocsin.runtime.machines.clock import monotonic_s, now_us
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Ending, Tasks
from tocsin.runtime.security.credentials import Identity, peer_of
from tocsin.wire.mqtt.codec import Decoder, PublishRun, encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.topics import NEAR_PREFIX

EXTRA_MAX: Final = 2  # further connections of a peer
LINKS_MAX: Final = 1_000  # a network has 256 brokers of one machine at most, and each has one link to us
HANDSHAKES_MAX: Final = 64  # at a time; for more, the oldest goes
ADDRESSES_MAX: Final = 1_000  # whose rate is remembered
BURST_S: Final = 10  # an address may open as many connections at once as it may in this time
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no descriptor left
TLS_CLOSE_S: Final = 5.0  # for the peer's last word in TLS
LINGER_S: Final = 5.0  # for a closed link's last bytes
PROBE_EVERY_S: Final = 30  # a peer measures again after minutes
PROBES_BURST: Final = 4  # it may have restarted
NO_TLS_SAID_S: Final = 10.0  # between two lines of the log: strangers may knock thousands of times a second
AT_MOST_ONCE: Final = QoS.AT_MOST_ONCE


class Receiver(Protocol):
    """The receiver of the messages that links bring."""

    def relay(self, cluster: str, topic: str, packet: PublishPacket) -> None: ...

    def relay_run(self, cluster: str, run: PublishRun) -> None: ...

    def flush(self) -> None:
        """Write what was relayed, and waits for the end of the tick."""
        ...


PassOn = Callable[[asyncio.Transport], asyncio.Protocol]
Hear = Callable[[str, str, bytes], None]  # who speaks, as its certificate says, on which topic, and what


class LinkListener:
    """The links from other brokers to this one. ``hear`` is told the words of brokers of the cluster; ``pass_on`` makes
    the protocol of a connection over which a coordinator passes a client on; ``turned`` gets the connections that peers
    have turned around. ``dial_again`` ends the links that this broker has made: certificates that peers have shown may
    be believed no more."""

    def __init__(
        self,
        security: LinkSecurity,
        limits: Limits,
        receiver: Receiver,
        hear: Hear,
        pass_on: PassOn,
        turned: TurnedConnections,
        dial_again: Callable[[], None] = lambda: None,
    ) -> None:
        self.turned = turned
        self._dial_again = dial_again
        self.receiver = receiver
        self.hear = hear
        self.pass_on = pass_on
        self.limits = SessionLimits(
            connect_deadline_us=round(limits.connect_deadline_s * 1e6),
            packet_max_bytes=limits.packet_max_bytes,
            topic_max_bytes=limits.topic_max_bytes,
            topic_max_levels=limits.topic_depth_max,
            topic_alias_max=0,
        )
        self.refused = 0  # connections that did not become links
        self.probes = 0  # of peers that measured the way to us …
        self.probed_bytes = 0  # … and what they brought
        self._probe_rates = Buckets[str](1, PROBES_BURST * PROBE_EVERY_S, LINKS_MAX)  # in seconds
        self._security = security
        self._tls = security.tls
        rate = limits.connection_rate
        self._rates: Buckets[str] | None = Buckets(rate, rate * BURST_S, ADDRESSES_MAX) if rate else None
        # Those that are up, by the peer's name and which further connection it is; "": its link.
        self._links: dict[tuple[str, str], IncomingConnection] = {}
        self._connections: dict[IncomingConnection, None] = {}  # in the order in which they came
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first
        self.ending = (
            Ending()
        )  # a listener that does not accept any more is of no use: the broker ends with it
        self._tasks = Tasks("the listener for links", self.ending.fail)
        self._accepting: asyncio.Task[None] | None = None
        self._is_closed = False
        self._no_tls_said = -NO_TLS_SAID_S
        self._log = structlog.get_logger()

    @property
    def links(self) -> int:
        """Peers that have a link to us."""
        return sum(not extra for _, extra in self._links)

    @property
    def problem(self) -> str | None:
        """Why peers will not believe us; None: they will."""
        return self._tls.problem

    def open(self, listening: socket.socket) -> None:
        """Accept links from a socket, and from no other any more; take up certificates that are replaced."""
        if self._accepting is None:
            self._tasks.spawn(self._watch())
        else:
            self._accepting.cancel()
        self._accepting = self._tasks.spawn(self._accept(listening))
        self._accepting.add_done_callback(lambda task: listening.close())  # when nobody waits for it any more

    async def close(self) -> None:
        """Take no more links, and end those that are there."""
        self._is_closed = True
        handshakes = tuple(self._handshakes)
        for task in handshakes:
            task.cancel()
        self.end_all()
        await self._tasks.wait_closed()
        await asyncio.gather(*handshakes, return_exceptions=True)

    def end_all(self) -> None:
        """End all links to us, and connections that wait to be links of ours; peers make them again."""
        for connection in tuple(self._connections):
            connection.post(ServerStopping())
        self.turned.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError:  # no descriptor left, or the peer has gone already
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if not self._has_room(peer[0]):
                self.refused += 1
                accepted.close()
                continue
            task = loop.create_task(self._shake_hands(accepted))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._shaken, accepted, peer[0]))

    def _has_room(self, address: str) -> bool:
        rates = None if is_loopback(address) else self._rates
        if rates is not None and not rates.try_take(source_of(address), now_us()):
            return False
        if len(self._connections) >= LINKS_MAX:
            return False
        if len(self._handshakes) >= HANDSHAKES_MAX:
            next(iter(self._handshakes)).cancel()
        return True

    async def _shake_hands(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: IncomingConnection(self),
            accepted,
            ssl=self._tls.server,
            ssl_handshake_timeout=self.limits.connect_deadline_us / 1e6,
            ssl_shutdown_timeout=TLS_CLOSE_S,
        )

    def _shaken(self, accepted: socket.socket, address: str, task: asyncio.Task[None]) -> None:
        del self._handshakes[task]
        if task.cancelled():  # perhaps before it had begun
            accepted.close()
            self.refused += not self._is_closed
        elif (error := task.exception()) is not None:
            accepted.close()
            self.refused += 1
            self._note_no_tls(address, error)

    def _note_no_tls(self, address: str, error: BaseException) -> None:
        now, level = monotonic_s(), "debug"
        if not isinstance(error, OSError):  # errors of ssl are OSErrors
            level = "error"
        elif now - self._no_tls_said >= NO_TLS_SAID_S:
            self._no_tls_said, level = now, "info"
        getattr(self._log, level)(
            "no TLS with who wanted to be a link", address=address, problem=str(error), so_far=self.refused
        )

    async def _watch(self) -> None:
        """Load replaced certificates; where an authority is no longer trusted, have all peers show theirs again."""
        while True:
            believed = self._tls.believed
            try:
                await self._tls.replaced()
            except OperatorError as error:
                self._log.error(
                    "changed certificates cannot be used; all stays as it was", problem=str(error)
                )
                continue
            self._log.info("certificates of the network changed")
            if not believed <= self._tls.believed:
                self.end_all()  # peers dial again at once
                self._dial_again()

    # ── what connections ask ────────────────────────────────────────────────────────────────────────────────

    def admit(self, connection: IncomingConnection, transport: asyncio.BaseTransport) -> Identity | None:
        """The broker or coordinator that a connection's certificate proves; None if it is none of this network."""
        peer = peer_of(transport.get_extra_info("ssl_object"))
        if self._is_closed:
            return None
        if peer is not None and peer == self._security.coordinator(peer.name):
            return peer
        if peer is None or peer != self._security.broker(peer.name):
            self.refused += 1
            self._log.warning("a link was refused: no broker of this network", peer=peer and peer.uri)
            return None
        self._connections[connection] = None
        return peer

    def may_probe(self, name: str) -> bool:
        """Whether a peer may measure now; if so, it does."""
        may = self._probe_rates.try_take(name, now_us(), PROBE_EVERY_S)
        self.probes += may
        return may

    def up(self, name: str, extra: str, connection: IncomingConnection) -> None:
        further = sum(key[0] == name and key[1] not in ("", extra) for key in self._links) if extra else 0
        if further >= EXTRA_MAX:
            connection.post(TakenOver())
            return
        before = self._links.get((name, extra))
        self._links[name, extra] = connection
        if before is not None:
            before.post(TakenOver())

    def turned_around(self, name: str, connection: IncomingConnection, transport: asyncio.Transport) -> None:
        """A peer listens on a connection that it has dialled."""
        self._connections.pop(connection, None)
        self.turned.put(name, transport)

    def closed(self, name: str, extra: str, connection: IncomingConnection, close: Close) -> None:
        self._connections.pop(connection, None)
        if self._links.get((name, extra)) is connection:
            del self._links[name, extra]
        if close.reason_code >= 0x80 and close.fault == "peer":
            self.refused += 1
        self._log.debug("a link to us ended", peer=name, reason=close.reason, reason_code=close.reason_code)


class IncomingConnection(asyncio.Protocol):
    """One connection of a peer's; nothing is read from it before its certificate was looked at."""

    def __init__(self, listener: LinkListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._decoder = Decoder(listener.limits.packet_max_bytes + PACKET_MARGIN_BYTES)
        self._cluster: str | None = None  # once it is up
        self._extra = ""  # which further connection of the peer's it is
        self._machine: IncomingLink
        self._shell: Shell | None = None  # once it is known whose connection this is

    def post(self, event: Event) -> None:
        """Hand an event to the machine of this link; before there is one, nothing happens."""
        if self._shell is not None:
            self._shell.post(event)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = self._listener.admit(self, transport)
        if peer is None:
            cast(asyncio.Transport, transport).abort()
            return
        if peer.role != BROKER_ROLE:
            transport = cast(asyncio.Transport, transport)
            transport.set_protocol(self._listener.pass_on(transport))
            return
        self._transport = cast(asyncio.Transport, transport)
        self._machine = IncomingLink(
            peer.name, self._listener.limits, partial(self._listener.may_probe, peer.name)
        )
        self._shell = Shell(self._machine, self._carry_out, self._failed)
        self.post(Opened(assigned_client_id=""))

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        items: Sequence[Packet | PublishRun | WireError]
        if self._cluster is None:
            items = self._decoder.feed(data)
        else:
            items = self._decoder.feed_runs(data)
            self._machine.heard(now_us())
        for item in items:
            if not self._listens:
                return
            try:
                self._take(item)
            except WireError as error:
                self.post(WireFailed(error=error))

    @property
    def _listens(self) -> bool:
        return self._transport is not None

    def _take(self, item: Packet | PublishRun | WireError) -> None:
        cluster = self._cluster
        if isinstance(item, WireError):
            self.post(WireFailed(error=item))
        elif isinstance(item, PublishRun):
            assert cluster is not None, "runs are read once the link is up"
            if self._machine.takes(item.topic, item.count):
                self._listener.receiver.relay_run(cluster, item)
        elif cluster is not None and type(item) is PublishPacket and item.qos == AT_MOST_ONCE:
            topic = self._machine.topic_of(item)
            if topic is None:
                return
            if topic.startswith(NEAR_PREFIX):
                self._listener.hear(self._machine.peer, topic, item.payload)
            else:
                self._listener.receiver.relay(cluster, topic, item)
        else:
            self.post(PacketArrived(packet=item, version=self._decoder.version or V5))

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self.post(PeerClosed())

    def _carry_out(self, effect: Effect) -> None:
        shell = self._shell
        assert shell is not None, "effects come from its machine"
        match effect:
            case SendPacket(packet=packet):
                if isinstance(
                    packet, PingRespPacket
                ):  # to the peer it means: what it sent before is on its way
                    self._listener.receiver.flush()
                if self._transport is not None and not self._transport.is_closing():
                    self._transport.write(encode(packet, V5))
            case ProbeTaken(size=size):
                self._listener.probed_bytes += size
            case TurnedAround() if self._transport is not None:
                transport, self._transport = self._transport, None
                shell.close()
                self._listener.turned_around(self._machine.peer, self, transport)
            case LinkUp(cluster=cluster, extra=extra):
                self._cluster, self._extra = cluster, extra
                self._listener.up(self._machine.peer, extra, self)
            case Close():
                shell.close()
                self._listener.closed(self._machine.peer, self._extra, self, effect)
                self._hang_up()
            case _:
                shell.carry_out(effect)

    def _failed(self, error: BaseException) -> None:
        """The link is broken off; the peer dials again."""
        if self._transport is not None:
            self._transport.abort()

    def _hang_up(self) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            if not transport.is_closing():
                transport.close()
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)
