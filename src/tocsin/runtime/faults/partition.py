"""Connections that can be cut for a while, as if the network between two processes were gone.

With ``chaos.enabled`` a process runs on a ``CuttableLoop``. Every connection that it dials, to the store or to another
broker, goes through a **valve**. While an address is cut, its valves pass nothing in either direction:

- what is written waits, and counts as written and not sent; what the peer sent stays unread;
- a connection that is closed on this side is gone for this process at once, and for the peer when the cut is over;
- a connection that is dialled waits; the dialling code has a deadline.

When the cut is over, what waited goes on its way, as TCP would have it. Nothing is lost or reordered on a connection
that both sides kept; each side reacts to the silence as it likes. A cut ends by itself.

Connections that others dial to this process are not touched: the dialling process is told to cut them. When TLS
begins on a connection that is there (``start_tls``, as NATS has it) the valve moves above it: what is held is plain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import uvloop

Address = tuple[str, int]
HELD_HIGH_BYTES: Final = 64 << 10  # as asyncio's own transports: beyond it the writer is asked to pause


class Cuts:
    """Which addresses are cut off, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until: dict[Address, tuple[float, asyncio.TimerHandle]] = {}
        self._valves: dict[Address, set[Valve]] = {}
        self._healed = asyncio.Event()

    def cut(self, addresses: Iterable[Address], seconds: float) -> int:
        """Cut these off for so long, or for longer if they are already: how many connections that concerns."""
        concerned = 0
        end_s = self._loop.time() + seconds
        for address in dict.fromkeys(addresses):
            before = self._until.get(address)
            valves = tuple(self._valves.get(address, ()))
            concerned += len(valves)
            if before is not None and before[0] >= end_s:
                continue
            if before is not None:
                before[1].cancel()
            self._until[address] = (end_s, self._loop.call_at(end_s, self.heal, address))
            for valve in valves:
                valve.shut()
        return concerned

    def heal(self, address: Address | None = None) -> None:
        """Let an address be reached again; without one, every address."""
        for each in [address] if address is not None else list(self._until):
            _, timer = self._until.pop(each)
            timer.cancel()
            for valve in tuple(self._valves.get(each, ())):
                valve.open()
        self._healed.set()

    def is_cut(self, address: Address) -> bool:
        return address in self._until

    async def passable(self, address: Address) -> None:
        """Return when the address is not cut off."""
        while self.is_cut(address):
            self._healed.clear()
            await self._healed.wait()

    def add(self, valve: Valve) -> None:
        self._valves.setdefault(valve.address, set()).add(valve)
        if self.is_cut(valve.address):
            valve.shut()

    def remove(self, valve: Valve) -> None:
        valves = self._valves.get(valve.address)
        if valves is not None:
            valves.discard(valve)
            if not valves:
                del self._valves[valve.address]


class Valve(asyncio.Transport, asyncio.Protocol):
    """Between a protocol and its transport: to each it is the other."""

    def __init__(self, cuts: Cuts, address: Address, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.address = address
        self._cuts = cuts
        self._protocol = protocol
        self._real: asyncio.Transport | None = None
        self._shut = False
        self._held: list[bytes] = []  # written while it was shut
        self._held_bytes = 0
        self._paused_writer = False  # by us, because of what is held
        self._wants_reading = True
        self._leaving: Callable[[], None] | None = None  # how it was ended on this side while it was shut

    @property
    def real(self) -> asyncio.Transport:
        assert self._real is not None, "connected"
        return self._real

    def shut(self) -> None:
        if not self._shut and not self.real.is_closing():
            self._shut = True
            self._pause()

    def _pause(self) -> None:
        if self.real.is_reading():
            self.real.pause_reading()

    def open(self) -> None:
        """Let what has waited go, in both directions."""
        if not self._shut:
            return
        self._shut = False
        held, self._held, self._held_bytes = self._held, [], 0
        if held and not self.real.is_closing():
            self.real.write(b"".join(held))
        if self._leaving is not None:
            self._leaving()
            return
        if self._paused_writer:
            self._paused_writer = False
            self._protocol.resume_writing()
        if self._wants_reading and not self.real.is_closing():
            self.real.resume_reading()

    def rise(self, transport: asyncio.Transport, below: Valve) -> None:
        """Take the place of a valve on whose connection TLS has begun."""
        self._cuts.remove(below)
        self._real = transport
        self._cuts.add(self)

    # ── to the transport it is the protocol ─────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._real = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._protocol.connection_made(self)
        self._cuts.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._cuts.remove(self)
        if self._leaving is None:
            self._protocol.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._leaving is None:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._leaving is None else None

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # ── to the protocol it is the transport ─────────────────────────────────────────────────────────────────

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._shut:
            self.real.write(data)
        elif self._leaving is None:
            self._held.append(bytes(data))
            self._held_bytes += len(data)
            if self._held_bytes > HELD_HIGH_BYTES and not self._paused_writer:
                self._paused_writer = True
                self._protocol.pause_writing()

    def writelines(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self._shut:
            self.write(b"".join(data))
        else:
            self.real.writelines(data)

    def get_write_buffer_size(self) -> int:
        return self.real.get_write_buffer_size() + self._held_bytes

    def close(self) -> None:
        self._leave(self.real.close)

    def abort(self) -> None:
        self._held, self._held_bytes = [], 0
        self._leave(self.real.abort)

    def _leave(self, how: Callable[[], None]) -> None:
        if not self._shut:
            how()
        elif self._leaving is None:
            self._leaving = how
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._leaving is not None or self.real.is_closing()

    def pause_reading(self) -> None:
        self._wants_reading = False
        self._pause()

    def resume_reading(self) -> None:
        self._wants_reading = True
        if not self._shut:
            self.real.resume_reading()

    def is_reading(self) -> bool:
        return self._wants_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.real.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.real.get_extra_info(name, default)

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol


class CuttableLoop(uvloop.Loop):
    """A loop whose outgoing connections have valves."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts = Cuts(self)

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        if host is None or port is None:
            return await super().create_connection(protocol_factory, host, port, **options)
        address, protocol = (str(host), int(port)), protocol_factory()
        await self.cuts.passable(address)
        valve = Valve(self.cuts, address, protocol)
        await super().create_connection(lambda: valve, host, port, **options)
        return valve, protocol

    async def start_tls(self, transport: Any, protocol: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(transport, Valve):
            return await super().start_tls(transport, protocol, *arguments, **options)
        valve = Valve(self.cuts, transport.address, protocol)
        risen = await super().start_tls(transport.real, valve, *arguments, **options)
        valve.rise(cast(asyncio.Transport, risen), transport)
        return valve
