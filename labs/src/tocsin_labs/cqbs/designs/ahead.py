"""Consensus off the hot path: a log that tells its followers at once, and is written behind."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from tocsin.ports import BATCH_MAX, READ_MAX, READ_MAX_BYTES, Bus, Entry, Log, Page, Record, Selection

PREFIX = "ahead"  # of the subjects on which entries are told


class AheadLog:
    """``ports.Log`` for a leader and its followers in one process.

    An append is taken by ``newest``, a log in memory that says what its position is; then its followers are told over
    the bus, and the append returns. ``behind`` is the log on disk: ``write`` brings it the records in order.
    """

    def __init__(self, newest: Log, behind: Log, bus: Bus) -> None:
        self._newest = newest
        self._behind = behind
        self._bus = bus
        self._waiting: deque[tuple[float, Record]] = deque()  # with when it was told
        self._filled = asyncio.Event()
        self.behind_ms: list[float] = []  # of each record, from when it was told until it was on disk

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        positions = await self._newest.append(records, expected=expected)
        for position, record in zip(positions, records, strict=True):
            entry = Entry(position, record.subject, record.payload, record.id, time.time_ns() // 1_000)
            await self._bus.publish(f"{PREFIX}.{record.subject}", msgspec.msgpack.encode(entry))
            self._waiting.append((time.perf_counter(), record))
        self._filled.set()
        return positions

    async def write(self) -> None:
        """Write behind, as much at once as there is."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                lot = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
                await self._behind.append([record for _, record in lot])
                now = time.perf_counter()
                self.behind_ms += [(now - told) * 1_000 for told, _ in lot]

    def select(self, patterns: Sequence[str], start: int) -> Selection:
        return self._newest.select(patterns, start)

    async def follow(self, subject: str, start: int) -> AsyncIterator[Entry]:
        async with self._bus.subscribe(f"{PREFIX}.{subject}") as told:
            page = await self.read(subject, start)
            for entry in page.entries:
                yield entry
            start = page.next
            async for message in told:
                entry = msgspec.msgpack.decode(message.payload, type=Entry)
                if entry.position >= start:  # it was not on the page as well
                    yield entry

    async def read(
        self,
        subject: str,
        start: int,
        *,
        limit: int = READ_MAX,
        max_bytes: int = READ_MAX_BYTES,
        fresh: bool = False,
    ) -> Page:
        return await self._newest.read(subject, start, limit=limit, max_bytes=max_bytes, fresh=fresh)

    async def last(self, subject: str | None = None, *, fresh: bool = False) -> int:
        return await self._newest.last(subject, fresh=fresh)

    async def trim(
        self,
        *,
        before: int | None = None,
        subject: str | None = None,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
    ) -> int:
        return await self._newest.trim(
            before=before, subject=subject, older_than_s=older_than_s, keep_bytes=keep_bytes
        )
