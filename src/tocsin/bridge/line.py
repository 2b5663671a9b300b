"""A connection to an AMQP peer that comes back after a break: a socket around ``bridge.peer``."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from itertools import chain
from typing import Final, Protocol

from tocsin.bridge.limits import delay_us
from tocsin.bridge.peer import Ended, Opened, Peer, PeerEvent, State
from tocsin.bridge.settings import Endpoint
from tocsin.errors import OperatorError
from tocsin.runtime.machines.clock import now_us

DIAL_S: Final = 10.0  # to connect, TLS included
OPEN_S: Final = 15.0  # to log in and open
TICK_S: Final = 0.5
READ_BYTES: Final = 1 << 16


class Listener(Protocol):
    """The owner of a line, which is told what happens on it."""

    def line_heard(self, event: PeerEvent) -> None: ...

    def line_down(self, reason: str, retry_s: float) -> None: ...


class AmqpLine:
    """Keeps one connection to an AMQP peer."""

    def __init__(
        self, endpoint: Endpoint, tls: ssl.SSLContext | None, container: str, listener: Listener
    ) -> None:
        self._endpoint, self._tls, self._container, self._listener = endpoint, tls, container, listener
        self._peer: Peer | None = None  # of this connection, once it is open
        self._dialled: Peer | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._opened = False  # ever

    @property
    def peer(self) -> Peer | None:
        """The other side, while there is an open connection."""
        return self._peer

    def flush(self) -> None:
        """Send what waits."""
        peer = self._dialled
        if peer is not None and self._writer is not None and (output := peer.take_output()):
            self._writer.write(output)

    def close(self) -> None:
        """Take leave of the peer; ``run`` is to be cancelled afterwards."""
        if self._dialled is not None:
            self._dialled.close()
            self.flush()
        if self._writer is not None:
            self._writer.close()

    async def run(self) -> None:
        """Connect, again and again. ``OperatorError`` if the peer refuses the first log-in."""
        failures = 0
        while True:
            ended = await self._once()
            if ended.refused and not self._opened:
                raise OperatorError(
                    f"the AMQP peer at {self._endpoint} cannot be used: {ended.reason}",
                    "Check --amqp, --amqp-user with TOCSIN_AMQP_PASSWORD, --sasl and --amqp-cafile",
                )
            failures = 1 if self._peer is not None else failures + 1
            self._peer = self._dialled = None
            retry_s = delay_us(failures) / 1_000_000 * random.uniform(0.75, 1.0)
            self._listener.line_down(ended.reason, retry_s)
            await asyncio.sleep(retry_s)

    async def _once(self) -> Ended:
        """One connection, to its end."""
        place = self._endpoint
        try:
            async with asyncio.timeout(DIAL_S):
                name = place.host if self._tls is not None else None
                reader, self._writer = await asyncio.open_connection(
                    place.host, place.port, ssl=self._tls, server_hostname=name
                )
        except ssl.SSLError as error:
            return Ended(
                f"no TLS with it: {error.reason or error}",
                refused=isinstance(error, ssl.SSLCertVerificationError),
            )
        except TimeoutError:
            return Ended(f"no answer within {DIAL_S:g} s")
        except OSError as error:
            return Ended(error.strerror or str(error))
        try:
            return await self._serve(reader)
        except (OSError, ssl.SSLError) as error:
            return Ended(f"the connection broke: {error}")
        finally:
            self._writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._writer.wait_closed()
            self._writer = None

    async def _serve(self, reader: asyncio.StreamReader) -> Ended:
        peer = self._dialled = Peer(self._container, self._endpoint.hostname, self._endpoint.login)
        deadline_us = now_us() + int(OPEN_S * 1_000_000)
        while True:
            self.flush()
            data: bytes | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    data = await reader.read(READ_BYTES)
            if data == b"":
                return Ended("it closed the connection without a word")
            for event in chain(peer.heard(data, now_us()) if data else (), peer.tick(now_us())):
                if isinstance(event, Ended):
                    self.flush()
                    return event
                if isinstance(event, Opened):
                    self._peer, self._opened = peer, True
                self._listener.line_heard(event)
            if peer.state not in (State.OPEN, State.CLOSED) and now_us() > deadline_us:
                return Ended(f"it did not open the connection within {OPEN_S:g} s")
