"""Wills that are not settled yet.

Transitions of ``WaitingWills``:

    *  WillLeft, WillDue, ClientLives, RoomReserved, AliveKnown, WillInquired, WillPublished, TimerFired

A will waits for its delay, or for a redirected client to arrive at the other broker; or it is on its way into the log.

A client that resumes its session, at any broker, is alive: its will is dropped. A client that comes without its session
has ended that session and with it the wait: its will is published. But if this broker redirected the client, the client
has moved: however it comes, its will is dropped.

A will from a copy may be out of date. If its client has connected since, or left in order, the stored session says so.
So a broker that has a copy's will to publish looks at the stored session first (``came_since``).

A will that is due is published, and nothing stops it then. Its client's backups keep it until it is in the log, or was
sent if it goes into no log: if this broker ends before that, they publish it.

**Room.** A will outlives its connection. It counts against the budgets of its user and its broker until it is settled
(``ReserveRoom``). A will that finds no room to wait is published at once: early is better than lost. A will that is due
goes on its way, with or without room. A will from a copy always waits: its own broker had room for it, the copy
holds it already, and its client is most likely alive.

The steps of one will::

    waiting ──its time──► under way ──WillPublished──► settled                         a will of this broker's own
    waiting ──its time──► asking ──nobody knows──► waiting, for ASK_AGAIN_US, at most ASKS_MAX times   … of a copy
                             ├──it lives──► settled
                             └──else──► inquiring ──settled──► settled
                                            └──else──► judging ──it lives──► settled; else under way

In ``asking`` and ``judging`` this broker's copies are looked at; in ``inquiring`` the store and the other brokers are
asked, which takes a while: what nobody knew before may be known then. A will that is only said **aloud**, in a cluster
that is cut off, is not inquired about.

Invariants: one will waits for each client; each will is published once, or dropped; a client is settled when none of
its wills waits or is under way; the room that is reserved for a will is given back once, when it is published or
dropped.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from tocsin.core.access.ownership import may_take
from tocsin.core.budgets.budget import weight_of_publication
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    OneState,
    SetTimer,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.wire.internal.replication import Bequest

ASK_AGAIN_US: Final = 2_000_000  # if nobody knows whether a client alive: until its return is heard of
ASKS_MAX: Final = 15  # after that the broker that should say so is taken to be gone

WILL_BYTES: Final = 2_048  # of a will that waits, beside its own bytes: objects, a timer, an account


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class WillLeft(Event, frozen=True, kw_only=True):
    """A client left a will, which is due after a while. ``moving``: the client was sent elsewhere. ``of``: the will was
    found in the copy of that broker; ``aloud``: it goes to those who listen now, and into no log."""

    client: str
    will: Bequest
    delay_s: int
    moving: bool = False
    of: str = ""
    aloud: bool = False


class WillDue(Event, frozen=True, kw_only=True):
    """A client left a will that is due now. ``publish``: how the shell is to do it, if not as with the others."""

    client: str
    will: Bequest
    publish: Any = None


class ClientLives(Event, frozen=True, kw_only=True):
    """A client of this user has come, here or elsewhere; ``back``: for its session."""

    client: str
    owner: str
    back: bool


class RoomReserved(Event, frozen=True, kw_only=True):
    """Whether there is room for a will."""

    number: int
    fits: bool


class AliveKnown(Event, frozen=True, kw_only=True):
    """Whether the client of a will lives, as this broker's copies say. None: ask again later."""

    number: int
    alive: bool | None


class WillInquired(Event, frozen=True, kw_only=True):
    """Whether a will is settled, as the store and the other brokers say."""

    number: int
    settled: bool


class WillPublished(Event, frozen=True, kw_only=True):
    """A will is logged, was sent, or is refused for good."""

    number: int


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class ReserveRoom(Effect, frozen=True, kw_only=True):
    """Count the bytes of a waiting will for its user → ``RoomReserved``."""

    number: int
    user: str
    size: int


class ReleaseRoom(Effect, frozen=True, kw_only=True):
    """Give back what was reserved for a will, if anything was."""

    number: int


class AskAlive(Effect, frozen=True, kw_only=True):
    """Look at the copies: does a client of that broker live? → ``AliveKnown``."""

    number: int
    broker: str
    client: str


class InquireWill(Effect, frozen=True, kw_only=True):
    """Ask the store and the other brokers whether a will is settled → ``WillInquired``."""

    number: int
    client: str
    will: Bequest


class PublishWill(Effect, frozen=True, kw_only=True):
    """Publish a will → ``WillPublished``."""

    number: int
    will: Bequest
    aloud: bool
    publish: Any


class WillsSettled(Effect, frozen=True, kw_only=True):
    """Each will of a client is logged, sent or permanently dropped."""

    client: str


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


class WillTimer(StrEnum):
    """The timer of one will, whose number follows (``of``)."""

    DUE = "due"

    def of(self, number: int) -> str:
        return f"{self}/{number}"


class WillStep(StrEnum):
    """How far a will is, as the module says."""

    WAITING = "waiting"
    ASKING = "asking"
    INQUIRING = "inquiring"
    JUDGING = "judging"
    UNDER_WAY = "under way"


class _Will(msgspec.Struct):
    number: int
    client: str
    will: Bequest
    moving: bool = False
    of: str = ""
    aloud: bool = False
    publish: Any = None
    step: WillStep = WillStep.WAITING
    asks: int = 0  # that were answered with "nobody knows yet"


def came_since(will: Bequest, session: StoredSession | None) -> bool:
    """Whether the client has connected, or left in order, since it left this will; by its stored session."""
    if session is None or not will.session or not may_take(will.owner, session.owner):
        return False  # it is over, and another user's may have its place; or nobody knows
    return session.uid != will.session or max(session.epoch, session.left + 1) > will.epoch


def _is_later(will: Bequest, other: Bequest) -> bool:
    """Whether a client left this will at a later connection, in the same session."""
    return bool(will.session) and will.session == other.session and will.epoch > other.epoch


def _weight(will: Bequest) -> int:
    """About what it takes in memory."""
    return WILL_BYTES + weight_of_publication(will.publication)


class WaitingWills(TableMachine):
    """The unsettled wills of the clients that one broker had last."""

    timers = WillTimer
    state = OneState.ONLY

    def __init__(self) -> None:
        self._count = 0  # so far
        self._wills: dict[int, _Will] = {}  # by number
        self._waiting: dict[str, _Will] = {}  # by client: not under way
        self._under_way: dict[str, list[_Will]] = {}  # by client, oldest first

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def unsettled(self, client: str) -> Bequest | None:
        """The will of a client that waits, or else the newest that is on its way."""
        waiting = self._waiting.get(client)
        under_way = self._under_way.get(client)
        return waiting.will if waiting is not None else under_way[-1].will if under_way else None

    # ── wills that come ─────────────────────────────────────────────────────────────────────────────────────

    def _on_left(self, event: WillLeft, now_us: int) -> list[Effect]:
        client, will = event.client, event.will
        before = self._waiting.get(client)
        effects: list[Effect] = []
        if before is not None:
            if _is_later(before.will, will):
                return []  # its client came since, and left the waiting will
            found_again = bool(event.of) and before.of == event.of
            outdated = found_again or _is_later(will, before.will)
            effects = self._drop(before) if outdated else self._send(before)
        waits = msgspec.structs.replace(will, delay_s=event.delay_s)
        new = self._add(_Will(0, client, waits, event.moving, event.of, event.aloud))
        self._waiting[client] = new
        due = SetTimer(name=WillTimer.DUE.of(new.number), delay_us=event.delay_s * 1_000_000)
        return [*effects, due, self._reserve(new)]

    def _on_due(self, event: WillDue, now_us: int) -> list[Effect]:
        new = self._add(_Will(0, event.client, event.will, publish=event.publish))
        return [self._reserve(new), *self._send(new)]

    def _add(self, will: _Will) -> _Will:
        self._count += 1
        will.number = self._count
        self._wills[will.number] = will
        return will

    def _reserve(self, will: _Will) -> Effect:
        return ReserveRoom(number=will.number, user=will.will.owner, size=_weight(will.will))

    def _on_reserved(self, event: RoomReserved, now_us: int) -> list[Effect]:
        will = self._wills.get(event.number)
        if event.fits or will is None or will.of or will.step is not WillStep.WAITING:
            return []
        will.will = msgspec.structs.replace(will.will, delay_s=0)
        return self._send(will)  # early is better than lost

    # ── clients that come ───────────────────────────────────────────────────────────────────────────────────

    def _on_client(self, event: ClientLives, now_us: int) -> list[Effect]:
        will = self._waiting.get(event.client)
        if will is None or not may_take(will.will.owner, event.owner):
            return []
        return self._judge(will, alive=event.back or will.moving)

    # ── wills whose time has come ───────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        kind, _, number = event.name.partition("/")
        assert kind == WillTimer.DUE
        will = self._wills.get(int(number))
        if will is None or will.step is not WillStep.WAITING:
            return []
        return self._ask(will, WillStep.ASKING) if will.of else self._send(will)

    def _ask(self, will: _Will, step: WillStep) -> list[Effect]:
        will.step = step
        return [AskAlive(number=will.number, broker=will.of, client=will.client)]

    def _on_alive(self, event: AliveKnown, now_us: int) -> list[Effect]:
        will, alive = self._wills.get(event.number), event.alive
        if will is None or will.step not in (WillStep.ASKING, WillStep.JUDGING):
            return []
        if will.step is WillStep.JUDGING or alive:
            return self._judge(will, alive=bool(alive))
        if alive is None and will.asks < ASKS_MAX:
            will.step, will.asks = WillStep.WAITING, will.asks + 1
            return [SetTimer(name=WillTimer.DUE.of(will.number), delay_us=ASK_AGAIN_US)]
        if will.aloud:
            return self._send(will)
        will.step = WillStep.INQUIRING
        return [InquireWill(number=will.number, client=will.client, will=will.will)]

    def _on_inquired(self, event: WillInquired, now_us: int) -> list[Effect]:
        will = self._wills.get(event.number)
        if will is None or will.step is not WillStep.INQUIRING:
            return []
        return self._judge(will, alive=True) if event.settled else self._ask(will, WillStep.JUDGING)

    def _judge(self, will: _Will, *, alive: bool) -> list[Effect]:
        return [*self._drop(will), *self._settle(will.client)] if alive else self._send(will)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────

    def _stop_waiting(self, will: _Will) -> list[Effect]:
        self._waiting.pop(will.client, None)
        return [CancelTimer(name=WillTimer.DUE.of(will.number))] if will.step is WillStep.WAITING else []

    def _drop(self, will: _Will) -> list[Effect]:
        del self._wills[will.number]
        return [*self._stop_waiting(will), ReleaseRoom(number=will.number)]

    def _send(self, will: _Will) -> list[Effect]:
        effects = self._stop_waiting(will) if self._waiting.get(will.client) is will else []
        will.step = WillStep.UNDER_WAY
        self._under_way.setdefault(will.client, []).append(will)
        return [
            *effects,
            PublishWill(number=will.number, will=will.will, aloud=will.aloud, publish=will.publish),
        ]

    def _on_published(self, event: WillPublished, now_us: int) -> list[Effect]:
        will = self._wills.pop(event.number)
        under_way = self._under_way[will.client]
        under_way.remove(will)
        if not under_way:
            del self._under_way[will.client]
        return [ReleaseRoom(number=will.number), *self._settle(will.client)]

    def _settle(self, client: str) -> list[Effect]:
        unsettled = client in self._waiting or client in self._under_way
        return [] if unsettled else [WillsSettled(client=client)]

    table: ClassVar[Table] = {
        ("*", WillLeft): _on_left,
        ("*", WillDue): _on_due,
        ("*", ClientLives): _on_client,
        ("*", RoomReserved): _on_reserved,
        ("*", AliveKnown): _on_alive,
        ("*", WillInquired): _on_inquired,
        ("*", WillPublished): _on_published,
        ("*", TimerFired): _on_timer,
    }
