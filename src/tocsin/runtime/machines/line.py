"""The shell of ``core.links.dialler``: one outgoing MQTT 5 connection on asyncio.

The owner of a line is told when it comes up and goes down, and gets every packet that is not the dialler's own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, cast

import msgspec
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, Packet, PingReqPacket, PingRespPacket

from tocsin.core.links.dialler import Dialler, DiallerState, DiallerTimer
from tocsin.core.links.signals import (
    Alarmed,
    Closing,
    Dial,
    Dialled,
    Down,
    Ending,
    Flow,
    FlowSeen,
    HangUp,
    Heard,
    LookAtFlow,
    Lost,
    Pinging,
    Up,
)
from tocsin.core.machine import Effect, Started, TimerFired
from tocsin.core.session.signals import SendPacket
from tocsin.errors import WireError
from tocsin.runtime.machines.clock import random_bits
from tocsin.runtime.machines.flow import Repeats, flow_of, keep_short, repeats_of
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.web import WebCall
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5

AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: wait for no time at all


class Owner(Protocol):
    """The owner of a line."""

    def line_up(self, answer: ConnAckPacket) -> None: ...

    def line_down(self, down: Down) -> None: ...

    def line_heard(self, packet: Packet) -> None: ...


class Proof(Protocol):
    """How a server proves who it is, beyond its host's name."""

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context to dial with; asked for at every dial."""
        ...

    def problem(self, connection: Any) -> str | None:
        """Why this is not the server that was meant; None if it is. ``connection`` is the transport's ssl_object."""
        ...


class Endpoint(msgspec.Struct, frozen=True):
    """Where a server is, and how to speak to it."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    web: bool = False  # over WebSocket
    proof: Proof | None = (
        None  # instead of ``tls``: nothing is sent before the server has proven its identity
    )
    waits: Callable[[], Awaitable[asyncio.Transport]] | None = (
        None  # for a connection from there: it cannot be dialled
    )


class Line:
    """Keeps a connection to one of the servers, or (``follow``) to where that sends us.

    ``open`` starts it, ``close`` ends it.
    """

    def __init__(
        self,
        servers: Sequence[Endpoint],
        greeting: ConnectPacket,
        owner: Owner,
        *,
        redial: bool,
        follow: bool = False,
        packet_max_bytes: int,
        ahead_max_bytes: int | None = None,
        resumed: Callable[[], None] = lambda: None,
    ) -> None:
        """``ahead_max_bytes``: with more than that written and not sent, and as much in the kernel, the line is full;
        ``resumed`` is called when it is not any more."""
        self._servers = tuple(servers)
        self.at = self._servers[0]  # the server that was dialled last
        self._owner = owner
        self._packet_max_bytes = packet_max_bytes
        self.ahead_max_bytes = ahead_max_bytes
        self.full = False
        self._resumed = resumed
        home = f"{self.at.host}:{self.at.port}" if follow else ""
        self._machine = Dialler(greeting, redial=redial, follow=follow, servers=len(self._servers), home=home)
        self._cause = f"line {greeting.client_id}→{self.at.host}:{self.at.port}"
        self._shell = Shell(self._machine, self._carry_out, self._failed)
        self._post = self._shell.post
        self._call: _Call | None = None  # the connection that counts, made or being made
        self._past: _Call | None = None  # the connection that was closed last
        self._asked = 0  # PINGREQs on this connection
        self._answered = 0  # … and their PINGRESPs
        self._fences: deque[tuple[int, Callable[[], None]]] = (
            deque()
        )  # what waits for which of these, in order

    @property
    def up(self) -> bool:
        return self._machine.state is DiallerState.UP

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """Servers beyond our own that are tried when those are gone."""
        return tuple((host, port or self._servers[0].port) for host, port in self._machine.told)

    @property
    def waiting_bytes(self) -> int:
        """Written and not yet taken by the kernel."""
        call = self._call
        return 0 if call is None or call.transport is None else call.transport.get_write_buffer_size()

    def open(self) -> None:
        self._post(Started(incarnation=random_bits(48), cause=self._cause))

    def close(self, farewell: DisconnectPacket | None = None) -> None:
        self._post(Closing(cause=self._cause, farewell=farewell))

    async def wait_closed(self) -> None:
        """Return when a connection that was hung up has sent what it had to, and is gone."""
        if self._past is not None:
            await self._past.gone.wait()

    @property
    def round_trip_us(self) -> int | None:
        """How long the peer took for its last sign of life; None if it was never asked for one."""
        return self._machine.round_trip_us

    def repeats(self) -> Repeats | None:
        """How often the kernel had to send something again on this connection; None if nobody can tell."""
        return None if self._call is None else self._call.repeats()

    @property
    def broker(self) -> str:
        """The id of the broker that has accepted us last; empty if it did not say."""
        return self._machine.broker

    def alarm(self, broker: str) -> None:
        """The network counts a broker as lost."""
        self._post(Alarmed(broker=broker, cause=self._cause))

    def ping(self) -> None:
        """Ask for a sign of life now."""
        self._post(Pinging(cause=self._cause))

    def fence(self, then: Callable[[], None]) -> None:
        """Call this when the peer has read everything that was written until now; never, if the connection breaks
        before."""
        self.send(PingReqPacket())
        self._fences.append((self._asked, then))

    def hurry(self) -> None:
        """Dial now, if only the back-off is waited for."""
        if self._machine.state is DiallerState.WAITING:
            self._post(TimerFired(name=DiallerTimer.RETRY, cause=self._cause))

    def lend(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Hand this connection to another protocol, from what comes next on; it is made when something comes."""
        if self._call is not None:
            self._call.borrower = make

    def fail(self, reason: str) -> None:
        """Give this connection up, as if it had broken."""
        self._post(Lost(reason=reason, cause=self._cause))

    def send(self, packet: Packet) -> None:
        self._asked += isinstance(packet, PingReqPacket)
        self.write(encode(packet, V5))

    def write(self, data: bytes) -> None:
        """Send whole frames; they go nowhere if there is no connection."""
        call = self._call
        if call is not None and call.transport is not None and not call.transport.is_closing():
            call.transport.write(data)

    # ── the machine ─────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Dial(server=server, turn=turn):
                self._hang_up()
                self.at = self._servers[turn]
                if server is not None:
                    host, port = server
                    self.at = msgspec.structs.replace(self.at, host=host, port=port or self.at.port)
                self._call = _Call(self, self._packet_max_bytes)
                self.full = False
                self._asked = self._answered = 0
                self._fences.clear()
                self._call.dial(self.at)
            case HangUp(abrupt=abrupt):
                self._hang_up(abrupt=abrupt)
            case SendPacket(packet=packet):
                self.send(packet)
            case LookAtFlow():
                flow = None if self._call is None else self._call.flow()
                self._post(FlowSeen(flow=flow, cause=self._cause))
            case Up(answer=answer):
                self._owner.line_up(answer)
            case Down():
                self._owner.line_down(effect)
            case _:
                self._shell.carry_out(effect)

    def _pass_fences(self) -> None:
        self._answered += 1
        while self._fences and self._fences[0][0] <= self._answered:
            self._fences.popleft()[1]()

    def _hang_up(self, *, abrupt: bool = False) -> None:
        if self._call is not None:
            self._call.hang_up(abrupt=abrupt)
            self._past, self._call = self._call, None

    def _failed(self, error: BaseException) -> None:
        """The connection is broken off, and that is a loss like any other. A line that redials does so."""
        if self._call is not None and self._call.transport is not None:
            self._call.transport.abort()

    # ── what the connection tells ───────────────────────────────────────────────────────────────────────────

    def dialled(self, call: _Call) -> None:
        if call is self._call:
            self._post(Dialled(cause=self._cause))

    def lost(self, call: _Call, reason: str, ending: Ending = Ending.OTHER) -> None:
        if call is self._call:
            self._post(Lost(reason=reason, ending=ending, cause=self._cause))

    def filled(self, call: _Call, full: bool) -> None:
        if call is self._call and self.full != full:
            self.full = full
            if not full:
                self._resumed()

    def heard(self, call: _Call, packet: Packet) -> None:
        if call is self._call:
            was_up = self.up
            self._post(Heard(packet=packet, cause=self._cause))
            if was_up:
                self._owner.line_heard(packet)
            if isinstance(packet, PingRespPacket):
                self._pass_fences()


class _Call(asyncio.Protocol):
    """One connection of a line; says nothing any more once it was hung up."""

    def __init__(self, line: Line, packet_max_bytes: int) -> None:
        self._line: Line | None = line
        self._packet_max_bytes = packet_max_bytes
        self._decoder = Decoder(packet_max_bytes, role="client", version=V5)
        self._dialling: asyncio.Task[None] | None = None
        self._proof: Proof | None = None
        self._socket: asyncio.Transport | None = (
            None  # there before ``transport`` where WebSocket is between them
        )
        self.transport: asyncio.Transport | None = None
        self.borrower: Callable[[], asyncio.Protocol] | None = None  # who has the connection from now on
        self._borrowed: asyncio.Protocol | None = None
        self.gone = asyncio.Event()

    def dial(self, to: Endpoint) -> None:
        self._dialling = asyncio.get_running_loop().create_task(self._dial(to))

    async def _dial(self, to: Endpoint) -> None:
        outer = WebCall(self, to.host, to.port, self._packet_max_bytes) if to.web else self
        self._proof = to.proof
        if to.waits is not None:
            transport = await to.waits()
            transport.set_protocol(self)
            self.connection_made(transport)
            return
        context = to.tls if to.proof is None else to.proof.context
        try:
            loop = asyncio.get_running_loop()
            self._socket, _ = await loop.create_connection(lambda: outer, to.host, to.port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            self._failed(f"its certificate is not believed: {error.verify_message}")
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            self._failed(error.strerror or str(error), Ending.REFUSED if refused else Ending.OTHER)

    def _failed(self, reason: str, ending: Ending = Ending.OTHER) -> None:
        if self._line is not None:
            self._line.lost(self, reason, ending)

    def hang_up(self, *, abrupt: bool = False) -> None:
        self._line = None
        if self.transport is not None and abrupt:
            self._discard()
            self.transport.abort()
        elif self.transport is not None:
            self.transport.close()
        elif self._socket is not None:
            self._socket.abort()
        elif self._dialling is not None:
            self._dialling.cancel()
            self.gone.set()

    def _discard(self) -> None:
        """Have the kernel send nothing more of what it holds, and reset the connection."""
        transport = self._socket or self.transport  # the connection itself, also below a WebSocket
        connected = None if transport is None else transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._line is None:
            self.transport.abort()
        elif self._proof is not None and (
            problem := self._proof.problem(transport.get_extra_info("ssl_object"))
        ):
            self._line.lost(self, problem)
        else:
            if (most := self._line.ahead_max_bytes) is not None:
                keep_short(self.transport, most)
            self._line.dialled(self)

    def flow(self) -> Flow | None:
        """What becomes of what we write; None if nobody can tell."""
        return None if self.transport is None else flow_of(self.transport)

    def repeats(self) -> Repeats | None:
        """How often the kernel had to send something again; None if nobody can tell."""
        return None if self.transport is None else repeats_of(self.transport)

    def pause_writing(self) -> None:
        if self._line is not None:
            self._line.filled(self, True)

    def resume_writing(self) -> None:
        if self._line is not None:
            self._line.filled(self, False)

    def data_received(self, data: bytes) -> None:
        if self.borrower is not None and self._borrowed is None and self.transport is not None:
            self._borrowed = self.borrower()
            self._borrowed.connection_made(self.transport)
        if self._borrowed is not None:
            self._borrowed.data_received(data)
            return
        for item in self._decoder.feed(data):
            if self._line is None:
                return
            if isinstance(item, WireError):
                self._line.lost(self, f"the peer broke the protocol: {item}")
            else:
                self._line.heard(self, item)

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
        if self._borrowed is not None:
            self._borrowed.connection_lost(error)
        if self._line is not None:
            closed = error is None or isinstance(error, ConnectionResetError | BrokenPipeError)
            reason = str(error) if error else "the peer closed the connection"
            self._line.lost(self, reason, Ending.CLOSED if closed else Ending.OTHER)
