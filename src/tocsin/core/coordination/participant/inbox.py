"""A broker's notices as they come from the log: none twice, none missing, each in its turn.

Numbers and epochs only grow. A notice may come in several parts, and counts when the last is there. If one is
missing, nothing counts until a notice comes that is fresh, for that tells everything. A notice that tells of a
stream's end waits until the message log was delivered as far as that end, and those behind it wait with it: all of
them in order. If that takes too long it counts before: then messages are **unread** that come before what was told.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from tocsin.wire.internal.notices import AnyItem, Left, Notice

HELD_MAX: Final = 1_000  # notices that wait for the message log; beyond it they do not


class Complete(NamedTuple):
    """A notice that is all there."""

    cause: str
    number: int
    items: list[AnyItem]
    fresh: bool
    ask: bool
    after: int  # position of the message log that comes before it
    applied: int = 0  # it tells what follows from the broker's commands up to this number


class Inbox:
    """Collects the notices of one incarnation in their order."""

    def __init__(self) -> None:
        self.number = 0  # of the last that came
        self.gap = False  # some are missing, and only a whole notice helps
        self._epoch = 0
        self._parts: list[Notice] = []  # the parts of an incomplete notice
        self._held: deque[Complete] = deque()
        self._dispatched = 0  # position of the message log that was delivered here
        self._hurried = 0  # number of the notice that waits for it no longer
        self._unread = 0  # position that comes before a notice that has counted

    def begin(self) -> None:
        """A new incarnation: numbers begin again."""
        self.number, self.gap = 0, False
        self._parts, self._hurried = [], 0
        self._held.clear()

    def is_new(self, notice: Notice) -> bool:
        return notice.number > self.number and notice.epoch >= self._epoch

    def take(self, cause: str, notice: Notice) -> bool:
        """Take a new one; False if something is missing before it."""
        self._epoch = notice.epoch
        if not self._follows_on(notice):
            self.miss()
            return False
        if notice.fresh:
            self._parts = []
        self.gap = False
        self.number = notice.number
        self._parts.append(notice)
        if not notice.more:
            self._held.append(_complete(cause, self._parts))
            self._parts = []
        return True

    def miss(self) -> None:
        """Something is missing."""
        self.gap, self._parts = True, []

    def _follows_on(self, notice: Notice) -> bool:
        return notice.fresh or (notice.number == self.number + 1 and not self.gap)

    def dispatched(self, position: int) -> None:
        self._dispatched = max(self._dispatched, position)

    def next(self) -> Complete | int | None:
        """The next notice, or the position of the message log that it waits for; None if there is none."""
        if not self._held:
            return None
        first = self._held[0]
        waits = first.after > self._dispatched and first.number != self._hurried
        if waits and len(self._held) <= HELD_MAX:
            return first.after
        self._unread = max(self._unread, first.after)
        return self._held.popleft()

    @property
    def unread(self) -> int:
        """The position up to which the message log is still to be delivered that comes before what counts; 0: none."""
        return self._unread if self._unread > self._dispatched else 0

    def give_up(self) -> None:
        """The message log does not come: the next notice does not wait for it."""
        if self._held:
            self._hurried = self._held[0].number


def _complete(cause: str, parts: list[Notice]) -> Complete:
    items = [item for part in parts for item in part.items]
    after = max((item.after for item in items if isinstance(item, Left)), default=0)
    last = parts[-1]
    return Complete(cause, last.number, items, parts[0].fresh, last.ask, after, last.applied)
