"""One accepted connection: bytes in, through the decoder to the session machine; its effects carried out.

Publishes of a connected client take the short way (``Session.check_publish``, then the exchange) and make no event
and no effect; everything else goes through ``Session.handle``.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final, cast

from mqtt5 import PublishPacket

from tocsin.broker.fanout import Group
from tocsin.broker.links import NO_MAXIMUM, PACKET_MARGIN_BYTES
from tocsin.core.forwarding import Subscription
from tocsin.core.machine import CancelTimer, Effect, SetTimer, TimerFired
from tocsin.core.session import (
    Accepted,
    Authenticate,
    Close,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    SendPacket,
    Session,
    Subscribe,
    Unsubscribe,
    WireFailed,
)
from tocsin.errors import WireError
from tocsin.runtime.pump import Pump, now_us
from tocsin.runtime.timers import Timers
from tocsin.wire.codec import V5, Decoder, Version, encode

LINGER_S: Final = 5.0  # for a closed connection's last bytes


if TYPE_CHECKING:
    from tocsin.broker.listener import Listener


class Connection(asyncio.Protocol):
    """A client, or another broker's link to us."""

    def __init__(self, listener: Listener, number: int) -> None:
        limits = listener.limits
        self.client_id = ""  # empty until accepted
        self.version: Version = V5
        self.send_max_bytes = NO_MAXIMUM
        self.group = Group(self)
        self._listener = listener
        self._exchange = listener.exchange
        self._cause = f"{listener.own.id}:c{number}"
        self._session = Session(limits)
        self._decoder = Decoder(limits.packet_max_bytes)
        self.post = Pump(self._session, self._carry_out).post  # hand an event to the session
        self._timers = Timers(lambda name, cause: self.post(TimerFired(name=name, cause=cause)))
        self._transport: asyncio.Transport | None = None  # None before the connection and after its end
        self._congested = False  # the kernel takes no more for now
        self._link_cluster: str | None = None  # the peer's, if this is a link

    # ── asyncio tells ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.admit(self):
            self._transport.abort()
            return
        self.post(Opened(assigned_client_id=f"tocsin-{secrets.token_hex(8)}", cause=self._cause))

    def data_received(self, data: bytes) -> None:
        session = self._session
        items = self._decoder.feed(data)
        if items and session.state == "connected":
            session.heard(now_us())
        for item in items:
            if self._transport is None:
                return
            if type(item) is PublishPacket and session.state == "connected":
                self._publish(item)
            elif isinstance(item, WireError):
                self.post(WireFailed(error=item, version=self._decoder.version, cause=self._cause))
            else:
                version = self._decoder.version
                assert version is not None, "a packet was decoded, so that its version is known"
                self.post(PacketArrived(packet=item, version=version, cause=self._cause))

    def _publish(self, packet: PublishPacket) -> None:
        try:
            topic = self._session.check_publish(packet)
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if self._link_cluster is None:
            self._exchange.publish(self, topic, packet)
        else:
            self._exchange.relay(self._link_cluster, topic, packet)

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self.post(PeerClosed(cause=self._cause))
            self._end()

    # ── the exchange tells ──────────────────────────────────────────────────────────────────────────────────

    def deliver(self, data: bytes, messages: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waiting_bytes = transport.get_write_buffer_size() if self._congested else 0
        if waiting_bytes + len(data) > self._listener.outbound_max_bytes:
            self._exchange.counts.dropped += messages
        else:
            transport.write(data)

    # ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendPacket(packet=packet):
                if self._transport is not None and not self._transport.is_closing():
                    self._transport.write(encode(packet, self._session.version))
            case Subscribe(pattern=pattern, no_local=no_local, subscription_id=identifier):
                self._exchange.subscribe(self, pattern, Subscription(no_local, identifier))
            case Unsubscribe(pattern=pattern):
                self._exchange.unsubscribe(self, pattern)
            case Publish(packet=packet):
                self._exchange.publish(self, packet.topic, packet)
            case SetTimer(name=name, delay_us=delay_us, cause=cause):
                self._timers.set(name, delay_us, cause)
            case CancelTimer(name=name):
                self._timers.cancel(name)
            case Authenticate():
                self.post(self._listener.authenticate(effect))
            case Accepted():
                self._accept(effect)
            case Close():
                self._listener.closed(self, effect)
                self._end()
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _accept(self, accepted: Accepted) -> None:
        self.client_id = accepted.client_id
        self.version = accepted.version
        if accepted.send_max_bytes is not None:
            self.send_max_bytes = accepted.send_max_bytes
        self._link_cluster = self._listener.accept(self, accepted)
        if self._link_cluster is not None:
            self._decoder.max_packet_bytes += PACKET_MARGIN_BYTES

    def _end(self) -> None:
        """Nothing more is sent or heard."""
        self._timers.close()
        self._listener.release(self)
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.close()
            if transport.get_write_buffer_size():  # a peer that does not read could hold it open for ever
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)
