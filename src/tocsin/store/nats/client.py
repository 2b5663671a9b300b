"""One connection to one NATS server, from dialling to its end. ``store.nats.connection`` dials again.

    dialled ──INFO──► (TLS) ──CONNECT, PING──► PONG: open ──silence, -ERR or end of the stream──► lost

Nothing is sent before the server has said INFO, and where TLS is asked for nothing is sent without it. A server that
has said nothing for PING_S is asked for a sign of life. One that does not answer that twice in a row is lost.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final, cast
from urllib.parse import urlsplit

from tocsin.store.nats.login import Login
from tocsin.store.nats.nkeys import public_key, sign
from tocsin.store.nats.protocol import (
    PING,
    PONG,
    Failure,
    Incoming,
    Info,
    Parser,
    Ping,
    Pong,
    ProtocolBroken,
    connect,
)

PING_S: Final = 5.0  # a half-open connection is noticed after three or four of these
PINGS_MAX: Final = 1  # that may wait for their answers when another is due
MESSAGE_MAX_BYTES: Final = 64 << 20  # the most that NATS can be configured to take
DEFAULT_PORT: Final = 4222
CLOSE_S: Final = 2.0  # for the last bytes to leave
LOST: Final = "the connection to the server was lost"

_VIOLATION: Final = "permissions violation"
_REFUSALS: Final = ("authorization violation", "authentication expired", "authentication revoked")


class NotConnected(Exception):
    """There is no connection: the server is not there, or something is wrong with it. States the problem."""


class NotLetIn(NotConnected):
    """The server does not accept the log-in."""


class NatsClient(asyncio.Protocol):
    """A connection to a server. ``take`` gets its messages, ``complain`` what it says of refused rights, ``lost`` why
    the connection ended, once."""

    def __init__(
        self,
        take: Callable[[Incoming], None],
        complain: Callable[[str], None],
        lost: Callable[[NatsClient, str], None],
    ) -> None:
        self._take = take
        self._complain = complain
        self._lost = lost
        self._parser = Parser(MESSAGE_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []  # of this turn of the loop: one write, one record of TLS
        self._outgoing_bytes = 0
        self._heard = False  # whether the server said anything since the last tick
        self._pings = 0  # that were not answered
        self._ticking: asyncio.TimerHandle | None = None
        self._info: asyncio.Future[Info] = asyncio.get_running_loop().create_future()
        self._let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._upgrading = False
        self._problem = ""  # what ends the connection, once that is known
        self.info = Info()
        self.url = ""
        self.open = False

    async def dial(
        self, url: str, login: Login, context: ssl.SSLContext | None, name: str, commands: bytes
    ) -> None:
        """Connect, log in and have the server take these commands, or raise ``NotConnected``."""
        address = urlsplit(url if "//" in url else f"nats://{url}")
        host, port = address.hostname or "127.0.0.1", address.port or DEFAULT_PORT
        self.url = f"{address.scheme}://{host}:{port}"
        loop = asyncio.get_running_loop()
        shown = login.tls_name or host
        try:
            first = context if login.first else None
            await loop.create_connection(
                lambda: self, host, port, ssl=first, server_hostname=shown if first else None
            )
            await self._info
            await self._encrypt(login, context, shown)
            options = self._options(login, address.username, address.password, name)
            self._write(connect(options) + commands + PING)
            await self._let_in
            if self._transport is None or self._transport.is_closing():
                raise NotConnected(self._problem or LOST)
        except ssl.SSLCertVerificationError as error:
            raise NotConnected(f"its certificate is not believed: {error.verify_message}") from error
        except OSError as error:
            raise NotConnected(os.strerror(error.errno) if error.errno else str(error)) from error
        self.open = True
        self._tick()

    async def _encrypt(self, login: Login, context: ssl.SSLContext | None, shown: str) -> None:
        """Begin TLS, unless it has begun, where we ask for it or the server does."""
        assert self._transport is not None
        if self._transport.get_extra_info("ssl_object") is not None:
            return
        offered = self.info.tls_required or self.info.tls_available
        if context is not None and not offered:
            raise NotConnected("the server does not speak TLS")
        if context is None and not self.info.tls_required:
            return
        loop = asyncio.get_running_loop()
        self._upgrading = True
        upgraded = await loop.start_tls(
            self._transport, self, context or ssl.create_default_context(), server_hostname=shown
        )
        self._upgrading = False
        if upgraded is None:
            raise NotConnected(self._problem or LOST)
        self._transport = upgraded

    def _options(self, login: Login, user: str | None, password: str | None, name: str) -> dict[str, Any]:
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "lang": "tocsin",
            "version": version("tocsin"),
            "protocol": 1,  # INFO may come again
            "headers": True,
            "no_responders": True,
            "name": name,
        }
        if user:
            options |= {"user": user, "pass": password or ""}
        if login.token:
            options["auth_token"] = login.token
        if login.seed:
            if login.jwt:
                options["jwt"] = login.jwt
            else:
                options["nkey"] = public_key(login.seed)
            options["sig"] = sign(login.seed, self.info.nonce).decode()
        return options

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            for said in self._parser.feed(data):
                if isinstance(said, Incoming):
                    self._take(said)
                else:
                    self._hear(said)
        except ProtocolBroken as error:
            self.fail(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        if self._upgrading:
            return  # of the socket beneath TLS
        self._end(self._problem or (str(error) if error else LOST))
        if not self._gone.done():
            self._gone.set_result(None)

    def _hear(self, said: Info | Ping | Pong | Failure) -> None:
        match said:
            case Info():
                self.info = said
                if not self._info.done():
                    self._info.set_result(said)
            case Ping():
                self._write(PONG)
            case Pong():
                if not self._let_in.done():
                    self._let_in.set_result(None)
            case Failure(problem=problem) if problem.lower().startswith(_VIOLATION):
                self._complain(problem)
            case Failure(problem=problem):
                self._problem = problem  # the server ends the connection
                if not self._let_in.done():
                    refused = any(words in problem.lower() for words in _REFUSALS)  # not: no time to look
                    self._let_in.set_exception(NotLetIn(problem) if refused else NotConnected(problem))

    # ── its owner asks ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def waiting_bytes(self) -> int:
        """The bytes that the socket has not taken yet."""
        return self._outgoing_bytes + (
            0 if self._transport is None else self._transport.get_write_buffer_size()
        )

    def send(self, data: bytes) -> None:
        """Write commands in one piece, with the others of this turn of the loop."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)

    def _flush(self) -> None:
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if outgoing:
            self._write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def fail(self, problem: str) -> None:
        """End the connection because of this."""
        self._problem = problem
        self._end(problem)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Send what waits, and end; nobody is told."""
        self._lost = lambda client, problem: None
        self._end("closed")
        if self._transport is None:
            return
        self._flush()
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._gone)
        except TimeoutError:  # TLS may wait for an end that never comes
            self._transport.abort()
            await asyncio.sleep(0)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _tick(self) -> None:
        """Ask the server whether it is there, unless it has shown that."""
        if self._heard:
            self._heard, self._pings = False, 0
        elif self._pings > PINGS_MAX:
            self.fail("the server does not answer")
            return
        else:
            self._pings += 1
            self._write(PING)
        self._ticking = asyncio.get_running_loop().call_later(PING_S, self._tick)

    def _end(self, problem: str) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        for waiting in (self._info, self._let_in):
            if not waiting.done():
                waiting.set_exception(NotConnected(problem))
                waiting.exception()  # the caller may have given up
        if self.open:
            self.open = False
            self._lost(self, problem)
