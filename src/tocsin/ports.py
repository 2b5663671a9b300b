"""Tocsin's needs from the world, as Protocols: a clock, randomness, and a store of three small parts.

The store is one substrate seen three ways:

- a **Log** keeps records in order, durably, and hands them out by position;
- a **Table** keeps the newest value of each key, with revisions, expiry and watches;
- a **Bus** carries messages that need not be kept, and questions that want an answer.

``store.jetstream.store`` implements them on NATS JetStream and ``store.memory.store`` in memory; one contract suite
holds both to what is written here.

**Fresh reads.** A server that was deposed as leader and does not know it yet may answer a read with old news. A
decision by a read, with no compare-and-set behind it, needs a ``fresh`` read: its answer has everything that was
acknowledged to anybody before it was asked for. It costs a write where there are several servers.

Every failure is a ``StoreError`` (or ``NoResponder``/``DeadlineExceeded`` from the bus); exceptions of the library
beneath never pass.

Positions and revisions are positive and grow; 0 means "before the first". Those of a table's values have gaps: a
deletion, an expiry and a fresh read may take one too. Times are integer microseconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

BATCH_MAX = 1_000  # records in one append: JetStream's own bound on an atomic batch
READ_MAX = 1_000  # records in one read
READ_MAX_BYTES = 16 << 20  # of their payloads, but for the last one
PATTERNS_MAX = (
    256  # of one selection: a server takes milliseconds for a reader with so many, seconds with thousands
)
KEYS_MAX = 256  # in one read of many keys; a server shows the last messages of 1 024 subjects
PAYLOAD_MAX_BYTES = 1 << 20  # one record's payload: the server's default max_payload
# What a record takes beside the packet that it is made of: the server's headers (4 KiB, which count against
# max_payload), a topic that came as an alias, the names of client, broker and cluster, what is said of the stream, and
# two bytes for each long user property.
RECORD_MARGIN_BYTES = 16 << 10
PACKET_MAX_BYTES = PAYLOAD_MAX_BYTES - RECORD_MARGIN_BYTES  # so that every packet can be stored
TOPIC_MAX_BYTES = 1_024  # of a topic or filter; in a subject or key each byte may take three (model.subjects)
# With the network's name before it; a request of the server's protocol, which names a subject, has 4 096 bytes.
SUBJECT_MAX_BYTES = 3 * TOPIC_MAX_BYTES + 256


class Clock(Protocol):
    """Time as a shell sees it; a core is handed ``now`` instead."""

    def now_us(self) -> int: ...


class Rng(Protocol):
    """Chance as a shell sees it; seeded in the simulator. Integers only, so that every machine agrees."""

    def below(self, bound: int) -> int: ...


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────────


class Record(msgspec.Struct, frozen=True):
    """One record to append. ``id`` makes the append idempotent: a second record with it is not written again."""

    subject: str
    payload: bytes
    id: str


class Entry(msgspec.Struct, frozen=True):
    """A record as it is kept."""

    position: int
    subject: str
    payload: bytes
    id: str
    at_us: int  # when the log took it, by the server's clock


class Page(msgspec.Struct, frozen=True):
    """A bounded read. ``next`` is where to go on; ``last`` the newest position of the whole log when it was read."""

    entries: tuple[Entry, ...]
    next: int
    last: int


class Begun(msgspec.Struct, frozen=True):
    """A selection is being read from now on. The log ended at ``end``, or later, when it began."""

    end: int


class Reached(msgspec.Struct, frozen=True):
    """Everything that a selection matches up to this position was handed out before."""

    position: int


class LogSpec(msgspec.Struct, frozen=True):
    """A log, its subjects (all of the form ``prefix.…``) and what is kept. None means without bound."""

    name: str
    subjects: tuple[str, ...]
    max_age_s: float | None = None
    max_bytes: int | None = None
    max_per_subject: int | None = None
    dedupe_window_s: float = 120.0  # how long a record's id is remembered
    refuses: bool = False  # beyond ``max_bytes`` an append is ``StoreFull``; else the oldest entries go


class TableSpec(msgspec.Struct, frozen=True):
    """A table. Values are small: configuration, leases, snapshots by key."""

    name: str
    max_bytes: int | None = None


class Selection(Protocol):
    """A part of a log, as it is read."""

    def items(self) -> AsyncGenerator[Entry | Begun | Reached, None]:
        """``Begun``, then the entries in order, without gaps, repeats or end, and how far they are.

        ``Reached`` comes every few seconds while the log grows without a match, up to half a minute late if the log
        had stood still before, and soon after ``hasten``. A reader that is lost on its way begins again by itself
        where it was, with another ``Begun``. ``Trimmed`` if the log does not keep any more what comes next. To be
        iterated once.
        """
        ...

    async def hasten(self) -> None:
        """Have it told soon how far it is, as far as the server that reads for us knows of the log."""
        ...


class Log(Protocol):
    """Records in order. An append returns when the records are durable (fsync, and a quorum where there is one)."""

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        """Append all or none; the position of each record, in order, also for those that were there already.

        With ``expected`` the append happens only if the log's last position is that one (else ``Conflict``);
        a repeat of an append that did happen still returns its positions. At most BATCH_MAX records.
        """
        ...

    async def read(
        self,
        subject: str,
        start: int,
        *,
        limit: int = READ_MAX,
        max_bytes: int = READ_MAX_BYTES,
        fresh: bool = False,
    ) -> Page:
        """Entries whose subject matches (``*`` one token, ``>`` the rest) from position ``start`` on, oldest first.

        The page ends with the entry that reaches ``max_bytes``, so that one is read however large it is.
        With ``fresh``, a page that says that nothing follows (``next > last``) has everything that was appended before.

        ``Trimmed`` if ``start`` is older than what the log still keeps and is not 0; start 0 means the oldest kept.
        Not so in a log with ``max_per_subject``: there holes are the purpose, and the reader goes on behind them.
        """
        ...

    def follow(self, subject: str, start: int) -> AsyncIterator[Entry]:
        """Entries from ``start`` on, without gaps, repeats or end; waits for new ones and rides out reconnects."""
        ...

    def select(self, patterns: Sequence[str], start: int) -> Selection:
        """Entries from ``start`` on that match any of these patterns, which do not overlap; at most PATTERNS_MAX.

        The server picks them out: what matches nothing costs the reader nothing. History through many patterns is
        slow, so begin near the end.
        """
        ...

    async def last(self, subject: str | None = None, *, fresh: bool = False) -> int:
        """The newest position, of the log or of one subject (no wildcards); 0 if there is none.

        With ``fresh``, no entry that was appended before is newer; a log's may then be beyond its newest entry.
        """
        ...

    async def trim(
        self,
        *,
        before: int | None = None,
        subject: str | None = None,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
    ) -> int:
        """Forget entries, oldest first, and say how many went.

        ``before``: those below that position; ``older_than_s``: those older; ``keep_bytes``: until no more than that
        is kept; ``subject`` limits any of these, or alone forgets all of that subject. Never moves positions.
        """
        ...


class Cell(msgspec.Struct, frozen=True):
    """A table's value with its revision."""

    key: str
    value: bytes
    revision: int


class Change(msgspec.Struct, frozen=True):
    """One event of a watch.

    ``put`` and ``delete`` (also by expiry) carry a key. ``reset`` says: forget what you know, the whole current
    state follows as puts, up to ``ready``. A watch begins with ``reset``, and sends another whenever it may
    have missed something, so that a consumer that obeys it always converges.
    """

    kind: Literal["put", "delete", "reset", "ready"]
    key: str = ""
    value: bytes = b""
    revision: int = 0


class Usage(msgspec.Struct, frozen=True):
    """What a table holds, nearly: keys that were just removed may still count."""

    size: int  # bytes
    keys: int


class Table(Protocol):
    """The newest value of each key. Keys: dot-separated tokens of ``A–Z a–z 0–9 _ - /  =``."""

    async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
        """The key's value; with ``fresh``, no write that was acknowledged before is missing from it."""
        ...

    async def get_many(self, keys: Sequence[str], *, fresh: bool = False) -> dict[str, Cell]:
        """The values of those of these keys that are there, in as few requests as can be; at most KEYS_MAX keys.

        Without ``fresh`` a replica that is a little behind may answer, where ``get`` asks the leader.
        """
        ...

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Write whatever was there; the new revision. With ``ttl_s`` (whole seconds, at least 1) the key expires."""
        ...

    async def compare_and_set(
        self, key: str, value: bytes, *, revision: int, ttl_s: float | None = None
    ) -> int:
        """Write only if the key's revision is this one (0: the key is absent), else ``Conflict``."""
        ...

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Remove; no error if absent. With ``revision``, only if it is that one, else ``Conflict``."""
        ...

    async def keys(self, prefix: str = "", *, fresh: bool = False) -> tuple[str, ...]:
        """The keys that begin with these characters, sorted; ``fresh`` as for ``get``."""
        ...

    def watch(self, prefix: str = "") -> AsyncIterator[Change]: ...

    async def usage(self) -> Usage: ...


class BusMessage(msgspec.Struct, frozen=True):
    """A message from the bus."""

    subject: str
    payload: bytes


class Bus(Protocol):
    """Messages that are not kept. Delivery is at most once; order is kept per publisher and subject."""

    async def publish(self, subject: str, payload: bytes) -> None: ...

    def subscribe(
        self, subject: str, *, group: str | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[BusMessage]]:
        """Messages on a subject (wildcards allowed) from entry on. One member of a ``group`` gets each message."""
        ...

    def serve(
        self, subject: str, answer: Callable[[BusMessage], Awaitable[bytes]]
    ) -> AbstractAsyncContextManager[None]:
        """Answer requests on a subject while the context lasts."""
        ...

    async def request(self, subject: str, payload: bytes, *, deadline_s: float) -> bytes:
        """Ask and wait for one answer: ``NoResponder`` at once, or ``DeadlineExceeded`` after ``deadline_s``."""
        ...


class Store(Protocol):
    """The substrate, opened."""

    @property
    def bus(self) -> Bus: ...

    async def log(self, spec: LogSpec) -> Log:
        """Open a log; create it, or adapt its bounds, if needed."""
        ...

    async def table(self, spec: TableSpec) -> Table: ...

    async def close(self) -> None: ...
