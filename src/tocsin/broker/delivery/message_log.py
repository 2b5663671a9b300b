"""The broker's side of the message log: commits in groups, follows what everybody committed, reads for those behind.

All deliveries of QoS 1 and 2 messages come from here, at every broker, in the order of the log. A broker follows what
somebody here may want (``core.delivery.reading``), and what every broker has to know: critical messages, metadata, and
notes about wills. Of the rest it is told only that it is there. Critical messages have subjects of their own in the log
(``model.subjects``): they are followed with the others, and read for those behind each class alone.

Messages are handed in with their streams' metadata, and written with a reference to them (``core.streams.references``);
the metadata are a record before the first message that refers to them. The metadata are resolved where they are needed:
here, while a query is without an answer (``judging``), and for query subscribers that are behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from heapq import heappop, heappush
from itertools import count
from typing import Final

import msgspec
import structlog

from tocsin.broker.streams.registry import WILL
from tocsin.core.delivery.group_commit import CommitQueue
from tocsin.core.delivery.reading import CALM_US, Mode, Reading
from tocsin.core.delivery.wanted import ALL_FILTERS
from tocsin.core.streams.references import Writing
from tocsin.errors import FormatNewer, Malformed, TocsinError, Trimmed
from tocsin.model.publication import Publication, decode_publication, encode_publication
from tocsin.model.said import decode_said, encode_said
from tocsin.model.subjects import (
    CRITICAL_MESSAGES,
    MESSAGES,
    all_of,
    is_critical,
    kind_of,
    patterns_of,
    said_of,
    said_reference,
    said_subject,
    subject_of,
    will_subject,
)
from tocsin.ports import READ_MAX, Begun, Entry, Log, Reached, Record, Selection
from tocsin.runtime.faults.kill_points import AFTER_APPEND, BEFORE_APPEND, reach
from tocsin.runtime.machines.appended import appended
from tocsin.runtime.machines.clock import now_us, token_hex, wall_us
from tocsin.runtime.machines.resolving import Resolver

EVERYTHING: Final = ">"  # of the log: messages, and the metadata that they refer to
RESOLVE_AGAIN_S: Final = 0.2
LOOK_AGAIN_S: Final = 1.0  # where the log ends, or how far it is read
HASTEN_S: Final = 0.02  # until it is asked for again how far the log is read, at first
READ_AGAIN_S: Final = 0.2
PAGE_BYTES: Final = (
    512 << 10
)  # read at once for a client that is behind, but for the last entry of each pattern
RECORD_MAX_BYTES: Final = (
    9 << 17
)  # bytes of one entry: the largest packet, its names and its stream's metadata
# Bytes that a passed over entry counts for, of which nothing is known. Metadata are written again after a 64th of the
# log (``core.streams.references``): so they are in time even if every entry is as large as can be.
PASSED_OVER_BYTES: Final = RECORD_MAX_BYTES // 64
PATTERNS_MAX: Final = 4  # read one by one and merged; with more, one read of everything is cheaper

MARK_S: Final = 10.0  # between positions that are remembered
MARKS: Final = 60  # of them: ten minutes in which the broker ran and the log grew

Done = Callable[[TocsinError | None], None]
Dispatch = Callable[[Entry, Publication], bool]  # whether anybody here wants it
Stored = Callable[[TocsinError | None, int], None]  # why a message is not durable, or None and its position


def _ignored(error: TocsinError | None, position: int) -> None:
    """Nobody waits for a note: what it says can be found out without it."""


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
        mode: Mode = "wanted",
        will_noted: Callable[[str, str], None] = lambda client, will: None,
    ) -> None:
        self.reading = Reading(mode)
        self.critical_tail = 0  # up to where there may be critical ones among those; 0: nowhere
        self.newest = 0  # the position of the last entry that was committed here
        self._marks: deque[int] = deque(maxlen=MARKS)  # tails of the last while, the oldest first
        self._log = log
        self._network = network
        self.resolver = Resolver(log, network)
        self._references = Writing(keep_s, keep_bytes)
        self._said_ids = (f"said.{token_hex(8)}.{number}" for number in count())
        self.in_vain = 0  # messages that were read, and that nobody here wanted
        self.passed_over = 0  # positions that were not read
        self._selection: Selection | None = None  # of the reader in force …
        self._reader: asyncio.Task[None] | None = None  # … which is this
        self._next: asyncio.Task[None] | None = None  # the reader that is being prepared
        self._replaced: set[asyncio.Task[None]] = set()  # readers that are ending
        self._changed = asyncio.Event()  # other filters are wanted
        self._lagging = asyncio.Event()  # somebody waits for a position
        self._uncovered: dict[asyncio.Future[int], tuple[str, ...]] = {}  # who waits for filters to be read
        self._will_noted = will_noted  # told the client and the id of a will that is in the log
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
        self.reading.tail = await self._log.last()
        critical = await self._log.read(all_of(self._network, CRITICAL_MESSAGES), 0, limit=1, fresh=True)
        self.critical_tail = self.tail if critical.entries else 0

    @property
    def tail(self) -> int:
        """The position up to which everything was dispatched that is read here."""
        return self.reading.tail

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
        if record_id.endswith(WILL):
            stored = self._noting(publication.client, record_id, stored)
        self._queue.add(
            Record(subject, encode_publication(publication), record_id), stored, self.tail, behind
        )
        self._filled.set()
        if self._queue.full and not self._pressed:
            self._pressed = True
            self._pressure(True)

    def _noting(self, client: str, record_id: str, stored: Stored) -> Stored:
        """``stored``, and once a will is in the log, a note for those who do not read its topic."""

        def note(error: TocsinError | None, position: int) -> None:
            if error is None:
                said = encode_said({"client": client, "will": record_id})
                record = Record(will_subject(self._network), said, f"{record_id}.noted")
                self._queue.add(record, _ignored, self.tail)
                self._filled.set()
            stored(error, position)

        return note

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

    # ── what is followed ────────────────────────────────────────────────────────────────────────────────────

    def want(self, topic_filter: str) -> None:
        """One more here wants what matches a filter."""
        self.reading.want(topic_filter, now_us())
        self._changed.set()

    def unwant(self, topic_filter: str) -> None:
        """One fewer does."""
        self.reading.unwant(topic_filter)
        self._changed.set()

    def is_covered(self, filters: Iterable[str]) -> bool:
        """Whether everything beyond the tail that matches these filters is dispatched."""
        return all(self.reading.covers(each) for each in filters)

    async def cover(self, filters: Sequence[str]) -> int:
        """Return when that is so. Everything that the log had when this was called is at or before the position that is
        returned, and everything beyond it is dispatched; at once, if it is so already."""
        if self.is_covered(filters):
            return self.tail
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for each in filters:
            self.want(each)
        self._uncovered[waiting] = tuple(filters)
        try:
            return await waiting
        finally:
            del self._uncovered[waiting]
            for each in filters:
                self.unwant(each)

    def promise(self, filters: Sequence[str]) -> int:
        """Dispatch nothing until these filters, which are wanted, are covered: from the position returned on."""
        if self.is_covered(filters) or not self.reading.promise(filters):
            return self.tail
        for task in (self._reader, self._next):
            self._replace(task)
        self._reader = self._next = self._selection = None
        self._changed.set()
        return self.tail

    def _replace(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._replaced.add(task)
            task.add_done_callback(self._over)
            task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._replaced.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.warning("a reader of the log that was replaced has failed", problem=str(error))

    # ── following ───────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, dispatch: Dispatch, judging: Callable[[], bool] = lambda: False) -> None:
        """Dispatch every entry after the tail that somebody here may want, for as long as the broker lives.
        ``judging``: whether dispatched entries are judged by their stream's metadata.
        """
        loop = asyncio.get_running_loop()
        hastening = loop.create_task(self._hasten())
        try:
            while True:
                self._changed.clear()
                plan = self.reading.plan(now_us())
                if plan is not None:
                    self._next = loop.create_task(self._read_on(plan, dispatch, judging))
                changed = loop.create_task(self._changed.wait())
                calm_s = None if self.reading.settled else CALM_US / 1e6
                tasks = {each for each in (hastening, self._reader, self._next) if each is not None}
                done, _ = await asyncio.wait(
                    {*tasks, changed}, timeout=calm_s, return_when=asyncio.FIRST_COMPLETED
                )
                changed.cancel()
                for task in done & tasks:
                    if not task.cancelled():
                        task.result()
        finally:
            ending = [each for each in (hastening, self._reader, self._next) if each is not None]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, *self._replaced, return_exceptions=True)

    def _patterns(self, filters: tuple[str, ...]) -> tuple[str, ...]:
        """The selection of the log for these filters, and for what every broker reads."""
        if filters == ALL_FILTERS:
            return (EVERYTHING,)
        always = said_of(self._network), all_of(self._network, CRITICAL_MESSAGES)
        return (*always, *(p for each in filters for p in patterns_of(each, self._network, MESSAGES)))

    async def _read_on(
        self, filters: tuple[str, ...], dispatch: Dispatch, judging: Callable[[], bool]
    ) -> None:
        """A reader: prepared first, then in force, until another one is."""
        me = asyncio.current_task()
        while True:
            selection = self._log.select(self._patterns(filters), self.tail + 1)
            try:
                async with aclosing(selection.items()) as items:
                    async for item in items:
                        if isinstance(item, Entry):
                            if item.position > self.tail:
                                await self._take(item, dispatch, judging)
                        elif isinstance(item, Reached):
                            self._reach(item.position)
                        elif self._reader is not me or self._selection is not selection:
                            self._begin(selection, item)
            except Trimmed as error:  # we were away for longer than the log keeps
                if self._reader is not None and self._reader is not me:
                    await asyncio.sleep(READ_AGAIN_S)  # the reader in force has to find it out
                    continue
                self._logger.error("messages were trimmed before they were delivered", problem=str(error))
                self.reading.tail = self.critical_tail = max(self.tail, error.oldest - 1)
                self._tell_dispatched()

    def _begin(self, selection: Selection, begun: Begun) -> None:
        """A reader takes over from the one in force; or it is the same, and reads on after a loss."""
        if self._next is not asyncio.current_task():
            self._selection = selection
            return
        if not self.reading.may_begin():
            self._replace(self._next)
            self._next = None
            self.reading.given_up()
            self._changed.set()
            return
        self._selection = selection
        self._replace(self._reader)
        self._reader, self._next = self._next, None
        self.reading.begun()
        position = max(begun.end, self.tail)
        for waiting, filters in self._uncovered.items():
            if not waiting.done() and self.is_covered(filters):
                waiting.set_result(position)
        self._changed.set()

    async def _take(self, entry: Entry, dispatch: Dispatch, judging: Callable[[], bool]) -> None:
        publication = None if self._is_said(entry) else self.publication(entry)
        if publication is not None and publication.said and judging():
            publication = await self._resolved(publication, entry.position)
        self._pass_over(entry.position - 1)
        self.reading.tail = entry.position
        if is_critical(entry.subject):
            self.critical_tail = entry.position
        if publication is not None and not dispatch(entry, publication):
            self.in_vain += 1
        if self._awaited:
            self._tell_dispatched()

    def _reach(self, position: int) -> None:
        if position > self.tail:
            self._pass_over(position)
            self.reading.tail = position
            if self._awaited:
                self._tell_dispatched()

    def _pass_over(self, position: int) -> None:
        """What is between the tail and there was not read, unless all is: then there was nothing."""
        count = position - self.tail
        if count > 0 and self.reading.filters != ALL_FILTERS:
            self.passed_over += count
            self._references.taken += count * PASSED_OVER_BYTES

    def _is_said(self, entry: Entry) -> bool:
        """Whether an entry is no message, but metadata of streams."""
        self._references.taken += len(entry.payload) + len(entry.subject)
        reference = said_reference(entry.subject)
        if reference is None:
            return False
        if entry.subject == will_subject(self._network):
            self._note_will(entry)
            return True
        self.resolver.learn(reference, entry.payload)
        self._references.wrote(reference, wall_us())
        return True

    def _note_will(self, entry: Entry) -> None:
        try:
            said = decode_said(entry.payload)
        except Malformed as error:
            self._logger.error("a note about a will is unreadable", problem=str(error))
            return
        self._will_noted(str(said.get("client", "")), str(said.get("will", "")))

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
        """Do something once every entry up to a position was dispatched that is read here; at once, if all were."""
        heappush(self._awaited, (position, next(self._asked), act))
        self._tell_dispatched()
        if self._awaited:
            self._lagging.set()

    async def _hasten(self) -> None:
        """Have it told how far the log is read, while somebody waits for that."""
        while True:
            await self._lagging.wait()
            pause_s = HASTEN_S
            if self.reading.filters == ALL_FILTERS:  # entries tell it by themselves, nearly always
                await asyncio.sleep(HASTEN_S)
            while self._awaited:
                self._lagging.clear()
                if self._selection is not None:
                    await self._selection.hasten()
                await asyncio.sleep(HASTEN_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._lagging.wait()
                        pause_s = HASTEN_S / 2
                pause_s = min(2 * pause_s, LOOK_AGAIN_S)
            self._lagging.clear()

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
            end = await self._find_end()
            reached = asyncio.Event()
            self.when_dispatched(end, reached.set)
            await reached.wait()
            for act in acts:
                act()

    async def _find_end(self) -> int:
        while True:
            try:
                return await self.end()
            except TocsinError as error:
                self._logger.info("where the log ends is not known yet", problem=str(error))
            await asyncio.sleep(LOOK_AGAIN_S)

    def _tell_dispatched(self) -> None:
        """Do what waited for the tail."""
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
