"""A broker of the scenario: participant and landmark as they ship, and what a process does for sessions around them.

A client that comes is taken by compare-and-set while a leader is heard, and served provisionally while none is, though
the store may well answer: what is written afterwards must be right all the same. The local backup is told of each
session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tocsin.core.coordination.participant import Participant
from tocsin.core.coordination.places import Places
from tocsin.core.coordination.signals import Adopted, InterestsChanged, Orphaned
from tocsin.core.forwarding import Subscription
from tocsin.core.landmark import BacksKnown, Landmark, Restored, RosterKnown, Severed, WantsChanged
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    GetKey,
    PutKey,
    Received,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    TimerFired,
)
from tocsin.core.provisional import Record, admit, settle
from tocsin.core.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.model.message import Message, broker_address
from tocsin.model.network import BrokerInfo
from tocsin.ports import Cell
from tocsin.wire.words import Word

SESSIONS: Final = "sessions"
NEAR: Final = "near "  # before the names of the landmark's timers
TAKE, SETTLE = "take", "settle"
EXPIRY_S: Final = 3_600


class Comes(Event, frozen=True, kw_only=True):
    """A client comes to a broker, and subscribes or unsubscribes."""

    client: str
    name: str
    wanted: bool


class Served(Effect, frozen=True, kw_only=True):
    """A client was answered: with its session's epoch, or (0) provisionally."""

    client: str
    epoch: int


class Told(Message, frozen=True):
    """Broker → local backup: a session, as it was taken."""

    record: Record


class ClusterBroker(Participant):
    """See the module's text. ``backs`` are the brokers whose local backup it is, ``backup`` is its own."""

    landmarks: type[Landmark] = Landmark  # so that a variant can be tried
    settling: Callable[..., StoredSession | str] = staticmethod(settle)

    def __init__(
        self,
        info: BrokerInfo,
        places: Places,
        heartbeat_us: int,
        suspect_after_us: int,
        cluster: tuple[BrokerInfo, ...],
        backs: tuple[str, ...],
        backup: str,
    ) -> None:
        super().__init__(info, places, heartbeat_us, suspect_after_us)
        self.landmark = self.landmarks(info.id, lambda: self.interests)
        self.records: dict[str, Record] = {}  # what is served, or was, without its cell
        self.basis: dict[str, int] = {}  # client → the epoch that its last settled record knew of
        self._sessions: dict[str, Record] = {}  # sessions that were taken here, or of which a backup was told
        self._cells: dict[str, tuple[str, str, StoredSession | None, Comes | Record]] = {}
        self._requests_made = 0
        self._name = info.id
        self._cluster = cluster
        self._backs = backs
        self._backed_by = backup

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Comes():
                return self._come(event)
            case Received(message=Word()):
                return self._near(event, now_us)
            case Received(message=Told(record=record)):
                self._sessions[record.client] = record
                return []
            case TimerFired(name=name) if name.startswith(NEAR):
                return self._near(TimerFired(name=name.removeprefix(NEAR), cause=event.cause), now_us)
            case Stored(request=request) | StoreFailed(request=request) if request in self._cells:
                return self._on_cell(event)
        effects = super().handle(event, now_us)
        return [*effects, *self._follow(event, effects, now_us)]

    # ── the landmark ────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, event: Event, effects: list[Effect], now_us: int) -> list[Effect]:
        more: list[Effect] = []
        match event:
            case Started(cause=cause):
                # Anew, because only now it is known when this process started.
                self.landmark = self.landmarks(self._name, lambda: self.interests, run=now_us)
                more += self._near(RosterKnown(brokers=self._cluster, cause=cause), now_us)
                more += self._near(BacksKnown(primaries=self._backs, cause=cause), now_us)
            case InterestsChanged(added=added, removed=removed, cause=cause):
                more += self._near(WantsChanged(added=added, removed=removed, cause=cause), now_us)
        for effect in effects:
            match effect:
                case Orphaned(told=False, cause=cause):
                    more += self._near(Severed(cause=cause), now_us)
                case Adopted(cause=cause):
                    more += self._near(Restored(cause=cause), now_us)
                    more += self._settle_all(cause)
        return more

    def _near(self, event: Event, now_us: int) -> list[Effect]:
        return [_renamed(effect) for effect in self.landmark.handle(event, now_us)]

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

    def _come(self, event: Comes) -> list[Effect]:
        if not self.landmark.severed:
            return [self._ask(TAKE, event.client, event, event.cause)]
        known = self.records.get(event.client) or self._sessions.get(event.client)
        found = admit(event.client, known, owner="", clean=False, expiry_s=EXPIRY_S, tail=0)
        if not isinstance(found, Record):
            return []
        self.records[event.client] = msgspec.structs.replace(
            found, subscriptions=_changed(found.subscriptions, event)
        )
        return [Served(client=event.client, epoch=0, cause=event.cause)]

    def _settle_all(self, cause: str) -> list[Effect]:
        records, self.records = self.records, {}
        return [self._ask(SETTLE, client, record, cause) for client, record in records.items()]

    def _ask(self, why: str, client: str, what: Comes | Record, cause: str) -> Effect:
        self._requests_made += 1
        request = f"session {self._requests_made}"
        self._cells[request] = (why, client, None, what)
        return GetKey(request=request, table=SESSIONS, key=session_key(client), cause=cause)

    def _on_cell(self, event: Stored | StoreFailed) -> list[Effect]:
        why, client, written, what = self._cells.pop(event.request)
        if isinstance(event, StoreFailed):
            return []  # the client comes again; what was provisional is given up
        if written is not None:
            return self._wrote(client, written, event.cause)
        assert event.value is None or isinstance(event.value, Cell)
        cell = event.value
        stored = None if cell is None else decode_session(cell.value)
        session: StoredSession | str
        if isinstance(what, Comes):
            session = self._taken(what, stored)
        else:
            session = self.settling(
                what, stored, here=False, broker=self._name, uid=f"{self._name}.{self._requests_made}"
            )
            self.basis[client] = what.epoch
        if isinstance(session, str):
            return []
        self._requests_made += 1
        request = f"session {self._requests_made}"
        self._cells[request] = (why, client, session, what)
        revision = 0 if cell is None else cell.revision
        put = PutKey(
            request=request,
            table=SESSIONS,
            key=session_key(client),
            value=encode_session(session),
            revision=revision,
            cause=why,
        )
        return [put]

    def _taken(self, event: Comes, stored: StoredSession | None) -> StoredSession:
        uid = f"{self._name}.{self._requests_made}.{event.cause}"
        before = stored or StoredSession(client=event.client, uid=uid, expiry_s=EXPIRY_S, epoch=0)
        return msgspec.structs.replace(
            before,
            epoch=before.epoch + 1,
            broker=self._name,
            subscriptions=_changed(before.subscriptions, event),
        )

    def _wrote(self, client: str, session: StoredSession, cause: str) -> list[Effect]:
        record = Record(
            client, "", session.uid, session.epoch, EXPIRY_S, False, 0, dict(session.subscriptions)
        )
        self._sessions[client] = record
        effects: list[Effect] = [Served(client=client, epoch=session.epoch, cause=cause)]
        if self._backed_by:
            effects.append(Send(to=broker_address(self._backed_by), message=Told(record), cause=cause))
        return effects


def _changed(before: Mapping[str, Subscription], event: Comes) -> dict[str, Subscription]:
    after = {name: each for name, each in before.items() if name != event.name}
    return {**after, event.name: Subscription()} if event.wanted else after


def _renamed(effect: Effect) -> Effect:
    if isinstance(effect, SetTimer | CancelTimer):
        return msgspec.structs.replace(effect, name=NEAR + effect.name)
    return effect
