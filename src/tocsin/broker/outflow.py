"""What leaves a connection: frames for its client, in few and cheap writes, and never more of them than are bounded.

Bytes are written past the transport while nothing waits in it (``broker.direct``). Once the kernel takes no more they
wait in the transport, and beyond ``outbound_max_bytes`` messages at QoS 0 are dropped and counted.
"""

from __future__ import annotations

import asyncio

from tocsin.broker.aliases import NONE, Aliases
from tocsin.broker.direct import NOWHERE, descriptor_of, write
from tocsin.broker.exchange import Exchange
from tocsin.broker.fanout import Group
from tocsin.broker.links import NO_MAXIMUM


class Outflow(asyncio.Protocol):
    """A connection, as an outlet. It is told its transport, and what becomes of that."""

    def __init__(self, exchange: Exchange, outbound_max_bytes: int) -> None:
        self.send_max_bytes = NO_MAXIMUM
        self.group = Group(self)
        self.descriptor = NOWHERE  # of its socket, while nothing waits in the transport
        self._exchange = exchange
        self._outbound_max_bytes = outbound_max_bytes
        self._transport: asyncio.Transport | None = None  # None before the connection and after its end
        self._aliases = NONE  # topics that the client takes by number
        self._congested = False  # the kernel takes no more for now

    def _bound(self, send_max_bytes: int | None, topic_alias_max: int) -> None:
        """What the client takes, as it says itself."""
        if topic_alias_max:
            self._aliases = Aliases(topic_alias_max)
        if send_max_bytes is not None:
            self.send_max_bytes = send_max_bytes

    def _go_direct(self, transport: asyncio.Transport | None) -> None:
        """Let what is delivered be written past this transport, in which nothing waits; None: past none."""
        descriptor = NOWHERE if transport is None else descriptor_of(transport)
        if descriptor == self.descriptor:
            return
        self.descriptor = descriptor
        self._exchange.outlet_changed()
        if transport is not None:
            transport.set_write_buffer_limits(0)  # so that we are told of the first byte that waits

    def pause_writing(self) -> None:
        self._congested = True
        self._go_direct(None)

    def resume_writing(self) -> None:
        self._congested = False
        self._go_direct(self._transport)

    # ── the exchange tells ──────────────────────────────────────────────────────────────────────────────────

    def deliver(self, data: bytes, messages: int) -> None:
        if self.descriptor != NOWHERE:
            write(self.descriptor, self, data)
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.full:
            self._exchange.counts.dropped += messages
            self._lost()
        else:
            transport.write(data)

    def _lost(self) -> None:
        """Some of what was to be delivered was dropped."""

    @property
    def full(self) -> bool:
        transport = self._transport
        return transport is None or (
            self._congested and transport.get_write_buffer_size() > self._outbound_max_bytes
        )

    def spill(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def sever(self) -> None:
        """Break the connection: the client cannot be served as it was promised, and knows that best in this way."""
        if self._transport is not None:
            self._transport.abort()

    def queue(self, *frames: bytes) -> None:
        data = b"".join(map(self.aliased, frames) if self._aliases else frames)
        self._exchange.queue(self.group, data, len(frames))

    @property
    def takes_aliases(self) -> bool:
        return bool(self._aliases)

    def aliased(self, frame: bytes) -> bytes:
        # What is congested may be dropped, and with it the meaning of a number.
        return frame if self._congested else self._aliases.of(frame)
