"""The cell of one group as one broker knows it, and the writing of it: compare-and-set beside others who write it too.

A write is tried, with the same bytes, until the cell's revision is another than the one that it expected. Then it is
known what the cell says, which is all that counts: whether this write made it so can be told by looking for what it
was to bring about.

    idle ──write──► put ──Stored────────────────────────────────► known
                     │  ──Conflict──► get ──► (another revision) ──► known
                     │                     └► (the expected one) ──► put
                     └  ──no answer, or no store──► (a while) ──► get

A write that a full store refuses is tried like that too, unless its owner gives it up (``give_up``): it can if no try
may still take effect.

What the watch says meanwhile is kept until the write is answered, because it may be that write itself.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.machine import DeleteKey, Effect, GetKey, PutKey, Say, SetTimer, Stored, StoreFailed
from tocsin.core.stored_group import GROUPS, StoredGroup, decode_group, encode_group, group_key
from tocsin.errors import Conflict, OutcomeUnknown
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Cell, Change

GET: Final = "get"
PUT: Final = "put"
CELL_AGAIN: Final = "cell again"
UNREADABLE_US: Final = 30_000_000  # before a cell that cannot be read is looked at again: a person has to act
AGAIN_US: Final = 500_000  # before a failed request is tried once more: no burden on a store in trouble


class GroupCell:
    """See the module's text."""

    def __init__(self, name: str) -> None:
        self.group: StoredGroup | None = None  # as it is known; None: there is none, or nothing is known yet
        self.known = False
        self.problem = ""  # why it cannot be read
        self._key = group_key(name)
        self.revision = 0  # of ``group``; none is ever used twice
        self._newest = 0  # the newest revision that was heard of, also of a removal
        self._asked = ""  # the request under way, or to be tried again
        self._writing = False  # a write has begun, and its outcome is not known
        self._bytes: bytes | None = None  # what it writes; None: it removes
        self._ttl_us: int | None = None
        self._watched: Change | None = None  # the newest that was heard of during a request
        self.unsure = False  # a try of the write under way may have taken effect, or still will

    @property
    def busy(self) -> bool:
        return bool(self._asked)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, cause: str) -> list[Effect]:
        """Read the cell, unless something is under way, from which it will be known."""
        return [] if self.busy else [self._ask(GET, cause)]

    def write(self, group: StoredGroup | None, ttl_us: int | None, cause: str) -> Effect:
        """Make this of the cell; None removes it."""
        assert not self.busy, "one request at a time"
        self._writing = True
        self._bytes = None if group is None else encode_group(group)
        self._ttl_us = ttl_us
        return self._ask(PUT, cause)

    def again(self, cause: str) -> list[Effect]:
        """What failed, once more; of a write, first what has become of it."""
        return [self._ask(GET, cause)] if self.busy else []

    def give_up(self) -> None:
        """Forget the write under way, which a store refused: the cell is as it was."""
        assert not self.unsure, "it may be written yet"
        self._asked, self._writing, self._bytes = "", False, None

    def _ask(self, request: str, cause: str) -> Effect:
        self._asked = request
        if request == GET:
            # Fresh: by an older cell it would give to a member what that has settled.
            return GetKey(request=GET, table=GROUPS, key=self._key, fresh=True, cause=cause)
        if self._bytes is None:
            return DeleteKey(request=PUT, table=GROUPS, key=self._key, revision=self.revision, cause=cause)
        return PutKey(
            request=PUT,
            table=GROUPS,
            key=self._key,
            value=self._bytes,
            revision=self.revision,
            ttl_us=self._ttl_us,
            cause=cause,
        )

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def stored(self, event: Stored) -> tuple[bool, list[Effect]]:
        """Whether the cell is known anew, and what else is to be done."""
        if event.request != self._asked:
            return False, []  # of a try that was given up
        if event.request == GET:
            cell: Cell | None = event.value
            if self._writing and self.revision == (0 if cell is None else cell.revision):
                return False, [self._ask(PUT, event.cause)]
            return self._learnt(cell)
        if self._bytes is None:
            return self._learnt(None)
        return self._learnt(Cell(self._key, self._bytes, event.value))

    def failed(self, event: StoreFailed) -> list[Effect]:
        if event.request != self._asked:
            return []
        if isinstance(event.error, Conflict):
            return [self._ask(GET, event.cause)]
        self.unsure = self.unsure or (event.request == PUT and isinstance(event.error, OutcomeUnknown))
        facts = {"problem": str(event.error)}
        return [
            Say(text="group is not stored yet", level="warning", facts=facts, cause=event.cause),
            SetTimer(name=CELL_AGAIN, delay_us=AGAIN_US, cause=event.cause),
        ]

    def watched(self, change: Change) -> tuple[bool, list[Effect]]:
        """The watch says what the cell is now: as ``stored``."""
        if change.revision <= self._newest or not self.known:
            return False, []
        if self.busy:
            self._watched = change
            return False, []
        cell = Cell(change.key, change.value, change.revision) if change.kind == "put" else None
        self._newest = change.revision
        return self._learnt(cell)

    def _learnt(self, cell: Cell | None) -> tuple[bool, list[Effect]]:
        effects = self._learn(cell)
        return self.known, effects

    def _learn(self, cell: Cell | None) -> list[Effect]:
        self._asked, self._writing, self._bytes, self.unsure = "", False, None, False
        self.known, self.problem = True, ""
        later, self._watched = self._watched, None
        if later is not None and later.revision > (self._newest if cell is None else cell.revision):
            self._newest = later.revision
            cell = Cell(later.key, later.value, later.revision) if later.kind == "put" else None
        if cell is None:
            self.group, self.revision = None, 0
            return []
        self.revision = cell.revision
        self._newest = max(self._newest, cell.revision)
        try:
            self.group = decode_group(cell.value)
        except UNREADABLE as error:
            return self._unread(str(error))
        return []

    def _unread(self, problem: str) -> list[Effect]:
        """What the cell says cannot be read: leave it as it is, and look again in a while."""
        self.group, self.known, self._asked, self.problem = None, False, GET, problem
        facts = {"problem": problem}
        return [
            Say(text="a group cannot be read, and stays as it is", level="error", facts=facts),
            SetTimer(name=CELL_AGAIN, delay_us=UNREADABLE_US),
        ]
