"""Deadlines that are watched: whether the next message of a topic comes in time, at a publisher or for a subscriber.

Each **period** of a deadline that passes without a message is one miss. A message begins a new period. So a publisher
that is silent for a second, with a deadline of 100 ms, has missed ten.

An arrival is one write to memory: the heap is looked at when a deadline may be over, not when a message comes. What was
missed is told at most once in TELL_US for each key: ``total`` is all of it, ``change`` what was not told before.

Invariants: what is told never grows faster than periods pass; a key that is dropped is never told; if messages come
within each period, nothing is told.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.deadlines import Deadlines

TELL_US: Final = 1_000_000


class Miss(msgspec.Struct, frozen=True):
    """What to tell of one key."""

    key: str
    deadline_us: int
    total: int
    change: int


class _Watched:
    __slots__ = ("counted", "deadline_us", "last_us", "told", "told_us", "total")

    def __init__(self, deadline_us: int, now_us: int) -> None:
        self.deadline_us = deadline_us
        self.last_us = now_us  # the last message, or the beginning
        self.counted = 0  # periods since then that were counted
        self.total = 0
        self.told = 0
        self.told_us: int | None = None

    def count(self, now_us: int) -> None:
        """Count the periods that have passed."""
        missed = (now_us - self.last_us) // self.deadline_us
        if missed > self.counted:
            self.total += missed - self.counted
            self.counted = missed


class DeadlineWatch:
    """The deadlines of one broker's publishers and subscribers, by key."""

    __slots__ = ("_deadlines", "_watched")

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._deadlines = Deadlines()

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, key: str) -> bool:
        return key in self._watched

    @property
    def next_us(self) -> int | None:
        """When to ask what is ``due``."""
        return self._deadlines.next_us

    def watch(self, key: str, deadline_us: int, now_us: int) -> None:
        """From now on. A key that is watched keeps its count, and gets another deadline."""
        watched = self._watched.get(key)
        if watched is None:
            self._watched[key] = _Watched(deadline_us, now_us)
        elif watched.deadline_us != deadline_us:
            self.arrived(key, now_us)
            watched.deadline_us = deadline_us
        else:
            return
        self._deadlines.set(key, now_us + deadline_us)

    def arrived(self, key: str, now_us: int) -> None:
        """A message has come; a key that nobody watches is passed over."""
        watched = self._watched.get(key)
        if watched is None:
            return
        if now_us - watched.last_us >= watched.deadline_us:
            watched.count(now_us)
            if watched.total > watched.told:
                self._deadlines.set(key, self._tell_at(watched, now_us))
        watched.last_us, watched.counted = now_us, 0

    def drop(self, key: str) -> None:
        self._watched.pop(key, None)
        self._deadlines.drop(key)

    def due(self, now_us: int) -> list[Miss]:
        """The misses to tell now."""
        found: list[Miss] = []
        for key in self._deadlines.due(now_us):
            watched = self._watched[key]
            watched.count(now_us)
            if watched.total > watched.told and self._tell_at(watched, now_us) <= now_us:
                change = watched.total - watched.told
                found.append(Miss(key, watched.deadline_us, watched.total, change))
                watched.told, watched.told_us = watched.total, now_us
            self._deadlines.set(key, self._next(watched, now_us))
        return found

    def _tell_at(self, watched: _Watched, now_us: int) -> int:
        return now_us if watched.told_us is None else max(now_us, watched.told_us + TELL_US)

    def _next(self, watched: _Watched, now_us: int) -> int:
        """When there may be something to tell."""
        if watched.total > watched.told:
            return self._tell_at(watched, now_us)
        period_us = watched.last_us + (watched.counted + 1) * watched.deadline_us
        return max(period_us, self._tell_at(watched, period_us))
