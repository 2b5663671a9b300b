"""Logs and tables as pure state: what every store promises, with no event loop and no clock.

``LogState`` and ``TableState`` are the reference that the contract is read from. The in-memory store wraps them for
asyncio; the simulator drives them directly. Time is an argument (``now_us``), so a run replays exactly.

Invariants of a log:

- positions are 1, 2, 3 … without gaps as they are given out, and never given out twice; forgetting makes holes;
- ``oldest`` is the position of the oldest entry that is kept, or ``last + 1`` if none is;
- an id that was appended within the dedupe window is in the log once, whatever is repeated;
- the log never copies itself: an append, a look-up and a page cost what they touch, not what is kept.

Which positions belong to which subject is in a ``SubjectIndex``, so that a read costs what it returns. Each subject has
a run of its positions. A wildcard pattern gets a run of its own the first time it is asked for, which is kept up from
then on; the least recently used goes when there are too many. A removal is O(1) amortised: at the front of a run it
moves a head, inside a run it is remembered as dead until half of the run is.

Invariants of a table: every change (put, delete, expiry) takes the next revision, so that revisions without a gap are
changes without a gap.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Final

from tocsin.core.deadlines import Deadlines
from tocsin.errors import Conflict, Refused, StoreFull, Trimmed
from tocsin.ports import READ_MAX, READ_MAX_BYTES, Cell, Change, Entry, LogSpec, Page, Record, TableSpec
from tocsin.store import rules
from tocsin.store.rules import is_wild, matches

PATTERNS_MAX: Final = 1_024  # wildcard patterns with a run of their own
_COMPACT_FROM: Final = 64  # runs shorter than this are not worth compacting


class _Run:
    """Ascending positions, most of them alive."""

    __slots__ = ("dead", "head", "positions")

    def __init__(self, positions: list[int]) -> None:
        self.positions = positions
        self.head = 0  # positions before this index are gone
        self.dead: set[int] = set()  # positions at or after head that are gone

    def __len__(self) -> int:
        return len(self.positions) - self.head - len(self.dead)

    def remove(self, position: int) -> None:
        positions = self.positions
        if positions[self.head] != position:
            self.dead.add(position)
            if len(self.dead) > _COMPACT_FROM and len(self.dead) * 2 > len(positions) - self.head:
                self.positions = [p for p in positions[self.head :] if p not in self.dead]
                self.head = 0
                self.dead.clear()
            return
        head = self.head + 1
        while head < len(positions) and positions[head] in self.dead:
            self.dead.remove(positions[head])
            head += 1
        self.head = head
        if head > _COMPACT_FROM and head * 2 > len(positions):
            del positions[:head]
            self.head = 0

    def newest(self) -> int:
        """The last that is alive. A log forgets the oldest of a subject first, so that is nearly always the last."""
        return next(position for position in reversed(self.positions) if position not in self.dead)

    def since(self, start: int) -> Iterator[int]:
        positions = self.positions
        dead = self.dead
        for i in range(bisect_left(positions, start, self.head), len(positions)):
            if positions[i] not in dead:
                yield positions[i]


class SubjectIndex:
    """Positions by subject and by pattern. ``>`` stands for all of the log."""

    def __init__(self) -> None:
        self._all = _Run([])
        self._own: dict[str, _Run] = {}  # every subject that has a live position
        self._patterns: OrderedDict[str, _Run] = OrderedDict()  # least recently asked for first
        self._member: dict[str, tuple[_Run, ...]] = {}  # subject → the runs it is also in; same keys as _own

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, subject: str) -> bool:
        return subject in self._own

    def subjects(self) -> tuple[str, ...]:
        return tuple(self._own)

    def count(self, subject: str) -> int:
        run = self._own.get(subject)
        return 0 if run is None else len(run)

    def first(self, subject: str) -> int:
        run = self._own[subject]
        return run.positions[run.head]

    def last(self, subject: str) -> int:
        """The newest live position of a subject, 0 if none."""
        run = self._own.get(subject)
        return 0 if run is None else run.newest()

    def add(self, subject: str, position: int) -> None:
        run = self._own.get(subject)
        if run is None:
            run = self._own[subject] = _Run([])
            self._member[subject] = tuple(r for p, r in self._patterns.items() if matches(p, subject))
        run.positions.append(position)
        self._all.positions.append(position)
        for wide in self._member[subject]:
            wide.positions.append(position)

    def remove(self, subject: str, position: int) -> None:
        """Forget a live position."""
        run = self._own[subject]
        run.remove(position)
        self._all.remove(position)
        for wide in self._member[subject]:
            wide.remove(position)
        if not len(run):
            del self._own[subject], self._member[subject]

    def positions(self, pattern: str, start: int) -> Iterator[int]:
        """Live positions from ``start`` on of what matches, ascending. Do not change the index during the iteration."""
        if pattern == ">":
            return self._all.since(start)
        if is_wild(pattern):
            return self._pattern_run(pattern).since(start)
        run = self._own.get(pattern)
        return iter(()) if run is None else run.since(start)

    def _pattern_run(self, pattern: str) -> _Run:
        run = self._patterns.get(pattern)
        if run is not None:
            self._patterns.move_to_end(pattern)
            return run
        if len(self._patterns) >= PATTERNS_MAX:
            _, oldest = self._patterns.popitem(last=False)
            for subject, runs in self._member.items():
                if oldest in runs:
                    self._member[subject] = tuple(r for r in runs if r is not oldest)
        members = [subject for subject in self._own if matches(pattern, subject)]
        run = _Run(sorted(position for subject in members for position in self._own[subject].since(0)))
        self._patterns[pattern] = run
        for subject in members:
            self._member[subject] += (run,)
        return run


# Changes that a late watcher can still be told one by one; older ones mean a reset.
CHANGES_KEPT: Final = 65_536


class LogState:
    """One log. Nothing here waits; every method is exact at the ``now_us`` it is given."""

    def __init__(self, spec: LogSpec) -> None:
        rules.check_log(spec)
        self.spec = spec
        self.last_position = 0  # the newest position ever given out
        self.bytes = 0  # what the kept entries count together
        self._entries: list[Entry | None] = []  # place i holds position _base + i; None once forgotten
        self._base = 1  # position of place 0
        self._oldest = 1  # position of the oldest kept entry, or last_position + 1
        self._subjects = SubjectIndex()
        self._ids: dict[str, int] = {}  # id → position, for the ids within the dedupe window
        self._id_ages: deque[tuple[int, str]] = deque()  # the same ids, oldest first
        self._at_us = 0  # the newest entry's time: times in a log never go back

    @property
    def oldest(self) -> int:
        return self._oldest

    def __len__(self) -> int:
        """How many entries are kept."""
        return len(self._subjects)

    def adapt(self, spec: LogSpec, now_us: int) -> None:
        """Take new bounds; what is over them goes."""
        rules.check_log(spec)
        if spec.name != self.spec.name:
            raise Refused(f"open log {spec.name!r}", f"this is the log {self.spec.name!r}")
        self.spec = spec
        self.expire(now_us)
        if spec.max_per_subject is not None:
            for subject in self._subjects.subjects():
                self._bound_subject(subject, spec.max_per_subject)
        if spec.max_bytes is not None and not spec.refuses:
            self._bound_bytes(spec.max_bytes)

    def append(self, records: Sequence[Record], now_us: int, expected: int | None = None) -> tuple[int, ...]:
        """As ``ports.Log.append``."""
        operation = f"append to log {self.spec.name!r}"
        rules.check_batch(operation, records, expected)
        self.expire(now_us)
        ids = self._ids
        fresh: list[Record] = []
        in_batch: set[str] = set()
        for record in records:
            rules.check_record(operation, record)
            if record.subject not in self._subjects:
                rules.check_taken(operation, self.spec, record.subject)
            if record.id not in ids and record.id not in in_batch:
                fresh.append(record)
                in_batch.add(record.id)
        if fresh and expected is not None and expected != self.last_position:
            raise Conflict(operation, expected, self.last_position)
        if fresh and self.spec.refuses and self.spec.max_bytes is not None:
            growth = sum(rules.entry_bytes(each.subject, each.id, each.payload) for each in fresh)
            if self.bytes + growth > self.spec.max_bytes:
                raise StoreFull(operation, f"max_bytes of the log is {self.spec.max_bytes}")
        for record in fresh:
            self._add(record, now_us)
        return tuple([ids[record.id] for record in records])

    def _add(self, record: Record, now_us: int) -> None:
        at_us = self._at_us = max(now_us, self._at_us)
        position = self.last_position = self.last_position + 1
        subject = record.subject
        self._entries.append(Entry(position, subject, record.payload, record.id, at_us))
        self._subjects.add(subject, position)
        self._ids[record.id] = position
        self._id_ages.append((at_us, record.id))
        self.bytes += rules.entry_bytes(subject, record.id, record.payload)
        spec = self.spec
        if spec.max_per_subject is not None:
            self._bound_subject(subject, spec.max_per_subject)
        if spec.max_bytes is not None and not spec.refuses:
            self._bound_bytes(spec.max_bytes)

    def read(self, subject: str, start: int, limit: int = READ_MAX, max_bytes: int = READ_MAX_BYTES) -> Page:
        """As ``ports.Log.read``; call ``expire`` first where age matters."""
        rules.check_read(f"read log {self.spec.name!r}", subject, start, limit)
        if 0 < start < self._oldest and self.spec.max_per_subject is None:
            raise Trimmed(self.spec.name, start, self._oldest)
        entries: list[Entry] = []
        first, size = max(start, self._oldest), 0
        for position in self._subjects.positions(self._pattern(subject), first):
            entries.append(self._entry(position))
            size += len(entries[-1].payload)
            if len(entries) == limit or size >= max_bytes:
                return Page(tuple(entries), position + 1, self.last_position)
        return Page(tuple(entries), max(start, self.last_position + 1), self.last_position)

    def last(self, subject: str | None = None) -> int:
        """As ``ports.Log.last``."""
        if subject is None:
            return self.last_position
        rules.check_subject(f"last of log {self.spec.name!r}", subject)
        return self._subjects.last(subject)

    def trim(
        self,
        now_us: int,
        *,
        before: int | None = None,
        subject: str | None = None,
        older_than_us: int | None = None,
        keep_bytes: int | None = None,
    ) -> int:
        """As ``ports.Log.trim``."""
        rules.check_trim(f"trim log {self.spec.name!r}", before, subject, older_than_us, keep_bytes)
        pattern = ">" if subject is None else self._pattern(subject)
        alone = before is None and older_than_us is None and keep_bytes is None
        excess = 0 if keep_bytes is None else self._bytes_of(pattern) - keep_bytes
        gone: list[int] = []
        for position in self._subjects.positions(pattern, self._oldest):
            entry = self._entry(position)
            if not (
                alone
                or excess > 0
                or (before is not None and position < before)
                or (older_than_us is not None and entry.at_us < now_us - older_than_us)
            ):
                break  # positions and times only grow from here, so nothing later goes either
            excess -= rules.entry_bytes(entry.subject, entry.id, entry.payload)
            gone.append(position)
        for position in gone:
            self._forget(position)
        return len(gone)

    def expire(self, now_us: int) -> int:
        """Forget ids older than the dedupe window and entries older than ``max_age_s``; how many entries went."""
        horizon_us = now_us - int(self.spec.dedupe_window_s * 1_000_000)
        ages = self._id_ages
        while ages and ages[0][0] <= horizon_us:
            del self._ids[ages.popleft()[1]]
        if self.spec.max_age_s is None:
            return 0
        gone = 0
        horizon_us = now_us - int(self.spec.max_age_s * 1_000_000)
        while self._oldest <= self.last_position:
            if self._entry(self._oldest).at_us > horizon_us:
                break
            self._forget(self._oldest)
            gone += 1
        return gone

    def _pattern(self, subject: str) -> str:
        """``>`` for every pattern that takes in the whole log, so that they share one index."""
        if all(rules.covers(subject, own) for own in self.spec.subjects):
            return ">"
        return subject

    def _bytes_of(self, pattern: str) -> int:
        if pattern == ">":
            return self.bytes
        entries = map(self._entry, self._subjects.positions(pattern, self._oldest))
        return sum(rules.entry_bytes(entry.subject, entry.id, entry.payload) for entry in entries)

    def _entry(self, position: int) -> Entry:
        entry = self._entries[position - self._base]
        assert entry is not None, f"position {position} is indexed, but forgotten"
        return entry

    def _bound_subject(self, subject: str, bound: int) -> None:
        while self._subjects.count(subject) > bound:
            self._forget(self._subjects.first(subject))

    def _bound_bytes(self, bound: int) -> None:
        while self.bytes > bound and self._oldest <= self.last_position:
            self._forget(self._oldest)

    def _forget(self, position: int) -> None:
        at = position - self._base
        entry = self._entry(position)
        self._entries[at] = None
        self._subjects.remove(entry.subject, position)
        self.bytes -= rules.entry_bytes(entry.subject, entry.id, entry.payload)
        if position == self._oldest:
            at += 1
            while at < len(self._entries) and self._entries[at] is None:
                at += 1
            self._oldest = self._base + at
            if at > 1_024 and at * 2 > len(self._entries):
                del self._entries[:at]  # each is moved at most once per doubling: O(1) amortised
                self._base = self._oldest


class _Held:
    """A key's value, and when it goes."""

    __slots__ = ("cell", "expires_us")

    def __init__(self, cell: Cell, expires_us: int | None) -> None:
        self.cell = cell
        self.expires_us = expires_us


class TableState:
    """One table. The caller calls ``expire`` when ``next_expiry_us`` is reached; every write does so too."""

    def __init__(self, spec: TableSpec) -> None:
        rules.check_table(spec)
        self.spec = spec
        self.revision = 0  # of the newest change
        self.bytes = 0  # what the kept values count together
        self._held: dict[str, _Held] = {}
        self._keys: list[str] = []  # the same keys, sorted
        self._expiries = Deadlines()  # of keys that expire
        self._changes: deque[Change] = deque(
            maxlen=CHANGES_KEPT
        )  # the newest changes, revisions without a gap

    def __len__(self) -> int:
        return len(self._held)

    def adapt(self, spec: TableSpec) -> None:
        """Take new bounds, if the spec has one; what is kept stays, also if it is over them."""
        rules.check_table(spec)
        if spec.name != self.spec.name:
            raise Refused(f"open table {spec.name!r}", f"this is the table {self.spec.name!r}")
        if spec.max_bytes is not None:  # no size asked for: the table keeps the one it has
            self.spec = spec

    def get(self, key: str, now_us: int) -> Cell | None:
        """As ``ports.Table.get``."""
        rules.check_key(f"get from table {self.spec.name!r}", key)
        held = self._live(key, now_us)
        return None if held is None else held.cell

    def put(self, key: str, value: bytes, now_us: int, ttl_us: int | None = None) -> int:
        """As ``ports.Table.put``."""
        operation = self._check_write("put", key, value, ttl_us)
        self.expire(now_us)
        return self._write(operation, key, value, now_us, ttl_us)

    def compare_and_set(
        self, key: str, value: bytes, revision: int, now_us: int, ttl_us: int | None = None
    ) -> int:
        """As ``ports.Table.compare_and_set``."""
        operation = self._check_write("compare and set", key, value, ttl_us)
        rules.check_revision(operation, revision)
        self.expire(now_us)
        self._expect(operation, key, revision)
        return self._write(operation, key, value, now_us, ttl_us)

    def delete(self, key: str, now_us: int, revision: int | None = None) -> None:
        """As ``ports.Table.delete``."""
        operation = f"delete {key!r} from table {self.spec.name!r}"
        rules.check_key(operation, key)
        self.expire(now_us)
        if revision is not None:
            rules.check_revision(operation, revision)
            self._expect(operation, key, revision)
        if key in self._held:
            self._drop(key)

    def keys(self, prefix: str, now_us: int) -> tuple[str, ...]:
        """As ``ports.Table.keys``."""
        rules.check_prefix(f"keys of table {self.spec.name!r}", prefix)
        self.expire(now_us)
        found: list[str] = []
        for i in range(bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[i].startswith(prefix):
                break
            found.append(self._keys[i])
        return tuple(found)

    def snapshot(self, prefix: str, now_us: int) -> tuple[Change, ...]:
        """How a watch begins, or begins again: reset, the keys that begin so in order of revision, ready."""
        cells = sorted(
            (self._held[key].cell for key in self.keys(prefix, now_us)), key=lambda cell: cell.revision
        )
        puts = [Change("put", cell.key, cell.value, cell.revision) for cell in cells]
        return (Change("reset"), *puts, Change("ready", revision=self.revision))

    def changes_since(self, revision: int) -> tuple[Change, ...] | None:
        """Every change after ``revision``, oldest first; None if some are no longer kept, which calls for a reset."""
        missing = self.revision - revision
        if missing > len(self._changes):
            return None
        return tuple([self._changes[i] for i in range(-missing, 0)])

    @property
    def next_expiry_us(self) -> int | None:
        """When ``expire`` has something to do; None if nothing expires."""
        first = self._expiries.first()
        return None if first is None else first[0]

    def expire(self, now_us: int) -> tuple[Change, ...]:
        """Remove what is past its time; the changes that makes."""
        before = self.revision
        for key in self._expiries.due(now_us):
            self._drop(key)
        return self.changes_since(before) or ()

    def _live(self, key: str, now_us: int) -> _Held | None:
        held = self._held.get(key)
        if held is None or (held.expires_us is not None and held.expires_us <= now_us):
            return None
        return held

    def _check_write(self, verb: str, key: str, value: bytes, ttl_us: int | None) -> str:
        operation = f"{verb} {key!r} in table {self.spec.name!r}"
        rules.check_key(operation, key)
        rules.check_value(operation, value)
        if ttl_us is not None:
            rules.ttl_seconds(operation, ttl_us / 1_000_000)
        return operation

    def _expect(self, operation: str, key: str, revision: int) -> None:
        held = self._held.get(key)
        actual = 0 if held is None else held.cell.revision
        if actual != revision:
            raise Conflict(operation, revision, actual)

    def _write(self, operation: str, key: str, value: bytes, now_us: int, ttl_us: int | None) -> int:
        old = self._held.get(key)
        size = rules.entry_bytes(key, "", value)
        growth = size - (0 if old is None else rules.entry_bytes(key, "", old.cell.value))
        if self.spec.max_bytes is not None and self.bytes + growth > self.spec.max_bytes:
            raise StoreFull(operation, f"max_bytes of the table is {self.spec.max_bytes}")
        self.bytes += growth
        self.revision += 1
        expires_us = None if ttl_us is None else now_us + ttl_us
        self._held[key] = _Held(Cell(key, value, self.revision), expires_us)
        if old is None:
            insort(self._keys, key)
        if expires_us is None:
            self._expiries.drop(key)
        else:
            self._expiries.set(key, expires_us)
        self._changes.append(Change("put", key, value, self.revision))
        return self.revision

    def _drop(self, key: str) -> None:
        held = self._held.pop(key)
        self._expiries.drop(key)
        del self._keys[bisect_left(self._keys, key)]
        self.bytes -= rules.entry_bytes(key, "", held.cell.value)
        self.revision += 1
        self._changes.append(Change("delete", key, b"", self.revision))
