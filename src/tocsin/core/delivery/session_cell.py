"""The cell of a session (``core.cells``): its waiters, when it is written, and what a missing cell means.

The cell has one owner: our bytes are nobody else's, as they name the broker and the epoch. So a write that another one
has overtaken means that the session is lost to this broker, but for one case.

**A released cell** has this connection's uid and epoch, and no broker. A standby and the broker whose place it has are
two processes with one name, and one of them may release a session that the other serves (``core.survival.orphans``). A
connection of its own would have made a new epoch. So nobody has had the session since, nothing in it has changed but
its expiry, and this broker takes it back: it asks once more, over the released cell.

**A missing cell** has expired, because the store was away for longer than it is kept, or its clock jumped: then the
session is rewritten, as it does not expire while its client is connected. Or the client went elsewhere, while this
broker was cut off, and its session ended there: then it must not come back. A client has one connection. So the cell is
rewritten once the client was *heard* on this connection, OLD_BYTES_US after the cell was found missing; and only where
none is. Earlier bytes may be old: a broker that stood still reads first what its kernel kept of a client that has gone.

A caller that waits for a change to be durable leaves a **ticket**. Tickets wait for the next write that begins, because
the current write may lack their change. A ticket that does not **need** its change to be durable is given back when a
write fails, too. A change that nobody waits for is written within SAVE_AFTER_US (the owner's SAVE_SOON timer, then
``due``), and the cell is rewritten before it expires (REFRESH).
"""

from __future__ import annotations

from typing import Final, Literal

from tocsin.core.cells import CellRules, CellWriter, Step
from tocsin.core.delivery.signals import DeliveryTimer
from tocsin.core.delivery.stored_session import (
    StoredSession,
    decode_session,
    encode_session,
    kept_s,
    session_key,
)
from tocsin.core.machine import Effect, Say, SetTimer, Stored, StoreFailed
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Cell

SESSIONS: Final = "sessions"  # the table
SAVE: Final = "save"
CHECK: Final = "check"
FORGET: Final = "forget"
SAVE_AFTER_US: Final = 1_000_000  # progress that nobody waits for is written at most so often
REFRESH_MIN_US: Final = 60_000_000  # between refreshes: ten thousand quiet clients are 170 writes a second
OLD_BYTES_US: Final = 2_000_000  # for all bytes to be read that were on their way when a process stood still
AGAIN_US: Final = 1_000_000  # before a failed request is tried once more: no burden on a store in trouble

RULES: Final = CellRules(
    SESSIONS,
    "session is not stored yet",
    DeliveryTimer.SAVE_AGAIN,
    AGAIN_US,
    put=SAVE,
    delete=FORGET,
    read=CHECK,
    looks=True,
)

Outcome = Literal["written", "lost", "forgotten", "failed", "under way"]


class SessionCell:
    """Writes the cell of one client's session."""

    __slots__ = (
        "_cell",
        "_forgetting",
        "_missing_us",
        "_overdue",
        "_soon",
        "_tickets",
        "_tickets_written",
        "_wishes",
        "_wishes_written",
        "session",
        "writing",
    )

    def __init__(self, session: StoredSession, revision: int) -> None:
        self.session = session  # as it is stored for certain
        self.writing: StoredSession | None = None  # what the write under way will have made of it
        self._cell = CellWriter(RULES, session_key(session.client), revision)
        self._missing_us: int | None = None  # when the cell of the write under way was found missing
        self._forgetting = False
        self._soon = False  # the SAVE_SOON timer runs
        self._overdue = False  # … or ran out during a write
        self._tickets: list[int] = []  # wait for the next write
        self._tickets_written: tuple[int, ...] = ()  # wait for the write under way
        self._wishes: list[int] = []  # tickets that do not need it
        self._wishes_written: tuple[int, ...] = ()

    @property
    def busy(self) -> bool:
        return self.writing is not None or self._forgetting

    @property
    def awaited(self) -> bool:
        """Whether there is to be another write: somebody waits for it, or it is overdue."""
        return bool(self._tickets or self._wishes) or self._overdue

    @property
    def waited_for(self) -> bool:
        """Whether somebody needs a write, the one under way or the next."""
        return bool(self._tickets or self._tickets_written)

    def wait(self, ticket: int, *, needed: bool = True) -> None:
        (self._tickets if needed else self._wishes).append(ticket)

    # ── when ────────────────────────────────────────────────────────────────────────────────────────────────

    def soon(self) -> list[Effect]:
        """Something has changed that nobody waits for."""
        if self._soon:
            return []
        self._soon = True
        return [SetTimer(name=DeliveryTimer.SAVE_SOON, delay_us=SAVE_AFTER_US)]

    def due(self) -> bool:
        """SAVE_SOON ran out: whether to write now; if a write is under way, the next is overdue."""
        self._soon = False
        self._overdue = self.busy
        return not self.busy

    def refresh_later(self) -> list[Effect]:
        """After a third of the expiry, so that a session that was lost or has gone missing is noticed before it would
        have expired elsewhere; at the latest after a third of the time that the cell is kept."""
        kept_us = _kept_us(self.session)
        if kept_us is None:
            return []
        delay_us = min(kept_us, max(3 * REFRESH_MIN_US, self.session.expiry_s * 1_000_000)) // 3
        return [SetTimer(name=DeliveryTimer.REFRESH, delay_us=delay_us)]

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, session: StoredSession) -> Effect:
        """Write the session; it is kept for as long as ``kept_s`` says, unless it is written again."""
        self._overdue = False
        self.writing = session
        self._tickets_written, self._tickets = tuple(self._tickets), []
        self._wishes_written, self._wishes = tuple(self._wishes), []
        return self._cell.write(encode_session(session), _kept_us(session))

    def forget(self) -> Effect:
        """Remove the cell, if it is still ours."""
        self._forgetting = True
        return self._cell.remove()

    def again(self, heard_us: int) -> list[Effect]:
        """Repeat a failed write; rewrite a missing cell, if its client was heard since."""
        if self._missing_us is not None:
            if heard_us <= self._missing_us + OLD_BYTES_US:
                return [SetTimer(name=DeliveryTimer.SAVE_AGAIN, delay_us=AGAIN_US)]
            self._missing_us = None
            text = "a connected client's session had expired in the store; rewriting it"
            return [Say(text=text, level="warning"), self._cell.anew()]
        asked = self._cell.again()
        return [] if asked is None else [asked]

    @property
    def missing(self) -> bool:
        """Whether there is no cell, and it is not known why."""
        return self._missing_us is not None

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def stored(self, event: Stored, now_us: int) -> tuple[Outcome, list[Effect]]:
        return self._take(self._cell.stored(event), now_us)

    def failed(self, event: StoreFailed, now_us: int) -> tuple[Outcome, list[Effect]]:
        return self._take(self._cell.failed(event), now_us)

    def _take(self, step: Step, now_us: int) -> tuple[Outcome, list[Effect]]:
        match step.kind:
            case "written":
                assert self.writing is not None
                self.session, self.writing = self.writing, None
                return "written", []
            case "removed":
                return "forgotten", []
            case "overtaken":
                if self._was_released(step.cell):
                    return "under way", [self._ask_over()]
                return "forgotten" if self._forgetting else "lost", []
            case "missing":
                self._missing_us = now_us
                return "under way", [SetTimer(name=DeliveryTimer.SAVE_AGAIN, delay_us=AGAIN_US)]
            case "failed":
                return "failed", [*step.effects]
            case _:
                return "under way", [*step.effects]

    def _was_released(self, cell: Cell | None) -> bool:
        """Whether a cell is the session of this connection, as nobody's."""
        try:
            found = None if cell is None else decode_session(cell.value)
        except UNREADABLE:
            return False
        own = self.session
        return found is not None and (found.uid, found.epoch, found.broker) == (own.uid, own.epoch, "")

    def _ask_over(self) -> Effect:
        if self.writing is None:
            return self._cell.remove()
        return self._cell.write(encode_session(self.writing), _kept_us(self.writing))

    def take_tickets(self) -> tuple[int, ...]:
        """The tickets that waited for the write that has just happened."""
        tickets, self._tickets_written = self._tickets_written + self._wishes_written, ()
        self._wishes_written = ()
        return tickets

    def take_wishes(self) -> tuple[int, ...]:
        """The tickets that do not wait for another try."""
        wishes, self._wishes_written = (*self._wishes_written, *self._wishes), ()
        self._wishes.clear()
        return wishes


def _kept_us(session: StoredSession) -> int | None:
    seconds = kept_s(session)
    return None if seconds is None else seconds * 1_000_000
