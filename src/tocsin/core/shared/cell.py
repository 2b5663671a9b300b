"""A group's cell as one broker knows it, which ``core.cells`` writes beside other brokers.

Only the cell's content counts: whether our write took effect can be told by looking for its changes. So after every
failure and every conflict the cell is read.

A write that a full store refuses is tried again too, unless its owner gives it up (``give_up``): it can if no try may
still take effect.

Watch events during a write are kept until the write is answered, because they may be that write itself.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.cells import CellRules, CellWriter
from tocsin.core.machine import Effect, Say, SetTimer, Stored, StoreFailed
from tocsin.core.shared.signals import SharingTimer
from tocsin.core.shared.stored_group import GROUPS, StoredGroup, decode_group, encode_group, group_key
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Cell, Change

GET: Final = "get"
PUT: Final = "put"
UNREADABLE_US: Final = 30_000_000  # before a cell that cannot be read is looked at again: a person has to act
AGAIN_US: Final = 500_000  # before a failed request is tried once more: no burden on a store in trouble

RULES: Final = CellRules(
    GROUPS,
    "group is not stored yet",
    SharingTimer.CELL_AGAIN,
    AGAIN_US,
    put=PUT,
    delete=PUT,
    read=GET,
    learns=True,  # fresh reads: by an older cell it would give to a member what that has settled
)


class GroupCell:
    """Reads and writes one group's cell, with compare-and-set, beside other brokers."""

    def __init__(self, name: str) -> None:
        self.group: StoredGroup | None = None  # as it is known; None: there is none, or nothing is known yet
        self.known = False
        self.problem = ""  # why it cannot be read
        self._cell = CellWriter(RULES, group_key(name))
        self._newest = 0  # the newest revision that was heard of, also of a removal
        self._unread = False  # the cell cannot be read, and is looked at again in a while
        self._watched: Change | None = None  # the newest that was heard of during a request

    @property
    def busy(self) -> bool:
        return self._cell.busy or self._unread

    @property
    def revision(self) -> int:
        """The revision of ``group``; none is ever used twice."""
        return self._cell.revision

    @property
    def unsure(self) -> bool:
        """Whether a try of the write under way may have taken effect, or still will."""
        return self._cell.unsure

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> list[Effect]:
        """Read the cell, unless something is under way, from which it will be known."""
        return [] if self.busy else [self._cell.read()]

    def write(self, group: StoredGroup | None, ttl_us: int | None) -> Effect:
        """Make this of the cell; None removes it."""
        assert not self.busy, "one request at a time"
        return self._cell.remove() if group is None else self._cell.write(encode_group(group), ttl_us)

    def again(self) -> list[Effect]:
        """Repeat a failed request; after a failed write, first read the outcome."""
        return [self._cell.read()] if self.busy else []

    def give_up(self) -> None:
        """Forget the write under way, which a store refused: the cell is as it was."""
        assert not self.unsure, "it may be written yet"
        self._cell.drop()

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def stored(self, event: Stored) -> tuple[bool, list[Effect]]:
        """Whether the cell has changed, and the effects."""
        step = self._cell.stored(event)
        if step.kind in ("ignored", "under way"):
            return False, [*step.effects]
        return self._learnt(step.cell)

    def failed(self, event: StoreFailed) -> list[Effect]:
        return [*self._cell.failed(event).effects]

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
        self.known, self.problem, self._unread = True, "", False
        later, self._watched = self._watched, None
        if later is not None and later.revision > (self._newest if cell is None else cell.revision):
            self._newest = later.revision
            cell = Cell(later.key, later.value, later.revision) if later.kind == "put" else None
        self._cell.revision = 0 if cell is None else cell.revision
        if cell is None:
            self.group = None
            return []
        self._newest = max(self._newest, cell.revision)
        try:
            self.group = decode_group(cell.value)
        except UNREADABLE as error:
            return self._cannot_read(str(error))
        return []

    def _cannot_read(self, problem: str) -> list[Effect]:
        """The cell cannot be read: leave it as it is, and look again in a while."""
        self.group, self.known, self._unread, self.problem = None, False, True, problem
        facts = {"problem": problem}
        return [
            Say(text="a group cannot be read, and stays as it is", level="error", facts=facts),
            SetTimer(name=SharingTimer.CELL_AGAIN, delay_us=UNREADABLE_US),
        ]
