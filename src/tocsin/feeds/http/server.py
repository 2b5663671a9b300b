"""HTTP/1.1 for a few machines that send records: h11 between a socket and one function that answers.

Everything has a bound: the head of a request, its body, the time for both, connections, those of one address, and the
bytes of all bodies that are held at once, by what has *come* of them. A body for which there is no room is told to come
again (503, Retry-After). When there are too many connections, the server closes the longest silent one; a connection
that is being answered stays. Over TLS the same bounds count before the handshake, which has the deadline of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import h11
import msgspec
import structlog

from tocsin.core.access.admission import is_loopback, source_of
from tocsin.errors import OperatorError, PortTaken
from tocsin.runtime.machines.tasks import Failed, Tasks, raise_alarm

HEAD_MAX_BYTES: Final = 16 << 10
CHUNK_BYTES: Final = 64 << 10
LINGER_S: Final = 1.0  # for a sender to hear why its request is not read to the end
RETRY_AFTER_S: Final = 1
BACKLOG: Final = 128
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no descriptor left
TLS_CLOSE_S: Final = 5.0  # for the peer's last word in TLS
_ADDRESS_IN_USE: Final = 98


class Asked(msgspec.Struct, frozen=True):
    """The head of a request, and its peer."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case
    address: str  # the sender's
    certificate_name: str | None = None  # of a client certificate that was checked

    def header(self, name: bytes) -> bytes | None:
        """The value of a header that comes once; None if there is none, or several."""
        found = [value for each, value in self.headers if each == name]
        return found[0] if len(found) == 1 else None


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: int
    body: dict[str, object]
    headers: tuple[tuple[str, str], ...] = ()


class Bounds(msgspec.Struct, frozen=True):
    body_max_bytes: int
    waiting_max_bytes: int
    connections_max: int
    per_address_max: int  # of those; this machine's own are not counted
    deadline_s: float


# Looks at the head: a refusal; or the sender's proven name, perhaps empty, and the body is wanted.
Judge = Callable[[Asked], Awaitable[Answer | str]]
Act = Callable[[Asked, str, bytes], Awaitable[Answer]]


def busy(why: str, after_s: int = RETRY_AFTER_S) -> Answer:
    return Answer(503, {"error": f"{why}; try again"}, (("Retry-After", str(after_s)),))


class HttpServer:
    """Listens on one port, or two."""

    def __init__(
        self,
        judge: Judge,
        act: Act,
        bounds: Bounds,
        failed: Failed,
        name_of: Callable[[Any], str | None] = lambda tls: None,
    ) -> None:
        """``failed`` is told when it cannot accept any more. ``name_of``: the user that the certificate of a connection
        (its ssl_object) names, if it is good."""
        self.name_of = name_of
        self._judge = judge
        self._act = act
        self._bounds = bounds
        self._servers: list[asyncio.Server] = []
        self._accepting = Tasks("the HTTP endpoint", failed)  # over TLS
        self._handshakes: dict[asyncio.Task[None], str] = {}  # with the source; the oldest first
        self._connections: dict[asyncio.Task[None], _Conversation] = {}  # the one silent for longest first
        self._addresses: Counter[str] = Counter()
        self._held_bytes = 0  # of bodies that are being read, or acted upon

    async def listen(self, host: str, port: int, setting: str, context: ssl.SSLContext | None = None) -> int:
        """Begin to listen; the port, chosen if it was 0."""
        try:
            if context is not None:
                return await self._listen_tls(host, port, context)
            server = await asyncio.start_server(
                self._connected, host, port, limit=CHUNK_BYTES, backlog=BACKLOG
            )
        except OSError as error:
            if error.errno == _ADDRESS_IN_USE:
                raise PortTaken(host, port, "the feeder", setting) from None
            raise OperatorError(
                f"the feeder cannot listen on {host}:{port}: {error.strerror or error}",
                f"Give an address of this machine (feeds.http_host) and a port that you may use ({setting})",
            ) from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        await self._accepting.wait_closed()
        ended = [*self._handshakes, *self._connections]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    # ── TLS ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _listen_tls(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Accept ourselves: a server of the loop's would shake hands with everybody, and tell us afterwards."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        chosen = 0
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
                listening.listen(BACKLOG)
            except OSError:
                listening.close()
                raise
            listening.setblocking(False)
            chosen = chosen or listening.getsockname()[1]
            self._accepting.spawn(self._accept(listening, context))
        return chosen

    async def _accept(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError:  # no descriptor left, or the peer has gone already
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                    continue
                source = _source(peer[0])
                if source and self._of(source) >= self._bounds.per_address_max:
                    accepted.close()
                    continue
                if len(self._handshakes) >= self._bounds.connections_max:
                    next(iter(self._handshakes)).cancel()
                task = loop.create_task(self._shake_hands(accepted, context))
                self._handshakes[task] = source
                task.add_done_callback(partial(self._shaken, accepted))

    def _of(self, source: str) -> int:
        """The connections of a source, those in a handshake too."""
        return self._addresses[source] + sum(each == source for each in self._handshakes.values())

    async def _shake_hands(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_BYTES, loop=loop)
        await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader, self._connected, loop=loop),
            accepted,
            ssl=context,
            ssl_handshake_timeout=self._bounds.deadline_s,
            ssl_shutdown_timeout=TLS_CLOSE_S,
        )

    def _shaken(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """A handshake is over; after a good one the socket is its transport's."""
        del self._handshakes[task]
        if task.cancelled():
            accepted.close()
        elif (error := task.exception()) is not None:
            accepted.close()
            if isinstance(error, OSError):  # errors of ssl are such
                structlog.get_logger().debug("no TLS with a sender", problem=str(error))
            else:
                raise_alarm(error, "a handshake of the HTTP endpoint")

    # ── a connection ────────────────────────────────────────────────────────────────────────────────────────────

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername")
        source = _source(peer[0] if isinstance(peer, tuple) else "")
        crowded = not self._make_room() or self._addresses[source] >= self._bounds.per_address_max
        conversation = self._connections[task] = _Conversation(self, reader, writer)
        if source:
            self._addresses[source] += 1
        try:
            await conversation.run(crowded)
        except (ConnectionError, TimeoutError, ssl.SSLError, asyncio.CancelledError):
            pass
        except Exception as error:  # costs this connection
            raise_alarm(error, "a connection of the HTTP endpoint")
        finally:
            self._connections.pop(task, None)
            if source:
                self._addresses[source] -= 1
                if not self._addresses[source]:
                    del self._addresses[source]
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    def _make_room(self) -> bool:
        """Whether there is room for one more connection, if need be in place of one that says nothing."""
        if len(self._connections) < self._bounds.connections_max:
            return True
        for task, conversation in self._connections.items():
            if conversation.silent:
                del self._connections[task]
                task.cancel()
                return True
        return False

    def heard(self) -> None:
        """The connection at hand has said something."""
        task = asyncio.current_task()
        if task is not None and task in self._connections:
            self._connections[task] = self._connections.pop(task)

    def reserve(self, size: int) -> bool:
        """Whether there is room for so much more of a body; then it is taken."""
        if self._held_bytes and self._held_bytes + size > self._bounds.waiting_max_bytes:
            return False
        self._held_bytes += size
        return True

    def release(self, size: int) -> None:
        self._held_bytes -= size

    @property
    def bounds(self) -> Bounds:
        return self._bounds

    async def judge(self, asked: Asked) -> Answer | str:
        return await self._judge(asked)

    async def act(self, asked: Asked, sender: str, body: bytes) -> Answer:
        return await self._act(asked, sender, body)


class _NoRoom(Exception):
    """As many bytes of bodies are held as may be."""


def _source(address: str) -> str:
    """The key under which connections from an address are counted; empty: they are not."""
    return "" if not address or is_loopback(address) else source_of(address)


class _Conversation:
    """Requests and answers on one connection, one after the other."""

    def __init__(
        self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX_BYTES)
        self._held_bytes = 0  # of the body at hand
        self.silent = False  # it is the sender's turn

    async def run(self, crowded: bool) -> None:
        deadline_s = self._server.bounds.deadline_s
        if crowded:
            await self._say(busy("there are too many connections"))
            await self._linger()
            return
        while True:
            try:
                async with asyncio.timeout(deadline_s):
                    head = await self._event()
                if not isinstance(head, h11.Request):
                    return
                answer = await self._answer(head)
            except h11.RemoteProtocolError as error:
                answer = Answer(error.error_status_hint, {"error": f"this is no HTTP request: {error}"})
            if self._protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return
            await self._say(answer)
            if set(self._protocol.states.values()) != {h11.DONE}:
                await self._linger()
                return
            self._protocol.start_next_cycle()

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._protocol.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            if self._protocol.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._protocol.send(go_on) or b"")
            self.silent = True
            data = await self._reader.read(CHUNK_BYTES)
            self.silent = False
            self._server.heard()
            self._protocol.receive_data(data)

    async def _answer(self, head: h11.Request) -> Answer:
        peer = self._writer.get_extra_info("peername")
        asked = Asked(
            head.method.decode(),
            head.target.decode(),
            tuple((bytes(name), bytes(value)) for name, value in head.headers),
            peer[0] if isinstance(peer, tuple) else "",
            self._server.name_of(self._writer.get_extra_info("ssl_object")),
        )
        sender = await self._server.judge(asked)
        if isinstance(sender, Answer):
            return sender
        bounds = self._server.bounds
        said = asked.header(b"content-length")
        too_large = Answer(
            413,
            {
                "error": f"the body is over {bounds.body_max_bytes} bytes (feeds.body_max_bytes); send it in parts"
            },
        )
        if said is not None and said.isdigit() and int(said) > bounds.body_max_bytes:
            return too_large
        try:
            async with asyncio.timeout(bounds.deadline_s):
                body = await self._body(bounds.body_max_bytes)
            return too_large if body is None else await self._server.act(asked, sender, body)
        except _NoRoom:
            return busy("too many bodies wait for the store")
        except TimeoutError:
            return Answer(408, {"error": f"the body did not come within {bounds.deadline_s:g} s"})
        finally:
            self._server.release(self._held_bytes)
            self._held_bytes = 0

    async def _body(self, most: int) -> bytes | None:
        """The body; None if it is too large, ``_NoRoom`` if there is no room for it."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._event()
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                size += len(event.data)
                if size > most:
                    return None
                if not self._server.reserve(len(event.data)):
                    raise _NoRoom
                self._held_bytes = size
            elif isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            else:
                raise ConnectionResetError

    async def _say(self, answer: Answer) -> None:
        body = msgspec.json.encode(answer.body) + b"\n"
        headers: Iterable[tuple[str, str]] = (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers,
            # A body that is not read to its end leaves the connection useless.
            *(() if self._protocol.their_state in (h11.DONE, h11.MUST_CLOSE) else (("Connection", "close"),)),
        )
        for event in (
            h11.Response(status_code=answer.status, headers=list(headers)),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._protocol.send(event) or b"")
        async with asyncio.timeout(self._server.bounds.deadline_s):
            await self._writer.drain()

    async def _linger(self) -> None:
        """Let what is still sent come to nothing for a moment, so that the answer is heard."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(LINGER_S):
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                while await self._reader.read(CHUNK_BYTES):
                    pass
