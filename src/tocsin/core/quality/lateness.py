"""Messages that were longer under way than a subscriber's latency budget.

A late message is delivered all the same, and counted. What is late is told at most once in TELL_US for each key, with
the longest delay since then; the rest waits for the next late message.

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


class Lateness:
    """The late messages of one broker's subscribers, by key."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[str, _Count] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def came(self, key: str, delay_us: int, budget_us: int, now_us: int) -> Late | None:
        """A message came; what is to be told now."""
        if delay_us <= budget_us:
            return None
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= KEYS_MAX:
                del self._counts[next(iter(self._counts))]
            count = self._counts[key] = _Count()
        self.total += 1
        count.total += 1
        count.longest_us = max(count.longest_us, delay_us)
        if count.told_us is not None and now_us - count.told_us < TELL_US:
            return None
        late = Late(count.total, count.total - count.told, count.longest_us)
        count.told, count.told_us, count.longest_us = count.total, now_us, 0
        return late

    def forget(self, prefix: str) -> None:
        """Nobody asks about the keys that begin so."""
        for key in [key for key in self._counts if key.startswith(prefix)]:
            del self._counts[key]
