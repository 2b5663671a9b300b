"""Which writes to a table go alone, and which together, in one lot.

A server syncs each single write to its disk, and a lot of any size once; but a lot has a fixed price, that of some 16
writes. So few writes go alone, and at once. Further ones wait until a write that is under way ends, and one of them
goes alone; or until so many wait that a lot is cheaper. One lot is under way at a time, and all that comes meanwhile
waits for its end: lots grow with the load.

A lot happens whole or not at all, and has each key once. If it does not happen its writes go alone. Once an answer is
missing nobody waits any longer: the store may be away, and each write has a deadline of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

LOT_MIN: Final = 16  # writes: a lot takes a server as long as so many single ones (measured)
LOT_MAX: Final = 256  # writes; a server takes 1 000
LOT_MAX_BYTES: Final = 4 << 20  # of values


class Write(Protocol):
    """A write that may wait."""

    @property
    def subject(self) -> str: ...

    @property
    def size(self) -> int:
        """The bytes of its value."""
        ...


W = TypeVar("W", bound=Write)


class Lots(Generic[W]):
    """The writes to one table that are made for the first time: each waits, or goes alone, or goes in the lot."""

    def __init__(self) -> None:
        self._waiting: dict[str, W] = {}  # by subject; the first came first
        self._lot: dict[str, W] = {}  # by subject: those that somebody wants still
        self._under_way = False  # a lot is
        self._alone: set[W] = set()
        self.enabled = True  # whether the server takes lots

    def comes(self, write: W) -> bool:
        """Whether a write may go alone, at once. If not it waits for ``ready``."""
        twice = write.subject in self._waiting or write.subject in self._lot
        busy = self._under_way or self._waiting or len(self._alone) >= LOT_MIN
        if self.enabled and busy and not twice:
            self._waiting[write.subject] = write
            return False
        self._alone.add(write)
        return True

    def ready(self) -> Sequence[W]:
        """The writes that go now: one alone, several as the lot. Ask until there are none."""
        if self._under_way or not self._waiting:
            return ()
        if len(self._waiting) < LOT_MIN:
            return () if len(self._alone) >= LOT_MIN else (self._next_alone(),)
        size = 0
        for write in self._waiting.values():
            size += write.size
            if self._lot and (len(self._lot) == LOT_MAX or size > LOT_MAX_BYTES):
                break
            self._lot[write.subject] = write
        if len(self._lot) == 1:  # and the next is too large to go with it
            self._lot.clear()
            return (self._next_alone(),)
        for subject in self._lot:
            del self._waiting[subject]
        self._under_way = True
        return tuple(self._lot.values())

    def _next_alone(self) -> W:
        write = self._waiting.pop(next(iter(self._waiting)))
        self._alone.add(write)
        return write

    def left(self, write: W) -> None:
        """A write has its outcome, or nobody wants it any more."""
        if self._waiting.get(write.subject) is write:
            del self._waiting[write.subject]
        if self._lot.get(write.subject) is write:
            del self._lot[write.subject]
        self._alone.discard(write)

    def lot_ended(self, *, happened: bool) -> None:
        """The lot was answered, or was not. If it did not happen its writes go alone."""
        if not happened:
            self._alone.update(self._lot.values())
        self._lot.clear()
        self._under_way = False

    def give_way(self) -> Sequence[W]:
        """An answer is missing: all that wait go alone, now."""
        waiting = tuple(self._waiting.values())
        self._waiting.clear()
        self._alone.update(waiting)
        return waiting
