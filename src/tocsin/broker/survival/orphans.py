"""The shell of ``core.survival.orphans``: looks for sessions whose time has come, and releases them in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tocsin.core.delivery.stored_session import (
    StoredSession,
    decode_session,
    encode_session,
    kept_s,
    session_key,
)
from tocsin.core.survival.orphans import Orphan, OrphanedSessions
from tocsin.errors import Conflict, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Cell, Table
from tocsin.runtime.machines.clock import now_us

EVERY_S: Final = 15.0  # it is looked whether the time of some has come
Over = Callable[[StoredSession], None]


class Orphans:
    """The sessions that one broker has to release. ``here``: whether a client's connection is, or ends, here;
    ``borrowed``: this process has another broker's name, and that broker may be alive."""

    def __init__(
        self, table: Table, broker: str, *, here: Callable[[str], bool], borrowed: bool = False
    ) -> None:
        self.released = 0
        self._here = here
        self._table = table
        self._sessions = OrphanedSessions(broker, borrowed=borrowed)
        self._log = structlog.get_logger()

    def count(self, counts: bool) -> None:
        """Whether a leader counts on this process."""
        self._sessions.count(counts, now_us())

    def saw(self, session: StoredSession) -> None:
        """A scan has found this session."""
        if not self._here(session.client):
            self._sessions.saw(session, now_us())

    def left(self, client: str, uid: str, epoch: int, expiry_s: int) -> None:
        """A connection is over, and its session still names this broker."""
        self._sessions.left(client, uid, epoch, expiry_s, now_us())

    def taken(self, client: str) -> None:
        """A connection here has taken the client's session."""
        self._sessions.taken(client)

    async def run(self, over: Over, every_s: float = EVERY_S) -> None:
        """For as long as the broker lives; ``over`` is told of a session that is forgotten."""
        while True:
            await asyncio.sleep(every_s)
            await self.look(over)

    async def look(self, over: Over) -> None:
        """Release those whose time has come, for as long as the store answers."""
        for client, orphan in self._sessions.due(now_us()):
            if not self._sessions.is_due(orphan, now_us()):
                continue  # the store took its time, and no leader counts on this process any more
            if self._here(client):
                continue  # it will take the session, or go again
            try:
                await self._release(client, orphan, over)
            except Conflict:
                pass  # somebody has just taken it
            except TocsinError as error:
                self._log.info("a session is not released yet", subscriber=client, problem=str(error))
                return
            self._sessions.settled(client, orphan)

    async def _release(self, client: str, orphan: Orphan, over: Over) -> None:
        # Fresh: by an old cell the session would count as nobody's business here, and never be released.
        cell = await self._table.get(session_key(client), fresh=True)
        session = None if cell is None else _read(cell)
        free = None if session is None else self._sessions.released(session, orphan)
        if cell is None or free is None:
            return
        self.released += 1
        if free.expiry_s == 0:
            await self._table.delete(cell.key, revision=cell.revision)
            over(free)
            return
        await self._table.compare_and_set(
            cell.key, encode_session(free), revision=cell.revision, ttl_s=kept_s(free)
        )


def _read(cell: Cell) -> StoredSession | None:
    try:
        return decode_session(cell.value)
    except UNREADABLE:
        return None  # the broker that takes it announces that
