"""The sockets of one simulated process: what listens, what was dialled, and transports that speak through the world."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tocsin.sim.process.signals import (
    Accepted,
    Arrived,
    Closed,
    Dial,
    HangUp,
    Left,
    Listen,
    Narrowed,
    Opened,
    Reset,
    StopListening,
    Transmit,
)

if TYPE_CHECKING:
    from tocsin.sim.process.machine import SimulatedProcess

HIGH_BYTES, LOW_BYTES = 64 << 10, 16 << 10  # of asyncio's own transports
TCP_INFO = struct.Struct("=120xQ16xI12x")  # as far as it is read: bytes acknowledged, and bytes not sent
LOOPBACK = "127.0.0.1"  # where all clients come from: with no users, that is the only proof


class Certificate:
    """The certificate that a peer has shown, as an ``ssl_object`` has it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def getpeercert(self) -> dict[str, Any]:
        return {"subjectAltName": (("URI", self._uri),)}


class ListeningSocket:
    """A port of this process. Connections wait in it, or go to a server at once."""

    def __init__(self, sockets: Sockets, port: int) -> None:
        self.port = port
        self._sockets = sockets
        self._waiting: deque[AcceptedSocket] = deque()
        self._accepting: asyncio.Future[None] | None = None
        self.factory: Callable[[], asyncio.BaseProtocol] | None = None

    def put(self, accepted: AcceptedSocket) -> None:
        if self.factory is not None:
            self._sockets.attach(self.factory, accepted)
            return
        self._waiting.append(accepted)
        if self._accepting is not None and not self._accepting.done():
            self._accepting.set_result(None)

    async def accept(self) -> tuple[AcceptedSocket, tuple[str, int]]:
        while not self._waiting:
            self._accepting = asyncio.get_running_loop().create_future()
            await self._accepting
        return self._waiting.popleft(), (LOOPBACK, 0)

    def getsockname(self) -> tuple[str, int]:
        return (LOOPBACK, self.port)

    def close(self) -> None:
        self._sockets.stop_listening(self)


class AcceptedSocket:
    """A connection that was accepted, and has no transport yet."""

    def __init__(self, sockets: Sockets, connection: str, proof: str) -> None:
        self._sockets = sockets
        self.connection = connection
        self.proof = proof

    def setsockopt(self, *option: Any) -> None:
        """There is nothing to tune."""

    def close(self) -> None:
        self._sockets.process.do(HangUp(connection=self.connection))


class Server:
    """The server that ``create_server`` returns."""

    def __init__(self, listening: ListeningSocket) -> None:
        self._listening = listening

    def close(self) -> None:
        self._listening.factory = None
        self._listening.close()

    async def wait_closed(self) -> None:
        return


class VirtualTransport(asyncio.Transport):
    """One connection of a process. It fills up only where the way is narrow: a peer that does not read is tried with
    real processes."""

    def __init__(self, sockets: Sockets, connection: str, proof: str) -> None:
        super().__init__()
        self._sockets = sockets
        self._connection = connection
        self._certificate = Certificate(proof) if proof else None
        self.protocol: Any = None
        self._closing = self._paused = self._resets = False
        self._arrived: deque[bytes] = deque()  # while nobody reads
        self._narrow = self._full = False
        self._written = 0  # bytes, in all …
        self._waiting = 0  # … and of these, on a narrow way, not sent yet
        self._high, self._low = HIGH_BYTES, LOW_BYTES

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": (LOOPBACK, 0), "ssl_object": self._certificate, "socket": self}
        return known.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and data:
            self._written += len(data)
            if self._narrow:
                self._wait(len(data))
            self._sockets.process.do(Transmit(connection=self._connection, data=bytes(data)))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def _wait(self, change: int) -> None:
        """So many bytes more, or fewer, wait to be sent."""
        self._waiting = max(0, self._waiting + change)
        if self._waiting > self._high and not self._full:
            self._full = True
            self.protocol.pause_writing()
        elif self._waiting <= self._low and self._full:
            self._full = False
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return self._closing

    def fileno(self) -> int:
        """It has none: all bytes go through the transport."""
        return -1

    def setsockopt(self, level: int, option: int, value: object) -> None:
        """Of all options one counts: a connection that does not linger is reset when it ends."""
        self._resets = self._resets or (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Of all options one is asked for: how bytes flow."""
        return TCP_INFO.pack(self._written - self._waiting, self._waiting)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            ends = Reset if self._resets else HangUp
            self._sockets.process.do(ends(connection=self._connection))
            self._sockets.forget(self._connection)
            asyncio.get_running_loop().call_soon(self._lost, None)

    abort = close

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._read_on)

    def is_reading(self) -> bool:
        return not self._paused

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol  # type: ignore[no-any-return]

    # ── what the world tells ────────────────────────────────────────────────────────────────────────────────

    def arrived(self, data: bytes) -> None:
        if self._paused or self._arrived:
            self._arrived.append(data)
            self._read_on()
        elif not self._closing:
            self.protocol.data_received(data)

    def _read_on(self) -> None:
        while self._arrived and not self._paused and not self._closing:
            self.protocol.data_received(self._arrived.popleft())

    def narrowed(self, narrow: bool) -> None:
        self._narrow = narrow
        if not narrow and not self._closing:
            self._wait(-self._waiting)

    def left(self, size: int) -> None:
        if self._narrow and not self._closing:
            self._wait(-size)

    def gone(self, error: Exception | None) -> None:
        """The peer has ended the connection, or (``error``) nothing has passed for too long."""
        if not self._closing:
            self._closing = True
            self._lost(error)

    def _lost(self, error: Exception | None) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connection_lost(error)


class Sockets:
    """All of one process. ``proof`` is who it proves to be over links."""

    def __init__(self, process: SimulatedProcess, proof: str) -> None:
        self.process = process
        self._proof = proof
        self._listening: dict[int, ListeningSocket] = {}
        self._transports: dict[str, VirtualTransport] = {}
        self._early: dict[str, list[bytes]] = {}  # what came before there was a transport
        self._dialled: dict[str, asyncio.Future[str]] = {}
        self._calls = 0

    def listen(self, port: int) -> ListeningSocket:
        listening = self._listening[port] = ListeningSocket(self, port)
        self.process.do(Listen(port=port))
        return listening

    def stop_listening(self, listening: ListeningSocket) -> None:
        if self._listening.get(listening.port) is listening:
            del self._listening[listening.port]
            self.process.do(StopListening(port=listening.port))

    def serve(self, factory: Callable[[], asyncio.BaseProtocol], listening: ListeningSocket) -> Server:
        listening.factory = factory
        return Server(listening)

    async def dial(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, secure: bool
    ) -> tuple[VirtualTransport, Any]:
        self._calls += 1
        connection = f"{self.process.address}*{self.process.incarnation}#{self._calls}"
        opened = self._dialled[connection] = asyncio.get_running_loop().create_future()
        self.process.do(
            Dial(connection=connection, host=host, port=port, proof=self._proof if secure else "")
        )
        try:
            proof = await opened
        except asyncio.CancelledError:
            self.process.do(HangUp(connection=connection))
            raise
        finally:
            del self._dialled[connection]
        return self._make(factory, connection, proof if secure else "")

    def attach(
        self, factory: Callable[[], asyncio.BaseProtocol], accepted: AcceptedSocket
    ) -> tuple[VirtualTransport, Any]:
        return self._make(factory, accepted.connection, accepted.proof)

    def _make(
        self, factory: Callable[[], asyncio.BaseProtocol], connection: str, proof: str
    ) -> tuple[VirtualTransport, Any]:
        transport = self._transports[connection] = VirtualTransport(self, connection, proof)
        protocol = transport.protocol = factory()
        protocol.connection_made(transport)
        for data in self._early.pop(connection, ()):
            transport.arrived(data)
        return transport, protocol

    def forget(self, connection: str) -> None:
        self._transports.pop(connection, None)

    def hear(self, event: Accepted | Opened | Arrived | Narrowed | Left | Closed) -> None:
        """Something happened on a connection."""
        transport = self._transports.get(event.connection)
        if type(event) is Arrived:
            if transport is not None:
                transport.arrived(event.data)
            elif event.connection in self._early:
                self._early[event.connection].append(event.data)
            return
        match event:
            case Narrowed(narrow=narrow) if transport is not None:
                transport.narrowed(narrow)
            case Left(size=size) if transport is not None:
                transport.left(size)
            case Accepted(connection=connection, port=port, proof=proof):
                listening = self._listening.get(port)
                if listening is None:
                    self.process.do(HangUp(connection=connection))
                else:
                    self._early[connection] = []
                    listening.put(AcceptedSocket(self, connection, proof))
            case Opened(connection=connection, proof=proof):
                if (waits := self._dialled.get(connection)) is not None and not waits.done():
                    self._early[connection] = []
                    waits.set_result(proof)
            case Closed(connection=connection, reason=reason):
                if (waits := self._dialled.get(connection)) is not None and not waits.done():
                    refused = reason == "refused"
                    waits.set_exception(
                        ConnectionRefusedError(111, reason) if refused else TimeoutError(110, reason)
                    )
                self._early.pop(connection, None)
                if transport is not None:
                    self.forget(connection)
                    transport.gone(TimeoutError(110, reason) if reason == "broken" else None)
