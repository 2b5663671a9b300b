"""Reliable delivery at QoS 0, without a log: what a flow's origin keeps, and what its destinations have.

The **origin** is the broker of the publisher. It keeps each message of a reliable flow until every destination has said
that it has it. A **destination** is a broker with a subscriber that requests reliability; it enrols at the origin, and
gets all that is published from then on. It says up to which number it has everything (``acknowledge``). What it lacks
for longer than AGAIN_US is sent again, straight to it, over whatever way there is.

A destination passes messages on in order. What comes before something that is missing waits in its **window** of
WINDOW numbers; what it has already is dropped. A new connection of the publisher, or a restart of its broker, is
another flow with a window of its own. What the origin does not keep any more is passed over, and counted as lost.

Invariants: a destination passes each number on at most once, in order; an origin keeps nothing that every destination
has, nothing without one, and at most its bound of bytes: beyond it the oldest is given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

WINDOW: Final = 1_024  # numbers
AGAIN_US: Final = 250_000  # longer than an acknowledgement takes, and a message on its way
BACKOFF_MOST: Final = 16  # times as long, while a destination says nothing


class _Destination:
    __slots__ = ("acknowledged", "again_us", "patience")

    def __init__(self, acknowledged: int, now_us: int) -> None:
        self.acknowledged = acknowledged  # everything up to there
        self.again_us = now_us + AGAIN_US  # when what it lacks is sent again
        self.patience = 1


class Origin(Generic[Item]):
    """What the origin of one flow keeps."""

    __slots__ = ("_destinations", "_kept", "bytes", "given_up", "last")

    def __init__(self) -> None:
        self._kept: deque[tuple[int, Item, int, int]] = deque()  # number, message, size, when it was sent
        self._destinations: dict[str, _Destination] = {}
        self.last = 0  # number that was published
        self.bytes = 0
        self.given_up = 0  # messages that somebody may lack

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def destinations(self) -> Collection[str]:
        return self._destinations.keys()

    @property
    def first(self) -> int:
        """The oldest number that can be sent again."""
        return self._kept[0][0] if self._kept else self.last + 1

    def enrol(self, broker: str, now_us: int) -> bool:
        """A destination gets everything from now on; whether it is a new one."""
        if broker in self._destinations:
            return False
        self._destinations[broker] = _Destination(self.last, now_us)
        return True

    def leave(self, broker: str) -> None:
        """A destination is gone, or wants the flow no longer."""
        if self._destinations.pop(broker, None) is not None:
            self._forget()

    def publish(self, number: int, item: Item, size: int, now_us: int, most_bytes: int) -> None:
        """A message goes out; it is kept if there is a destination."""
        self.last = number
        if not self._destinations:
            return
        if not self._kept:
            for each in self._destinations.values():
                each.again_us = now_us + AGAIN_US
        self._kept.append((number, item, size, now_us))
        self.bytes += size
        while self.bytes > most_bytes and self._kept:
            self.bytes -= self._kept.popleft()[2]
            self.given_up += 1

    def acknowledge(self, broker: str, number: int, now_us: int) -> None:
        """A destination has everything up to this number."""
        destination = self._destinations.get(broker)
        if destination is None or number <= destination.acknowledged:
            return
        destination.acknowledged = min(number, self.last)
        destination.patience = 1
        destination.again_us = now_us + AGAIN_US
        self._forget()

    def _forget(self) -> None:
        """Keep no more than somebody lacks."""
        least = min((each.acknowledged for each in self._destinations.values()), default=self.last)
        while self._kept and self._kept[0][0] <= least:
            self.bytes -= self._kept.popleft()[2]

    def next_us(self) -> int | None:
        """When something may have to be sent again."""
        if not self._kept:
            return None
        return min(
            (each.again_us for each in self._destinations.values() if each.acknowledged < self.last),
            default=None,
        )

    def due(self, now_us: int, most: int) -> Iterator[tuple[str, list[tuple[int, Item]]]]:
        """By destination what it lacks for too long: the oldest messages, at most so many."""
        for broker, each in self._destinations.items():
            if each.acknowledged >= self.last or each.again_us > now_us or not self._kept:
                continue
            late = [
                (number, item)
                for number, item, _, sent_us in self._kept
                if number > each.acknowledged and now_us - sent_us >= AGAIN_US
            ][:most]
            each.again_us = now_us + AGAIN_US * each.patience
            each.patience = min(2 * each.patience, BACKOFF_MOST)
            if late:
                yield broker, late


class Window(Generic[Item]):
    """What a destination has of one flow."""

    __slots__ = ("_waiting", "dropped", "next", "passed_over")

    def __init__(self, following: int) -> None:
        self.next = following  # everything before it was passed on, or is not for us
        self.dropped = 0  # that it had already, or had no room for
        self.passed_over = 0  # that nobody can send any more
        self._waiting: dict[int, Item] = {}  # above ``next``, fewer than WINDOW

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_waiting(self) -> int:
        """The oldest number that waits for those before it."""
        return min(self._waiting, default=self.next)

    def take(self, number: int, item: Item) -> list[Item]:
        """A message has come; those that go on now, in order."""
        if number < self.next or number in self._waiting or number >= self.next + WINDOW:
            self.dropped += 1
            return []
        self._waiting[number] = item
        return self._in_order()

    def pass_over(self, first: int) -> list[Item]:
        """Nothing before this number can come any more; those that go on now."""
        if first <= self.next:
            return []
        gone = [self._waiting.pop(number) for number in sorted(self._waiting) if number < first]
        self.passed_over += first - self.next - len(gone)
        self.next = first
        return [*gone, *self._in_order()]

    def _in_order(self) -> list[Item]:
        found = []
        while self.next in self._waiting:
            found.append(self._waiting.pop(self.next))
            self.next += 1
        return found
