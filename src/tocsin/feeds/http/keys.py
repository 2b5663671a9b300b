"""Requests with an ``Idempotency-Key``: which were taken, and which may have been; pure.

The log remembers the ids of records for minutes. A sender that got no answer may come back later than that, and to
another feeder. So requests that were taken are written down, in **pages** of the feeder's table. A page is
written some time after its requests were taken; until then the log has their records, and is not trimmed behind the
position that ``settle`` names. A starting feeder reads the pages, then the log from that position on, and knows every
request that a page would have had.

A request is **tried** from before its append until it is known to be taken. A request without an answer from the store
stays undecided; a look behind its position finds it, or allows another try.

**Shares.** A page has requests of one sender, and there are so many cells for pages. If all are in use, the sender with
most pages loses its oldest: so whoever sends much forgets its own requests, and nobody else's. What is tried is bounded
in the same way. The name of a request begins with its sender's (``sender_of``), so that a request that is found in the
log is its sender's again. Pages of earlier releases name no sender; they are those of one more.

Invariants: a page is never larger than ``page_keys``; there are never more than ``cells`` pages. Of ``n`` senders each
has at least its newest ``(cells // n - 1) x page_keys`` requests known. A request whose records are in the log is in a
page, or tried, or behind the position that ``settle`` named last.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.model.versions import Packed

PAGE_KEYS: Final = 100
CELLS: Final = 510
NAME_BYTES: Final = 16
SENDER_CHARS: Final = 16  # of a request's name, in hexadecimal digits
TRIED_MAX: Final = 50_000  # without an answer; some 300 bytes each, so 15 MB
_SENT: Final = re.compile(rf"(.+\.http\.)([0-9a-f]{{{SENDER_CHARS}}})([0-9a-f]{{32}})", re.ASCII)


class RequestPage(msgspec.Struct, frozen=True, array_like=True):
    """Requests of one sender that were taken, in order."""

    number: int  # grows, over all senders
    names: bytes  # NAME_BYTES each
    sender: str = ""  # empty: of an earlier release


PAGE: Final = Packed("requests that a feed took", msgspec.msgpack.Decoder(RequestPage))


def name_of(request: str) -> bytes:
    """A request as a page has it: without its sender, which earlier releases did not write."""
    if (sent := _SENT.fullmatch(request)) is not None:
        request = sent[1] + sent[3]
    return blake2b(request.encode(), digest_size=NAME_BYTES).digest()


def sender_of(request: str) -> str:
    """Whose request it is; empty if its name was made by an earlier release."""
    sent = _SENT.fullmatch(request)
    return "" if sent is None else sent[2]


class _Page(msgspec.Struct):
    sender: str
    cell: int
    names: list[bytes] = []
    written: int = 0  # how many names its cell has


class Keys:
    """Remembers requests to feeds. A request is known by the beginning of its records' ids."""

    def __init__(self, cells: int = CELLS, page_keys: int = PAGE_KEYS, tried_max: int = TRIED_MAX) -> None:
        self._page_keys = page_keys
        self._tried_max = tried_max
        self._free = list(reversed(range(cells)))
        self._pages: dict[int, _Page] = {}  # by number; the oldest first
        self._of: dict[str, list[int]] = {}  # the pages of a sender, the oldest first; never empty
        self._taken: set[bytes] = set()  # the names in all pages
        # Behind which position it would be, since when, and whose it is.
        self._tried: dict[bytes, tuple[int, int, str]] = {}
        self._tries: dict[str, dict[bytes, None]] = {}  # the same by sender, the oldest first; never empty

    def load(self, pages: dict[int, RequestPage]) -> None:
        """Begin with the pages that there are, by their cells."""
        for cell, page in sorted(pages.items(), key=lambda each: each[1].number):
            if cell not in self._free:
                continue  # of a release with more of them
            names = [
                page.names[start : start + NAME_BYTES] for start in range(0, len(page.names), NAME_BYTES)
            ]
            self._free.remove(cell)
            self._pages[page.number] = _Page(page.sender, cell, names, len(names))
            self._of.setdefault(page.sender, []).append(page.number)
            self._taken.update(names)

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def taken(self, request: str) -> bool:
        return name_of(request) in self._taken

    def behind(self, request: str) -> int | None:
        """The position behind which the log may have it; None: it is not known to have been tried."""
        tried = self._tried.get(name_of(request))
        return None if tried is None else tried[0]

    def tries(self, request: str, behind: int, now_us: int) -> None:
        """It is about to be appended."""
        name, sender = name_of(request), sender_of(request)
        earlier = self._tried.get(name, (behind, 0, ""))[0]
        self._decide(name)
        self._tried[name] = (min(behind, earlier), now_us, sender)
        self._tries.setdefault(sender, {})[name] = None
        if len(self._tried) > self._tried_max:
            most = max(self._tries.values(), key=len)
            self._decide(next(iter(most)))

    def _decide(self, name: bytes) -> None:
        """A request is tried no longer, whatever became of it."""
        if (tried := self._tried.pop(name, None)) is not None:
            sender = tried[2]
            del self._tries[sender][name]
            if not self._tries[sender]:
                del self._tries[sender]

    def refused(self, request: str) -> None:
        """The log did not take it, and will not."""
        self._decide(name_of(request))

    def took(self, request: str) -> None:
        name = name_of(request)
        self._decide(name)
        if name not in self._taken:
            self._page(sender_of(request)).names.append(name)
            self._taken.add(name)

    def _page(self, sender: str) -> _Page:
        """A page of a sender's with room for one more."""
        numbers = self._of.setdefault(sender, [])
        if numbers and len(self._pages[numbers[-1]].names) < self._page_keys:
            return self._pages[numbers[-1]]
        number = next(reversed(self._pages), -1) + 1
        numbers.append(number)
        if not self._free:
            self._forget_oldest()
        self._pages[number] = _Page(sender, self._free.pop(), [])
        return self._pages[number]

    def _forget_oldest(self) -> None:
        """Forget a page of the sender that has most, or would; of equals, the one that has its oldest for longest."""
        most = max(self._of.values(), key=lambda numbers: (len(numbers), -numbers[0]))
        page = self._pages.pop(most.pop(0))
        if not most:
            del self._of[page.sender]
        self._taken.difference_update(page.names)
        self._free.append(page.cell)

    # ── writing down ────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, last: int) -> tuple[dict[int, RequestPage], int]:
        """The pages to write now, by their cells, and the position behind which the log is needed then.

        ``last`` is a position that the log had before this was asked.
        """
        pages = {
            page.cell: RequestPage(number, b"".join(page.names), page.sender)
            for number, page in self._pages.items()
            if len(page.names) > page.written
        }
        return pages, min((last, *(tried[0] for tried in self._tried.values())))

    def wrote(self, page: RequestPage) -> None:
        """The cell of a page has it."""
        if page.number in self._pages:
            self._pages[page.number].written = len(page.names) // NAME_BYTES

    @property
    def idle(self) -> bool:
        """Whether everything is written, and nothing tried."""
        return not self._tried and not self.settle(0)[0]

    def doubts(self, before_us: int) -> bool:
        """Whether a request was tried before that time, and has had no answer since."""
        return any(tried[1] < before_us for tried in self._tried.values())

    def give_up(self, before_us: int) -> None:
        """Requests that were tried before that time, and that the log does not have, are as if they never were."""
        for name in [name for name, tried in self._tried.items() if tried[1] < before_us]:
            self._decide(name)
