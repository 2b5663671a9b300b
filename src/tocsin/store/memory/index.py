"""Which positions of a log belong to which subject: the index that makes reads cost what they return.

Each subject has a run of its positions. A wildcard pattern gets a run of its own the first time it is asked for, which
is kept up from then on; the least recently used goes when there are too many. A removal is O(1) amortised: at the
front of a run it moves a head, inside a run it is remembered as dead until half of the run is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

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
