"""When to read from a client, and when to let it wait: back-pressure, by not reading.

A client is not read while it publishes faster than it may, while it has as many messages under way to the log as one
client may have, while the whole broker is behind with its log and the client is one of those who write to it, and while
as many of its messages wait for others to know of their streams as may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from mqtt5 import Packet, PublishPacket

from tocsin.core.rates import Bucket
from tocsin.errors import WireError
from tocsin.runtime.pump import now_us
from tocsin.wire.codec import PublishRun

UNDER_WAY: Final = 1
HELD_BACK: Final = 2
TOO_FAST: Final = 4
NOT_CLEAR: Final = 8


class Pace:
    """One connection's. A reason is set or not; the connection is read while none is."""

    __slots__ = ("_bucket", "_paused", "_reasons", "_transport", "limited")

    def __init__(self, bucket: Bucket | None) -> None:
        self._bucket = bucket  # None: it may publish as fast as it likes
        self.limited = bucket is not None
        self._reasons = 0
        self._paused = False
        self._transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        self._transport = None

    def published(self, items: Iterable[Packet | PublishRun | WireError]) -> None:
        """The client published these just now, among other things."""
        messages = sum(map(_messages, items))
        if self._bucket is None or not messages:
            return
        wait_us = self._bucket.take(now_us(), messages)
        if wait_us:
            self.wait(TOO_FAST, True)
            asyncio.get_running_loop().call_later(wait_us / 1e6, self.wait, TOO_FAST, False)

    def wait(self, reason: int, waits: bool) -> None:
        """A reason to wait is there, or is gone."""
        self._reasons = self._reasons | reason if waits else self._reasons & ~reason
        paused = self._reasons != 0
        if self._transport is None or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _messages(item: Packet | PublishRun | WireError) -> int:
    return item.count if isinstance(item, PublishRun) else isinstance(item, PublishPacket)
