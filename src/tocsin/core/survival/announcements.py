"""Announcing arriving clients: which brokers hear of which clients, when, and which old sessions are forgotten first.

Transitions of ``Announcements``:

    *  ClientCame, OthersTold, ClientLetIn, BeganAnew, ClientWent, ForgetNow, LotForgotten, TimerFired

A client id is unique in the whole network: any other broker that has the client lets it go. A clean start ends the
session that is stored, whichever broker stored it. Both are messages to the store for which no client waits, and in a
rush of thousands the messages one by one are most of the work. So the other brokers are told at once of the client that
comes first, and of those that come in the next TELL_US together; and old sessions that are to go within FORGET_US are
looked for together, as one **lot**.

    ClientLetIn ──► (new ──TELL──►) fresh ──TELL──► TellOthers     ClientWent takes a client out of both
    BeganAnew ──► anew ──FORGET──► clean ──FORGET──► ForgetLot ──LotForgotten──► settled
                    └────────── or ForgetNow ───────────▲

A client that wants no session is let in as soon as its CONNECT is read. A broker that stood still reads a CONNECT of
long ago, and in the next turn of the loop that its client has given up: by then the client is elsewhere, and would be
thrown out there for a connection that is over. So such a client is **new** for one TELL, and has to be there still at
the next. A client with a session has had to wait for the store.

Its old session is in the same danger: by then the client may have made another one elsewhere, and have left it. So that
waits for a turn of the loop, too, and a client that went **unheard** since its CONNECT was read may be such a one. Then
only a session is forgotten that was served last here, and is older than the CONNECT for certain.

**Late words.** An announcement may be slower than the client: a client that moves on at once arrives before it, and
would be disconnected for an *earlier* stay. So an announcement carries the wall-clock time of the arrival, and a broker
that has had the client since keeps it. Clocks of machines differ. So that is a hybrid logical clock (``ArrivalClock``):
no broker gives a time before one of which another has told it, and a client that moves on has come later, whatever the
clocks say. If the word does not come before the client does, the clocks decide. If the word's is behind, an old
connection stays until its keep-alive is over, or until its session is written elsewhere with a larger epoch; if it is
ahead, a client may have to come again. Who may write a session is decided by its epoch, and not by this.

Invariants:

- The others are told of nobody that has gone again, and of nobody that only knocks: a client that is refused came
  nowhere.
- Nobody is let go for a word from before it came (``ArrivalTimes``); who comes after a word has come later than it
  says.
- Lots that have a client in common go one after the other (``after``), and a client is settled when its last lot is
  forgotten: a session that is taken then does not go with the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from tocsin.core.access.ownership import Claim
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

LATEST_US: Final = 1 << 53  # in the year 2255: whoever tells of a later time is wrong
STEP_US: Final = 2  # between two times that one clock gives: others use the number between them
TELL_US: Final = 2_000  # shorter than most clients take to another broker
NEW_US: Final = 1_000  # the loop looks at its sockets in between
FORGET_US: Final = 10_000  # an old session that nobody takes does no harm


class ArrivalClock:
    """Gives the times at which clients come to one broker: each later than all before, here and as others told."""

    __slots__ = ("_last_us",)

    def __init__(self) -> None:
        self._last_us = 0  # the latest time that was given here, or heard of

    def next(self, wall_us: int) -> int:
        """A client comes now, by the clock on the wall."""
        self._last_us = max(self._last_us + STEP_US, wall_us)
        return self._last_us

    def heard(self, came_us: int) -> None:
        """Another broker says that a client came to it then."""
        if came_us <= LATEST_US:
            self._last_us = max(self._last_us, came_us)


class ArrivalTimes:
    """When each client came to this broker."""

    __slots__ = ("_came_us",)

    def __init__(self) -> None:
        self._came_us: dict[str, int] = {}

    def came(self, client: str, now_us: int) -> None:
        self._came_us[client] = now_us

    def went(self, client: str) -> None:
        self._came_us.pop(client, None)

    def came_us(self, client: str) -> int:
        """When a client came here; 0 if it did not."""
        return self._came_us.get(client, 0)

    def since(self, client: str, came_us: int) -> bool:
        """Whether a client has come here after it came elsewhere, at that time."""
        return self._came_us.get(client, came_us) > came_us


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """A client that has come to a broker; ``back``: for the session that it had, not for a new one."""

    claim: Claim
    back: bool


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class ClientCame(Event, frozen=True, kw_only=True):
    """A client has come, by the clock on the wall, and may turn out to be another's."""

    client: str
    at_us: int


class ClientLetIn(Event, frozen=True, kw_only=True):
    """A client has come that is entitled to its id. ``new``: its CONNECT was read just now."""

    arrival: Arrival
    new: bool = False


class OthersTold(Event, frozen=True, kw_only=True):
    """A word of clients that have come to another broker."""

    arrivals: tuple[Arrival, ...]


class BeganAnew(Event, frozen=True, kw_only=True):
    """A client has come that wants no session: an old one of this owner's is to be forgotten."""

    client: str
    owner: str


class ClientWent(Event, frozen=True, kw_only=True):
    """A client has no connection here any more; ``unheard``: nothing was read of it after its CONNECT."""

    client: str
    unheard: bool = False


class ForgetNow(Event, frozen=True, kw_only=True):
    """Forget the waiting sessions now, instead of a moment later."""


class LotForgotten(Event, frozen=True, kw_only=True):
    """The old sessions of a lot are gone, or the store did not say so."""

    number: int


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class TellOthers(Effect, frozen=True, kw_only=True):
    """Tell the other brokers of these clients."""

    arrivals: tuple[Arrival, ...]


class ForgetLot(Effect, frozen=True, kw_only=True):
    """Forget the old sessions of these clients, of these owners, ``after`` these lots → ``LotForgotten``; of those that
    are ``doubtful`` only one that was served last here."""

    number: int
    owners: Mapping[str, str]
    doubtful: frozenset[str]
    after: tuple[int, ...]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


class AnnouncementTimer(StrEnum):
    """The timers of announcements."""

    TELL = "tell"  # the others of who has come
    FORGET = "forget"  # the old sessions of clients that began anew


class Announcements(TableMachine):
    """The clients that come to one broker."""

    timers = AnnouncementTimer
    state = OneState.ONLY

    def __init__(self, broker: str, clock: ArrivalClock) -> None:
        self.times = ArrivalTimes()
        self._clock = clock
        self._broker = broker
        self._new: dict[str, Arrival] = {}  # the clients that may be gone, though nobody has said so
        self._fresh: dict[str, Arrival] = {}  # the clients to announce to the other brokers
        self._told_us = -TELL_US  # when they were last
        self._anew: dict[
            str, str
        ] = {}  # client → owner, whose old sessions are to be forgotten, after a turn …
        self._clean: dict[str, str] = {}  # … and now
        self._unheard: set[str] = set()  # those of both that went unheard
        self._lots = 0  # so far
        self._forgetting: dict[str, int] = {}  # client → the last lot that it is in

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def elsewhere(self, arrivals: Iterable[Arrival]) -> list[Arrival]:
        """Those of a word that have come to another broker, and not here since."""
        return [
            each
            for each in arrivals
            if each.claim.broker != self._broker
            and not self.times.since(each.claim.client, each.claim.came_us)
        ]

    def is_waiting(self, client: str) -> bool:
        """Whether an old session is to be forgotten, and nobody has begun to."""
        return client in self._clean or client in self._anew

    def lot_of(self, client: str) -> int | None:
        """The lot that a client waits for; None: it is settled, if nothing waits."""
        return self._forgetting.get(client)

    # ── transitions ─────────────────────────────────────────────────────────────────────────────────────────

    def _on_came(self, event: ClientCame, now_us: int) -> list[Effect]:
        self.times.came(event.client, self._clock.next(event.at_us))
        return []

    def _on_told(self, event: OthersTold, now_us: int) -> list[Effect]:
        for each in event.arrivals:
            self._clock.heard(each.claim.came_us)
        return []

    def _on_let_in(self, event: ClientLetIn, now_us: int) -> list[Effect]:
        client, first = event.arrival.claim.client, not self._fresh and not self._new
        due, other = (self._new, self._fresh) if event.new else (self._fresh, self._new)
        other.pop(client, None)
        due[client] = event.arrival
        if not first:
            return []
        if event.new:
            return [SetTimer(name=AnnouncementTimer.TELL, delay_us=NEW_US)]
        return [SetTimer(name=AnnouncementTimer.TELL, delay_us=max(0, self._told_us + TELL_US - now_us))]

    def _on_began_anew(self, event: BeganAnew, now_us: int) -> list[Effect]:
        first = not self._clean and not self._anew
        self._clean.pop(event.client, None)
        self._unheard.discard(event.client)
        self._anew[event.client] = event.owner
        return [SetTimer(name=AnnouncementTimer.FORGET, delay_us=FORGET_US)] if first else []

    def _on_went(self, event: ClientWent, now_us: int) -> list[Effect]:
        if event.unheard and self.is_waiting(event.client):
            self._unheard.add(event.client)
        self._new.pop(event.client, None)
        self._fresh.pop(event.client, None)
        self.times.went(event.client)
        return []

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == AnnouncementTimer.FORGET:
            clean, self._clean, self._anew = self._clean, self._anew, {}
            later = [SetTimer(name=AnnouncementTimer.FORGET, delay_us=FORGET_US)] if self._clean else []
            return [*self._forget(clean), *later]
        assert event.name == AnnouncementTimer.TELL
        fresh, self._fresh, self._new = self._fresh, self._new, {}
        again: list[Effect] = []
        if self._fresh:
            again.append(SetTimer(name=AnnouncementTimer.TELL, delay_us=TELL_US if fresh else NEW_US))
        if not fresh:
            return again
        self._told_us = now_us
        return [TellOthers(arrivals=tuple(fresh.values())), *again]

    def _on_hurry(self, event: ForgetNow, now_us: int) -> list[Effect]:
        clean, self._clean, self._anew = self._clean | self._anew, {}, {}
        return [CancelTimer(name=AnnouncementTimer.FORGET), *self._forget(clean)]

    def _forget(self, clean: Mapping[str, str]) -> list[Effect]:
        if not clean:
            return []
        after = {self._forgetting[each]: None for each in clean if each in self._forgetting}
        self._lots += 1
        self._forgetting.update(dict.fromkeys(clean, self._lots))
        doubtful = frozenset(self._unheard.intersection(clean))
        self._unheard -= doubtful
        return [ForgetLot(number=self._lots, owners=clean, doubtful=doubtful, after=tuple(after))]

    def _on_forgotten(self, event: LotForgotten, now_us: int) -> list[Effect]:
        for client in [each for each, number in self._forgetting.items() if number == event.number]:
            del self._forgetting[client]
        return []

    table: ClassVar[Table] = {
        ("*", ClientCame): _on_came,
        ("*", OthersTold): _on_told,
        ("*", ClientLetIn): _on_let_in,
        ("*", BeganAnew): _on_began_anew,
        ("*", ClientWent): _on_went,
        ("*", ForgetNow): _on_hurry,
        ("*", LotForgotten): _on_forgotten,
        ("*", TimerFired): _on_timer,
    }
