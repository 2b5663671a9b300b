"""The writing of one cell by the one that has it: when, and then a write at a time, compare-and-set, until it has
surely happened.

A write expects the revision that the last one made. It is tried, with the same bytes, until one try has moved the
revision; only then the next write begins. So a try whose answer was lost and that takes effect late can do no harm:
its revision is the past's.

    idle ──write──► put ──Stored──────────────────────────────────────► idle     "written"
                     │  ──StoreUnavailable──► (a while) ──► put
                     │  ──OutcomeUnknown────► (a while) ──► check          from now on it is *unsure*
                     │  ──Conflict, sure: there is none ──► missing
                     │  ──Conflict, sure────────────────────────────────► "lost"
                     └  ──Conflict, unsure──► check
        check: the revision that was expected ──► put; another one, with our bytes ──► "written"
               none ──► missing; else ──► "lost"
        missing ──(a while)──► the client was heard since ──► put, where none is
    idle ──forget─► delete ──Stored or Conflict──► "forgotten"

Our bytes are nobody else's: they name the broker and the epoch.

**A missing cell** has expired, because the store was away for longer than it is kept, or its clock jumped: then the
session is written anew, as it does not expire while its client is connected. Or the client went elsewhere, while this
broker was cut off, and its session ended there: then it must not come back. A client has one connection. So the cell
is written anew once the client was *heard* on this one, after the cell was found missing; and only where none is.

Whoever waits for something to be durable leaves a **ticket**. Tickets wait for the next write that begins, because
one that is under way may not contain what they stand for. A change that nobody waits for is written within
SAVE_AFTER_US (the owner's SAVE_SOON timer, then ``due``), and the cell is written anew before it expires (REFRESH).
"""

from __future__ import annotations

from typing import Final, Literal

from tocsin.core.machine import DeleteKey, Effect, GetKey, PutKey, Say, SetTimer, Stored, StoreFailed
from tocsin.core.stored_session import StoredSession, encode_session, kept_s, session_key
from tocsin.errors import Conflict, OutcomeUnknown
from tocsin.ports import Cell

SESSIONS: Final = "sessions"  # the table
SAVE: Final = "save"
CHECK: Final = "check"
FORGET: Final = "forget"
SAVE_AGAIN: Final = "save again"
SAVE_SOON: Final = "save soon"
REFRESH: Final = "refresh"
SAVE_AFTER_US: Final = 1_000_000  # progress that nobody waits for is written at most so often
REFRESH_MIN_US: Final = 60_000_000  # between refreshes: ten thousand quiet clients are 170 writes a second
AGAIN_US: Final = 1_000_000  # before a failed request is tried once more: no burden on a store in trouble

Outcome = Literal["written", "lost", "forgotten", "failed", "under way"]


class Custody:
    """The cell of one client's session. See the module's text."""

    __slots__ = (
        "_bytes",
        "_forgetting",
        "_key",
        "_missing_us",
        "_overdue",
        "_revision",
        "_soon",
        "_tickets",
        "_tickets_written",
        "_ttl_us",
        "_unsure",
        "session",
        "writing",
    )

    def __init__(self, session: StoredSession, revision: int) -> None:
        self.session = session  # as it is stored for certain
        self.writing: StoredSession | None = None  # what the write under way will have made of it
        self._key = session_key(session.client)
        self._revision = revision  # of ``session``
        self._bytes = b""  # of ``writing``
        self._ttl_us: int | None = None
        self._unsure = False  # a try of the write under way may have taken effect, or still will
        self._missing_us: int | None = None  # when the cell of the write under way was found missing
        self._forgetting = False
        self._soon = False  # the SAVE_SOON timer runs
        self._overdue = False  # … or ran out during a write
        self._tickets: list[int] = []  # wait for the next write
        self._tickets_written: tuple[int, ...] = ()  # wait for the write under way

    @property
    def busy(self) -> bool:
        return self.writing is not None or self._forgetting

    @property
    def awaited(self) -> bool:
        """Whether there is to be another write: somebody waits for it, or it is overdue."""
        return bool(self._tickets) or self._overdue

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for a write, the one under way or the next."""
        return bool(self._tickets or self._tickets_written)

    def wait(self, ticket: int) -> None:
        self._tickets.append(ticket)

    # ── when ────────────────────────────────────────────────────────────────────────────────────────────────

    def soon(self, cause: str) -> list[Effect]:
        """Something has changed that nobody waits for."""
        if self._soon:
            return []
        self._soon = True
        return [SetTimer(name=SAVE_SOON, delay_us=SAVE_AFTER_US, cause=cause)]

    def due(self) -> bool:
        """SAVE_SOON ran out: whether to write now; if a write is under way, the next is overdue."""
        self._soon = False
        self._overdue = self.busy
        return not self.busy

    def refresh_later(self, cause: str) -> list[Effect]:
        """After a third of the expiry, so that a session that was lost or has gone missing is noticed before it would
        have expired elsewhere; at the latest after a third of the time that the cell is kept."""
        kept_us = _kept_us(self.session)
        if kept_us is None:
            return []
        delay_us = min(kept_us, max(3 * REFRESH_MIN_US, self.session.expiry_s * 1_000_000)) // 3
        return [SetTimer(name=REFRESH, delay_us=delay_us, cause=cause)]

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, session: StoredSession, cause: str) -> Effect:
        """Write the session; it is kept for as long as ``kept_s`` says, unless it is written again."""
        assert not self.busy, "one write at a time"
        self._overdue = False
        self.writing = session
        self._bytes = encode_session(session)
        self._ttl_us = _kept_us(session)
        self._tickets_written, self._tickets = tuple(self._tickets), []
        return self._put(cause)

    def forget(self, cause: str) -> Effect:
        """Remove the cell, if it is still ours."""
        assert self.writing is None, "one write at a time"
        self._forgetting = True
        return DeleteKey(request=FORGET, table=SESSIONS, key=self._key, revision=self._revision, cause=cause)

    def again(self, heard_us: int, cause: str) -> list[Effect]:
        """What failed, once more; what is missing anew, if its client was heard since."""
        if self._missing_us is not None:
            if heard_us <= self._missing_us:
                return [SetTimer(name=SAVE_AGAIN, delay_us=AGAIN_US, cause=cause)]
            self._revision, self._missing_us = 0, None
            text = "a connected client's session had expired in the store, and is written anew"
            return [Say(text=text, level="warning", cause=cause), self._put(cause)]
        if self._forgetting:
            return [self.forget(cause)]
        if self.writing is None:
            return []
        return [self._check(cause) if self._unsure else self._put(cause)]

    @property
    def missing(self) -> bool:
        """Whether there is no cell, and it is not known why."""
        return self._missing_us is not None

    def _put(self, cause: str) -> Effect:
        return PutKey(
            request=SAVE,
            table=SESSIONS,
            key=self._key,
            value=self._bytes,
            revision=self._revision,
            ttl_us=self._ttl_us,
            cause=cause,
        )

    def _check(self, cause: str) -> Effect:
        """Fresh: an older cell than the one that was written last would look like somebody else's."""
        return GetKey(request=CHECK, table=SESSIONS, key=self._key, fresh=True, cause=cause)

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def stored(self, event: Stored, now_us: int) -> tuple[Outcome, list[Effect]]:
        if event.request == FORGET:
            return "forgotten", []
        if self.writing is None:
            return "under way", []
        if event.request == CHECK:
            return self._checked(event.value, now_us, event.cause)
        return self._written(event.value)

    def _checked(self, cell: Cell | None, now_us: int, cause: str) -> tuple[Outcome, list[Effect]]:
        if self._revision == (0 if cell is None else cell.revision):
            # No try has taken effect, though one still may: so it stays unsure, and this one comes first or conflicts.
            return "under way", [self._put(cause)]
        if cell is None:
            return "under way", self._miss(now_us, cause)
        return self._written(cell.revision) if cell.value == self._bytes else ("lost", [])

    def _miss(self, now_us: int, cause: str) -> list[Effect]:
        self._missing_us = now_us
        return [SetTimer(name=SAVE_AGAIN, delay_us=AGAIN_US, cause=cause)]

    def _written(self, revision: int) -> tuple[Outcome, list[Effect]]:
        assert self.writing is not None
        self.session, self._revision = self.writing, revision
        self.writing, self._bytes, self._unsure = None, b"", False
        return "written", []

    def take_tickets(self) -> tuple[int, ...]:
        """Those that waited for the write that has just happened."""
        tickets, self._tickets_written = self._tickets_written, ()
        return tickets

    def failed(self, event: StoreFailed, now_us: int) -> tuple[Outcome, list[Effect]]:
        error = event.error
        if isinstance(error, Conflict) and event.request == FORGET:
            return "forgotten", []
        if self.writing is None and not self._forgetting:
            return "under way", []
        if isinstance(error, Conflict) and event.request == SAVE:
            if self._unsure:
                return "under way", [self._check(event.cause)]
            absent = error.actual == 0 and self._revision
            return ("under way", self._miss(now_us, event.cause)) if absent else ("lost", [])
        if isinstance(error, OutcomeUnknown) and event.request == SAVE:
            self._unsure = True
        facts = {"problem": str(error)}
        return "failed", [
            Say(text="session is not stored yet", level="warning", facts=facts, cause=event.cause),
            SetTimer(name=SAVE_AGAIN, delay_us=AGAIN_US, cause=event.cause),
        ]


def _kept_us(session: StoredSession) -> int | None:
    seconds = kept_s(session)
    return None if seconds is None else seconds * 1_000_000
