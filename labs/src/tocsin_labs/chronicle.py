"""The coordinators' log about brokers, and when this process heard each entry."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from tocsin.core.coordination.names import StoreNames
from tocsin.ports import Store
from tocsin.wire.internal.commands import Joined, Lost, Planned, Promoted, Said, decode_batch

LOOK_S: Final = 0.05  # between two looks at a condition that the log does not speak of
Kind = Literal["joined", "lost", "planned", "promoted"]


class Entry(msgspec.Struct, frozen=True):
    """Something that happened to a broker."""

    at_s: float  # monotonic
    kind: Kind
    broker: str  # empty for a plan, which is everybody's
    port: int = 0  # at which one that joined listens: a standby has its own


class Chronicle:
    """Records the log's entries about brokers, with the time at which they were heard."""

    def __init__(self, store: Store, network: str) -> None:
        self.entries: list[Entry] = []
        self.backups: dict[
            str, tuple[str | None, str | None]
        ] = {}  # broker → local and remote, as planned last
        self._store = store
        self._places = StoreNames(network)
        self._news = asyncio.Event()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """While this lasts, the log is read."""
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        log = await self._store.log(self._places.commands)
        async for entry in log.follow(self._places.commands_subject, 1):
            heard_s = time.monotonic()
            for command in decode_batch(entry.payload).commands:
                match command:
                    case Said(commands=(Joined(info=info), *_)):
                        self._note(Entry(heard_s, "joined", info.id, info.port))
                    case Lost(broker=broker):
                        self._note(Entry(heard_s, "lost", broker))
                    case Promoted(broker=broker):
                        self._note(Entry(heard_s, "promoted", broker))
                    case Planned(backups=backups):
                        self.backups = {broker: (local, remote) for broker, local, remote in backups}
                        self._note(Entry(heard_s, "planned", ""))

    def _note(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._news.set()

    def first(self, kind: Kind, broker: str, since_s: float, port: int | None = None) -> float | None:
        """When that happened first, since then; None if it has not."""
        for entry in self.entries:
            same = entry.kind == kind and entry.broker == broker and port in (None, entry.port)
            if same and entry.at_s >= since_s:
                return entry.at_s
        return None

    def last(self, kind: Kind, broker: str) -> Entry | None:
        """The newest of that kind."""
        found = (entry for entry in reversed(self.entries) if entry.kind == kind and entry.broker == broker)
        return next(found, None)

    async def until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Wait until something is so; whether it was within the deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                while not condition():
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await self._news.wait()
        return condition()
