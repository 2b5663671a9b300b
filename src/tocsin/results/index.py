"""Results by subscription, of notices that many ask about.

A client that is behind asks for its own few results of a notice. When a broker takes many clients over at once, all of
them ask about the same notices, and to look through the same files for each takes longer than all else. So a notice
that was asked about ASKED times is read as a whole, once, and kept: then an answer is a look-up. Somebody who catches
up alone does not pay for it, nor does anybody with notices that are large. Threads may share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from tocsin.model.results import Notice

if TYPE_CHECKING:
    from tocsin.results.reader import Result

ASKED: Final = 3  # a client asks twice: for critical results, and for the others
ROWS_MAX: Final = 10_000  # of a notice: some ten milliseconds to read
BYTES_MAX: Final = 16 << 20  # of results that are kept, about
ROW_BYTES: Final = 400  # of a result beside its payload, about
NOTICES_MAX: Final = 1_000  # of which it is remembered how often they were asked about

Key = tuple[int, int]
ByK = dict[str, list["Result"]]


class ResultIndex:
    """Keeps the results of popular notices by backend subscription."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._asked: OrderedDict[Key, int] = OrderedDict()
        self._kept: OrderedDict[Key, tuple[ByK, int]] = OrderedDict()  # with its size
        self.bytes = 0
        self.hits = 0
        self._lock = threading.Lock()
        self._building = threading.Lock()  # one thread reads; the others wait, because they want the same

    def find(
        self, notice: Notice, ks: Collection[str], start: int, read: Callable[[], Iterable[Result]]
    ) -> list[Result] | None:
        """The results of these ks from an ordinal on, in order; None if the notice is not kept, and will not be now.

        ``read`` has all results of the notice, each once, in order. Its exceptions pass.
        """
        key = notice.tick, notice.first
        kept = self._known(key)
        if kept is None:
            if not self._worth_it(key, notice):
                return None
            with self._building:
                kept = self._known(key)
                if kept is None:
                    kept = _by_k(read())
                    self._keep(key, kept)
        found = [each for k in {*ks} for each in kept.get(k, ()) if each.ordinal >= start]
        return sorted(found, key=lambda each: each.ordinal)

    def _known(self, key: Key) -> ByK | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            self.hits += 1
            return self._kept[key][0]

    def _worth_it(self, key: Key, notice: Notice) -> bool:
        if not self._bytes_max or sum(file.rows for file in notice.files) > ROWS_MAX:
            return False
        with self._lock:
            count = self._asked.pop(key, 0) + 1
            self._asked[key] = count
            if len(self._asked) > NOTICES_MAX:
                self._asked.popitem(last=False)
            return count >= ASKED

    def _keep(self, key: Key, kept: ByK) -> None:
        size = sum(ROW_BYTES + len(each.payload) for every in kept.values() for each in every)
        with self._lock:
            self._kept[key] = kept, size
            self.bytes += size
            while self.bytes > self._bytes_max:
                self.bytes -= self._kept.popitem(last=False)[1][1]


def _by_k(results: Iterable[Result]) -> ByK:
    found: ByK = {}
    for each in results:
        found.setdefault(each.k, []).append(each)
    return found
