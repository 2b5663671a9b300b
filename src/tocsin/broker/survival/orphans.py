"""Sessions that name this broker and that it does not serve: their expiry has not begun, and the broker starts it.

A session that is served does not expire (``core.delivery.stored_session``). The broker that serves it ends that when
the connection closes. It cannot if it dies, or if the store does not answer at that moment:

- **An earlier run of this broker died.** The hourly scan of sessions, which each run begins with, finds the cell
  (``saw``). After GRACE_S, in which clients come back, it is released unless somebody has written it.
- **The store was away.** What should have been written is known (``left``), and is written once the store answers.

A broker that never comes back releases nothing: its clients' sessions are kept for ``SERVED_S`` longer. Nobody else may
do it for that broker, for a broker that is cut off may have its clients still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from tocsin.core.delivery.stored_session import (
    StoredSession,
    decode_session,
    encode_session,
    kept_s,
    session_key,
)
from tocsin.errors import Conflict, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Cell, Table

GRACE_S: Final = (
    60.0  # for clients to come back, and for a standby that had this broker's name to give it back
)
Over = Callable[[StoredSession], None]

KNOWN_MAX: Final = 10_000  # sessions that wait here, some 200 bytes each; the next scan finds the others


class _Orphan(NamedTuple):
    uid: str
    epoch: int
    expiry_s: int | None  # as the client wants it; None: as the cell says
    at_s: float  # not before


class Orphans:
    """The sessions that one broker has to release. ``here``: whether a client's connection is, or ends, here;
    ``borrowed``: this process has another broker's name, and that broker may be alive."""

    def __init__(
        self, table: Table, broker: str, *, here: Callable[[str], bool], borrowed: bool = False
    ) -> None:
        self.released = 0
        self._here = here
        self._borrowed = borrowed
        self._table = table
        self._broker = broker
        self._known: dict[str, _Orphan] = {}
        self._log = structlog.get_logger()

    def saw(self, cell: Cell, session: StoredSession) -> None:
        """A scan has found this session."""
        if session.broker == self._broker and not self._borrowed and not self._here(session.client):
            known = self._known.get(session.client)
            if known is None or known.epoch < session.epoch:
                self._note(session.client, _Orphan(session.uid, session.epoch, None, _now_s() + GRACE_S))

    def left(self, client: str, uid: str, epoch: int, expiry_s: int) -> None:
        """A connection is over, and the store did not answer."""
        self._note(client, _Orphan(uid, epoch, expiry_s, _now_s()))

    def _note(self, client: str, orphan: _Orphan) -> None:
        if client in self._known or len(self._known) < KNOWN_MAX:
            self._known[client] = orphan

    async def run(self, over: Over, every_s: float = GRACE_S / 4) -> None:
        """For as long as the broker lives; ``over`` is told of a session that is forgotten."""
        while True:
            await asyncio.sleep(every_s)
            await self.look(over)

    async def look(self, over: Over) -> None:
        """Release those whose time has come, for as long as the store answers."""
        now_s = _now_s()
        for client, orphan in list(self._known.items()):
            if orphan.at_s > now_s:
                continue
            try:
                if not self._here(client):
                    await self._release(client, orphan, over)
            except Conflict:
                pass  # somebody has just taken it
            except TocsinError as error:
                self._log.info("a session is not released yet", subscriber=client, problem=str(error))
                return
            if self._known.get(client) is orphan:
                del self._known[client]

    async def _release(self, client: str, orphan: _Orphan, over: Over) -> None:
        cell = await self._table.get(session_key(client))
        try:
            session = None if cell is None else decode_session(cell.value)
        except UNREADABLE:
            return  # the broker that takes it announces that
        if cell is None or session is None or (session.uid, session.epoch) != (orphan.uid, orphan.epoch):
            return
        if session.broker != self._broker:
            return
        self.released += 1
        if orphan.expiry_s == 0:
            await self._table.delete(cell.key, revision=cell.revision)
            over(session)
            return
        expiry_s = session.expiry_s if orphan.expiry_s is None else orphan.expiry_s
        free = msgspec.structs.replace(session, broker="", expiry_s=expiry_s)
        value, ttl_s = encode_session(free), kept_s(free)
        await self._table.compare_and_set(cell.key, value, revision=cell.revision, ttl_s=ttl_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
