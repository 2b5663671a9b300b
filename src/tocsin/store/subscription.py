"""The queue of a bus subscription's reader: bounded in messages and bytes; lost messages are counted."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.ports import BusMessage

PENDING_MAX: Final = 65_536  # messages that wait for a slow reader; later ones are dropped
PENDING_MAX_BYTES: Final = 64 << 20  # and their payloads: the server's own bound for one connection


class Subscription:
    """Deliveries in order. Iterating takes them out, and ends when the store is closed."""

    def __init__(self, pending_max: int = PENDING_MAX, pending_max_bytes: int = PENDING_MAX_BYTES) -> None:
        self.dropped = 0  # messages that found it full
        self._queue: asyncio.Queue[BusMessage | None] = asyncio.Queue()
        self._bytes = 0  # of the payloads that wait
        self._pending_max = pending_max
        self._pending_max_bytes = pending_max_bytes

    def put(self, delivery: BusMessage) -> bool:
        """Let it wait for the reader; False if there is no room and it is lost."""
        size = len(delivery.payload)
        if self._queue.qsize() >= self._pending_max or self._bytes + size > self._pending_max_bytes:
            self.dropped += 1
            return False
        self._bytes += size
        self._queue.put_nowait(delivery)
        return True

    def end(self) -> None:
        self._queue.put_nowait(None)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> BusMessage:
        delivery = await self._queue.get()
        if delivery is None:
            raise StopAsyncIteration
        self._bytes -= len(delivery.payload)
        return delivery
