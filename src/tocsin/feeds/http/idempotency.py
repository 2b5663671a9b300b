"""Appends requests with an ``Idempotency-Key`` to the log of feeds once; ``feeds.http.keys`` says how that is known.

Pages are cells ``requests.N`` of the feeder's table. The position behind which the log is needed is the intent of one
more cell of a feed, so that the pipeline trims no further (``model.feeding``). No feed can have its name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tocsin.errors import FormatNewer, Malformed, OutcomeUnknown, TocsinError, Trimmed
from tocsin.feeds.http.keys import PAGE, Keys, RequestPage
from tocsin.model.feeding import REQUESTS_CELL, FeedCell, Intent, decode_cell, encode_cell
from tocsin.ports import Log, Record, Table
from tocsin.runtime.machines.appended import EVERYTHING, appended
from tocsin.runtime.machines.clock import wall_us

SAVE_S: Final = 20.0  # as often as the pipeline trims
DOUBT_US: Final = 300_000_000  # an append without an answer is not on its way for longer
PAGES_PREFIX: Final = "requests."
_RECORD: Final = re.compile(r"([a-z][a-z0-9_]*\.[0-9]+\.http\.[0-9a-f]+)\.[0-9]+", re.ASCII)


class IdempotentAppends:
    """The requests of all feeds from HTTP. ``open`` it first, and ``keep`` it."""

    def __init__(self, log: Log, table: Table, clock: Callable[[], int] = wall_us) -> None:
        self._log = log
        self._table = table
        self._clock = clock
        self._keys = Keys()
        self._floor: int | None = None  # what the cell says; None: there is none
        self._writing = asyncio.Lock()  # of cells
        self._newer: FormatNewer | None = None  # why it is not known which requests were taken
        self._logger = structlog.get_logger()

    async def open(self) -> None:
        """Find out which requests were taken."""
        pages: dict[int, RequestPage] = {}  # by cell
        try:
            async for change in self._table.watch(PAGES_PREFIX):
                if change.kind == "ready":
                    break
                if change.kind == "reset":
                    pages.clear()
                elif change.kind == "put":
                    pages |= self._page(change.key, change.value)
            cell = await self._table.get(REQUESTS_CELL, fresh=True)
            known = None if cell is None else decode_cell(cell.value)
        except FormatNewer as error:
            self._newer = error
            self._logger.error("requests with a key are not taken", problem=str(error))
            return
        except Malformed as error:
            known = None
            self._logger.error("requests may be taken twice", problem=str(error))
        self._keys.load(pages)
        if known is not None and known.intent is not None:
            self._floor = known.intent.after
            await self._look(known.intent.after)

    def _page(self, key: str, value: bytes) -> dict[int, RequestPage]:
        try:
            return {int(key.removeprefix(PAGES_PREFIX)): PAGE.read(value)}
        except (Malformed, ValueError) as error:
            self._logger.error("requests may be taken twice: a page is damaged", key=key, problem=str(error))
            return {}

    async def _look(self, behind: int) -> None:
        """Every request whose records are behind a position was taken."""
        start = behind + 1
        while True:
            try:
                page = await self._log.read(EVERYTHING, start, fresh=True)
            except Trimmed as error:
                self._logger.error("requests may be taken twice: the log was trimmed", problem=str(error))
                start = error.oldest
                continue
            for entry in page.entries:
                if (found := _RECORD.fullmatch(entry.id)) is not None:
                    self._keys.took(found[1])
            if page.next > page.last:
                return
            start = page.next

    async def append_once(self, request: str, batch: Sequence[Record]) -> None:
        """Append a request that may have come before."""
        if self._newer is not None:
            raise self._newer
        if self._keys.taken(request):
            return
        behind = self._keys.behind(request)
        fresh = behind is None
        if behind is None:
            behind = await self._log.last()
        elif (await appended(self._log, batch, behind))[0]:
            self._keys.took(request)
            return
        self._keys.tries(request, behind, self._clock())
        try:
            await self._hold(behind)
            await self._log.append(batch)
        except OutcomeUnknown:
            raise
        except TocsinError:
            if fresh:
                self._keys.refused(request)
            raise
        self._keys.took(request)

    async def _hold(self, behind: int) -> None:
        """See to it that the log is not trimmed behind a position before its requests are in a page."""
        async with self._writing:
            if self._floor is None or behind < self._floor:
                await self._say(behind)

    async def _say(self, floor: int) -> None:
        await self._table.put(REQUESTS_CELL, encode_cell(FeedCell(0, {}, Intent({}, "", floor))))
        self._floor = floor

    async def keep(self) -> None:
        """Write down which requests were taken, until cancelled."""
        while True:
            await asyncio.sleep(SAVE_S)
            try:
                await self.save()
            except TocsinError as error:  # the log has them still
                self._logger.warning("requests with a key are not written down yet", problem=str(error))

    async def save(self) -> None:
        """Write down which requests were taken, and let the log be trimmed up to there."""
        if self._floor is None:
            return
        horizon_us = self._clock() - DOUBT_US
        if self._keys.doubts(horizon_us):
            await self._look(self._keys.settle(await self._log.last())[1])
            self._keys.give_up(horizon_us)
        last = await self._log.last()
        async with self._writing:
            if self._keys.idle:
                await self._table.delete(REQUESTS_CELL)
                self._floor = None
                return
            pages, floor = self._keys.settle(last)
            for cell, page in pages.items():
                await self._table.put(f"{PAGES_PREFIX}{cell}", PAGE.write(page))
                self._keys.wrote(page)
            if floor != self._floor:
                await self._say(floor)
