"""Retained messages on their way to one client that has just subscribed, as fast as it takes them.

They are many small ones more often than not, so that they are joined before they are queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from tocsin.broker.frames import frame_of
from tocsin.broker.links import NO_MAXIMUM
from tocsin.broker.retained import Kept
from tocsin.core.attendance import Attendance
from tocsin.core.delivery import WAIT
from tocsin.core.grant import Grant
from tocsin.wire.codec import Version

CHUNK_BYTES: Final = 64 << 10  # joined at once; a client that takes no more is noticed after a few of them


class Reader(Protocol):
    """The connection, as it is seen from here."""

    @property
    def version(self) -> Version: ...

    @property
    def send_max_bytes(self) -> int: ...

    def queue(self, *frames: bytes) -> None: ...


class Replay:
    """What waits, in order."""

    __slots__ = ("_machine", "_reader", "_waiting")

    def __init__(self, reader: Reader, machine: Attendance) -> None:
        self._reader = reader
        self._machine = machine
        self._waiting: deque[tuple[Kept, Grant]] = deque()

    def add(self, kept: Iterable[tuple[Kept, Grant]]) -> None:
        self._waiting.extend(kept)
        self.more()

    def more(self) -> None:
        """Send what the client takes now: at QoS 0 all, above as the window has room."""
        reader, machine, waiting = self._reader, self._machine, self._waiting
        version = reader.version
        chunk: list[bytes] = []
        size = 0
        while waiting and not machine.congested:
            kept, granted = waiting[0]
            if reader.send_max_bytes < NO_MAXIMUM and self._too_large(kept, granted):
                waiting.popleft()
                continue
            packet_id = machine.extra(granted.qos) if granted.qos else 0
            if packet_id == WAIT:
                break
            waiting.popleft()
            frame = frame_of(kept.publication, version, granted, packet_id, waited_s=kept.waited_s)
            chunk.append(frame)
            size += len(frame)
            if size > CHUNK_BYTES:
                reader.queue(*chunk)
                chunk, size = [], 0
        if chunk:
            reader.queue(*chunk)

    def _too_large(self, kept: Kept, granted: Grant) -> bool:
        """Whether the client takes no packet of that size: it is then as good as delivered (MQTT 5, 3.1.2.11.4)."""
        packet_id = 1 if granted.qos else 0
        frame = frame_of(kept.publication, self._reader.version, granted, packet_id, waited_s=kept.waited_s)
        return len(frame) > self._reader.send_max_bytes
