"""The shell of ``core.dialler``: one outgoing MQTT 5 connection on asyncio.

Who owns a line is told when it comes up and goes down and gets every packet that is not the dialler's own.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Protocol, cast

from mqtt5 import ConnAckPacket, ConnectPacket, Packet

from tocsin.core.dialler import Closing, Dial, Dialled, Dialler, Down, HangUp, Heard, Lost, Up
from tocsin.core.machine import CancelTimer, Effect, SetTimer, Started, TimerFired
from tocsin.core.session import SendPacket
from tocsin.errors import WireError
from tocsin.runtime.pump import Pump
from tocsin.runtime.timers import Timers
from tocsin.wire.codec import V5, Decoder, encode


class Owner(Protocol):
    """What a line tells."""

    def line_up(self, answer: ConnAckPacket) -> None: ...

    def line_down(self, down: Down) -> None: ...

    def line_heard(self, packet: Packet) -> None: ...


class Line:
    """Keeps a connection to one address; ``open`` starts, ``close`` ends it."""

    def __init__(
        self,
        host: str,
        port: int,
        greeting: ConnectPacket,
        owner: Owner,
        *,
        redial: bool,
        packet_max_bytes: int,
    ) -> None:
        self._host = host
        self._port = port
        self._owner = owner
        self._packet_max_bytes = packet_max_bytes
        self._machine = Dialler(greeting, redial=redial)
        self._cause = f"line {greeting.client_id}→{host}:{port}"
        self._timers = Timers(lambda name, cause: self._post(TimerFired(name=name, cause=cause)))
        self._post = Pump(self._machine, self._carry_out).post
        self._call: _Call | None = None  # the connection that counts, made or being made

    @property
    def up(self) -> bool:
        return self._machine.state == "up"

    @property
    def waiting_bytes(self) -> int:
        """Written and not yet taken by the kernel."""
        call = self._call
        return 0 if call is None or call.transport is None else call.transport.get_write_buffer_size()

    def open(self) -> None:
        self._post(Started(incarnation=secrets.randbits(48), cause=self._cause))

    def close(self) -> None:
        self._post(Closing(cause=self._cause))

    def send(self, packet: Packet) -> None:
        self.write(encode(packet, V5))

    def write(self, data: bytes) -> None:
        """Send whole frames; they go nowhere if there is no connection."""
        call = self._call
        if call is not None and call.transport is not None and not call.transport.is_closing():
            call.transport.write(data)

    # ── the machine ─────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Dial():
                self._hang_up()
                self._call = _Call(self, self._packet_max_bytes)
                self._call.dial(self._host, self._port)
            case HangUp():
                self._hang_up()
            case SendPacket(packet=packet):
                self.send(packet)
            case SetTimer(name=name, delay_us=delay_us, cause=cause):
                self._timers.set(name, delay_us, cause)
            case CancelTimer(name=name):
                self._timers.cancel(name)
            case Up(answer=answer):
                self._owner.line_up(answer)
            case Down():
                self._owner.line_down(effect)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.hang_up()
            self._call = None

    # ── what the connection tells ───────────────────────────────────────────────────────────────────────────

    def dialled(self, call: _Call) -> None:
        if call is self._call:
            self._post(Dialled(cause=self._cause))

    def lost(self, call: _Call, reason: str) -> None:
        if call is self._call:
            self._post(Lost(reason=reason, cause=self._cause))

    def heard(self, call: _Call, packet: Packet) -> None:
        if call is self._call:
            was_up = self.up
            self._post(Heard(packet=packet, cause=self._cause))
            if was_up:
                self._owner.line_heard(packet)


class _Call(asyncio.Protocol):
    """One connection of a line; says nothing any more once it was hung up."""

    def __init__(self, line: Line, packet_max_bytes: int) -> None:
        self._line: Line | None = line
        self._decoder = Decoder(packet_max_bytes, role="client", version=V5)
        self._dialling: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def dial(self, host: str, port: int) -> None:
        self._dialling = asyncio.get_running_loop().create_task(self._dial(host, port))

    async def _dial(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except OSError as error:
            if self._line is not None:
                self._line.lost(self, error.strerror or str(error))

    def hang_up(self) -> None:
        self._line = None
        if self.transport is not None:
            self.transport.close()
        elif self._dialling is not None:
            self._dialling.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._line is None:
            self.transport.abort()
        else:
            self._line.dialled(self)

    def data_received(self, data: bytes) -> None:
        for item in self._decoder.feed(data):
            if self._line is None:
                return
            if isinstance(item, WireError):
                self._line.lost(self, f"the peer broke the protocol: {item}")
            else:
                self._line.heard(self, item)

    def connection_lost(self, error: Exception | None) -> None:
        if self._line is not None:
            self._line.lost(self, str(error) if error else "the peer closed the connection")
