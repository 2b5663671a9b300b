"""The listener of a coordinator's door: accepts within bounds, hears the first packet, and answers.

    accepted ──► (TLS) ──► first byte ──► 0x10: CONNECT ──► redirected, passed on, or refused (``core.door``)
                                     └──► a letter: an HTTP request (``lookup``) ──► answered, closed

The door checks nothing but bounds: a log-in is the broker's matter, and passes through the proxy as it came. It tells
addresses of brokers and which of them live; of a client, to whoever knows its id, the broker that it belongs to.

Bounds, before anything is spent on a connection: how many an address may open in a second, and how many wait. Until a
client has its broker, its connection has a deadline, and the bytes of all that wait are bounded. If there are too many,
or they hold too much, the oldest goes (``core.door.waiting``). Clients that are passed on have a bound of their own:
while it is reached, others are redirected and look-ups are answered all the same.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Final, cast

import structlog
from mqtt5 import ConnAckPacket, ConnAckReasonCode, ConnectPacket

from tocsin.config import Limits
from tocsin.coordinator.door.lookup import Lookup
from tocsin.coordinator.door.proxy import HIGH_BYTES, Proxy, Upstream
from tocsin.coordinator.door.view import View
from tocsin.core.access.admission import is_loopback, source_of
from tocsin.core.door.callers import Caller, caller_of
from tocsin.core.door.door import Door, PassOn, Redirect, Refuse
from tocsin.core.door.waiting import Waiting
from tocsin.core.rates import Buckets
from tocsin.errors import WireError
from tocsin.model.network import Scheme
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.tasks import Ending, Tasks
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5, Version
from tocsin.wire.proxy_header import PassedOn

CONNECT: Final = 0x10
CONNECT_MAX_BYTES: Final = (
    64 << 10
)  # of the first packet: room for a certificate, a token and a will of some size
HELD_MAX_BYTES: Final = 64 << 20  # of first packets that wait, all together
ADDRESSES_MAX: Final = 10_000  # whose rate is remembered
BURST_S: Final = 10  # an address may open as many connections at once as it may in this time
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no descriptor left
TLS_CLOSE_S: Final = 5.0  # for the peer's last word in TLS
LINGER_S: Final = 5.0  # for a client to hear its answer


class DoorListener:
    """The door of one coordinator. Without ``proxy`` it passes nobody on."""

    def __init__(
        self,
        door: Door,
        view: View,
        proxy: Proxy | None,
        limits: Limits,
        connections_max: int,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.door = door
        self.view = view
        self.proxy = proxy
        self.deadline_s = limits.connect_deadline_s
        self.waiting: Waiting[Visitor] = Waiting(limits.half_open_max, HELD_MAX_BYTES)
        self.redirected = self.passed_on = self.refused = self.looked_up = 0
        self.tasks = Tasks("the coordinator's door", lambda error: None)  # of one client each
        self.ending = (
            Ending()
        )  # a door that does not accept any more is of no use: the coordinator ends with it
        self._accepting = Tasks("the coordinator's door", self.ending.fail)
        rate = limits.connection_rate
        self._rates: Buckets[str] | None = Buckets(rate, rate * BURST_S, ADDRESSES_MAX) if rate else None
        self._connections_max = connections_max
        self._context = context
        self._connections: dict[Visitor, None] = {}
        self._passed: dict[Visitor, None] = {}  # on to a broker, or about to be
        self._log = structlog.get_logger()

    def open(self, listening: Mapping[str, socket.socket]) -> None:
        """Accept clients from these sockets, by the names of their settings."""
        for name, each in listening.items():
            self._accepting.spawn(self._accept(each, tls=name == "tls_port"))

    async def close(self) -> None:
        """Take no more clients, and end those that are passed on: they come again."""
        await self._accepting.wait_closed()
        await self.tasks.wait_closed()
        for visitor in tuple(self._connections):
            visitor.end()
        if self.proxy is not None:
            self.proxy.close()

    @property
    def clients(self) -> int:
        """Clients that are passed on now."""
        return 0 if self.proxy is None else len(self.proxy.open)

    async def _accept(self, listening: socket.socket, *, tls: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError:  # no descriptor left, or the peer has gone already
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                    continue
                if not self._in_time(peer[0]):
                    self.refused += 1
                    accepted.close()
                    continue
                visitor = Visitor(self, secure=tls)
                self.make_room(self.waiting.came(visitor))
                visitor.handshake = self.tasks.spawn(self._shake_hands(visitor, accepted, tls=tls))
                visitor.handshake.add_done_callback(partial(self._shaken, visitor, accepted))
        finally:
            listening.close()

    def _in_time(self, address: str) -> bool:
        """Whether this address is within its rate of new connections."""
        if self._rates is None or not address or is_loopback(address):
            return True
        return self._rates.try_take(source_of(address), now_us())

    def make_room(self, gone: list[Visitor]) -> None:
        """These have to go, for others."""
        for visitor in gone:
            self.refused += 1
            visitor.drop()

    async def _shake_hands(self, visitor: Visitor, accepted: socket.socket, *, tls: bool) -> None:
        loop = asyncio.get_running_loop()
        secure = {
            "ssl": self._context,
            "ssl_handshake_timeout": self.deadline_s,
            "ssl_shutdown_timeout": TLS_CLOSE_S,
        }
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: visitor,
                accepted,
                **(secure if tls else {}),  # type: ignore[arg-type]
            )
        except OSError as error:  # errors of ssl, and its deadline, are OSErrors
            accepted.close()
            self.refused += 1
            self._log.debug("no connection with a client at the door", problem=str(error))

    def _shaken(self, visitor: Visitor, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """A handshake is over: well, badly, or because another one needed the room, perhaps before it began.

        Once the visitor has a transport the socket is that one's.
        """
        if task.cancelled() and not visitor.has_come:
            accepted.close()
        if not visitor.is_open:
            self.waiting.done(visitor)

    # ── what visitors ask ───────────────────────────────────────────────────────────────────────────────────

    def came(self, visitor: Visitor) -> None:
        self._connections[visitor] = None

    def went(self, visitor: Visitor) -> None:
        self._connections.pop(visitor, None)
        self._passed.pop(visitor, None)
        self.waiting.done(visitor)

    def called(self, visitor: Visitor, caller: Caller) -> None:
        """A client has said CONNECT."""
        if not self.view.is_ready:
            visitor.refuse("this coordinator does not know the network yet")
            return
        answer = self.door.answer(caller, self.view.directory(), now_us())
        match answer:
            case Redirect(chosen=chosen, reference=reference, moved=moved):
                self.redirected += 1
                visitor.redirect(reference, chosen.reason, moved=moved)
                self._log.debug(
                    "redirected", client=caller.client, broker=chosen.broker.id, reason=chosen.reason
                )
            case PassOn() if len(self._passed) >= self._connections_max:
                most = self._connections_max
                visitor.refuse(f"this door passes on no more than {most} clients (door.connections_max)")
            case PassOn() if self.proxy is not None:
                self._passed[visitor] = None
                self.waiting.passed(visitor)
                visitor.work = self.tasks.spawn(self._pass_on(visitor, caller, answer, self.proxy))
            case PassOn():
                visitor.refuse("this door cannot pass clients on: its coordinator has no certificate")
            case Refuse(reason=reason):
                visitor.refuse(reason)

    async def _pass_on(self, visitor: Visitor, caller: Caller, answer: PassOn, proxy: Proxy) -> None:
        broker = await proxy.pass_on(visitor, visitor.origin, visitor.said, answer.candidates)
        if broker is None:
            visitor.refuse("no broker answers")
            return
        self.passed_on += 1
        self.door.reached(caller, broker)
        reason = next(each.reason for each in answer.candidates if each.broker.id == broker)
        self._log.debug("passed on", client=caller.client, broker=broker, reason=reason)

    def look_up(self, source: str, *, secure: bool) -> Lookup:
        """The answers of an HTTP connection."""
        self.looked_up += 1
        network = self.view.directory()
        return Lookup(
            network,
            lambda caller: self.door.order(caller, network, now_us()),
            ready=self.view.is_ready,
            source=source,
            secure=secure,
        )


class Visitor(asyncio.Protocol):
    """One client at the door."""

    def __init__(self, listener: DoorListener, *, secure: bool) -> None:
        self._listener = listener
        self._secure = secure
        self._transport: asyncio.Transport | None = None
        self._decoder = Decoder(CONNECT_MAX_BYTES)
        self._lookup: Lookup | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._upstream: Upstream | None = None  # once it is passed on
        self._version: Version = V5
        self._is_answered = False
        self._is_held_back = False  # the broker does not read
        self.said = b""  # until it is passed on
        self.origin = PassedOn("", 0)
        self.has_come = False  # it has, or had, a transport
        self.handshake: asyncio.Task[None] | None = None
        self.work: asyncio.Task[None] | None = None  # finding a broker for it

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.has_come = cast(asyncio.Transport, transport), True
        peer = transport.get_extra_info("peername")
        address, port = peer[:2] if isinstance(peer, tuple) else ("", 0)
        self.origin = PassedOn(address, port, self._secure)
        self._listener.came(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._listener.deadline_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._upstream is not None:
            self._upstream.send(data)
        elif self._lookup is not None:
            self._answer_http(data)
        elif not self._is_answered:
            self._hold(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self.said = None, b""
        self._listener.went(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self.work is not None:
            self.work.cancel()
        if self._upstream is not None:
            self._upstream.end()

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    # ── the first packet ────────────────────────────────────────────────────────────────────────────────────

    def _hold(self, data: bytes) -> None:
        if not self.said and data[0] != CONNECT:
            source = source_of(self.origin.address)
            self._lookup = self._listener.look_up(source, secure=self._secure)
            self._answer_http(data)
            return
        self.said += data
        listener = self._listener
        listener.make_room(listener.waiting.said(self, len(data)))
        if not self.is_open:
            return
        items = self._decoder.feed(data)
        if items:
            self._answer(items[0])

    def _answer(self, item: object) -> None:
        self._is_answered = True
        if self._transport is not None:
            self._transport.pause_reading()  # until there is a broker for what else it says
        if isinstance(item, WireError) or not isinstance(item, ConnectPacket):
            self.end()
            return
        self._version = self._decoder.version or V5
        scheme = Scheme.MQTTS if self._secure else Scheme.MQTT
        source = source_of(self.origin.address)
        self._listener.called(self, caller_of(item, self._version, scheme, source))

    def _answer_http(self, data: bytes) -> None:
        assert self._lookup is not None
        answer = self._lookup.feed(data)
        if answer is not None:
            self.send(answer)
            self.end()

    def redirect(self, reference: str, reason: str, *, moved: bool) -> None:
        code = ConnAckReasonCode.SERVER_MOVED if moved else ConnAckReasonCode.USE_ANOTHER_SERVER
        answer = ConnAckPacket(reason_code=code, server_reference=reference, reason_str=reason)
        self.send(encode(answer, V5))
        self.end()

    def refuse(self, reason: str) -> None:
        self._listener.refused += 1
        answer = ConnAckPacket(reason_code=ConnAckReasonCode.SERVER_UNAVAILABLE, reason_str=reason)
        self.send(encode(answer, self._version))
        self.end()

    # ── passed on ───────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, upstream: Upstream) -> None:
        if self._transport is None:
            upstream.end()
            return
        self._upstream, self.work = upstream, None
        if self._deadline is not None:
            self._deadline.cancel()
        self._listener.waiting.done(self)
        self.said = b""
        self._transport.set_write_buffer_limits(HIGH_BYTES)
        if not self._is_held_back:
            self._transport.resume_reading()

    def send(self, data: bytes) -> None:
        if self.is_open:
            cast(asyncio.Transport, self._transport).write(data)

    def pause(self) -> None:
        self._is_held_back = True
        if self.is_open:
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume(self) -> None:
        self._is_held_back = False
        if self.is_open and self._upstream is not None:
            cast(asyncio.Transport, self._transport).resume_reading()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that does not end."""
        return self._transport is not None and not self._transport.is_closing()

    def end(self) -> None:
        """End the connection, after what was sent."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def drop(self) -> None:
        """End the connection at once: another one needs its room."""
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()
