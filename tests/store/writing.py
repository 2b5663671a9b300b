"""Writers for the fault tests: what they attempt, what they are told, and whether that is what the log holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tocsin.errors import TocsinError
from tocsin.ports import Entry, Log, LogSpec, Record
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

FACTS = LogSpec("facts", ("facts.>",))


def records(subject: str, *ids: str) -> list[Record]:
    return [Record(subject, f"payload of {each}".encode(), each) for each in ids]


@asynccontextmanager
async def connected(servers: LocalServers, deadline_s: float = 30.0) -> AsyncIterator[JetStreamStore]:
    replicas = len(servers.plans)
    store = await JetStreamStore.connect(
        servers.urls, token=servers.token, replicas=replicas, deadline_s=deadline_s
    )
    try:
        yield store
    finally:
        await store.close()


async def everything(log: Log, subject: str = "facts.>") -> list[Entry]:
    entries: list[Entry] = []
    start = 0
    while True:
        page = await log.read(subject, start)
        entries += page.entries
        start = page.next
        if start > page.last:
            return entries


class Writers:
    """Appends from several tasks at once, and what each was told."""

    def __init__(self, log: Log, count: int) -> None:
        self._log = log
        self._count = count
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = False
        self._grown = asyncio.Event()
        self.attempted: set[str] = set()
        self.acknowledged: dict[str, int] = {}
        self.errors: list[TocsinError] = []

    async def __aenter__(self) -> Writers:
        self._tasks = [asyncio.create_task(self._write(i)) for i in range(self._count)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stop = True
        for task in self._tasks:
            await task

    async def _write(self, writer: int) -> None:
        turn = 0
        while not self._stop:
            turn += 1
            size = (1, 7, 60)[turn % 3]
            batch = [Record(f"facts.{writer}", b"x" * 100, f"{writer}-{turn}-{i}") for i in range(size)]
            self.attempted.update(record.id for record in batch)
            while True:
                try:
                    positions = await self._log.append(batch)
                    break
                except TocsinError as error:
                    assert error.retryable, error
                    self.errors.append(error)
            self.acknowledged.update((record.id, at) for record, at in zip(batch, positions, strict=True))
            self._grown.set()

    async def progress(self, records: int) -> None:
        """Until so many more records were acknowledged."""
        goal = len(self.acknowledged) + records
        async with asyncio.timeout(60):
            while len(self.acknowledged) < goal:
                self._grown.clear()
                await self._grown.wait()

    async def check(self) -> None:
        """Every acknowledged record is there once, where it was said to be; nothing else is there; order is kept."""
        entries = await everything(self._log)
        kept = {entry.id: entry.position for entry in entries}
        assert len(kept) == len(entries), "a record is there twice"
        assert set(kept) <= self.attempted
        for record_id, position in self.acknowledged.items():
            assert kept.get(record_id) == position, f"{record_id} was acknowledged at {position}"
        for writer in range(self._count):
            mine = [entry.id.split("-")[1:] for entry in entries if entry.subject == f"facts.{writer}"]
            order = [(int(turn), int(i)) for turn, i in mine]
            assert order == sorted(order)
