"""The broker's side of the message log: commits in groups, follows what everybody committed, reads for those behind.

All deliveries of QoS 1 and 2 messages come from here, at every broker, in the order of the log. Critical messages have
subjects of their own in it (``model.subjects``): all are followed as one, and read for those behind each class alone.

Messages are handed in with their streams' metadata, and written with a reference to them (``core.streams.references``);
the metadata are a record before the first message that refers to them. The metadata are resolved where they are needed:
here, while a query is without an answer (``judging``), and for query subscribers that are behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Final

import msgspec
import structlog

from tocsin.core.delivery.group_commit import CommitQueue
from tocsin.core.streams.references import Writing
from tocsin.errors import FormatNewer, Malformed, TocsinError, Trimmed
from tocsin.model.publication import Publication, decode_publication, encode_publication
from tocsin.model.subjects import (
    CRITICAL_MESSAGES,
    all_of,
    is_critical,
    kind_of,
    patterns_of,
    said_reference,
    said_subject,
    subject_of,
)
from tocsin.ports import READ_MAX, Entry, Log, Record
from tocsin.runtime.faults.kill_points import AFTER_APPEND, BEFORE_APPEND, reach
from tocsin.runtime.machines.appended import appended
from tocsin.runtime.machines.clock import now_us, token_hex, wall_us
from tocsin.runtime.machines.resolving import Resolver

EVERYTHING: Final = ">"  # of the log: messages, and the metadata that they refer to
RESOLVE_AGAIN_S: Final = 0.2
LOOK_AGAIN_S: Final = 1.0  # whether messages are left that were not dispatched
PAGE_BYTES: Final = (
    512 << 10
)  # read at once for a client that is behind, but for the last entry of each pattern
RECORD_MAX_BYTES: Final = (
    9 << 17
)  # bytes of one entry: the largest packet, its names and its stream's metadata
PATTERNS_MAX: Final = 4  # read one by one and merged; with more, one read of everything is cheaper

MARK_S: Final = 10.0  # between positions that are remembered
MARKS: Final = 60  # of them: ten minutes in which the broker ran and the log grew

Done = Callable[[TocsinError | None], None]
Dispatch = Callable[[Entry, Publication], None]
Stored = Callable[[TocsinError | None, int], None]  # why a message is not durable, or None and its position


class Batch(msgspec.Struct, frozen=True):
    """Entries from the log, in order, and everything below ``next`` that matches is among them or before."""

    entries: Sequence[Entry]
    next: int


class MessageLog:
    """Commits, follows and reads the network's message log for one broker."""

    def __init__(
        self,
        log: Log,
        network: str,
        *,
        records_max: int,
        pressure: Callable[[bool], None],
        keep_s: float | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        self.tail = 0  # the position of the entry that was dispatched last
        self.critical_tail = 0  # up to where there may be critical ones among those; 0: nowhere
        self.newest = 0  # the position of the last entry that was committed here
        self._marks: deque[int] = deque(maxlen=MARKS)  # tails of the last while, the oldest first
        self._log = log
        self._network = network
        self.resolver = Resolver(log, network)
        self._references = Writing(keep_s, keep_bytes)
        self._said_ids = (f"said.{token_hex(8)}.{number}" for number in count())
        self._pressure = pressure  # told when publishers should be held back, and when they may go on
        self._pressed = False
        self._queue: CommitQueue[Stored] = CommitQueue(records_max)
        self._filled = asyncio.Event()
        # (position, number) and what to do once the log was dispatched up to that position, the lowest first.
        self._awaited: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = count()
        self._level: list[Callable[[], None]] = []  # what to do once all was dispatched that the log has
        self._lags = asyncio.Event()  # there is something of that
        self._logger = structlog.get_logger()

    async def open(self) -> None:
        """Find where the log ends: what comes after is dispatched."""
        self.tail = await self._log.last()
        critical = await self._log.read(all_of(self._network, CRITICAL_MESSAGES), 0, limit=1, fresh=True)
        self.critical_tail = self.tail if critical.entries else 0

    async def end(self) -> int:
        """A position that everything acknowledged so far is at or before: what was dispatched here may be behind."""
        return await self._log.last(fresh=True)

    @property
    def past(self) -> int:
        """Where the log ended a good while ago: before this broker was cut off or stood still, if it was."""
        return self._marks[0] if self._marks else self.tail

    async def remember(self) -> None:
        """Remember where the log ended, for as long as the broker lives."""
        while True:
            if not self._marks or self._marks[-1] != self.tail:
                self._marks.append(self.tail)
            await asyncio.sleep(MARK_S)

    # ── committing ──────────────────────────────────────────────────────────────────────────────────────────

    def commit(
        self, publication: Publication, record_id: str, stored: Stored, behind: int | None = None
    ) -> None:
        """Make a message durable; ``stored`` is called with None and its position, or with why it is not.

        ``behind``: another broker may have put it there under this id, behind that position.
        """
        subject = subject_of(publication.topic, self._network, critical=publication.critical)
        if publication.keys is not None:
            publication = self._referring(publication)
        self._queue.add(
            Record(subject, encode_publication(publication), record_id), stored, self.tail, behind
        )
        self._filled.set()
        if self._queue.full and not self._pressed:
            self._pressed = True
            self._pressure(True)

    def _referring(self, publication: Publication) -> Publication:
        """A message with a reference to its stream's metadata; they are committed before it, if they have to be."""
        reference, data = self._references.refer(publication.topic, publication.keys)
        if not reference:
            return publication
        if self._references.is_due(reference, time_us := wall_us()):
            self._references.wrote(reference, time_us)

            def stored(error: TocsinError | None, position: int) -> None:
                if error is not None:
                    self._references.failed(reference)

            record = Record(said_subject(reference, self._network), data, next(self._said_ids))
            self._queue.add(record, stored, self.tail)
        return msgspec.structs.replace(publication, keys=None, said=reference)

    async def commit_all(self) -> None:
        """Commit what comes, for as long as the broker lives."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while records := self._queue.start(max(self.tail, self.newest), now_us()):
                await self._append(records)
                if self._pressed and self._queue.drained:
                    self._pressed = False
                    self._pressure(False)

    async def _append(self, records: Sequence[Record]) -> None:
        while True:
            try:
                if self._queue.doubted is not None:
                    records = await self._look(*self._queue.doubted)
                    if not records:
                        return
                reach(BEFORE_APPEND)
                positions = await self._log.append(records)
                reach(AFTER_APPEND)
                self.newest = max(self.newest, *positions)
            except TocsinError as error:
                delay_us, failed = self._queue.failed(error, now_us())
                self._logger.warning(
                    "messages are not durable yet", problem=str(error), messages=len(records)
                )
                for stored in failed:
                    stored(error, 0)
                if not delay_us:
                    return
                await asyncio.sleep(delay_us / 1e6)
            else:
                for stored, position in zip(self._queue.succeeded(now_us()), positions, strict=True):
                    stored(None, position)
                return

    async def _look(self, records: Sequence[Record], behind: int) -> Sequence[Record]:
        """Acknowledge what the log has of these; what is still to be appended."""
        positions, end = await appended(self._log, records, behind)
        if positions:
            self._logger.info("messages were durable already", messages=len(positions))
        for stored, position in self._queue.found(positions, end, now_us()):
            self.newest = max(self.newest, position)
            stored(None, position)
        return self._queue.again()

    # ── following ───────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, dispatch: Dispatch, judging: Callable[[], bool] = lambda: False) -> None:
        """Dispatch every entry after the tail, for as long as the broker lives. ``judging``: whether dispatched entries
        are judged by their stream's metadata.
        """
        while True:
            try:
                async for entry in self._log.follow(EVERYTHING, self.tail + 1):
                    publication = None if self._is_said(entry) else self.publication(entry)
                    if publication is not None and publication.said and judging():
                        publication = await self._resolved(publication, entry.position)
                    self.tail = entry.position
                    if is_critical(entry.subject):
                        self.critical_tail = entry.position
                    if publication is not None:
                        dispatch(entry, publication)
                    if self._awaited:
                        self._tell_dispatched()
            except Trimmed as error:  # we were away for longer than the log keeps
                self._logger.error("messages were trimmed before they were delivered", problem=str(error))
                self.tail = self.critical_tail = error.oldest - 1
                self._tell_dispatched()

    def _is_said(self, entry: Entry) -> bool:
        """Whether an entry is no message, but metadata of streams."""
        self._references.taken += len(entry.payload) + len(entry.subject)
        reference = said_reference(entry.subject)
        if reference is None:
            return False
        self.resolver.learn(reference, entry.payload)
        self._references.wrote(reference, wall_us())
        return True

    async def _resolved(self, publication: Publication, position: int) -> Publication:
        while True:
            try:
                return await self.resolver.resolve(publication, position)
            except FormatNewer:
                raise
            except TocsinError as error:
                self._logger.warning("metadata cannot be resolved yet", problem=str(error))
                await asyncio.sleep(RESOLVE_AGAIN_S)

    def when_dispatched(self, position: int, act: Callable[[], None]) -> None:
        """Do something once every entry up to a position was dispatched; at once, if all were."""
        heappush(self._awaited, (position, next(self._asked), act))
        self._tell_dispatched()

    def when_all_dispatched(self, act: Callable[[], None]) -> None:
        """Do something once every message was dispatched that the log has now (``find_ends``)."""
        self._level.append(act)
        self._lags.set()

    async def find_ends(self) -> None:
        """Do what waits for all that the log has to be dispatched, for as long as the broker lives."""
        while True:
            await self._lags.wait()
            self._lags.clear()
            acts, self._level = self._level, []
            await self._dispatch_all()
            for act in acts:
                act()

    async def _dispatch_all(self) -> None:
        """Wait for the end that the log has now. Behind the newest message there may be marks, which nobody
        dispatches: so it is looked, now and again, whether any message is left up to there."""
        end = 0
        while True:
            try:
                end = end or await self.end()
                if self.tail >= end or not await self._is_any_unread(end):
                    return
            except TocsinError as error:
                self._logger.info("whether all of the log was read is not known yet", problem=str(error))
            reached = asyncio.Event()
            self.when_dispatched(end or self.tail + 1, reached.set)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await reached.wait()

    async def _is_any_unread(self, end: int) -> bool:
        page = await self._log.read(EVERYTHING, self.tail + 1, limit=1, fresh=True)
        return any(each.position <= end for each in page.entries)

    def _tell_dispatched(self) -> None:
        while self._awaited and self._awaited[0][0] <= self.tail:
            heappop(self._awaited)[2]()

    def publication(self, entry: Entry) -> Publication | None:
        """The message of an entry; None for a damaged entry, which nobody can deliver.

        ``FormatNewer`` if a newer broker can: the reader stops there, for acknowledged messages are not skipped.
        """
        try:
            return decode_publication(entry.payload)
        except Malformed as error:
            self._logger.error(
                "an entry of the log is unreadable", position=entry.position, problem=str(error)
            )
            return None

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def pages_of(self, filters: Collection[str], critical: bool | None = None) -> tuple[list[str], int]:
        """The read for these filters, and how many bytes it may bring at once."""
        kind = kind_of(critical)
        patterns = list(dict.fromkeys(p for each in filters for p in patterns_of(each, self._network, kind)))
        if len(patterns) > PATTERNS_MAX:
            patterns = [all_of(self._network, kind)]
        # Each page may end with a largest record; one more is in the hands of who reads it.
        return patterns, PAGE_BYTES + (len(patterns) + 1) * RECORD_MAX_BYTES

    async def read(
        self, filters: Collection[str], start: int, *, critical: bool | None = None, limit: int = READ_MAX
    ) -> Batch:
        """The next entries for these filters from a position on; ``Trimmed`` if it is no longer kept.

        With ``critical`` only those that are critical, or are not.
        """
        patterns, _ = self.pages_of(filters, critical)
        most = PAGE_BYTES // len(patterns)
        pages = [await self._log.read(each, start, limit=limit, max_bytes=most) for each in patterns]
        end = min(page.next for page in pages)
        found = {entry.position: entry for page in pages for entry in page.entries if entry.position < end}
        return Batch([found[position] for position in sorted(found)], end)

    async def resolved(self, entries: Sequence[Entry]) -> list[Entry]:
        """Entries as they would be if each had its metadata itself."""
        found: list[Entry] = []
        for entry in entries:
            publication = self.publication(entry)
            if publication is not None and publication.said:
                whole = await self.resolver.resolve(publication, entry.position)
                payload = encode_publication(msgspec.structs.replace(whole, said=b""))
                entry = msgspec.structs.replace(entry, payload=payload)
            found.append(entry)
        return found

    async def has(self, record_id: str, topic: str, since: int) -> bool:
        """Whether there is an entry of this id on a topic, behind a position."""
        (pattern,) = patterns_of(topic, self._network)
        return bool((await appended(self._log, [Record(pattern, b"", record_id)], since))[0])
