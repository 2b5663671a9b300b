"""A client's way in: what has to be over before its session is taken, and what follows when it is.

Transitions of ``Entering``:

    new         EntryAsked → coming, over
    coming      ArrivalNoted → ending, over
    ending      StepOver → forgetting
    forgetting  StepOver → settling
    settling    StepOver → taking
    taking      SessionHad → recalling, over
    recalling   MessagesFound → over

- **coming**: the client's arrival is noted, by the clock on the wall.
- **ending**: what an earlier connection of the client here leaves is still to be stored.
- **forgetting**: an old session of the client, which began anew before, is still to go
  (``core.survival.announcements``).
- **settling**: what the client left while this broker was cut off is still to be held against its cell
  (``core.survival.provisional``).
- **taking**: the session's cell is taken (``core.delivery.taking``).
- **recalling**: the log is asked which of the client's QoS 2 messages it has, where nobody lived to say so.

Invariants:

- A client that comes is alive, whatever becomes of its session: wills and takeovers hear of it first.
- A broker that is cut off asks nothing of the store.
- The cell is taken after everything that may still write it here.
- The other brokers are told after the session is taken, and of no client that has gone by then.
- This broker remembers the epoch of a session that it took (``Backup.note_taken``) before the client has it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from tocsin.core.access.ownership import Claim
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.taking import Abandoned
from tocsin.core.machine import Effect, Event, Table, TableMachine
from tocsin.errors import TocsinError

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class EntryAsked(Event, frozen=True, kw_only=True):
    """A client wants its session, or (``clean``) a new one; ``wanted``: it has not gone yet."""

    owner: str
    clean: bool
    wanted: bool


class ArrivalNoted(Event, frozen=True, kw_only=True):
    """The client has come, at that time. ``cut_off``: why nothing can be asked of the store; None: it can."""

    came_us: int
    cut_off: TocsinError | None


class StepOver(Event, frozen=True, kw_only=True):
    """What was waited for is over."""


class SessionHad(Event, frozen=True, kw_only=True):
    """The session was taken; None: there is none, and none is to last."""

    session: StoredSession | None
    wanted: bool


class MessagesFound(Event, frozen=True, kw_only=True):
    """The packet ids of QoS 2 messages that the log has."""

    packet_ids: tuple[int, ...]


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class NoteArrival(Effect, frozen=True, kw_only=True):
    """Note that the client has come → ``ArrivalNoted``."""


class NoteAlive(Effect, frozen=True, kw_only=True):
    """The client is alive; ``back``: for the session that it had."""

    claim: Claim
    back: bool


class AwaitEnding(Effect, frozen=True, kw_only=True):
    """Wait until an earlier connection of the client is stored → ``StepOver``."""


class AwaitForgotten(Effect, frozen=True, kw_only=True):
    """Wait until an old session of the client is forgotten → ``StepOver``."""


class AwaitSettled(Effect, frozen=True, kw_only=True):
    """Wait until the client's provisional session is settled → ``StepOver``."""


class TakeSession(Effect, frozen=True, kw_only=True):
    """Take the session for a client that came then → ``SessionHad``."""

    came_us: int


class TellOthers(Effect, frozen=True, kw_only=True):
    """Tell the other brokers of the client."""

    claim: Claim
    back: bool


class NoteTaken(Effect, frozen=True, kw_only=True):
    """Remember with which epoch the session was taken here."""

    session: StoredSession


class FindMessages(Effect, frozen=True, kw_only=True):
    """Find out which of these QoS 2 messages the log has → ``MessagesFound``."""

    session: StoredSession


class Entered(Effect, frozen=True, kw_only=True):
    """The client is in, with this session or without one."""

    session: StoredSession | None


class EntryRefused(Effect, frozen=True, kw_only=True):
    """The client does not get in; why."""

    error: TocsinError


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


class EnteringState(StrEnum):
    """How far a client is on its way in."""

    NEW = "new"
    COMING = "coming"
    ENDING = "ending"
    FORGETTING = "forgetting"
    SETTLING = "settling"
    TAKING = "taking"
    RECALLING = "recalling"
    OVER = "over"


class Entering(TableMachine):
    """One client's way into one broker. The last effect of each step is the one to wait for, or the end."""

    state: EnteringState = EnteringState.NEW

    def __init__(self, client: str, broker: str) -> None:
        self._client = client
        self._broker = broker
        self._asked: EntryAsked
        self._claim: Claim
        self._session: StoredSession

    def _begin(self, event: EntryAsked, now_us: int) -> list[Effect]:
        self._asked = event
        if not event.wanted:
            return self._refuse(Abandoned(self._client))
        self.state = EnteringState.COMING
        return [NoteArrival()]

    def _come(self, event: ArrivalNoted, now_us: int) -> list[Effect]:
        self._claim = Claim(self._client, self._asked.owner, self._broker, event.came_us)
        alive = NoteAlive(claim=self._claim, back=not self._asked.clean)
        if event.cut_off is not None:
            return [alive, *self._refuse(event.cut_off)]
        self.state = EnteringState.ENDING
        return [alive, AwaitEnding()]

    def _on_ended(self, event: StepOver, now_us: int) -> list[Effect]:
        self.state = EnteringState.FORGETTING
        return [AwaitForgotten()]

    def _on_forgotten(self, event: StepOver, now_us: int) -> list[Effect]:
        self.state = EnteringState.SETTLING
        return [AwaitSettled()]

    def _on_settled(self, event: StepOver, now_us: int) -> list[Effect]:
        self.state = EnteringState.TAKING
        return [TakeSession(came_us=self._claim.came_us)]

    def _on_had(self, event: SessionHad, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        if event.wanted:
            stored = event.session is not None and bool(self._asked.owner)
            claim = msgspec.structs.replace(self._claim, stored=stored, inside=True)
            effects.append(TellOthers(claim=claim, back=not self._asked.clean))
        if event.session is None:
            return [*effects, *self._enter(None)]
        self._session, self.state = event.session, EnteringState.RECALLING
        return [*effects, NoteTaken(session=event.session), FindMessages(session=event.session)]

    def _on_found(self, event: MessagesFound, now_us: int) -> list[Effect]:
        session, found = self._session, event.packet_ids
        if found:
            session = msgspec.structs.replace(session, received=(*session.received, *found))
        return self._enter(session)

    def _enter(self, session: StoredSession | None) -> list[Effect]:
        self.state = EnteringState.OVER
        return [Entered(session=session)]

    def _refuse(self, error: TocsinError) -> list[Effect]:
        self.state = EnteringState.OVER
        return [EntryRefused(error=error)]

    table: ClassVar[Table] = {
        (EnteringState.NEW, EntryAsked): _begin,
        (EnteringState.COMING, ArrivalNoted): _come,
        (EnteringState.ENDING, StepOver): _on_ended,
        (EnteringState.FORGETTING, StepOver): _on_forgotten,
        (EnteringState.SETTLING, StepOver): _on_settled,
        (EnteringState.TAKING, SessionHad): _on_had,
        (EnteringState.RECALLING, MessagesFound): _on_found,
    }
