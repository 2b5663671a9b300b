"""Taking a client's session: one broker makes the cell its own, whichever broker has it now.

Transitions of ``SessionTaking``:

    new         TakeAsked → reading, over
    reading     Stored → asking, confirming, counting, holding, writing, over
                StoreFailed → over
    asking      HandOverEnded → rereading
                ClientGone → over
    rereading   Stored → asking, confirming, counting, holding, writing, over
                StoreFailed → over
    confirming  Stored → asking, confirming, counting, holding, writing, over
                StoreFailed → over
    counting    RoomCounted → writing, over
    holding     ChannelsHeld → writing, over
                ClientGone → over
    writing     Stored, ClientGone → over
                StoreFailed → reading, over

A session is one cell, and its **epoch** fences it: who writes the cell with the next epoch serves the client, and the
broker before can write nothing more. One machine takes one session for one connection.

    new ──TakeAsked──► reading ──it is another broker's──► asking ──HandOverEnded──► rereading
                         │ ▲                                                            │
                         │ └────── the write met another one: at most ATTEMPTS ─────┐   │
                         ├── there is none, and none is to last ──► confirming ──┐  │   │
                         ├── there is none ──► counting ──room──┐                │  │   │
                         └── it goes on ──► holding ──held──────┴──► writing ────┴──┴───┘
                                                                        └──► over: taken, none, or failed

``reading`` and ``rereading`` decide the same, but that nobody is asked twice in one attempt: a broker that does not
answer in time is not waited for. It is given PATIENCE_MS, one question after the other. The bus may have its
subscription for a moment after it was killed, so that the first question reaches nobody and the bus does not say so; of
the next one it does. Nor is it asked again if it counts as lost by now. It is always asked once, because it may only be
cut off from the leader.

Invariants:

- Nobody gets what is another user's (``may_take``); that is held against the cell that is written over.
- A session that cannot be read is not replaced: it may have messages still to come.
- The serving broker is asked to let the client go *before* the cell is read for the last time, so that its state is
  there.
- The channels of a session that goes on are held here before the cell says so, and given up if it never does.
- That there is no session is believed of a fresh read only; of a plain one it may be old news.
- Nothing is asked of another broker, and nothing is written, for a client that has gone (``ClientGone``): a client that
  went elsewhere must not lose its session to a connection that it has given up.

A session that goes on has the positions of its cell, or of a backup's copy (eta in the REAPS paper) if those are
**further**. A broker writes a session's positions at most once a second, and tells its backups every
``replication.period_ms``, or by volume. A client that acknowledged a message has it, whoever wrote that down. So a copy
that is fresh spares the client repeats of (stored position, eta], and one that is stale costs nothing. Only within one
session (``uid``), and not at QoS 2. There the position of a copy goes past a message when its PUBREC came, and the
session has to be stored before PUBREL: if its broker fails in between, the message must be sent again under its id, or
the client would take a later message with that id for a repeat. Nobody is served before the store has answered. A copy
may be of a session that has ended since, where the backup could not hear of it: CONNACK would promise a session that is
none (decision 059).

A session whose client was never heard after it was made (``confirmed``) is replaced, not resumed: the client may not
know of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from tocsin.core.access.ownership import may_take
from tocsin.core.budgets.session_quota import FRESH_BYTES
from tocsin.core.delivery.session_cell import SESSIONS
from tocsin.core.delivery.stored_session import (
    StoredSession,
    decode_session,
    encode_session,
    kept_s,
    session_key,
)
from tocsin.core.delivery.window import Progress
from tocsin.core.machine import Effect, Event, GetKey, PutKey, Say, Stored, StoreFailed, Table, TableMachine
from tocsin.errors import Conflict, FormatNewer, StoreFull, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Cell
from tocsin.wire.internal.replication import Positions

ATTEMPTS: Final = 5  # against other brokers that want the same client at the same time
# For the broker that has the client to let it go; then it is taken. Two seconds in all: it may have a session to store.
PATIENCE_MS: Final = (150, 300, 550, 1_000)
LOST_PATIENCE_MS: Final = (
    50  # for one that counts as lost: if it is there all the same it answers in milliseconds
)
NO_ROOM: Final = "the store has no room (shares.sessions_bytes, or its disk)"
READ: Final = "read"
WRITE: Final = "write"


class CopiedPositions(msgspec.Struct, frozen=True):
    """How far a client is by the copy of its broker, in this session."""

    uid: str
    positions: Positions


class NotYours(TocsinError):
    """The client id belongs to another user, who is connected with it or has a session."""

    fault = "peer"

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"the client id {client!r} belongs to another user; choose another id")


class SessionsFull(TocsinError):
    """One session more cannot be stored."""

    fault = "peer"

    def __init__(self, client: str, problem: str) -> None:
        self.client = client
        super().__init__(f"no session is stored for {client!r}: {problem}; let sessions end, or ask for none")


class Lost(TocsinError):
    """Another broker has taken the client's session."""

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"the session of {client!r} was taken by another broker")


class Unreadable(TocsinError):
    """The client has a session that cannot be read here. It is not replaced: it may have messages still to come."""

    def __init__(self, error: Exception) -> None:
        remedy = "" if isinstance(error, FormatNewer) else "; see `tocsin sessions list --damaged`"
        super().__init__(f"the session of this client id cannot be read here: {error}{remedy}")


class Abandoned(TocsinError):
    """The client has gone before its session was taken."""

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"{client!r} has gone before it had its session")


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class TakeAsked(Event, frozen=True, kw_only=True):
    """A client wants its session, or (``clean``) a new one; ``uid`` is for a new one, ``tail`` where the log ends."""

    owner: str
    clean: bool
    expiry_s: int  # 0: none is to last
    tail: int
    uid: str
    copied: CopiedPositions | None = None  # from the copy of a broker that this one backs


class HandOverEnded(Event, frozen=True, kw_only=True):
    """The broker that had the client has let it go, or is not there, or was ``silent``; ``lost``: it counts as lost."""

    silent: bool = False
    lost: bool = False


class RoomCounted(Event, frozen=True, kw_only=True):
    """Whether one session more may be made; None: it may."""

    problem: str | None


class ChannelsHeld(Event, frozen=True, kw_only=True):
    """The channels of the session are held here; or (``error``) cannot be."""

    error: TocsinError | None = None


class ClientGone(Event, frozen=True, kw_only=True):
    """The connection is over: what was to be done next is not done."""


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class AskHandOver(Effect, frozen=True, kw_only=True):
    """Ask the broker that serves this session to let its client go, and wait for so long → ``HandOverEnded``."""

    session: StoredSession
    patience_ms: int


class CountRoom(Effect, frozen=True, kw_only=True):
    """See whether one session more may be made → ``RoomCounted``."""

    owner: str


class HoldChannels(Effect, frozen=True, kw_only=True):
    """Hold the channels of a session that is about to be taken → ``ChannelsHeld``."""

    session: StoredSession


class KeepChannels(Effect, frozen=True, kw_only=True):
    """The session, which was so before, was taken."""

    session: StoredSession


class GiveUpChannels(Effect, frozen=True, kw_only=True):
    """The session was not taken."""

    session: StoredSession


class SessionReplaced(Effect, frozen=True, kw_only=True):
    """A stored session is no more."""

    session: StoredSession


class SessionTaken(Effect, frozen=True, kw_only=True):
    """The session is this broker's, with its cell's revision and size; ``made``: there was none before."""

    session: StoredSession
    revision: int
    resumed: bool
    size: int
    made: bool


class NoSession(Effect, frozen=True, kw_only=True):
    """There is no session, and none is to last."""


class TakeFailed(Effect, frozen=True, kw_only=True):
    """The session is not this broker's; why."""

    error: TocsinError


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


class TakingState(StrEnum):
    """How far the taking of a session is."""

    NEW = "new"
    READING = "reading"
    ASKING = "asking"
    REREADING = "rereading"
    CONFIRMING = "confirming"
    COUNTING = "counting"
    HOLDING = "holding"
    WRITING = "writing"
    OVER = "over"


class SessionTaking(TableMachine):
    """Takes one client's session for one broker."""

    state: TakingState = TakingState.NEW

    def __init__(self, client: str, broker: str) -> None:
        self._client = client
        self._broker = broker
        self._asked: TakeAsked
        self._attempts = 0
        self._questions = 0  # to the broker that has the client, in this attempt
        self._cell: Cell | None = None  # what is written over
        self._before: StoredSession | None = None  # what that cell says
        self._session: StoredSession  # what is written
        self._holds = False  # channels of ``_before`` are held, or about to be

    @property
    def _resumes(self) -> bool:
        """Whether the session that is there goes on."""
        return self._before is not None and self._before.confirmed and not self._asked.clean

    def _begin(self, event: TakeAsked, now_us: int) -> list[Effect]:
        self._asked = event
        return self._attempt()

    def _attempt(self) -> list[Effect]:
        """Read the cell, once more."""
        if self._attempts == ATTEMPTS:
            return self._fail(Lost(self._client))
        self._attempts += 1
        return self._read(TakingState.READING)

    def _read(self, state: TakingState, *, fresh: bool = False) -> list[Effect]:
        self.state = state
        key, cause = session_key(self._client), self._asked.cause
        return [GetKey(request=READ, table=SESSIONS, key=key, fresh=fresh, cause=cause)]

    def _on_read(self, event: Stored, now_us: int) -> list[Effect]:
        """A cell, or none: whose is it, and what becomes of it?"""
        cell: Cell | None = event.value
        try:
            before = None if cell is None else decode_session(cell.value)
        except UNREADABLE as error:
            assert cell is not None
            text = "a stored session cannot be read, and stays as it is"
            facts = {"key": cell.key, "problem": str(error)}
            said = Say(text=text, level="error", facts=facts, cause=self._asked.cause)
            return [said, *self._fail(Unreadable(error))]
        self._cell, self._before = cell, before
        if before is not None and not may_take(before.owner, self._asked.owner):
            return self._fail(NotYours(self._client))
        if (
            before is not None
            and before.broker not in ("", self._broker)
            and self.state is not TakingState.REREADING
        ):
            self.state, self._questions = TakingState.ASKING, 0
            return [self._ask(before)]
        if before is not None:
            return self._hold()
        if not self._asked.expiry_s:
            return self._read(TakingState.CONFIRMING, fresh=True)
        self.state = TakingState.COUNTING
        return [CountRoom(owner=self._asked.owner, cause=self._asked.cause)]

    def _ask(self, session: StoredSession) -> Effect:
        self._questions += 1
        patience_ms = PATIENCE_MS[self._questions - 1]
        return AskHandOver(session=session, patience_ms=patience_ms, cause=self._asked.cause)

    def _on_let_go(self, event: HandOverEnded, now_us: int) -> list[Effect]:
        if event.silent and not event.lost and self._questions < len(PATIENCE_MS):
            assert self._before is not None
            return [self._ask(self._before)]
        return self._read(TakingState.REREADING)

    def _on_confirmed(self, event: Stored, now_us: int) -> list[Effect]:
        """A fresh read: there is none indeed, or the plain read was old news."""
        if event.value is None:
            self.state = TakingState.OVER
            return [NoSession(cause=self._asked.cause)]
        if self._attempts == ATTEMPTS:
            return self._fail(Lost(self._client))
        self._attempts += 1
        return self._on_read(event, now_us)

    def _on_counted(self, event: RoomCounted, now_us: int) -> list[Effect]:
        if event.problem is not None:
            return self._fail(SessionsFull(self._client, event.problem))
        return self._write()

    def _hold(self) -> list[Effect]:
        """Have here what a session that goes on has of channels, before it is taken."""
        if not self._resumes:
            return self._write()
        assert self._before is not None
        self.state, self._holds = TakingState.HOLDING, True
        return [HoldChannels(session=self._before, cause=self._asked.cause)]

    def _on_held(self, event: ChannelsHeld, now_us: int) -> list[Effect]:
        return self._write() if event.error is None else self._fail(event.error)

    def _write(self) -> list[Effect]:
        asked, before = self._asked, self._before
        self.state = TakingState.WRITING
        if self._resumes:
            assert before is not None
            self._session = msgspec.structs.replace(
                furthest(before, asked.copied),
                epoch=before.epoch + 1,
                broker=self._broker,
                home=self._broker,
                expiry_s=asked.expiry_s,
                owner=asked.owner or before.owner,
            )
        else:
            self._session = StoredSession(
                client=self._client,
                uid=asked.uid,
                expiry_s=asked.expiry_s,
                epoch=1 if before is None else before.epoch + 1,
                broker=self._broker,
                owner=asked.owner,
                progress=Progress(asked.tail + 1),
                home=self._broker,
                confirmed=asked.clean,
            )
        kept = kept_s(self._session)
        return [
            PutKey(
                request=WRITE,
                table=SESSIONS,
                key=session_key(self._client),
                value=encode_session(self._session),
                revision=0 if self._cell is None else self._cell.revision,
                ttl_us=None if kept is None else kept * 1_000_000,
                cause=asked.cause,
            )
        ]

    def _on_written(self, event: Stored, now_us: int) -> list[Effect]:
        cause, before, resumed = self._asked.cause, self._before, self._resumes
        effects: list[Effect] = []
        if before is not None and resumed:
            effects.append(KeepChannels(session=before, cause=cause))
        elif before is not None:
            effects.append(SessionReplaced(session=before, cause=cause))
        self.state, self._holds = TakingState.OVER, False
        size = len(self._cell.value) if self._cell is not None and resumed else FRESH_BYTES
        taken = SessionTaken(
            session=self._session,
            revision=event.value,
            resumed=resumed,
            size=size,
            made=before is None,
            cause=cause,
        )
        return [*effects, taken]

    def _on_refused(self, event: StoreFailed, now_us: int) -> list[Effect]:
        """The write was not done: somebody was faster, or the store does not answer."""
        if isinstance(event.error, Conflict):
            return [*self._give_up(), *self._attempt()]
        full = isinstance(event.error, StoreFull)
        return self._fail(SessionsFull(self._client, NO_ROOM) if full else event.error)

    def _on_failed(self, event: StoreFailed, now_us: int) -> list[Effect]:
        return self._fail(event.error)

    def _on_gone(self, event: ClientGone, now_us: int) -> list[Effect]:
        return self._fail(Abandoned(self._client))

    def _fail(self, error: TocsinError) -> list[Effect]:
        self.state = TakingState.OVER
        return [*self._give_up(), TakeFailed(error=error, cause=self._asked.cause)]

    def _give_up(self) -> list[Effect]:
        if not self._holds or self._before is None:
            return []
        self._holds = False
        return [GiveUpChannels(session=self._before, cause=self._asked.cause)]

    table: ClassVar[Table] = {
        (TakingState.NEW, TakeAsked): _begin,
        (TakingState.READING, Stored): _on_read,
        (TakingState.READING, StoreFailed): _on_failed,
        (TakingState.ASKING, HandOverEnded): _on_let_go,
        (TakingState.REREADING, Stored): _on_read,
        (TakingState.REREADING, StoreFailed): _on_failed,
        (TakingState.CONFIRMING, Stored): _on_confirmed,
        (TakingState.CONFIRMING, StoreFailed): _on_failed,
        (TakingState.COUNTING, RoomCounted): _on_counted,
        (TakingState.HOLDING, ChannelsHeld): _on_held,
        (TakingState.WRITING, Stored): _on_written,
        (TakingState.WRITING, StoreFailed): _on_refused,
        (TakingState.ASKING, ClientGone): _on_gone,
        (TakingState.HOLDING, ClientGone): _on_gone,
        (TakingState.WRITING, ClientGone): _on_gone,
    }


def furthest(session: StoredSession, copied: CopiedPositions | None) -> StoredSession:
    """The session with the further positions of the two."""
    if copied is None or copied.uid != session.uid or _exactly_once(session):
        return session
    eta = copied.positions
    changes: dict[str, Progress] = {}
    if (session.critical_messages is None) == (eta.critical_messages == 0):
        changes["progress"] = _further(session.progress, eta.messages)
        if session.critical_messages is not None:
            changes["critical_messages"] = _further(session.critical_messages, eta.critical_messages)
    if session.results is not None and (session.critical is None) == (eta.critical == 0):
        changes["results"] = _further(session.results, eta.results)
        if session.critical is not None:
            changes["critical"] = _further(session.critical, eta.critical)
    return msgspec.structs.replace(session, **changes) if changes else session


def _exactly_once(session: StoredSession) -> bool:
    return bool(session.progress.releasing) or any(
        subscription.qos == 2 for subscription in session.subscriptions.values()
    )


def _further(progress: Progress, eta: int) -> Progress:
    """Everything up to ``eta`` is settled, too."""
    if eta <= progress.position:
        return progress
    unsettled = tuple(each for each in progress.unsettled if each > eta)
    return Progress(max(progress.next, eta + 1), unsettled, progress.releasing)
