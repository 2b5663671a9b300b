"""Messages that were longer under way than a subscriber's latency budget.

A late message is counted. What is late is told at most once in TELL_US for each key, with the longest delay since then;
the rest is told when it is ``due``.

Invariant: the sum of what was told, and of what was not, is what was late.
"""

from __future__ import annotations

from typing import Final

import msgspec

TELL_US: Final = 1_000_000
KEYS_MAX: Final = 20_000  # the oldest is forgotten first


class Late(msgspec.Struct, frozen=True):
    """What to tell of one key."""

    total: int
    change: int  # of those, not told before
    longest_us: int  # delay among these


class _Count:
    __slots__ = ("longest_us", "told", "told_us", "total")

    def __init__(self) -> None:
        self.total = self.told = self.longest_us = 0
        self.told_us: int | None = None

    def told_now(self, now_us: int) -> Late:
        late = Late(self.total, self.total - self.told, self.longest_us)
        self.told, self.told_us, self.longest_us = self.total, now_us, 0
        return late


class Lateness:
    """The late messages of one broker's subscribers, by key."""

    __slots__ = ("_counts", "_untold", "total")

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[str, _Count] = {}
        self._untold: dict[str, None] = {}  # keys with something that is not told yet

    def __len__(self) -> int:
        return len(self._counts)

    def came(self, key: str, delay_us: int, budget_us: int, now_us: int, count: int = 1) -> Late | None:
        """A message came, or so many did not within this time; what is to be told now."""
        if delay_us <= budget_us:
            return None
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) >= KEYS_MAX:
                self._drop(next(iter(self._counts)))
            found = self._counts[key] = _Count()
        self.total += count
        found.total += count
        found.longest_us = max(found.longest_us, delay_us)
        if found.told_us is not None and now_us - found.told_us < TELL_US:
            self._untold[key] = None
            return None
        self._untold.pop(key, None)
        return found.told_now(now_us)

    @property
    def is_told(self) -> bool:
        """Whether all that was late is told."""
        return not self._untold

    def due(self, now_us: int) -> list[tuple[str, Late]]:
        """What was held back and is to be told now, by key."""
        found = []
        for key in tuple(self._untold):
            count = self._counts[key]
            if count.told_us is None or now_us - count.told_us >= TELL_US:
                del self._untold[key]
                found.append((key, count.told_now(now_us)))
        return found

    def _drop(self, key: str) -> None:
        del self._counts[key]
        self._untold.pop(key, None)

    def forget(self, prefix: str) -> None:
        """Nobody asks about the keys that begin so."""
        for key in [key for key in self._counts if key.startswith(prefix)]:
            self._drop(key)
