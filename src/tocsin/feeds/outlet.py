"""One feed's way into the log of feeds: each record once, whatever is killed in between (``model.feeding`` says how).

A failed append that may succeed later is repeated with the same ids for as long as it takes. After a try without an
answer the log is looked at first, which may have taken it and forgotten the ids since. If it takes long, the intent is
written again first, so that an outlet whose feed was taken over by another process finds out (``Conflict``) before it
appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from tocsin.errors import Malformed, OutcomeUnknown, TocsinError, Trimmed
from tocsin.model.catalogue import Feed
from tocsin.model.channel_names import ChannelNames
from tocsin.model.feeding import RECORDS, FeedCell, Intent, Marks, cell_key, decode_cell, encode_cell
from tocsin.ports import BATCH_MAX, Log, Record, Table
from tocsin.runtime.faults.kill_points import AFTER_APPEND, AFTER_INTENT, BEFORE_APPEND, reach
from tocsin.runtime.machines.appended import appended

BATCH_MAX_BYTES: Final = 4 << 20  # of payloads in one append: half of what a store takes at once
RENEW_S: Final = 60.0  # half of the time for which the log remembers ids
RETRY_FIRST_S: Final = 0.05
RETRY_LONGEST_S: Final = 2.0


class FeedWriter:
    """The records of one feed, on their way. ``open`` it first."""

    def __init__(self, feed: Feed, log: Log, table: Table, places: ChannelNames) -> None:
        self.feed = feed
        self.marks: Marks = {}  # how far the feed is
        self.prefix = f"{feed.name.lower()}.{feed.version}"  # of the ids of its records
        self._log = log
        self._table = table
        self._subject = places.feed_subject(feed.name)
        self._key = cell_key(feed.name)
        self._revision = 0
        self._written: FeedCell | None = None  # the cell as it is stored
        self._unsure = False  # whether an append was begun, and nobody knows how it ended
        self._logger = structlog.get_logger()

    async def open(self, beginning: Callable[[], Awaitable[Marks]]) -> Marks:
        """Find out how far the feed is; a new one is as far as ``beginning`` says."""
        cell = await self._table.get(self._key)
        self._revision = 0 if cell is None else cell.revision
        known: FeedCell | None = None
        if cell is not None:
            try:
                known = decode_cell(cell.value)
            except Malformed as error:  # damaged; a cell of a newer release is left alone (``FormatNewer``)
                self._logger.error(
                    "the feed starts from the beginning", feed=self.feed.name, problem=str(error)
                )
        if known is None or known.version != self.feed.version:
            await self._write(FeedCell(self.feed.version, await beginning()))
        else:
            marks = known.marks
            if known.intent is not None and await self._happened(known.intent):
                marks = known.intent.marks
            # Also if nothing changes: another process with this feed must find out that it is ours now.
            await self._write(FeedCell(self.feed.version, marks))
        assert self._written is not None
        self.marks = dict(self._written.marks)
        return dict(self.marks)

    async def _happened(self, intent: Intent) -> bool:
        start = intent.after + 1
        while True:
            try:
                page = await self._log.read(self._subject, start, fresh=True)  # a "no" has it appended again
            except Trimmed as error:
                self._logger.error(
                    "records may come twice: the log was trimmed behind an append that was cut short",
                    feed=self.feed.name,
                    problem=str(error),
                )
                start = error.oldest
                continue
            if any(entry.id == intent.id for entry in page.entries):
                return True
            if page.next > page.last:
                return False
            start = page.next

    async def put(self, records: Sequence[tuple[str, bytes]], marks: Mapping[str, int]) -> None:
        """Append records (id behind the feed's prefix, payload), all or none; ``marks``: how far the feed is then."""
        assert len(records) <= BATCH_MAX
        if not records:
            self.marks = dict(marks)
            return
        batch = [
            Record(self._subject, RECORDS.seal(payload), f"{self.prefix}.{each}") for each, payload in records
        ]
        intent = Intent(dict(marks), batch[-1].id, await self._log.last())
        await self._write(FeedCell(self.feed.version, self.marks, intent))
        reach(AFTER_INTENT)
        self._unsure = True
        await self._append(batch, intent.after)
        self._unsure = False
        self.marks = dict(marks)

    async def _append(self, batch: Sequence[Record], after: int) -> None:
        loop = asyncio.get_running_loop()
        intended, pause_s, doubted = loop.time(), RETRY_FIRST_S, False
        while True:
            if loop.time() - intended > RENEW_S:
                assert self._written is not None
                await self._write(self._written)
                intended = loop.time()
            try:
                if doubted and (await appended(self._log, batch, after))[0]:
                    return
                reach(BEFORE_APPEND)
                await self._log.append(batch)
                reach(AFTER_APPEND)
                return
            except TocsinError as error:
                if not error.retryable:
                    raise
                doubted = doubted or isinstance(error, OutcomeUnknown)
                self._logger.warning("records wait for the store", feed=self.feed.name, problem=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_LONGEST_S, 2 * pause_s)

    async def settle(self) -> None:
        """Write down how far the feed is, if that is known and the cell does not say so."""
        now = FeedCell(self.feed.version, self.marks)
        if now != self._written and self._written is not None and not self._unsure:
            await self._write(now)

    async def _write(self, cell: FeedCell) -> None:
        self._revision = await self._table.compare_and_set(
            self._key, encode_cell(cell), revision=self._revision
        )
        self._written = cell
