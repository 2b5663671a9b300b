"""Rate limits: token buckets, alone and by key.

A **bucket** holds up to ``burst`` tokens and gains ``rate`` of them a second. ``take`` always takes, into debt if need
be, and says how long to wait before the next time: this suits what has already happened, such as a message that was
read. ``try_take`` takes only what is there: this suits what can be refused, such as a connection.

**Buckets** keeps one for each key (an address) in a table of bounded size. A bucket that is full again is as good as
none, so that a key may be forgotten after a while; when the table is full, the one not seen for longest goes.

Invariants
- Over any time t, ``try_take`` grants at most ``burst + rate · t`` tokens of one bucket.
- All arithmetic is in whole numbers (a token is 1 000 000 parts, and a rate of r gains r parts a microsecond), so that
  nothing is lost to rounding however often it is asked.
- A clock that goes backwards adds nothing and takes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

PARTS: Final = 1_000_000  # of a token; as a second has microseconds, a rate is parts gained a microsecond

Key = TypeVar("Key", bound=Hashable)


class Bucket:
    """Tokens that come back with time. It begins full."""

    __slots__ = ("_capacity", "_parts", "_rate", "_seen_us")

    def __init__(self, rate: int, burst: int, now_us: int) -> None:
        assert rate > 0 and burst > 0, "no limit is expressed by having no bucket"
        self._rate = rate
        self._capacity = burst * PARTS
        self._parts = self._capacity  # negative: in debt
        self._seen_us = now_us

    def take(self, now_us: int, n: int = 1) -> int:
        """Take ``n`` tokens; the microseconds until the debt is paid, 0 if there is none."""
        self._refill(now_us)
        self._parts -= n * PARTS
        return 0 if self._parts >= 0 else -(self._parts // self._rate)

    def try_take(self, now_us: int, n: int = 1) -> bool:
        """Take ``n`` tokens if they are there."""
        self._refill(now_us)
        if self._parts < n * PARTS:
            return False
        self._parts -= n * PARTS
        return True

    def _refill(self, now_us: int) -> None:
        gone_us = now_us - self._seen_us
        if gone_us > 0:
            self._parts = min(self._capacity, self._parts + gone_us * self._rate)
            self._seen_us = now_us


class Buckets(Generic[Key]):
    """A bucket for each key, of which at most ``keys_max`` are remembered."""

    def __init__(self, rate: int, burst: int, keys_max: int) -> None:
        self._rate = rate
        self._burst = burst
        self._keys_max = keys_max
        self._buckets: dict[Key, Bucket] = {}  # in the order in which they were last asked for

    def __len__(self) -> int:
        return len(self._buckets)

    def try_take(self, key: Key, now_us: int, n: int = 1) -> bool:
        """Whether this key may once more, for ``n`` tokens."""
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = Bucket(self._rate, self._burst, now_us)
            if len(self._buckets) >= self._keys_max:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket.try_take(now_us, n)
