"""A broker that delivers channels: it holds backend subscriptions, follows the notices, and reads what they name.

It plays the asyncio shells around ``core.holdings`` and the results' side of ``core.attendance``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

from tocsin.core.holdings import (
    CellFound,
    Defined,
    Doubted,
    Held,
    Holdings,
    Left,
    LookAt,
    Looked,
    Scan,
    Scanned,
    SessionFound,
    Unwanted,
    Wanted,
)
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    Followed,
    FollowLog,
    GetKey,
    PutKey,
    ReadLog,
    Received,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    TimerFired,
    Watched,
    WatchTable,
)
from tocsin.core.stored_session import StoredSession, decode_session, session_key
from tocsin.model.message import Address
from tocsin.model.results import STANDBY, BackendSubscription, place
from tocsin.ports import Entry, Page
from tocsin.sim.scenarios.channels.service import ChannelService
from tocsin.sim.scenarios.channels.wire import (
    CHANNEL,
    NOTICES,
    SUBSCRIPTIONS,
    Row,
    Told,
    notice_of,
    part_of,
    read_files,
)
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.wire import SESSIONS
from tocsin.wire.topics import CHANNEL_PREFIX

SCAN_EVERY_US = 6_000_000  # often, so that a run has some
STEP_US = 60_000  # from one result to the next: what happens in between is what is to be found
AGAIN_US = 500_000


class Keeper:
    """The shell of the holdings."""

    name = "keeper"
    holdings: type[Holdings] = Holdings  # so that a variant can be tried
    scan_every_us = SCAN_EVERY_US

    def __init__(self, broker: ChannelBroker) -> None:
        self.machine = self.holdings(broker.address, self.scan_every_us)
        self._broker = broker
        self._tickets = 0
        self._waiting: dict[int, Callable[[], None]] = {}
        self._scanning: Literal["", "cells", "sessions"] = ""

    def hold(
        self,
        session: str,
        client: str,
        names: tuple[str, ...],
        then: Callable[[], None],
        *,
        every: bool = False,
    ) -> None:
        self._tickets += 1
        self._waiting[self._tickets] = then
        self.tell(Wanted(session=session, client=client, names=names, all=every, ticket=self._tickets))

    def release(self, session: str, name: str) -> None:
        self.tell(Unwanted(session=session, names=(name,)))

    def leave(self, session: str, expiry_s: int) -> None:
        self.tell(Left(session=session, expiry_s=expiry_s))

    def doubt(self, session: str, client: str) -> None:
        self.tell(Doubted(session=session, client=client))

    def tell(self, event: Event) -> None:
        for effect in self.machine.handle(event, self._broker.now_us):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case PutKey() | DeleteKey():
                request = effect.request
                self._broker.ask(
                    effect, lambda event: self.tell(msgspec.structs.replace(event, request=request))
                )
            case Held(tickets=tickets):
                for ticket in tickets:
                    self._waiting.pop(ticket)()
            case SetTimer(name=name, delay_us=delay_us):
                self._broker.set_timer(self, name, delay_us)
            case LookAt():
                key = session_key(effect.client)
                get = GetKey(request="look", table=SESSIONS.name, key=key, fresh=True)
                self._broker.ask(get, lambda event: self._on_look(effect, event))
            case Scan():
                self._scanning = "cells"
                self._broker.watch(SUBSCRIPTIONS.name)

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_look(self, asked: LookAt, event: Stored | StoreFailed) -> None:
        if isinstance(event, StoreFailed):
            return
        session = None if event.value is None else decode_session(event.value.value)
        if session is None or session.uid != asked.session:
            self._looked(asked, "nowhere")
        elif session.home == self._broker.address:
            self._looked(asked, "here", session)
        else:
            self._look_for_cells(asked, session, list(channels_of(session)))

    def _look_for_cells(self, asked: LookAt, session: StoredSession, left: list[str]) -> None:
        if not left:
            self._looked(asked, "elsewhere", session)
            return
        bound = self.machine.check(left.pop())
        key = BackendSubscription(bound.channel, bound.values, session.home).key

        def found(event: Stored | StoreFailed, *, fresh: bool = False) -> None:
            if isinstance(event, StoreFailed):
                return
            if event.value is None and not fresh:
                again = GetKey(request="look", table=SUBSCRIPTIONS.name, key=key, fresh=True)
                self._broker.ask(again, partial(found, fresh=True))
            elif event.value is None:
                self._broker.tell_home(session)
                self._looked(asked, "elsewhere", session, ready=False)
            else:
                self._look_for_cells(asked, session, left)

        self._broker.ask(GetKey(request="look", table=SUBSCRIPTIONS.name, key=key), found)

    def _looked(
        self,
        asked: LookAt,
        home: Literal["here", "elsewhere", "nowhere"],
        session: StoredSession | None = None,
        *,
        ready: bool = True,
    ) -> None:
        names = () if session is None else channels_of(session)
        expiry_s = 0 if session is None else session.expiry_s
        self.tell(
            Looked(
                session=asked.session,
                client=asked.client,
                visits=asked.visits,
                home=home,
                ready=ready,
                names=names,
                expiry_s=expiry_s,
            )
        )

    # ── scanning ────────────────────────────────────────────────────────────────────────────────────────────

    def on_watched(self, event: Watched) -> None:
        """A scan is what a watch begins with."""
        change = event.change
        if self._scanning == "cells" and event.table == SUBSCRIPTIONS.name:
            own = self._broker.address
            if change.kind == "put" and change.key.endswith((f".{own}", f".{own}.{STANDBY}")):
                self.tell(CellFound(key=change.key, revision=change.revision))
            elif change.kind == "ready":
                self._broker.unwatch(event.table)
                self._scanning = "sessions"
                self._broker.watch(SESSIONS.name)
        elif self._scanning == "sessions" and event.table == SESSIONS.name:
            if change.kind == "put":
                self._on_session(decode_session(change.value))
            elif change.kind == "ready":
                self._broker.unwatch(event.table)
                self._scanning = ""
                self.tell(Scanned(whole=True))

    def _on_session(self, session: StoredSession) -> None:
        names = channels_of(session)
        if session.home == self._broker.address and names:
            found = SessionFound(
                session=session.uid, client=session.client, names=names, expiry_s=session.expiry_s
            )
            self.tell(found)


class ChannelBroker(Broker):
    """The machine."""

    service = ChannelService
    keeper: type[Keeper] = Keeper  # so that a variant can be tried

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.keeping = self.keeper(self)
        self.results_tail = -1  # as in ``broker.results``; -1 until it is known
        self.results_done = -1
        self._notices: list[Entry] = []  # the first is being dispatched
        self._rows: list[Row] = []  # what is left of it

    @property
    def ready(self) -> bool:
        return super().ready and self.results_tail >= 0

    def on(self, event: Event) -> None:
        match event:
            case Started():
                super().on(event)
                self.keeping.tell(Defined(channel=CHANNEL))
                self.keeping.tell(event)
                self._find_results()
            case Followed(log=NOTICES.name, entry=entry):
                self._notices.append(entry)
                if len(self._notices) == 1:
                    self._begin_notice()
            case Watched():
                self.keeping.on_watched(event)
            case Received(message=Told(session=session, client=client)):
                self.keeping.doubt(session, client)
            case TimerFired(name="results"):
                self._find_results()
            case TimerFired(name="notice"):
                self._begin_notice()
            case TimerFired(name="step"):
                self._step()
            case _:
                super().on(event)

    def watch(self, table: str) -> None:
        self._out.append(WatchTable(table=table, cause=self._cause))

    def unwatch(self, table: str) -> None:
        """A scan has seen a table; what changes later is not looked at."""

    def tell_home(self, session: StoredSession) -> None:
        if session.home != self.address and channels_of(session):
            self.send(session.home, Told(session.uid, session.client))

    # ── notices ─────────────────────────────────────────────────────────────────────────────────────────────

    def _find_results(self) -> None:
        read = ReadLog(request="results", log=NOTICES.name, subject=">", start=0, limit=1)
        self.ask(read, self._on_results)

    def _on_results(self, event: Stored | StoreFailed) -> None:
        if isinstance(event, StoreFailed):
            self._timer("results")
            return
        self.results_tail = self.results_done = place(event.value.last + 1, 0) - 1
        follow = FollowLog(log=NOTICES.name, subject=">", start=event.value.last + 1, cause=self._cause)
        self._out.append(follow)

    def _timer(self, name: str, delay_us: int = AGAIN_US) -> None:
        self._out.append(SetTimer(name=name, delay_us=delay_us, cause=self._cause))

    def _begin_notice(self) -> None:
        entry = self._notices[0]
        notice = notice_of(entry)
        self.results_tail = place(entry.position + 1, 0) - 1
        unseen = self.unseen(notice.seen)
        read = read_files(notice.tick)
        self.ask(read, lambda event: self._on_files(event, unseen))

    def unseen(self, seen: int) -> set[str]:
        return self.keeping.machine.unseen(seen)

    def _on_files(self, event: Stored | StoreFailed, unseen: set[str]) -> None:
        if isinstance(event, StoreFailed):
            self._timer("notice")
            return
        rows = rows_of(event.value, lambda broker, k: broker == self.address or k in unseen)
        self._rows = [rows[ordinal] for ordinal in sorted(rows)]
        self._step()

    def _step(self) -> None:
        """Dispatch one result; then something else may happen."""
        entry = self._notices[0]
        if self._rows:
            row = self._rows.pop(0)
            where = place(entry.position, row.ordinal)
            for service in list(self.services.values()):
                if isinstance(service, ChannelService):
                    service.offer_result(where, notice_of(entry).tick, row)
            self.results_done = where
            self._timer("step", STEP_US)
            return
        self.results_done = self.results_tail
        self._notices.pop(0)
        if self._notices:
            self._begin_notice()


def rows_of(page: Page, wanted: Callable[[str, str], bool]) -> dict[int, Row]:
    """The rows of a tick's files, by ordinal, if ``wanted(broker, k)``."""
    parts = [part_of(entry) for entry in page.entries]
    return {row.ordinal: row for part in parts for row in part.rows if wanted(part.broker, row.k)}


def channels_of(session: StoredSession) -> tuple[str, ...]:
    return tuple(name for name in session.subscriptions if name.startswith(CHANNEL_PREFIX))
