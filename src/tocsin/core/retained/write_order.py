"""The order of writes of retained messages: for each topic, the order in which they came.

A message above QoS 0 is retained once the log has it, one at QoS 0 at once. So each takes a **place** in its topic's
line when it comes, and settles it when it may be written, or never will be. One write of a topic is under way at a
time. If several may be written together, only the newest is: the others count as written with it.

Each is written with a position in the log, by which brokers that write the same topic agree
(``broker.retained.table``): its own, or as far as the log was known when one came that is in no log. A broker's own
messages are in the order of its line, whatever their positions: none is written with a smaller one than the one before
it.

A message at QoS 0 is in the copy only when it is written, and its subscribers have got it before. Somebody who
subscribes in between gets it neither as a new message nor, yet, as a retained one. So whoever is to get retained
messages waits until all that came before have been written, or given up (``WriteBarrier``), but not for long: a store
that is away must not keep from subscribers what is here.

Invariant: what is written of a topic last is what came last, of all that were to be retained.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Generic, TypeVar

Item = TypeVar("Item")


class WriteTurn(Generic[Item]):
    """One message's turn in the line of its topic."""

    __slots__ = ("item", "settled", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.settled = False
        self.item: Item | None = None  # what to write; None: nothing, after all


class RetainLines(Generic[Item]):
    """The lines of all topics of which something waits or is being written."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[WriteTurn[Item]]] = {}
        self._busy: set[str] = set()  # topics of which a write is under way
        self._written: dict[str, int] = {}  # topic → the position of the last write, while its line lasts

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, topic: str) -> WriteTurn[Item]:
        place: WriteTurn[Item] = WriteTurn(topic)
        self._lines.setdefault(topic, deque()).append(place)
        return place

    def last(self, topic: str) -> WriteTurn[Item] | None:
        """The last place in a topic's line, if it is settled: it may be written, and is not yet."""
        line = self._lines.get(topic)
        return line[-1] if line and line[-1].settled and line[-1].item is not None else None

    def settle(self, place: WriteTurn[Item], item: Item | None) -> None:
        """It may be written now; or (None) it will not be."""
        assert not place.settled, "a place is settled once"
        place.settled, place.item = True, item

    def start(self, topic: str) -> list[Item]:
        """The items to write now, as one write of the last of them; ``finish`` follows unless there are none."""
        line = self._lines.get(topic)
        if line is None or topic in self._busy:
            return []
        items: list[Item] = []
        while line and line[0].settled:
            place = line.popleft()
            # The place and its item often refer to each other: such a circle would hold the message until garbage is
            # collected.
            item, place.item = place.item, None
            if item is not None:
                items.append(item)
        if items:
            self._busy.add(topic)
        elif not line:
            self._end(topic)
        return items

    def position(self, topic: str, own: int) -> int:
        """That with which a message is written of which this is the own one."""
        position = self._written[topic] = max(own, self._written.get(topic, 0))
        return position

    def finish(self, topic: str) -> None:
        """The write is done, or was given up."""
        self._busy.discard(topic)
        if not self._lines[topic]:
            self._end(topic)

    def _end(self, topic: str) -> None:
        """Nobody waits. A new item comes later than all that the log had when something was written."""
        del self._lines[topic]
        self._written.pop(topic, None)


class WriteBarrier(Generic[Item]):
    """Lets items pass in their order, each when all writes that were under way as it came have ended."""

    def __init__(self) -> None:
        self._begun = 0
        self._under_way: dict[int, None] = {}  # the numbers of writes, in their order
        self._waiting: dict[Item, int] = {}  # with the number of the last write before each, in their order

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self) -> int:
        """A write is under way; ``end`` follows with its number, which is never 0."""
        self._begun += 1
        self._under_way[self._begun] = None
        return self._begun

    def end(self, number: int) -> list[Item]:
        """A write has ended; the items that may pass now."""
        del self._under_way[number]
        oldest = next(iter(self._under_way), self._begun + 1)
        passed = list(takewhile(lambda item: self._waiting[item] < oldest, self._waiting))
        for item in passed:
            del self._waiting[item]
        return passed

    def wait(self, item: Item) -> bool:
        """Whether an item has to wait, from now on; else it may pass at once."""
        self._waiting.pop(item, None)
        if self._under_way:
            self._waiting[item] = self._begun
        return bool(self._under_way)

    def skip(self, item: Item) -> bool:
        """Let an item pass although writes are under way; False if it waits no longer."""
        return self._waiting.pop(item, None) is not None
