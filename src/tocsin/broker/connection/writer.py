"""The outgoing side of a connection: frames for its client, in few and cheap writes, within bounds.

Bytes are written past the transport while nothing waits in it (``broker.forwarding.fanout``). Once the kernel takes no
more they wait in the transport, and are counted against the budget of the client, its user and the broker. Beyond
``outbound_max_bytes``, or without room in the budget, messages at QoS 0 are dropped and counted. Answers are not
dropped: a client that has ANSWERS_BYTES of them waiting is read no more until it has read them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.broker.client import ClientConnection
from tocsin.broker.forwarding.exchange import Exchange
from tocsin.broker.forwarding.fanout import NOWHERE, OutletSet, descriptor_of, write
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.core.budgets.budget import Account, Kind
from tocsin.wire.mqtt.frames import aliased_frame, topic_of

ANSWERS_BYTES: Final = 64 << 10  # ten thousand answers that a client did not read
FLOOR_BYTES: Final = 16 << 10  # may wait for every connection, whatever the others have
# Our bound, whatever a client offers: the first topics are mostly the busiest.
ALIASES_MAX: Final = 32
PUBLISH: Final = 3  # the packet type, in the upper half of a frame's first byte


class Aliases:
    """Topic aliases for one client, to save bytes: the first topics that it gets, up to its maximum. For frames in the
    order in which they are sent, and none that may be dropped.
    """

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._most = min(most, ALIASES_MAX)
        self._known: dict[bytes, int] = {}  # topic → number

    def __bool__(self) -> bool:
        """Whether the client takes any."""
        return self._most > 0

    def of(self, frame: bytes) -> bytes:
        """The frame with its topic as a number, if it is a PUBLISH and there is one, or one left, for its topic."""
        if not self._most or frame[0] >> 4 != PUBLISH:
            return frame
        topic = topic_of(frame)
        alias = self._known.get(topic)
        if alias is not None:
            return aliased_frame(frame, alias, known=True)
        if len(self._known) >= self._most:
            return frame
        alias = self._known[topic] = len(self._known) + 1
        return aliased_frame(frame, alias, known=False)


NONE: Final = Aliases(0)
_NOBODY: Final = OutletSet()  # the group of those who are gone


class ClientWriter:
    """The outlet of one client. It has the transport from ``begin`` to ``end``."""

    __slots__ = (
        "_account",
        "_aliases",
        "_congested",
        "_exchange",
        "_outbound",
        "_outbound_max_bytes",
        "_owed",
        "_owner",
        "_transport",
        "_written",
        "answers_waiting",
        "descriptor",
        "group",
        "send_max_bytes",
    )

    def __init__(
        self, owner: ClientConnection, exchange: Exchange, account: Account, outbound_max_bytes: int
    ) -> None:
        self.send_max_bytes = NO_MAXIMUM
        self.group = OutletSet(self)
        self.descriptor = NOWHERE  # of its socket, while nothing waits in the transport
        self._owner: ClientConnection | None = owner  # None after its end: the two are no circle then
        self._exchange = exchange
        self._account = account  # of the bytes that the client makes us hold
        self._outbound_max_bytes = outbound_max_bytes
        self._transport: asyncio.Transport | None = None  # None before the connection and after its end
        self._aliases = NONE  # topics that the client takes by number
        self._congested = False  # the kernel takes no more for now
        self.answers_waiting = 0  # bytes of answers that were written since the kernel took all
        self._outbound = 0  # bytes that wait, as the budget knows them
        self._owed = -2  # the number of flushes before the one with frames that must not be dropped
        self._written = 0  # bytes that were ever written while some waited

    # ── the connection tells ────────────────────────────────────────────────────────────────────────────────

    def begin(self, transport: asyncio.Transport) -> None:
        """There is a connection."""
        self._transport = transport
        self._go_direct(transport)

    def end(self) -> None:
        """Nothing more is sent. To be said before the socket is closed."""
        self._go_direct(None)
        self._transport = self._owner = None
        self.group = _NOBODY

    def bound(self, send_max_bytes: int | None, topic_alias_max: int) -> None:
        """The client's own limits."""
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

    def pause(self) -> None:
        """The kernel takes no more for now."""
        self._congested = True
        self._go_direct(None)

    def resume(self) -> None:
        """The kernel has taken all."""
        self._congested = False
        self.answers_waiting = 0
        if self._outbound:
            self._account.give(Kind.OUTBOUND, self._outbound)
            self._outbound = 0
        self._go_direct(self._transport)

    # ── what is sent ────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, data: bytes, messages: int) -> None:
        if self.descriptor != NOWHERE:
            write(self.descriptor, self, data)
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.full and self._owed != self._exchange.outbox.flushes - 1:
            self._exchange.counts.dropped += messages
            assert self._owner is not None, "there is a transport"
            self._owner.missed()
        else:
            self._put(transport, data)

    def answer(self, data: bytes) -> bool:
        """Send an answer, which is never dropped; False if more of them wait than a client may leave unread."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return True
        if self._congested:
            self.answers_waiting += len(data)
        self._put(transport, data)
        return self.answers_waiting <= ANSWERS_BYTES

    def _put(self, transport: asyncio.Transport, data: bytes) -> None:
        transport.write(data)
        if self._congested:
            self._written += len(data)
            self.count()

    def count(self) -> int:
        """Have the budget know how much waits; how much the kernel has taken, of a client that is behind."""
        transport = self._transport
        if transport is None:
            return self._written
        waiting = transport.get_write_buffer_size()
        size = waiting if waiting > FLOOR_BYTES else 0
        before, self._outbound = self._outbound, size
        if size > before:
            refusal = self._account.charge(Kind.OUTBOUND, size - before)
            if refusal is not None:
                self._outbound = before
                assert self._owner is not None, "there is a transport"
                self._owner.unread(refusal)
        elif size < before:
            self._account.give(Kind.OUTBOUND, before - size)
        return self._written - waiting

    @property
    def full(self) -> bool:
        transport = self._transport
        if transport is None:
            return True
        if not self._congested:
            return False
        waiting = transport.get_write_buffer_size()
        if waiting > FLOOR_BYTES and self._account.over(Kind.OUTBOUND):
            return True
        return waiting > self._outbound_max_bytes

    def spill(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._put(self._transport, data)

    def sever(self) -> None:
        """Break the connection: the client cannot be served as it was promised, and knows that best in this way."""
        if self._transport is not None:
            self._transport.abort()

    def queue(self, *frames: bytes) -> None:
        """Send frames with this tick's others; they are owed to the client, and never dropped."""
        self._owed = self._exchange.outbox.flushes
        data = b"".join(map(self.aliased, frames) if self._aliases else frames)
        self._exchange.queue(self.group, data, len(frames))

    @property
    def takes_aliases(self) -> bool:
        return bool(self._aliases)

    def aliased(self, frame: bytes) -> bytes:
        # A congested frame may be dropped, and with it the meaning of an alias.
        return frame if self._congested else self._aliases.of(frame)
