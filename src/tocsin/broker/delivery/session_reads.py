"""Reads of session cells, gathered: all that are asked for in one turn of the loop are one request to the store.

When a broker is lost its clients come to its backup within a second, and each needs its session. Read one by one, the
reads are most of what such a client costs.
"""

from __future__ import annotations

import asyncio

from tocsin.errors import TocsinError
from tocsin.ports import KEYS_MAX, Cell, Table
from tocsin.runtime.machines.tasks import Ending, Tasks


class SessionReads:
    """Plain reads of one table: they may show old news (``ports.Table.get_many``)."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._waiting: dict[str, list[asyncio.Future[Cell | None]]] = {}  # by key, since the last turn
        self._tasks = Tasks("reads of sessions", Ending().fail)  # a failure goes to those that wait

    async def get(self, key: str) -> Cell | None:
        """The value of a key, read together with others."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._read)
        found: asyncio.Future[Cell | None] = loop.create_future()
        self._waiting.setdefault(key, []).append(found)
        return await found

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, {}
        keys = list(waiting)
        for first in range(0, len(keys), KEYS_MAX):
            some = {key: waiting[key] for key in keys[first : first + KEYS_MAX]}
            self._tasks.spawn(self._read_some(some))

    async def _read_some(self, waiting: dict[str, list[asyncio.Future[Cell | None]]]) -> None:
        try:
            if len(waiting) == 1:
                (key,) = waiting
                cell = await self._table.get(key)
                found = {} if cell is None else {key: cell}
            else:
                found = await self._table.get_many(tuple(waiting))
        except TocsinError as error:
            for futures in waiting.values():
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
            return
        for key, futures in waiting.items():
            for future in futures:
                if not future.done():
                    future.set_result(found.get(key))
