"""When to read from a client, and when to let it wait: back-pressure, by not reading.

A client is not read while it publishes faster than it may, while it has as many messages under way to the log as one
client may have, while the whole broker is behind with its log and the client writes to it, while as many of its
messages wait for others to know of their streams as may, while a budget of bytes has no room, and while it does not
read our answers. For all of these what was read already waits, too. A client that only waits for its turn
(``broker.connection.turns``) is not read either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from mqtt5 import Packet, PublishPacket

from tocsin.core.rates import Bucket
from tocsin.errors import WireError
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.mqtt.codec import PublishRun

UNDER_WAY: Final = 1
HELD_BACK: Final = 2
TOO_FAST: Final = 4
NOT_CLEAR: Final = 8
NO_ROOM: Final = 16
UNREAD: Final = 32
TURN: Final = 64


class Pace:
    """One connection's. A reason is set or not; the connection is read while none is."""

    __slots__ = ("_bucket", "_freed", "_paused", "_transport", "limited", "reasons")

    def __init__(self, bucket: Bucket | None, freed: Callable[[], None] | None = None) -> None:
        self._freed = freed  # called when nothing is in the way any more but its turn
        self._bucket = bucket  # None: it may publish as fast as it likes
        self.limited = bucket is not None
        self.reasons = 0  # of which any keeps us from reading
        self._paused = False
        self._transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        self._transport = self._freed = None

    def published(self, items: Iterable[Packet | PublishRun | WireError]) -> None:
        """The client published these just now, among other things."""
        messages = sum(map(_messages, items))
        if self._bucket is None or not messages:
            return
        wait_us = self._bucket.take(now_us(), messages)
        if wait_us:
            self.wait(TOO_FAST, True)
            asyncio.get_running_loop().call_later(wait_us / 1e6, self.wait, TOO_FAST, False)

    @property
    def blocked(self) -> bool:
        """Whether anything but its turn is in the way."""
        return self.reasons & ~TURN != 0

    def waits(self, reason: int) -> bool:
        """Whether this reason is there."""
        return self.reasons & reason != 0

    def wait(self, reason: int, waits: bool) -> None:
        """A reason to wait is there, or is gone."""
        before = self.reasons
        self.reasons = before | reason if waits else before & ~reason
        if self.reasons == TURN != before and self._freed is not None:
            self._freed()
        paused = self.reasons != 0
        if self._transport is None or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _messages(item: Packet | PublishRun | WireError) -> int:
    return item.count if isinstance(item, PublishRun) else isinstance(item, PublishPacket)
