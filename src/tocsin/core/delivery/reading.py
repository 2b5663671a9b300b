"""How the message log is read at one broker: for which filters, from when on, and how far.

    want, unwant ──► missing? ──► a reader is prepared ──► it begins: from its position on the filters are read
                         ▲                                       │
                         └── what came in the meantime ◄─────────┘

One reader is **in force**: what it brings is dispatched, and moves the ``tail``. A filter that it does not cover is
**missing**: a reader for all that is wanted is prepared beside it, from the tail on. When that has begun it takes over,
without a gap and without a repeat: what the first has brought meanwhile is passed over. From then on the filter is
**covered**: everything that matches it beyond the tail of that moment is dispatched.

So a subscription to a filter that is missing cannot begin at once. Its beginning is told when it is covered: the
position where the log ended, as the new reader found it. Who reads the log by itself from an earlier position (a client
that is behind, a group) goes on with that until its filters are covered: what it has read up to the tail is not
dispatched again, and what comes is.

Each new reader costs the store and the broker something. So filters that come often make the reading coarser
(``core.delivery.wanted``): after SWITCHES_MAX readers within HURRY_US the next level is read, which covers most
filters to come. A level that has not grown for CALM_US is fine enough to go back to. Filters that are wanted no longer
are read on until then.

A filter whose subscriber cannot wait (the store is cut off) is **promised** from the tail on: nothing more is
dispatched until there is a reader that covers it.

Invariants: a filter is covered only if the reader in force brings everything that matches it; the tail moves only by
what that reader brings; at most one reader is prepared at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Literal

from tocsin.core.delivery.wanted import ALL_FILTERS, Level, Wanted, covers

SWITCHES_MAX: Final = 3  # readers made in a hurry, at one level …
HURRY_US: Final = 5_000_000  # … within this
CALM_US: Final = 10_000_000
KNOWN_MAX: Final = 65_536  # filters of which it is remembered whether they are covered
FAR: Final = (1 << 62) - 1  # beyond every position: what is not read here is never caught up with

Mode = Literal["wanted", "all"]


class Reading:
    """Decides for which filters the log is read, and knows what is covered."""

    def __init__(self, mode: Mode = "wanted") -> None:
        self.tail = 0  # everything covered up to here was dispatched
        self.filters: tuple[str, ...] | None = None  # of the reader in force; None: there is none
        self.preparing: tuple[str, ...] | None = None  # of the one that is being made
        self.level = Level.EXACT if mode == "wanted" else Level.ALL
        self.switches = 0  # readers that were made, ever
        self._mode = mode
        self._wanted = Wanted()
        self._missing: dict[str, None] = {}
        self._since: dict[str, None] = {}  # wanted since the last plan, and covered then
        self._hurried_us: deque[int] = deque(
            maxlen=SWITCHES_MAX
        )  # when readers were made for what was missing
        self._made_us: int | None = None  # when the last reader was made
        self._known: dict[str, bool] = {}  # filter → whether it is covered

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────────────────

    def want(self, topic_filter: str, now_us: int) -> None:
        """One more wants a filter."""
        if not self._wanted.add(topic_filter, now_us):
            return
        if self.covers(topic_filter):
            self._since[topic_filter] = None
        else:
            self._missing[topic_filter] = None

    def unwant(self, topic_filter: str) -> None:
        """One fewer wants it."""
        if self._wanted.remove(topic_filter):
            self._missing.pop(topic_filter, None)
            self._since.pop(topic_filter, None)

    def covers(self, topic_filter: str) -> bool:
        """Whether everything that matches a filter beyond the tail is dispatched."""
        filters = self.filters
        if filters is None:
            return False
        if filters == ALL_FILTERS:
            return True
        known = self._known.get(topic_filter)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[topic_filter] = any(covers(each, topic_filter) for each in filters)
        return known

    def horizon(self, filters: Iterable[str]) -> int:
        """The position beyond which everything that matches is dispatched; ``FAR`` if something is not read."""
        return self.tail if all(self.covers(each) for each in filters) else FAR

    # ── readers ─────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, now_us: int) -> tuple[str, ...] | None:
        """The filters of a reader that is to be made now; ``begun`` or ``given_up`` follows."""
        if self.preparing is not None:
            return None
        if self.filters is None or self._missing:
            self._hurry(now_us)
        elif (calm := self._calm(now_us)) < self.level:
            self.level = calm
        plan = self._wanted.filters(self.level)
        if plan == self.filters:
            return None
        hurries = bool(self._missing) or self.filters is None
        if not hurries and not (self._is_calm(self.level, now_us) and self._rested(now_us)):
            return None
        self.preparing, self._made_us = plan, now_us
        self._since.clear()
        self.switches += 1
        return plan

    def _hurry(self, now_us: int) -> None:
        """A reader is needed at once: a coarser one, if that has been so too often."""
        hurried = self._hurried_us
        if len(hurried) == SWITCHES_MAX and now_us - hurried[0] < HURRY_US and self.level < Level.ALL:
            self.level = Level(self.level + 1)
            hurried.clear()
        hurried.append(now_us)

    def _calm(self, now_us: int) -> Level:
        """The finest level that has not grown for a while."""
        if self._mode == "all":
            return Level.ALL
        return next(level for level in Level if self._is_calm(level, now_us))

    def _is_calm(self, level: Level, now_us: int) -> bool:
        grew_us = self._wanted.grew_us(level)
        return grew_us is None or now_us - grew_us >= CALM_US

    def _rested(self, now_us: int) -> bool:
        return self._made_us is None or now_us - self._made_us >= CALM_US

    @property
    def settled(self) -> bool:
        """Whether no other reader is to be made, however long nothing changes."""
        return self.preparing is None and self.filters == self._wanted.filters(
            Level.EXACT if self._mode == "wanted" else Level.ALL
        )

    def may_begin(self) -> bool:
        """Whether the reader that was prepared may take over. It may not if it lacks a filter that is covered now: one
        that was given up when the reader was planned, and has come back since."""
        preparing = self.preparing or ()
        return all(any(covers(wide, each) for wide in preparing) for each in self._since)

    def begun(self) -> None:
        """The reader that was prepared takes over, at the tail."""
        assert self.preparing is not None, "no reader was made"
        self.filters, self.preparing = self.preparing, None
        self._known.clear()
        self._missing = {each: None for each in self._missing if not self.covers(each)}

    def given_up(self) -> None:
        """The reader that was prepared could not begin."""
        self.preparing = None

    def promise(self, filters: Iterable[str]) -> bool:
        """Nothing is dispatched before there is a reader for these filters, which are wanted; whether whoever reads is
        to stop for that."""
        preparing = self.preparing or ()
        if self.filters is None and all(any(covers(wide, each) for wide in preparing) for each in filters):
            return False
        self.filters = self.preparing = None
        self._missing = dict.fromkeys(self._wanted)
        return True
