"""Backend subscriptions: which ``k`` one broker holds, for which sessions, and since when.

Transitions of ``ChannelHoldings``:

    *  Started, Defined, Undefined, Wanted, Unwanted, Left, Doubted, Looked, CellFound, SessionFound, Scanned, Counted,
       Prepared, Unprepared, Stored, StoreFailed, TimerFired

A broker holds ``k`` while any session that it serves, or served last, is subscribed to it: sessions of connected
clients, and stored ones of clients that are away (their **home** is here). For the pipeline (k, broker) is one cell of
the table ``SUBSCRIPTIONS`` (``core.channels.cells``), however many sessions want it. A group that shares results
(``core.shared.holding``) is a session here, under its own name; the holder that its cell names is its home.

Several **names** (subscriptions as clients wrote them) may mean one k; what a name means follows from the channel's
definition, and is found again when that changes. A name that means nothing just now is kept, and holds nothing.

**After a start** the broker knows neither the sessions of clients that are away nor its cells in the store. It scans
both (``Scan``) in the background. It deletes nothing before a whole scan has ended while a leader counts on the broker
(``Counted``): until then another process may have its name. It scans again every hour and finds what nobody told it:
sessions that moved or expired, cells that nobody wants.

**Moving.** A broker that takes a session stores its cells first, then takes it, then tells the old home
(``Doubted``). The old home looks for itself (``LookAt``): a message is a hint, the stored session decides. The old
home lets go when it has seen the new home's cells. If they are not there (the session was taken by a write that took
effect after its broker had given up), it tells the new home and looks again. It discards the lookup if the client
reconnected here since.

**Standbys.** The broker holds the channels of its primaries' clients as standby cells, unless its own clients hold
them (``core.channels.standby_cells``). A subscription that a standby cell covers need not be stored before a session
is taken. A session of which that is true of every subscription is **coming** (``core.channels.coming``): it is answered
at once, and taken up a moment later, SLICE names at a time; or before the next event that is not a session's coming.
What is asked from here (``names``, ``meaning``, ``unseen``) is answered as if it had been taken up.

**Unseen.** A tick that began before a cell was stored has no rows for this broker. The notice names the revision of the
table that the tick knew; ``unseen`` are the ks whose rows the broker has to look for in the other brokers' files.

Invariant: the broker gives a cell up only after a whole scan, and only when every session known to want it has said
so, has ended, or was seen elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

import msgspec

from tocsin.core.channels.cells import LATER_US, SubscriptionCells
from tocsin.core.channels.channel_filter import Bound, UnknownChannel, bind, read_channel_filter
from tocsin.core.channels.coming import SLICE, SLICE_PAUSE_US, SOON_US, ComingSessions
from tocsin.core.channels.signals import (
    CellFound,
    Counted,
    Defined,
    Doubted,
    Held,
    HoldingsTimer,
    Left,
    LookAt,
    Looked,
    Prepared,
    Scan,
    Scanned,
    SessionFound,
    Undefined,
    Unprepared,
    Unwanted,
    Wanted,
)
from tocsin.core.channels.standby_cells import StandbyCells, channel_of, is_standby
from tocsin.core.deadlines import Deadlines
from tocsin.core.machine import (
    Effect,
    Event,
    OneState,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
    stamp,
)
from tocsin.model.catalogue import Channel
from tocsin.wire.mqtt.topics import CHANNEL_PREFIX, FilterInvalid

SCAN_AGAIN_US: Final = 10_000_000  # before a scan that failed is made once more
SCAN_EVERY_US: Final = 3_600_000_000
OURS_US: Final = (
    5_000_000  # for a standby that had our name to be out of it, before what nobody wants is looked for
)
LOOK_AGAIN_US: Final = 5_000_000  # at a session whose new home does not hold what it should
EXPIRY_MARGIN_US: Final = 60_000_000  # after its time, before a session is looked for: clocks differ


class _Session(msgspec.Struct):
    client: str
    names: dict[str, None] = {}
    here: bool = True  # connected
    visits: int = 1  # how often it was here: what was seen of it between two is old
    doubted: bool = False  # while it was here somebody said that it is not
    touched: bool = True  # something is known of it that a scan under way may not know


class ChannelHoldings(TableMachine):
    """Decides which backend subscriptions one broker holds."""

    timers = HoldingsTimer
    state = OneState.ONLY

    def __init__(self, broker: str, scan_every_us: int = SCAN_EVERY_US) -> None:
        self._scan_every_us = scan_every_us
        self.channels: dict[str, Channel] = {}  # by name, in small letters
        self._cells = SubscriptionCells(broker)
        self._standbys = StandbyCells(broker, self._meaning, self._cells)
        self.sessions: dict[str, _Session] = {}  # those that have channels here, by uid
        self._wanting: dict[str, dict[str, None]] = {}  # name → the sessions that have it
        self._of_channel: dict[str, dict[str, None]] = {}  # channel, in small letters → wanted names
        self._bound: dict[str, Bound] = {}  # what names mean
        self._expiring = Deadlines()  # when a session that is away is to be looked for
        self._scanning = False
        self._coming = ComingSessions()

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        if not self._coming or type(event) is Wanted or _is_soon(event):
            return super().handle(event, now_us)
        return [*self._receive(), *super().handle(event, now_us)]

    def borrow(self) -> None:
        """The broker has the name of a lost broker, which is perhaps not dead: nothing is deleted under it."""
        self._cells.borrowed = self._standbys.cells.borrowed = True

    # ── what is asked from here ─────────────────────────────────────────────────────────────────────────────

    def check(self, name: str, may_subscribe: Callable[[str], bool] = lambda pattern: True) -> Bound:
        """The backend subscription that a subscription means. Raises ``FilterInvalid``: ``UnknownChannel``, or why it
        does not fit.

        ``may_subscribe`` says what the client may have at all. A channel that it may have with no values whatever does
        not exist for it: neither that there is one nor its signature is anybody's business.
        """
        request = read_channel_filter(name)
        channel = self.channels.get(request.channel.lower())
        if channel is None or not may_subscribe(f"{CHANNEL_PREFIX}{channel.name}/#"):
            raise UnknownChannel(name, request.channel)
        return bind(request, channel)

    def meaning(self, name: str) -> Bound | None:
        """The backend subscription of a wanted name; None: none at present."""
        bound = self._bound.get(name)
        return self._standbys.prepared(name) if bound is None and self._coming.wants(name) else bound

    def names(self, k: str) -> Iterable[str]:
        """The wanted names that mean k."""
        names = self._cells.names(k)
        if not self._coming:
            return names
        coming = [name for name in self._standbys.names(k) if self._coming.wants(name)]
        return dict.fromkeys((*names, *coming))

    def holds(self, k: str) -> bool:
        """Whether results of k are in this broker's own files: ``unseen`` tells those of which that is not sure yet."""
        return self._cells.holds(k)

    def unseen(self, seen: int) -> set[str]:
        """The ks whose cells a tick did not know that knew the table up to this revision."""
        unseen = self._cells.unseen(seen)
        bounds = (self._standbys.prepared(name) for name in self._coming.names)
        return unseen | {bound.k for bound in bounds if bound is not None}

    def statistics(self) -> dict[str, int]:
        return {
            "channels": len(self.channels),
            "channel_subscriptions": len(self._cells),
            "channel_sessions": len(self.sessions),
            "channel_standbys": len(self._standbys.cells),
        }

    # ── definitions ─────────────────────────────────────────────────────────────────────────────────────────

    def _define(self, event: Defined, now_us: int) -> list[Effect]:
        self.channels[event.channel.name.lower()] = event.channel
        return self._rebind(event.channel.name.lower())

    def _undefine(self, event: Undefined, now_us: int) -> list[Effect]:
        self.channels.pop(event.name.lower(), None)
        return self._rebind(event.name.lower())

    def _rebind(self, channel: str) -> list[Effect]:
        effects = self._standbys.redefined(channel)
        for name in self._of_channel.get(channel, {}):
            before, after = self._bound.get(name), self._meaning(name)
            if _k(before) == _k(after):
                continue
            if after is not None:
                self._bound[name] = after
                effects += self._take_up(name, after, waits=True)
            else:
                del self._bound[name]
            if before is not None:
                effects += self._give_up(name, before)
        return effects

    def _take_up(self, name: str, bound: Bound, *, waits: bool) -> list[Effect]:
        later_us = LATER_US if self._standbys.covers(bound.k) else None if waits else 0
        effects = self._cells.want(name, bound, later_us=later_us)  # it may be there already: a scan found it
        return [*effects, *self._standbys.turned(bound.k)]

    def _give_up(self, name: str, bound: Bound) -> list[Effect]:
        effects = self._cells.unwant(name, bound)
        return [*self._standbys.turned(bound.k), *effects]

    def _meaning(self, name: str) -> Bound | None:
        try:
            return self.check(name)
        except FilterInvalid:
            return None

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

    def _want(self, event: Wanted, now_us: int) -> list[Effect]:
        if self._is_prepared(event):
            first = not self._coming
            self._coming.add(event, now_us)
            soon = [SetTimer(name=HoldingsTimer.SOON, delay_us=SOON_US)] if first else []
            return [Held(tickets=(event.ticket,)), *soon]
        before = self._receive() if event.session in self._coming else []
        return [*before, *self._hold(event)]

    def _is_prepared(self, event: Wanted) -> bool:
        """Whether it is a session that was not here before, and a standby cell covers each of its subscriptions."""
        if (
            not (event.ticket and event.all)
            or event.session in self.sessions
            or event.session in self._coming
        ):
            return False
        return bool(event.names) and self._standbys.covers_names(event.names)

    def _receive(self, most: int | None = None) -> list[Effect]:
        """Take up coming sessions, with so many names, or all."""
        return [
            effect for event in self._coming.take(most) for effect in stamp(self._hold(event), event.cause)
        ]

    def _on_soon(self, now_us: int) -> list[Effect]:
        wait_us = self._coming.wait_us(now_us)
        if self._coming and wait_us:
            return [SetTimer(name=HoldingsTimer.SOON, delay_us=wait_us)]
        effects = self._receive(SLICE)
        if self._coming:
            effects.append(SetTimer(name=HoldingsTimer.SOON, delay_us=SLICE_PAUSE_US))
        return effects

    def _hold(self, event: Wanted) -> list[Effect]:
        session = self.sessions.get(event.session)
        if session is None:
            session = self.sessions[event.session] = _Session(event.client)
        elif not session.here:
            session.visits += 1
        session.here = session.touched = True
        effects = self._add(event.session, session, event.names, waits=True)
        if event.all or not session.names:
            effects += self._keep_only(event.session, session, event.names)
        if event.ticket:
            ks = [bound.k for name in event.names if (bound := self._bound.get(name)) is not None]
            effects += self._cells.wait(event.ticket, [k for k in ks if not self._standbys.covers(k)])
        return effects

    def _add(self, uid: str, session: _Session, names: Iterable[str], *, waits: bool = False) -> list[Effect]:
        """A session has these names. ``waits``: its client waits for the cells."""
        effects: list[Effect] = []
        for name in names:
            session.names[name] = None
            first = name not in self._wanting
            self._wanting.setdefault(name, {})[uid] = None
            if first:
                bound = self._standbys.prepared(name) or self._meaning(name)
                channel = channel_of(name) if bound is None else bound.channel.lower()
                self._of_channel.setdefault(channel, {})[name] = None
                if bound is not None:
                    self._bound[name] = bound
                    effects += self._take_up(name, bound, waits=waits)
        return effects

    def _unwant(self, event: Unwanted, now_us: int) -> list[Effect]:
        session = self.sessions.get(event.session)
        return [] if session is None else self._remove(event.session, session, event.names)

    def _remove(self, uid: str, session: _Session, names: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for name in [each for each in names if each in session.names]:
            del session.names[name]
            wanting = self._wanting[name]
            del wanting[uid]
            if not wanting:
                effects += self._forget(name)
        if not session.names:
            del self.sessions[uid]
        return effects

    def _keep_only(self, uid: str, session: _Session, names: Iterable[str]) -> list[Effect]:
        """It gave up its other subscriptions elsewhere."""
        left = set(names)
        return self._remove(uid, session, [each for each in session.names if each not in left])

    def _forget(self, name: str) -> list[Effect]:
        """Nobody has this name any more."""
        del self._wanting[name]
        of_channel = self._of_channel[channel_of(name)]
        del of_channel[name]
        if not of_channel:
            del self._of_channel[channel_of(name)]
        bound = self._bound.pop(name, None)
        return [] if bound is None else self._give_up(name, bound)

    def _leave(self, event: Left, now_us: int) -> list[Effect]:
        session = self.sessions.get(event.session)
        if session is None:
            return []
        if not event.expiry_s:
            return self._remove(event.session, session, session.names)
        session.here, session.touched = False, True
        effects = self._expire(event.session, event.expiry_s, now_us)
        return [*effects, *self._look_at(event.session, session)] if session.doubted else effects

    def _doubt(self, event: Doubted, now_us: int) -> list[Effect]:
        session = self.sessions.get(event.session)
        if session is None:
            return [LookAt(session=event.session, client=event.client, visits=0)]
        session.doubted = True
        return [] if session.here else self._look_at(event.session, session)

    def _look_at(self, uid: str, session: _Session) -> list[Effect]:
        return [LookAt(session=uid, client=session.client, visits=session.visits)]

    def _on_look(self, event: Looked, now_us: int) -> list[Effect]:
        session = self.sessions.get(event.session)
        if session is None:
            known = event.home == "here"
            return self._adopt(event.session, event.client, event, now_us) if known else []
        if session.here or session.visits != event.visits:
            return []
        session.doubted = False
        if event.home == "here":
            return self._set(event.session, session, event.names)
        if event.home == "elsewhere" and not event.ready:
            return self._expect(event.session, now_us + LOOK_AGAIN_US, now_us)
        return self._remove(event.session, session, session.names)

    def _set(self, uid: str, session: _Session, names: tuple[str, ...]) -> list[Effect]:
        """The subscriptions of a stored session that was not here since the lookup."""
        effects = self._add(uid, session, names)
        return [*effects, *self._keep_only(uid, session, names)]

    def _adopt(self, uid: str, client: str, found: SessionFound | Looked, now_us: int) -> list[Effect]:
        """A stored session has its home here, and was not known."""
        if not found.names:
            return []
        session = self.sessions[uid] = _Session(client, here=False)
        effects = self._add(uid, session, found.names)
        return [*effects, *self._expire(uid, found.expiry_s, now_us)]

    # ── scans ───────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        return self._scan()

    def _scan(self) -> list[Effect]:
        if self._scanning:
            return []
        self._scanning = True
        self._cells.scan()
        self._standbys.cells.scan()
        for session in self.sessions.values():
            session.touched = session.here
        return [Scan()]

    def _on_cell(self, event: CellFound, now_us: int) -> list[Effect]:
        self._of(event.key).found(event.key, event.revision)
        return []

    def _on_session(self, event: SessionFound, now_us: int) -> list[Effect]:
        known = self.sessions.get(event.session)
        if known is not None and known.touched:
            return []
        if known is not None:
            known.touched = True
            return self._set(event.session, known, event.names)
        return self._adopt(event.session, event.client, event, now_us)

    def _on_scanned(self, event: Scanned, now_us: int) -> list[Effect]:
        self._scanning = False
        if not event.whole:
            self._cells.scan()
            self._standbys.cells.scan()
            return [SetTimer(name=HoldingsTimer.SCAN, delay_us=SCAN_AGAIN_US)]
        cells = [*self._cells.scanned(), *self._standbys.cells.scanned()]
        sure = self._cells.known or not self._cells.counted
        delay_us = self._scan_every_us if sure else OURS_US
        effects: list[Effect] = [SetTimer(name=HoldingsTimer.SCAN, delay_us=delay_us)]
        for uid, session in self.sessions.items():
            if not session.touched:
                effects += self._look_at(uid, session)
        return [*effects, *cells]

    def _count(self, event: Counted, now_us: int) -> list[Effect]:
        cells, counted = self._cells, event.counted
        effects = [*cells.count(counted), *self._standbys.cells.count(counted)]
        if counted and not cells.known:
            effects.append(SetTimer(name=HoldingsTimer.SCAN, delay_us=OURS_US))
        return effects

    def _on_stored(self, event: Stored, now_us: int) -> list[Effect]:
        effects = self._of(event.request).stored(event)
        return [*effects, *self._standbys.turned(event.request.split(".")[1])]

    def _on_store_failure(self, event: StoreFailed, now_us: int) -> list[Effect]:
        return self._of(event.request).failed(event)

    def _of(self, key: str) -> SubscriptionCells:
        return self._standbys.cells if is_standby(key) else self._cells

    # ── standbys ────────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, event: Prepared, now_us: int) -> list[Effect]:
        return self._standbys.prepare(event)

    def _unprepare(self, event: Unprepared, now_us: int) -> list[Effect]:
        return self._standbys.unprepare(event)

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _expire(self, uid: str, expiry_s: int, now_us: int) -> list[Effect]:
        """Look for a session when its time is over."""
        return self._expect(uid, now_us + expiry_s * 1_000_000 + EXPIRY_MARGIN_US, now_us)

    def _expect(self, uid: str, at_us: int, now_us: int) -> list[Effect]:
        """Look for a session then, and not before."""
        return self._wake(now_us) if self._expiring.set(uid, at_us) else []

    def _wake(self, now_us: int) -> list[Effect]:
        next_us = self._expiring.next_us
        if next_us is None:
            return []
        return [SetTimer(name=HoldingsTimer.EXPIRY, delay_us=max(1, next_us - now_us))]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case HoldingsTimer.AGAIN:
                return self._cells.again()
            case HoldingsTimer.AGAIN_STANDBY:
                return self._standbys.cells.again()
            case HoldingsTimer.LATER:
                return self._cells.late()
            case HoldingsTimer.SOON:
                return self._on_soon(now_us)
            case HoldingsTimer.SCAN:
                return self._scan()
            case HoldingsTimer.EXPIRY:
                return self._on_expiry(now_us)
        return []

    def _on_expiry(self, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for uid in self._expiring.due(now_us):
            session = self.sessions.get(uid)
            if session is not None and not session.here:
                effects += self._look_at(uid, session)
        return [*effects, *self._wake(now_us)]

    table: ClassVar[Table] = {
        ("*", Started): _start,
        ("*", Defined): _define,
        ("*", Undefined): _undefine,
        ("*", Wanted): _want,
        ("*", Unwanted): _unwant,
        ("*", Left): _leave,
        ("*", Doubted): _doubt,
        ("*", Looked): _on_look,
        ("*", CellFound): _on_cell,
        ("*", SessionFound): _on_session,
        ("*", Scanned): _on_scanned,
        ("*", Counted): _count,
        ("*", Prepared): _prepare,
        ("*", Unprepared): _unprepare,
        ("*", Stored): _on_stored,
        ("*", StoreFailed): _on_store_failure,
        ("*", TimerFired): _on_timer,
    }


def _is_soon(event: Event) -> bool:
    return type(event) is TimerFired and event.name == HoldingsTimer.SOON


def _k(bound: Bound | None) -> str | None:
    return None if bound is None else bound.k
