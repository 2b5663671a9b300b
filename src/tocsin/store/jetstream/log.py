"""``ports.Log`` on a JetStream stream: appends, reads by subject and position, followers, and forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Final

import msgspec

from tocsin.errors import StoreUnavailable, Trimmed
from tocsin.ports import READ_MAX, READ_MAX_BYTES, Begun, Entry, LogSpec, Page, Reached, Record
from tocsin.store import rules
from tocsin.store.jetstream.append import Append
from tocsin.store.jetstream.follower import Follower
from tocsin.store.jetstream.stream import MARKS_MAX, JetStream, Stored, is_mark, marks_of, own_marks, persist

IN_FLIGHT_MAX: Final = 16  # appends under way in one log; the server stages at most 50 batches of a stream
SUBJECTS_CHECKED_MAX: Final = 65_536  # subjects remembered as good, so that a busy one is checked once


class LogStatistics(msgspec.Struct):
    """The counters of a log."""

    appends: int = 0  # calls that were acknowledged
    records: int = 0  # records in them
    repeats: int = 0  # records that were there already
    retries: int = 0  # attempts after the first


def stream_config(spec: LogSpec, name: str, replicas: int) -> dict[str, Any]:
    """The stream of a log; ``docs/reference/store.md`` says why each setting is as it is."""
    return {
        "name": name,
        "subjects": [*spec.subjects, *_beside(spec)],
        "storage": "file",
        "num_replicas": replicas,
        "retention": "limits",
        "discard": "new" if spec.refuses else "old",
        "max_age": 0 if spec.max_age_s is None else int(spec.max_age_s * 1e9),
        "max_bytes": -1 if spec.max_bytes is None else spec.max_bytes,
        "max_msgs_per_subject": -1 if spec.max_per_subject is None else spec.max_per_subject,
        "duplicate_window": int(spec.dedupe_window_s * 1e9),
        "allow_direct": True,
        "allow_atomic": True,
        "allow_msg_ttl": True,  # marks go by themselves
        "allow_rollup_hdrs": False,  # with such a header a client that may append could purge
    }


def _beside(spec: LogSpec) -> list[str]:
    """The subject of marks, where those of the log do not cover it."""
    marks = own_marks(spec.subjects)
    return [] if any(rules.covers(each, marks) for each in spec.subjects) else [marks]


class JetStreamLog:
    """One log."""

    def __init__(self, stream: JetStream, spec: LogSpec) -> None:
        self._stream = stream
        self._spec = spec
        self._connection = stream.connection
        self._in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._good_subjects: set[str] = set()
        self.statistics = LogStatistics()

    # ── append ──────────────────────────────────────────────────────────────────────────────────────────────

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        operation = f"append to log {self._spec.name!r}"
        self._connection.check_open(operation)
        self._check(operation, records, expected)
        if not records:
            return ()
        append = Append(self._stream, operation, records, expected)
        try:
            async with asyncio.timeout(self._stream.deadline_s):
                await self._in_flight.acquire()
        except TimeoutError:
            raise StoreUnavailable(operation, "too many appends are under way") from None
        try:
            await persist(self._connection, operation, self._stream.deadline_s, append.attempt, writes=True)
        finally:
            self._in_flight.release()
        self.statistics.appends += 1
        self.statistics.records += len(records)
        self.statistics.repeats += append.repeats
        self.statistics.retries += append.attempts - 1
        return tuple([append.positions[record.id] for record in records])

    def _check(self, operation: str, records: Sequence[Record], expected: int | None) -> None:
        rules.check_batch(operation, records, expected)
        good = self._good_subjects
        for record in records:
            rules.check_record(operation, record)
            if record.subject not in good:
                rules.check_taken(operation, self._spec, record.subject)
                if len(good) >= SUBJECTS_CHECKED_MAX:
                    good.clear()
                good.add(record.subject)
        if records:
            self._connection.check_size(operation, max(len(record.payload) for record in records))

    # ── read ────────────────────────────────────────────────────────────────────────────────────────────────

    async def read(
        self,
        subject: str,
        start: int,
        *,
        limit: int = READ_MAX,
        max_bytes: int = READ_MAX_BYTES,
        fresh: bool = False,
    ) -> Page:
        operation = f"read log {self._spec.name!r}"
        rules.check_read(operation, subject, start, limit)
        asked, first = limit, True
        while True:
            if fresh:
                marks = marks_of(subject, self._spec.subjects)
                found = await self._stream.fresh_slice(operation, subject, start, asked, marks)
            else:
                found = await self._stream.slice(operation, subject, start, asked, max_bytes)
            if first:  # later, marks that were passed over may be gone
                self._check_kept(start, found.oldest)
            entries = tuple([_entry(each) for each in found.messages if not is_mark(each.subject)])
            if len(entries) > limit:
                return Page(entries[:limit], entries[limit - 1].position + 1, found.newest)
            if entries or not found.messages or found.next > found.newest:
                return Page(entries, found.next, found.newest)
            start, asked, first = found.next, max(limit, MARKS_MAX), False  # a page of marks

    def _check_kept(self, start: int, oldest: int) -> None:
        """A log that keeps so many per subject has holes by design: there, a later entry stands for an older one."""
        if 0 < start < oldest and self._spec.max_per_subject is None:
            raise Trimmed(self._spec.name, start, oldest)

    async def follow(self, subject: str, start: int) -> AsyncIterator[Entry]:
        operation = f"follow log {self._spec.name!r}"
        rules.check_read(operation, subject, start, 1)
        follower = Follower(self._stream, operation, (subject,), start, self._check_kept)
        async with aclosing(follower.messages()) as messages:
            async for message in messages:
                if isinstance(message, Stored) and not is_mark(message.subject):
                    yield _entry(message)

    def select(self, patterns: Sequence[str], start: int) -> JetStreamSelection:
        operation = f"follow log {self._spec.name!r}"
        rules.check_select(operation, patterns, start)
        return JetStreamSelection(
            Follower(self._stream, operation, patterns, start, self._check_kept, tells=True)
        )

    async def last(self, subject: str | None = None, *, fresh: bool = False) -> int:
        operation = f"last of log {self._spec.name!r}"
        marks = own_marks(self._spec.subjects)
        if subject is None:
            if fresh and self._stream.replicas > 1:
                return await self._stream.mark(operation, marks)
            return (await self._stream.bounds(operation)).newest
        rules.check_subject(operation, subject)
        if fresh:
            found = await self._stream.fresh_last_for(operation, subject, marks)
        else:
            found = await self._stream.last_for(operation, subject)
        return 0 if found is None else found.position

    # ── trim ────────────────────────────────────────────────────────────────────────────────────────────────

    async def trim(
        self,
        *,
        before: int | None = None,
        subject: str | None = None,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
    ) -> int:
        operation = f"trim log {self._spec.name!r}"
        rules.check_trim(operation, before, subject, older_than_s, keep_bytes)
        bounds = await self._stream.bounds(operation)
        end = bounds.newest + 1  # a cut beyond the end would move positions
        cut = 0 if before is None else before
        if before is None and older_than_s is None and keep_bytes is None:
            cut = end
        if older_than_s is not None:
            kept = await self._stream.first_since(operation, bounds.now - timedelta(seconds=older_than_s))
            cut = max(cut, end if kept is None else kept.position)
        if keep_bytes is not None:
            cut = max(cut, await self._cut_for(operation, subject or ">", keep_bytes, end))
        cut = min(cut, end)
        if cut <= bounds.oldest:
            return 0
        request: dict[str, object] = {"seq": cut}
        if subject is not None:
            request["filter"] = subject
        answer = await self._stream.api(operation, "STREAM.PURGE", request)
        return int(answer["purged"])

    async def _cut_for(self, operation: str, pattern: str, keep_bytes: int, end: int) -> int:
        """The position before which entries must go so that no more than ``keep_bytes`` stay."""
        sizes: list[tuple[int, int]] = []
        start = 0
        while start < end:
            found = await self._stream.slice(operation, pattern, start, READ_MAX)
            sizes += [(message.position, message.bytes) for message in found.messages]
            start = found.next
        kept = 0
        for position, size in reversed(sizes):
            kept += size
            if kept > keep_bytes:
                return position + 1
        return 0


class JetStreamSelection:
    """``ports.Selection``: one follower."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def items(self) -> AsyncGenerator[Entry | Begun | Reached, None]:
        async with aclosing(self._follower.messages()) as messages:
            async for message in messages:
                if isinstance(message, Begun | Reached):
                    yield message
                elif isinstance(message, Stored):
                    yield Reached(message.position) if is_mark(message.subject) else _entry(message)

    async def hasten(self) -> None:
        await self._follower.hasten()


def _entry(message: Stored) -> Entry:
    return Entry(
        message.position,
        message.subject,
        message.payload,
        message.headers.get("Nats-Msg-Id", ""),
        message.at_us,
    )
