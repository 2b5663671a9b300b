"""A group's backlog at one broker: log entries that nobody has claimed, and entries that were given back.

    start ≤ next of the cell ≤ … ≤ below          everything that matches from ``start`` to ``below`` is, or was, known

While it is *live*, entries are taken as the log's follower brings them. When there is no room for more it takes none,
and later has the log read from ``below`` on, until it has caught up. Entries before ``start`` (given back by their
members, or to be sent again) are fetched one by one when they are wanted.

Every entry **costs** bytes of the broker's budget for groups (``Room``). Without room nothing more is taken, as if the
backlog were full; the next read waits for as much room as that entry needs. A backlog that nobody here can take from is
dropped when others need its room, and read again later.

Invariants: what is kept costs what was taken of the budget; no more than ENTRIES_MAX entries and BYTES_MAX bytes (but
for one entry) are kept of what is to come, and FETCHED_MAX entries and as many bytes of what was; one read at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from tocsin.core.budgets.budget import OVERHEAD_BYTES
from tocsin.core.shared.signals import Matched, PartRead, ReadPart

ENTRIES_MAX: Final = 1_000
BYTES_MAX: Final = 4 << 20
FETCHED_MAX: Final = 100


class Room(Protocol):
    """A group's part of the broker's memory."""

    def keep(self, size: int) -> bool:
        """Take so many bytes, if there is room for them."""
        ...

    def let_go(self, size: int) -> None:
        """Give back what was taken for one entry."""
        ...


def cost_of(matched: Matched) -> int:
    """The bytes of an entry: its payload, and the message that was read from it."""
    return 2 * len(matched.entry.payload) + OVERHEAD_BYTES


class Backlog:
    """The log entries of one group that no member has claimed, as one broker knows them."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.below = 0
        self.live = False
        self.reading = False
        self.gone: set[int] = set()  # wanted positions that the log has no more
        self._start = 0
        self._entries: dict[int, Matched] = {}  # in order
        self._bytes = 0
        self._fetched: dict[int, Matched] = {}
        self._wanted: frozenset[int] | None = (
            None  # what the read under way looks for; None: for what is to come
        )
        self._stale = False  # … and it began before the knowledge was thrown away
        self._least = 0  # what the entry costs for which there was no room last; 0: there was for all

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Matched]:
        return iter(self._entries.values())

    def get(self, position: int) -> Matched | None:
        return self._fetched.get(position) or self._entries.get(position)

    @property
    def _fetched_bytes(self) -> int:
        return sum(len(matched.entry.payload) for matched in self._fetched.values())

    @property
    def _full(self) -> bool:
        return len(self._entries) >= ENTRIES_MAX or self._bytes >= BYTES_MAX

    # ── what the log brings ─────────────────────────────────────────────────────────────────────────────────

    def arrived(self, matched: Matched) -> None:
        if not self.live or matched.position < self.below:
            return
        if not self._keep(matched):
            self.live = False

    def _keep(self, matched: Matched) -> bool:
        """Whether there is room for an entry that comes next."""
        if self._full or not self._take_room(matched):
            return False
        self._entries[matched.position] = matched
        self._bytes += len(matched.entry.payload)
        self.below = matched.position + 1
        return True

    def _take_room(self, matched: Matched) -> bool:
        cost = cost_of(matched)
        taken = self._room.keep(cost)
        self._least = 0 if taken else cost
        return taken

    def passed(self, tail: int) -> None:
        """Every entry up to here was dispatched, and has arrived if it matched."""
        if self.live:
            self.below = max(self.below, tail + 1)

    # ── what the cell says ──────────────────────────────────────────────────────────────────────────────────

    def rebase(self, next_: int, wanted: Iterable[int], horizon: int) -> None:
        """The cell's ``next`` moved; ``wanted`` are the positions before it that are needed. Whatever matches behind
        the ``horizon`` will arrive."""
        if next_ < self._start or next_ > self.below:
            self._clear()
            self.below = next_
            self.live = next_ > horizon
        needed = frozenset(wanted)
        for position in [each for each in self._entries if each < next_]:
            matched = self._entries.pop(position)
            self._bytes -= len(matched.entry.payload)
            if position in needed and len(self._fetched) < FETCHED_MAX and self._fetched_bytes < BYTES_MAX:
                self._fetched[position] = matched
            else:
                self._room.let_go(cost_of(matched))
        self._start = next_
        for position in [each for each in self._fetched if each not in needed]:
            self._forget(position)
        self.gone &= needed

    def drop(self) -> None:
        """Forget all entries: others need their room. They are read again when ``ask`` is called."""
        self._clear()
        self.below, self.live = self._start, False
        for position in tuple(self._fetched):
            self._forget(position)

    def _clear(self) -> None:
        """Forget what is to come, and what a read under way would bring of it."""
        for matched in self._entries.values():
            self._room.let_go(cost_of(matched))
        self._entries, self._bytes = {}, 0
        self._stale = self.reading

    def _forget(self, position: int) -> None:
        self._room.let_go(cost_of(self._fetched.pop(position)))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, wanted: Iterable[int]) -> list[ReadPart]:
        """The part of the log to read now, if one has to be."""
        if self.reading:
            return []
        missing = [each for each in wanted if each not in self._fetched and each not in self.gone]
        if missing:
            self._make_room(min(missing))
        if missing and self._fetched_bytes < BYTES_MAX:  # else those come first that are here
            self.reading, self._wanted = True, frozenset(missing)
            return [ReadPart(start=min(missing), limit=FETCHED_MAX, least=self._least)]
        if not self.live and len(self._entries) <= ENTRIES_MAX // 2 and self._bytes <= BYTES_MAX // 2:
            self.reading, self._wanted = True, None
            return [ReadPart(start=self.below, limit=ENTRIES_MAX // 2, least=self._least)]
        return []

    def _make_room(self, position: int) -> None:
        """Forget fetched entries behind a position that is wanted, while there is no room for it."""
        while self._fetched_bytes >= BYTES_MAX and (last := max(self._fetched)) > position:
            self._forget(last)

    def take(self, part: PartRead) -> None:
        """The part that was asked for."""
        wanted, stale = self._end()
        if wanted is not None:
            found = [each for each in part.matched if each.position in wanted]
            there = {each.position for each in found}
            self.gone.update(each for each in wanted if each < part.next and each not in there)
            for matched in found:
                if matched.position in self._fetched:
                    continue  # it came another way since
                if self._fetched_bytes >= BYTES_MAX or not self._take_room(matched):
                    break
                self._fetched[matched.position] = matched
        elif not stale:
            for matched in part.matched:
                if matched.position >= self.below and not self._keep(matched):
                    return
            self.below = max(self.below, part.next)
            self.live = self.below > part.tail

    def trimmed(self, oldest: int) -> bool:
        """Everything before a position is gone from the log; whether that matters."""
        wanted, stale = self._end()
        if wanted is not None:
            self.gone.update(each for each in wanted if each < oldest)
        elif not stale:
            self.below = max(self.below, oldest)
        return wanted is not None or not stale

    def failed(self) -> None:
        self._end()

    def _end(self) -> tuple[frozenset[int] | None, bool]:
        wanted, stale = self._wanted, self._stale
        self.reading, self._wanted, self._stale = False, None, False
        return wanted, stale and wanted is None
