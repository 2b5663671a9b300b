"""Connections that can be cut for a while, as if the network between two processes were gone; or be slow and lossy.

With ``chaos.enabled`` a process runs on a ``CuttableLoop``. Every connection that it dials, to the store or to another
broker, goes through a **valve**. While an address is cut, its valves pass nothing in either direction:

- what is written waits, and counts as written and not sent; what the peer sent stays unread;
- a connection that is closed on this side is gone for this process at once, and for the peer when the cut is over;
- a connection that is dialled waits; the dialling code has a deadline.

When the cut is over, what waited goes on its way, as TCP would have it. Nothing is lost or reordered on a connection
that both sides kept; each side reacts to the silence as it likes. A cut ends by itself.

**Weather** (``runtime.faults.weather``) delays what passes a valve, in each direction, for a while. What is under way
when it ends still arrives in its order.

Connections that others dial to this process are not touched: the dialling process is told to cut them. When TLS
begins on a connection that is there (``start_tls``, as NATS has it) the valve moves above it: what is held is plain.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, cast

import uvloop

from tocsin.runtime.faults.weather import CALM, HELD_HIGH_BYTES, Lane, Weather, together

Address = tuple[str, int]
WEATHERS_MAX: Final = 64  # at one address at a time
TRIPS_TO_DIAL: Final = 2  # round trips that TCP and TLS take before anything can be said


class Cuts:
    """Which addresses are cut off, and which have weather, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._weathers: dict[Address, dict[int, tuple[Weather, asyncio.TimerHandle]]] = {}  # by number
        self._numbers = count(1)
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

    def trouble(self, addresses: Iterable[Address], weather: Weather, seconds: float) -> int:
        """Have this weather at these for so long, beside what there is: how many connections that concerns."""
        concerned = 0
        for address in dict.fromkeys(addresses):
            there = self._weathers.setdefault(address, {})
            if len(there) < WEATHERS_MAX:
                number = next(self._numbers)
                there[number] = weather, self._loop.call_later(seconds, self._clear, address, number)
                concerned += self._set_weather(address)
        return concerned

    def _clear(self, address: Address, number: int) -> None:
        """One weather is over."""
        there = self._weathers[address]
        there.pop(number)[1].cancel()
        if not there:
            del self._weathers[address]
        self._set_weather(address)

    def _set_weather(self, address: Address) -> int:
        weather, valves = self.weather(address), tuple(self._valves.get(address, ()))
        for valve in valves:
            valve.weather(weather)
        return len(valves)

    def weather(self, address: Address) -> Weather:
        return together(weather for weather, _ in self._weathers.get(address, {}).values())

    def heal(self, address: Address | None = None) -> None:
        """Let an address be reached again; without one, every address, in fine weather."""
        if address is None:
            for at, numbers in list(self._weathers.items()):
                for number in tuple(numbers):
                    self._clear(at, number)
        for each in [address] if address is not None else list(self._until):
            _, timer = self._until.pop(each)
            timer.cancel()
            for valve in tuple(self._valves.get(each, ())):
                valve.open()
        self._healed.set()

    def is_cut(self, address: Address) -> bool:
        return address in self._until

    async def passable(self, address: Address) -> None:
        """Return when the address is not cut off, and as much later as dialling takes in its weather."""
        if lag_s := self.weather(address).lag_s:
            await asyncio.sleep(2 * TRIPS_TO_DIAL * lag_s)
        while self.is_cut(address):
            self._healed.clear()
            await self._healed.wait()

    def add(self, valve: Valve) -> None:
        self._valves.setdefault(valve.address, set()).add(valve)
        if valve.address in self._weathers:
            valve.weather(self.weather(valve.address))
        if self.is_cut(valve.address):
            valve.shut()

    def remove(self, valve: Valve) -> None:
        valves = self._valves.get(valve.address)
        if valves is not None:
            valves.discard(valve)
            if not valves:
                del self._valves[valve.address]


class Queue:
    """What is under way in one direction of a connection: actions, each with its time, in order."""

    def __init__(self, act: Callable[[], None]) -> None:
        """``act`` is called when the first of them is due."""
        self.lane = Lane(random.random)
        self.size = 0  # bytes
        self.held = False  # nothing goes on while it is
        self._act = act
        self._actions: deque[tuple[float, int, Callable[[], object]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def passes(self) -> bool:
        """Whether what comes now may pass at once."""
        return not self._actions and self.lane.weather == CALM

    def add(self, size: int, action: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self._actions.append((self.lane.due_s(size, loop.time()), size, action))
        self.size += size
        self.wind()

    def wind(self) -> None:
        """Wait for the first that is due."""
        if self._actions and self._timer is None and not self.held:
            self._timer = asyncio.get_running_loop().call_at(self._actions[0][0], self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._act()
        self.wind()

    def run(self) -> None:
        """Carry out what is due."""
        now_s = asyncio.get_running_loop().time()
        while self._actions and self._actions[0][0] <= now_s and not self.held:
            _, size, action = self._actions.popleft()
            self.size -= size
            action()

    def hold(self, held: bool) -> None:
        self.held = held
        self.wind()

    def drop(self) -> None:
        """Forget all of it."""
        self._actions.clear()
        self.size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __bool__(self) -> bool:
        return bool(self._actions)


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
        self._ended = False  # on this side
        self._out: Queue | None = None  # what is under way in weather; None: there was none yet
        self._in: Queue | None = None

    @property
    def real(self) -> asyncio.Transport:
        assert self._real is not None, "connected"
        return self._real

    def weather(self, weather: Weather) -> None:
        """What passes from now on has this weather."""
        if self._out is None or self._in is None:
            if weather == CALM:
                return
            self._out, self._in = Queue(self._send_due), Queue(self._take_due)
        self._out.lane.weather = self._in.lane.weather = weather

    def shut(self) -> None:
        if not self._shut and not self.real.is_closing():
            self._shut = True
            self._hold(True)
            self._pause()

    def _hold(self, held: bool) -> None:
        """What is under way stays there while the valve is shut."""
        if self._out is not None:
            self._out.hold(held)
        if self._in is not None:
            self._in.hold(held or not self._wants_reading)

    def _pause(self) -> None:
        if self.real.is_reading():
            self.real.pause_reading()

    def open(self) -> None:
        """Let what has waited go, in both directions."""
        if not self._shut:
            return
        self._shut = False
        self._hold(False)
        held, self._held, self._held_bytes = self._held, [], 0
        if held and not self.real.is_closing():
            self._pass(b"".join(held))
        if self._leaving is not None:
            self._end(self._leaving)
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

    # ── weather ─────────────────────────────────────────────────────────────────────────────────────────────

    def _pass(self, data: bytes | bytearray | memoryview) -> None:
        """Send, now or when the weather allows."""
        out = self._out
        if out is None or out.passes:
            self.real.write(data)
            return
        kept = bytes(data)
        out.add(len(kept), lambda: self.real.write(kept))
        if out.size > out.lane.room_bytes and not self._paused_writer:
            self._paused_writer = True
            self._protocol.pause_writing()

    def _send_due(self) -> None:
        out = self._out
        assert out is not None
        out.run()
        if self._paused_writer and not self._shut and out.size <= out.lane.room_bytes // 2:
            self._paused_writer = False
            if self._leaving is None:
                self._protocol.resume_writing()

    def _arrive(self, size: int, action: Callable[[], object]) -> bool:
        """Have the protocol told in time; whether that is at once."""
        queue = self._in
        if queue is None or (queue.passes and not queue.held):
            action()
            return True
        queue.add(size, action)
        if queue.size > queue.lane.room_bytes:
            self._pause()
        return False

    def _take_due(self) -> None:
        queue = self._in
        assert queue is not None
        queue.run()
        if self._wants_reading and not self._shut and queue.size <= queue.lane.room_bytes // 2:
            self._read_on()

    def _read_on(self) -> None:
        if not self.real.is_closing() and not self.real.is_reading():
            self.real.resume_reading()

    def _end(self, how: Callable[[], None]) -> None:
        """End the connection behind what is under way."""
        if self._out is None or self._out.passes:
            how()
        else:
            self._out.add(0, how)

    # ── to the transport it is the protocol ─────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._real = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._protocol.connection_made(self)
        self._cuts.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._cuts.remove(self)
        if self._out is not None:
            self._out.drop()
        if self._in is not None and not self._ended:
            self._in.held = False  # what has arrived is read before the end
            self._arrive(0, lambda: self._lost(error))
        else:
            self._lost(error)

    def _lost(self, error: Exception | None) -> None:
        if self._leaving is None:
            self._protocol.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._in is None:
            self._take(data)
        else:
            self._arrive(len(data), lambda: self._take(data))

    def _take(self, data: bytes) -> None:
        if self._leaving is None:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        if self._leaving is not None:
            return None
        if self._in is None or self._in.passes:
            return self._protocol.eof_received()
        self._arrive(0, lambda: self._protocol.eof_received() if self._leaving is None else None)
        return None

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # ── to the protocol it is the transport ─────────────────────────────────────────────────────────────────

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._leaving is not None:
            return
        if not self._shut:
            self._pass(data)
        else:
            self._held.append(bytes(data))
            self._held_bytes += len(data)
            if self._held_bytes > HELD_HIGH_BYTES and not self._paused_writer:
                self._paused_writer = True
                self._protocol.pause_writing()

    def writelines(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self._shut or self._out is not None:
            self.write(b"".join(data))
        else:
            self.real.writelines(data)

    def get_write_buffer_size(self) -> int:
        waiting = 0
        if self._out is not None and self._out:
            waiting = self._out.lane.waiting_bytes(asyncio.get_running_loop().time())
        return self.real.get_write_buffer_size() + self._held_bytes + waiting

    def close(self) -> None:
        self._leave(self.real.close)

    def abort(self) -> None:
        self._held, self._held_bytes = [], 0
        if self._out is not None:
            self._out.drop()
        self._leave(self.real.abort)

    def _leave(self, how: Callable[[], None]) -> None:
        self._ended = True
        under_way = self._out is not None and bool(self._out)
        if not self._shut and not under_way:
            how()
        elif self._leaving is None:
            if not self._shut:
                self._end(how)
            self._leaving = how
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._leaving is not None or self.real.is_closing()

    def pause_reading(self) -> None:
        self._wants_reading = False
        if self._in is not None:
            self._in.hold(True)
        self._pause()

    def resume_reading(self) -> None:
        self._wants_reading = True
        if self._shut:
            return
        if self._in is not None:
            self._in.hold(False)
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
