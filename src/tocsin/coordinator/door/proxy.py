"""The proxy of a coordinator's door: passes a client's bytes to a broker and back, until one of the two ends it.

It dials the broker's port for links, where both sides prove who they are, and sends a PROXY header first
(``wire.proxy_header``), so that the broker knows the client's own address. If a broker does not answer a client's
CONNECT at all, the next one is tried. When the broker is lost, the client's connection is closed: it comes again to the
same door, and is passed on to another broker. The sockets of a broker that hangs stay open, so that the network's word
that it is lost counts as well (``leave``).

Bounds: DIALS_MAX brokers are dialled at a time; what waits for a slow reader is bounded by not reading from the other
side, and when more than CONGESTED_MAX connections are slow at once, the one that is slow for longest is closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

import structlog

from tocsin.core.door.choice import Candidate
from tocsin.model.network import BrokerInfo
from tocsin.runtime.security.credentials import Identity, peer_of
from tocsin.wire.proxy_header import PassedOn, write_header

DIALS_MAX: Final = 16  # a broker shakes hands with 64 at a time, of all coordinators and brokers
DIAL_S: Final = 3.0  # as clients wait that have another server to try
ANSWER_S: Final = 10.0  # for the broker's first byte, as long as clients wait for a CONNACK
HIGH_BYTES: Final = 64 << 10  # that wait for a slow reader, before the other side is not read any more
LINGER_S: Final = 5.0  # for a broker to read the last bytes of a connection
CONGESTED_MAX: Final = 500  # each holds up to HIGH_BYTES and one read of the loop (256 KiB at most): 160 MB


class Tls(Protocol):
    """By what a coordinator proves who it is; the real one is ``PeerTls``."""

    @property
    def client(self) -> ssl.SSLContext: ...


class Served(Protocol):
    """A client's connection to the door."""

    def begin(self, upstream: Upstream) -> None:
        """The broker answers: from now on bytes pass both ways."""
        ...

    def send(self, data: bytes) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def end(self) -> None: ...


class Closed(ConnectionError):
    """A broker has closed the connection, and said nothing.

    So it does when it stops; and with a client that takes no packet as large as a CONNACK, which is the client's doing.
    Others are tried, but it is no reason to take this one for gone: the client could choose whom everybody avoids.
    """


class Proxy:
    """Passes clients on. ``silent`` is told of each broker that does not answer."""

    def __init__(self, network: str, tls: Tls, silent: Callable[[str], None]) -> None:
        self._network = network
        self._tls = tls
        self._silent = silent
        self._dials = asyncio.Semaphore(DIALS_MAX)
        self._congested: dict[Upstream, None] = {}  # the one that is slow for longest first
        self.open: dict[Upstream, BrokerInfo] = {}  # → the broker, as it was when the client was passed on
        self._log = structlog.get_logger()

    async def pass_on(
        self, served: Served, client: PassedOn, said: bytes, candidates: Sequence[Candidate]
    ) -> str | None:
        """Find a broker that answers what the client said; its id, or None if none does."""
        for each in candidates:
            async with self._dials:
                upstream = await self._dial(served, each.broker)
            try:
                answered = upstream is not None and await self._is_answered(
                    upstream, write_header(client) + said
                )
            except Closed:
                continue
            if upstream is not None and answered:
                self.open[upstream] = each.broker
                served.begin(upstream)
                upstream.begin()
                return each.broker.id
            self._silent(each.broker.id)
        return None

    async def _dial(self, served: Served, broker: BrokerInfo) -> Upstream | None:
        loop = asyncio.get_running_loop()
        made = Upstream(self, served)
        try:
            async with asyncio.timeout(DIAL_S):
                await loop.create_connection(lambda: made, broker.host, broker.port, ssl=self._tls.client)
        except (OSError, TimeoutError) as error:
            self._log.info("a broker does not answer the door", broker=broker.id, problem=str(error))
            made.end()
            return None
        expected = Identity(self._network, "broker", broker.certificate_name)
        found = peer_of(made.certificate)
        if found != expected:
            self._log.warning("somebody else answers in a broker's place", broker=broker.id, found=str(found))
            made.end()
            return None
        return made

    async def _is_answered(self, upstream: Upstream, said: bytes) -> bool:
        upstream.send(said)
        try:
            async with asyncio.timeout(ANSWER_S):
                await upstream.answered
                return True
        except Closed:
            raise
        except (OSError, TimeoutError):
            upstream.end()
            return False
        except asyncio.CancelledError:  # the client has gone
            upstream.end()
            raise

    def slow(self, upstream: Upstream) -> None:
        """One side of a connection does not read as fast as the other writes."""
        self._congested[upstream] = None
        if len(self._congested) > CONGESTED_MAX:
            next(iter(self._congested)).end()

    def quick(self, upstream: Upstream) -> None:
        self._congested.pop(upstream, None)

    def ended(self, upstream: Upstream) -> None:
        self._congested.pop(upstream, None)
        self.open.pop(upstream, None)

    def leave(self, is_there: Callable[[BrokerInfo], bool]) -> None:
        """Close the connections to brokers that are not there any more, where they were. They may read nothing: so
        nothing waits for them."""
        for upstream, broker in tuple(self.open.items()):
            if not is_there(broker):
                upstream.abort()

    def close(self) -> None:
        for upstream in tuple(self.open):
            upstream.end()


class Upstream(asyncio.Protocol):
    """A connection to a broker for one client."""

    def __init__(self, proxy: Proxy, served: Served) -> None:
        self._proxy = proxy
        self._served = served
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []  # the broker's first bytes, until the client's side is ready
        self._begun = False
        self._client_is_slow = self._broker_is_slow = False
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def certificate(self) -> Any:
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    def begin(self) -> None:
        """The client's side is ready."""
        self._begun = True
        for data in self._early:
            self._served.send(data)
        self._early = []
        if self._transport is None:
            self._served.end()
        elif not self._client_is_slow:
            self._transport.resume_reading()

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause(self) -> None:
        """The client does not read."""
        if self._transport is not None and not self._transport.is_closing():
            self._client_is_slow = True
            self._transport.pause_reading()
            self._count()

    def resume(self) -> None:
        self._client_is_slow = False
        self._count()
        if self._begun and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count(self) -> None:
        if self._client_is_slow or self._broker_is_slow:
            self._proxy.slow(self)
        else:
            self._proxy.quick(self)

    def end(self) -> None:
        """End the connection, after what was sent, if the broker reads it; without a transport, for good."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)
        self._settle(ConnectionError("ended"))

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _settle(self, error: OSError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)
            self.answered.exception()  # nobody may wait for it

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._begun:
            self._served.send(data)
            return
        self._early.append(data)
        if self._transport is not None:
            self._transport.pause_reading()  # one read is enough until the client's side is ready
        if not self.answered.done():
            self.answered.set_result(None)

    def pause_writing(self) -> None:
        self._broker_is_slow = True
        self._served.pause()
        self._count()

    def resume_writing(self) -> None:
        self._broker_is_slow = False
        self._served.resume()
        self._count()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._proxy.ended(self)
        words = "the broker closed the connection"
        self._settle(Closed(words) if error is None else ConnectionError(words))
        if self._begun:
            self._served.end()
