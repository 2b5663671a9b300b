"""Requests with an ``Idempotency-Key``: which were taken, and which may have been; pure.

The log remembers the ids of records for minutes. A sender that got no answer may come back later than that, and to
another feeder. So requests that were taken are written down, in a ring of **pages** of the feeder's table. A page is
written some time after its requests were taken; until then the log has their records, and is not trimmed behind the
position that ``settle`` names. A starting feeder reads the pages, then the log from that position on, and knows every
request that a page would have had.

A request is **tried** from before its append until it is known to be taken. A request without an answer from the store
stays undecided; a look behind its position finds it, or allows another try.

Invariants: a page is never larger than ``page_keys``. The newest ``(pages - 1) x page_keys`` requests are known.
A request whose records are in the log is in a page, or tried, or behind the position that ``settle`` named last.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.model.versions import Packed

PAGE_KEYS: Final = 1_000
PAGES: Final = 51  # so that 50 000 are known while the oldest page is written over
NAME_BYTES: Final = 16
TRIED_MAX: Final = 50_000  # without an answer; some 200 bytes each, so 10 MB


class RequestPage(msgspec.Struct, frozen=True, array_like=True):
    """Requests that were taken, in order."""

    number: int  # grows; its cell is ``number % pages``
    names: bytes  # NAME_BYTES each


PAGE: Final = Packed("requests that a feed took", msgspec.msgpack.Decoder(RequestPage))


def name_of(request: str) -> bytes:
    """A request as a page has it."""
    return blake2b(request.encode(), digest_size=NAME_BYTES).digest()


class Keys:
    """Remembers requests to feeds. A request is known by the beginning of its records' ids."""

    def __init__(self, pages: int = PAGES, page_keys: int = PAGE_KEYS) -> None:
        self._ring = pages
        self._page_keys = page_keys
        self._pages: dict[int, list[bytes]] = {0: []}  # by number; the oldest first
        self._written: dict[int, int] = {}  # how many names of a page its cell has
        self._taken: set[bytes] = set()  # the names in all pages
        self._tried: dict[bytes, tuple[int, int]] = {}  # behind which position it would be, and since when

    def load(self, pages: list[RequestPage]) -> None:
        """Begin with the pages that there are."""
        for page in sorted(pages, key=lambda each: each.number):
            names = [
                page.names[start : start + NAME_BYTES] for start in range(0, len(page.names), NAME_BYTES)
            ]
            self._pages[page.number] = names
            self._written[page.number] = len(names)
            self._taken.update(names)
        self._forget_oldest()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def taken(self, request: str) -> bool:
        return name_of(request) in self._taken

    def behind(self, request: str) -> int | None:
        """The position behind which the log may have it; None: it is not known to have been tried."""
        tried = self._tried.get(name_of(request))
        return None if tried is None else tried[0]

    def tries(self, request: str, behind: int, now_us: int) -> None:
        """It is about to be appended."""
        name = name_of(request)
        earlier = self._tried.pop(name, (behind, 0))[0]
        self._tried[name] = (min(behind, earlier), now_us)
        if len(self._tried) > TRIED_MAX:
            del self._tried[next(iter(self._tried))]

    def refused(self, request: str) -> None:
        """The log did not take it, and will not."""
        self._tried.pop(name_of(request), None)

    def took(self, request: str) -> None:
        name = name_of(request)
        self._tried.pop(name, None)
        if name in self._taken:
            return
        number = next(reversed(self._pages))
        if len(self._pages[number]) >= self._page_keys:
            number += 1
            self._pages[number] = []
            self._forget_oldest()
        self._pages[number].append(name)
        self._taken.add(name)

    def _forget_oldest(self) -> None:
        newest = next(reversed(self._pages))
        for number in [each for each in self._pages if each <= newest - self._ring]:
            self._taken.difference_update(self._pages.pop(number))
            self._written.pop(number, None)

    # ── writing down ────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, last: int) -> tuple[list[RequestPage], int]:
        """The pages to write now, and the position behind which the log is needed when they are written.

        ``last`` is a position that the log had before this was asked.
        """
        pages = [
            RequestPage(number, b"".join(names))
            for number, names in self._pages.items()
            if len(names) > self._written.get(number, 0)
        ]
        return pages, min((last, *(behind for behind, _ in self._tried.values())))

    def wrote(self, page: RequestPage) -> None:
        """The cell of a page has it."""
        if page.number in self._pages:
            self._written[page.number] = len(page.names) // NAME_BYTES

    def cell(self, page: RequestPage) -> int:
        """The number of the cell of a page."""
        return page.number % self._ring

    @property
    def idle(self) -> bool:
        """Whether everything is written, and nothing tried."""
        return not self._tried and not self.settle(0)[0]

    def doubts(self, before_us: int) -> bool:
        """Whether a request was tried before that time, and has had no answer since."""
        return any(since_us < before_us for _, since_us in self._tried.values())

    def give_up(self, before_us: int) -> None:
        """Requests that were tried before that time, and that the log does not have, are as if they never were."""
        self._tried = {name: tried for name, tried in self._tried.items() if tried[1] >= before_us}
