"""Provisional service without the store: when it begins and ends, which clients are served, and what is written after.

Transitions of ``ProvisionalService``:

    joined     LeaderLost → severed
               StoreLooked
    severed    LeaderHeard → joined
               StoreLooked → cut off
    cut off    LeaderHeard → returning
               StoreLooked → severed
    returning  LeaderLost → cut off
               StoreLooked → joined
    *          LeaderLost, LeaderHeard → nothing
               SessionServed, ClientCame, ClientWent, AskedAnew, ConnectionsOver, SessionSettled, TimerFired

While no leader hears this broker (``severed``) it looks at the store every LOOK_US. If the store does not answer, the
broker is ``cut off``: whoever comes is served provisionally, and SUBACK and UNSUBACK wait for the store no longer. It
stays so until the store answers, also if a leader is heard before that (``returning``).

A broker that cannot reach the store cannot take a session: nobody would know whose it is. It serves the client all the
same, **provisionally**: its subscriptions are those that are known here, from an earlier connection or a copy
(``core.replication``), and QoS 0 flows. Nothing is delivered, acknowledged or committed above that.

    unknown, and may have a session      refused: a session that exists must not be denied, or its promises are broken
    unknown, and wants none to last      served, as anywhere
    known, comes for its session         served with its subscriptions (``Record``), as its session
    starts clean                         served with a new session (``Record``, ``fresh``)

When the store is back, clients that are here provisionally are asked to come anew, and each record is held against its
cell (``settle``): if nobody has taken the session since, the provisional subscriptions and unsubscriptions are written
into it, with a new epoch; and the session has no owner until the client comes for it. If somebody has, the record is
dropped. Positions are those of the cell: nobody has moved them.

Records are settled AT_ONCE at a time. A client that is here is asked to come anew first: its record has what it leaves.
Then what earlier connections of the client leave here has to be stored, or given up (``AwaitEnd``). A connection that
had the session before the cut, and ended during it, has the record's uid and epoch. Its last write is older than the
record, and would undo what the client has changed since, if it came after the record was held against the cell.
A record that the store does not take, TRIES times, waits until the store is back once more.

Invariants: what is written follows from a cell that has the epoch that was known, or from none; whenever a client
leaves that is served provisionally, what it has changed is in its record, unless that is being written; whoever waits
for a client's record to be settled is told when it is, or when it waits for the store again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final, Literal

import msgspec

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Event, Say, SetTimer, Table, TableMachine, TimerFired
from tocsin.core.replication.gamma import ClientSnapshot

LOOK_US: Final = 500_000  # between two looks at the store, and before a record is tried again
TRIES: Final = 10
AT_ONCE: Final = 32  # sessions that are settled at a time
RECORDS_MAX: Final = 100_000  # some kilobyte each; those that came first go first

Refusal = Literal["not yours", "unknown"]
Outcome = Literal["written", "forget", "let go", "as it is", "failed"]  # of settling


class Record(msgspec.Struct, frozen=True):
    """A session that is served, or was, without its cell."""

    client: str
    owner: str
    uid: str  # of the session that is known; empty if none is
    epoch: int  # with which it was taken last, as far as is known
    expiry_s: int
    fresh: bool  # the client started clean: its old session is to be forgotten
    tail: int  # how far the message log was known when it came
    subscriptions: dict[str, Subscription]


def recorded(
    standing: ClientSnapshot, *, fresh: bool = False, expiry_s: int | None = None, tail: int = 0
) -> Record:
    """The session of a client as a copy knows it."""
    head = standing.head
    return Record(
        client=standing.client,
        owner=head.owner,
        uid=head.session,
        epoch=head.epoch,
        expiry_s=head.expiry_s if expiry_s is None else expiry_s,
        fresh=fresh,
        tail=tail,
        subscriptions={} if fresh else dict(standing.subscriptions),
    )


def admit(
    client: str, known: Record | None, *, owner: str, clean: bool, expiry_s: int, tail: int
) -> Record | Refusal | None:
    """Whether a client is served, and as which session; None: without a stored one."""
    if known is not None and known.owner not in ("", owner):
        return "not yours"
    if clean:
        uid, epoch = ("", 0) if known is None else (known.uid, known.epoch)
        return Record(client, owner, uid, epoch, expiry_s, True, tail, {})
    if known is not None:
        return msgspec.structs.replace(known, owner=owner or known.owner, expiry_s=expiry_s)
    return "unknown" if expiry_s else None


def settle(
    record: Record, stored: StoredSession | None, *, here: bool, broker: str, uid: str
) -> StoredSession | Literal["forget", "let go", "as it is"]:
    """The fate of the cell; ``here``: the client was here until a moment ago. ``uid`` is for a new session."""
    if stored is not None and stored.owner not in ("", record.owner):
        return "let go"
    if record.uid and stored is not None:
        unchanged = (stored.uid, stored.epoch) == (record.uid, record.epoch)
    elif stored is not None:  # the session was unknown here: it was created before the cut, or during it
        unchanged = not stored.broker and here
    else:
        unchanged = record.fresh
    if not unchanged:
        return "let go"
    if not record.expiry_s:
        return "let go" if stored is None else "forget"
    if record.fresh or stored is None:
        return StoredSession(
            client=record.client,
            uid=uid,
            expiry_s=record.expiry_s,
            epoch=1 if stored is None else stored.epoch + 1,
            owner=record.owner,
            subscriptions=record.subscriptions,
            progress=Progress(record.tail + 1),
            home=broker,
        )
    if stored.subscriptions == record.subscriptions and stored.expiry_s == record.expiry_s:
        return "as it is"
    return msgspec.structs.replace(
        stored,
        epoch=stored.epoch + 1,
        broker="",
        subscriptions=record.subscriptions,
        expiry_s=record.expiry_s,
    )


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class LeaderLost(Event, frozen=True, kw_only=True):
    """No leader is heard. Harmless when repeated."""


class LeaderHeard(Event, frozen=True, kw_only=True):
    """A leader is heard again. Harmless when repeated."""


class StoreLooked(Event, frozen=True, kw_only=True):
    """Whether the store has answered."""

    reached: bool


class SessionServed(Event, frozen=True, kw_only=True):
    """A client is served as this session."""

    record: Record


class ClientCame(Event, frozen=True, kw_only=True):
    """A client is here, and is served provisionally; ``delivery`` stands for its connection."""

    client: str
    delivery: object


class ClientWent(Event, frozen=True, kw_only=True):
    """A client's connection is over. ``record`` is its session as it leaves it; ``provisional``: as it was served."""

    delivery: object
    record: Record
    provisional: bool


class AskedAnew(Event, frozen=True, kw_only=True):
    """A client was asked to come anew; if it has gone for that, ``ClientWent`` came before."""

    client: str


class ConnectionsOver(Event, frozen=True, kw_only=True):
    """Nothing of a client's earlier connections here is left to be stored."""

    client: str


class SessionSettled(Event, frozen=True, kw_only=True):
    """What became of a record; ``failed``: the store did not say."""

    client: str
    outcome: Outcome


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class LookAtStore(Effect, frozen=True, kw_only=True):
    """See whether the store answers → ``StoreLooked``."""


class HurryClients(Effect, frozen=True, kw_only=True):
    """Nobody need wait for the store any longer to hear of subscriptions."""


class AskAnew(Effect, frozen=True, kw_only=True):
    """Have a client that is here come anew → ``AskedAnew``."""

    client: str


class AwaitEnd(Effect, frozen=True, kw_only=True):
    """Wait, before a session is settled, until nothing of the client's earlier connections here is left to be stored
    → ``ConnectionsOver``.
    """

    client: str


class SettleSession(Effect, frozen=True, kw_only=True):
    """Hold a record against its cell (``settle``) → ``SessionSettled``."""

    record: Record
    here: bool


class SettlingOver(Effect, frozen=True, kw_only=True):
    """Nothing of a client's record is left to be held against its cell just now."""

    client: str


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


class ProvisionalState(StrEnum):
    """Whether this broker has a leader and the store."""

    JOINED = "joined"
    SEVERED = "severed"
    CUT_OFF = "cut off"
    RETURNING = "returning"


class ProvisionalTimer(StrEnum):
    """The timers of provisional service. AGAIN is of one client, whose id follows (``of``)."""

    LOOK = "look"
    AGAIN = "again"

    def of(self, client: str) -> str:
        return f"{self}/{client}"


class _Settling(msgspec.Struct):
    """A record that is being settled."""

    record: Record
    here: bool
    tries: int = 0


class ProvisionalService(TableMachine):
    """Whether one broker is cut off, and the sessions that it serves then."""

    timers = ProvisionalTimer
    state: ProvisionalState = ProvisionalState.JOINED

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.here: dict[str, object] = {}  # client → the delivery of its connection
        self.settled = 0  # sessions that were written
        self.let_go = 0  # that somebody else had taken, or nobody knew any more
        self._looking = False  # a look at the store is under way, or its timer runs
        self._pending: dict[str, Record] = {}  # to be settled, in order
        self._settling: dict[str, _Settling] = {}

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def cut_off(self) -> bool:
        """The store did not answer when it was asked last."""
        return self.state in (ProvisionalState.CUT_OFF, ProvisionalState.RETURNING)

    def settles(self, client: str) -> bool:
        """Whether something of a client is left to be held against its cell."""
        return client in self._settling or client in self._pending

    @property
    def busy(self) -> bool:
        """Whether anything is."""
        return bool(self._settling or self._pending)

    # ── the store ───────────────────────────────────────────────────────────────────────────────────────────

    def _sever(self, event: LeaderLost, now_us: int) -> list[Effect]:
        self.state = ProvisionalState.SEVERED
        if self._looking:
            return []
        self._looking = True
        return [LookAtStore()]

    def _sever_again(self, event: LeaderLost, now_us: int) -> list[Effect]:
        self.state = ProvisionalState.CUT_OFF
        return []

    def _restore(self, event: LeaderHeard, now_us: int) -> list[Effect]:
        self.state = ProvisionalState.JOINED
        return []

    def _return(self, event: LeaderHeard, now_us: int) -> list[Effect]:
        self.state = ProvisionalState.RETURNING
        return []

    def _look_later(self) -> Effect:
        return SetTimer(name=ProvisionalTimer.LOOK, delay_us=LOOK_US)

    def _on_look(self, event: StoreLooked, now_us: int) -> list[Effect]:
        return [self._look_later()]

    def _on_look_severed(self, event: StoreLooked, now_us: int) -> list[Effect]:
        if event.reached:
            return [self._look_later()]
        self.state = ProvisionalState.CUT_OFF
        words = "cut off from the store: clients are served provisionally"
        cut = [Say(text=words, level="warning"), HurryClients()]
        return [*cut, *self._postpone(), self._look_later()]

    def _postpone(self) -> list[Effect]:
        """What nobody has begun to settle waits until the store is back once more."""
        pending, self._pending = self._pending, {}
        for client, record in pending.items():
            self.records.setdefault(client, record)
        return [SettlingOver(client=client) for client in pending if client not in self._settling]

    def _on_look_cut_off(self, event: StoreLooked, now_us: int) -> list[Effect]:
        if not event.reached:
            return [self._look_later()]
        self.state = ProvisionalState.SEVERED
        return self._heal()

    def _on_look_returning(self, event: StoreLooked, now_us: int) -> list[Effect]:
        if not event.reached:
            return [self._look_later()]
        self.state = ProvisionalState.JOINED
        return self._heal()

    def _heal(self) -> list[Effect]:
        records, self.records = self.records, {}
        facts = {"clients": len(self.here), "sessions": len(records)}
        words = "the store is back: provisional sessions are settled"
        self._pending.update(records)
        others = [AskAnew(client=each) for each in self.here if each not in records]
        return [Say(text=words, level="warning", facts=facts), *self._go_on(), *others, self._look_later()]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        kind, _, client = event.name.partition("/")
        if kind == ProvisionalTimer.AGAIN:
            settling = self._settling[client]
            return [SettleSession(record=settling.record, here=settling.here)]
        assert kind == ProvisionalTimer.LOOK
        if self.state is not ProvisionalState.JOINED:
            return [LookAtStore()]
        self._looking = False
        self.records.clear()  # the store was there all the time, or has everything
        return []

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_served(self, event: SessionServed, now_us: int) -> list[Effect]:
        self._keep(event.record)
        return []

    def _keep(self, record: Record) -> None:
        self.records.pop(record.client, None)
        self.records[record.client] = record
        if len(self.records) > RECORDS_MAX:
            del self.records[next(iter(self.records))]

    def _on_came(self, event: ClientCame, now_us: int) -> list[Effect]:
        self.here[event.client] = event.delivery
        return []

    def _on_went(self, event: ClientWent, now_us: int) -> list[Effect]:
        client, left = event.record.client, event.record
        if self.here.get(client) is event.delivery:
            del self.here[client]
        if not event.provisional:
            if self.state in (ProvisionalState.SEVERED, ProvisionalState.CUT_OFF) and left.uid:
                self._keep(left)
            return []
        changes = {"subscriptions": left.subscriptions, "expiry_s": left.expiry_s}
        if client in self.records:
            self._keep(msgspec.structs.replace(self.records[client], **changes))
        elif client in self._pending:
            self._pending[client] = msgspec.structs.replace(self._pending[client], **changes)
        elif client in self._settling:
            settling = self._settling[client]
            settling.record = msgspec.structs.replace(settling.record, **changes)
        return []

    # ── settling ────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> list[Effect]:
        """Begin to settle what waits, as long as there is room."""
        effects: list[Effect] = []
        for client in [each for each in self._pending if each not in self._settling]:
            if len(self._settling) >= AT_ONCE:
                break
            record, here = self._pending.pop(client), client in self.here
            self._settling[client] = _Settling(record, here)
            effects.append(AskAnew(client=client) if here else AwaitEnd(client=client))
        return effects

    def _on_asked(self, event: AskedAnew, now_us: int) -> list[Effect]:
        return [AwaitEnd(client=event.client)] if event.client in self._settling else []

    def _on_over(self, event: ConnectionsOver, now_us: int) -> list[Effect]:
        settling = self._settling[event.client]
        return [SettleSession(record=settling.record, here=settling.here)]

    def _on_settled(self, event: SessionSettled, now_us: int) -> list[Effect]:
        settling = self._settling[event.client]
        if event.outcome == "failed" and settling.tries + 1 < TRIES:
            settling.tries += 1
            return [SetTimer(name=ProvisionalTimer.AGAIN.of(event.client), delay_us=LOOK_US)]
        if event.outcome == "failed":
            self.records.setdefault(event.client, settling.record)
        self.settled += event.outcome == "written"
        self.let_go += event.outcome == "let go"
        del self._settling[event.client]
        over = [] if event.client in self._pending else [SettlingOver(client=event.client)]
        return [*over, *self._go_on()]

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (ProvisionalState.JOINED, LeaderLost): _sever,
        (ProvisionalState.JOINED, StoreLooked): _on_look,
        (ProvisionalState.SEVERED, LeaderHeard): _restore,
        (ProvisionalState.SEVERED, StoreLooked): _on_look_severed,
        (ProvisionalState.CUT_OFF, LeaderHeard): _return,
        (ProvisionalState.CUT_OFF, StoreLooked): _on_look_cut_off,
        (ProvisionalState.RETURNING, LeaderLost): _sever_again,
        (ProvisionalState.RETURNING, StoreLooked): _on_look_returning,
        ("*", LeaderLost): _ignore,
        ("*", LeaderHeard): _ignore,
        ("*", SessionServed): _on_served,
        ("*", ClientCame): _on_came,
        ("*", ClientWent): _on_went,
        ("*", AskedAnew): _on_asked,
        ("*", ConnectionsOver): _on_over,
        ("*", SessionSettled): _on_settled,
        ("*", TimerFired): _on_timer,
    }
