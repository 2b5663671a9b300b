"""Time-based separation: at least so long between two messages of one topic to one subscriber.

The first message goes out at once and begins a **period**. Of those that come during it the last is kept, and goes out
when it is over; that begins the next one. So the subscriber always has a value that is at most a period old, and never
more messages than it asked for. A period in which nothing came ends quietly.

Invariants: at most one message is kept a key; ``room`` was asked for all that is kept and is given back for all that
is not; two messages of one key are never given within its period, while the clock does not jump.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tocsin.core.deadlines import Deadlines

Item = TypeVar("Item")
Room = Callable[[int], bool]  # takes bytes for a subscriber; False: there is no room

PERIOD_BYTES: Final = 400  # of a period, beside its key and what is kept
SPACE: Final = "\0"  # between the parts of a key: neither client ids nor topics have it


def key_of(client: str, request: str, topic: str) -> str:
    """What separates the messages of a topic for a subscriber; ``client`` is unique to its connection."""
    return SPACE.join((client, request, topic))


class _Period(Generic[Item]):
    __slots__ = ("bytes", "item", "length_us")

    def __init__(self, length_us: int) -> None:
        self.length_us = length_us
        self.item: Item | None = None
        self.bytes = 0  # of the item


class Separation(Generic[Item]):
    """The periods of a broker's subscribers. ``take`` and ``give`` count bytes for a client."""

    __slots__ = ("_deadlines", "_give", "_of_client", "_periods", "_take", "left_out")

    def __init__(self, take: Callable[[str, int], bool], give: Callable[[str, int], None]) -> None:
        self._take, self._give = take, give
        self._periods: dict[str, _Period[Item]] = {}
        self._of_client: dict[str, set[str]] = {}
        self._deadlines = Deadlines()
        self.left_out = 0  # messages that came too soon

    def __len__(self) -> int:
        return len(self._periods)

    @property
    def next_us(self) -> int | None:
        """When to ask what is ``due``."""
        return self._deadlines.next_us

    def passes(self, client: str, key: str, item: Item, size: int, length_us: int, now_us: int) -> bool:
        """Whether a message goes out now; if not, it is kept or left out."""
        period = self._periods.get(key)
        if period is None:
            if not self._take(client, PERIOD_BYTES + len(key)):
                self.left_out += 1
                return False
            self._periods[key] = _Period(length_us)
            self._of_client.setdefault(client, set()).add(key)
            self._deadlines.set(key, now_us + length_us)
            return True
        self.left_out += 1
        self._let_go(client, period)
        if self._take(client, size):
            period.item, period.bytes = item, size
        return False

    def _let_go(self, client: str, period: _Period[Item]) -> None:
        if period.item is not None:
            self._give(client, period.bytes)
            period.item, period.bytes = None, 0

    def due(self, now_us: int) -> list[tuple[str, Item]]:
        """What goes out now, with its key."""
        found: list[tuple[str, Item]] = []
        for key in self._deadlines.due(now_us):
            period, client = self._periods[key], key.partition(SPACE)[0]
            if period.item is None:
                self._end(client, key)
                continue
            found.append((key, period.item))
            self.left_out -= 1  # it came, only later
            self._let_go(client, period)
            self._deadlines.set(key, now_us + period.length_us)
        return found

    def _end(self, client: str, key: str) -> None:
        period = self._periods.pop(key)
        self._let_go(client, period)
        self._give(client, PERIOD_BYTES + len(key))
        keys = self._of_client[client]
        keys.discard(key)
        if not keys:
            del self._of_client[client]

    def forget(self, client: str, request: str | None = None) -> None:
        """The client is gone, or (``request``) has no subscription with this request any more."""
        for key in tuple(self._of_client.get(client, ())):
            if request is None or key.split(SPACE)[1] == request:
                self._deadlines.drop(key)
                self._end(client, key)
