"""A replica of the counter: it competes for the lease, and counts while it holds it.

    new ──► waiting ──► campaigning ──► catching up ──► opening ──► holding
               ▲             │               │             │           │
               └─────────────┴── conflict, lapse or fenced ┴───────────┘

Transitions of ``Server``:

    new          Started → waiting
    campaigning  Stored → catching up
                 StoreFailed → waiting
    catching up  Stored → waiting, opening
                 StoreFailed → waiting, catching up
    opening      Stored → waiting, holding
                 StoreFailed → waiting, catching up
    holding      Stored → waiting
                 StoreFailed → waiting, catching up
    *            Watched, TimerFired → waiting, campaigning
                 Received
                 Stored, StoreFailed → nothing

What makes it right; the tests leave out most of these points, one at a time, and look whether it is found:

- an increment is acknowledged when the log has it, not before;
- every append says which position it expects, so that a holder whose lease went while it was frozen is refused: the
  lease is
  a hint about who should write, the expected position is what decides (**fencing**);
- a repeat, of a client's request or of its own append, is known as one: by the client's number, and by a record id
  that
  contains the epoch, so that no two holders ever share one;
- an answer that never comes is asked for again;
- a watch that begins again with ``reset`` means: forget what you know, also that somebody holds the lease.

``count`` and what was applied come from the log alone, so they stay right after the lease is gone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from tocsin.core.machine import (
    Append,
    CancelTimer,
    Effect,
    PutKey,
    ReadLog,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
    Watched,
    WatchTable,
)
from tocsin.errors import Conflict, TocsinError
from tocsin.model.network import Address
from tocsin.ports import Page, Record
from tocsin.sim.scenarios.counter.messages import (
    LEASES,
    LOG,
    Added,
    Counted,
    Increment,
    Key,
    NotHolder,
    Opened,
    fact,
    record,
)

LEASE = "counter"
# Short, so that a run of twenty seconds sees many leases; whole seconds, as stores have it.
LEASE_US = 2_000_000
RENEW_US = LEASE_US // 4
AGAIN_US = 300_000  # before the store is asked again after a failure
ANSWER_US = 6_000_000  # longer than a store waits; an answer that is not there by then will never come
PAGE = 50
BATCH = 10  # increments in one append


class ServerState(StrEnum):
    """Where a replica is."""

    NEW = "new"
    WAITING = "waiting"
    CAMPAIGNING = "campaigning"
    CATCHING_UP = "catching up"
    OPENING = "opening"
    HOLDING = "holding"


class ServerTimer(StrEnum):
    """The timers of a replica."""

    CAMPAIGN = "campaign"
    LAPSE = "lapse"
    RENEW = "renew"
    AGAIN = "again"


ACTIVE = (ServerState.CATCHING_UP, ServerState.OPENING, ServerState.HOLDING)


class Server(TableMachine):
    """One replica."""

    timers = ServerTimer
    state: ServerState = ServerState.NEW

    def __init__(self, address: Address) -> None:
        self.address = address
        self.count = 0  # as of the position before _next
        self._applied: dict[
            Key, int
        ] = {}  # every increment of the log before _next, and what it made the count
        self._next = 1  # the position after the last that is applied
        self._holder: Address | None = None  # the holder of the lease, as the watch tells it
        self._ready = False  # the watch has told everything
        self._requests = 0
        self._asked = ""  # the request of this state whose answer is awaited
        self._renewal = ""  # the same for the lease
        self._epoch = 0  # the lease's revision when it was taken
        self._revision = 0  # the lease's revision now
        self._asked_us = 0  # when the lease was asked for: it lasts at least LEASE_US from there
        self._waiting: dict[Key, str] = {}  # asked for and not in an append yet, with the cause
        self._batch: tuple[tuple[Key, str], ...] = ()  # in the append under way
        self._records: tuple[Record, ...] = ()

    def _request(self, what: str) -> str:
        self._requests += 1
        return f"{what}#{self._requests}"

    # ── the lease ────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self.state = ServerState.WAITING
        return [WatchTable(cause=event.cause, table=LEASES.name, prefix=LEASE)]

    def _on_watched(self, event: Watched, now_us: int) -> list[Effect]:
        change = event.change
        if change.kind == "reset":
            self._holder, self._ready = None, False
        elif change.kind == "put":
            self._holder = change.value.decode()
        elif change.kind == "delete":
            self._holder = None
            if self.state in ACTIVE and change.revision > self._revision:
                return self._step_down(event.cause, "the lease expired", now_us)
        else:
            self._ready = True
        return self._campaign(event.cause, now_us)

    def _campaign(self, cause: str, now_us: int) -> list[Effect]:
        if self.state is not ServerState.WAITING or not self._ready or self._holder is not None:
            return []
        self.state = ServerState.CAMPAIGNING
        self._asked = self._request("take")
        return [
            self._put_lease(cause, self._asked, 0, now_us),
            SetTimer(cause=cause, name=ServerTimer.CAMPAIGN, delay_us=ANSWER_US),
        ]

    def _put_lease(self, cause: str, request: str, revision: int, now_us: int) -> Effect:
        self._asked_us = now_us
        return PutKey(
            cause=cause,
            request=request,
            table=LEASES.name,
            key=LEASE,
            value=self.address.encode(),
            revision=revision,
            ttl_us=LEASE_US,
        )

    def _taken(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request != self._asked:
            return []
        self._epoch = self._revision = event.value
        self.state = ServerState.CATCHING_UP
        return [
            SetTimer(cause=event.cause, name=ServerTimer.LAPSE, delay_us=self._asked_us + LEASE_US - now_us),
            SetTimer(cause=event.cause, name=ServerTimer.RENEW, delay_us=RENEW_US),
            *self._read(event.cause),
        ]

    def _not_taken(self, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request != self._asked:
            return []
        self.state = ServerState.WAITING
        return [SetTimer(cause=event.cause, name=ServerTimer.CAMPAIGN, delay_us=AGAIN_US)]

    def _on_renewal(self, event: Stored | StoreFailed, now_us: int) -> list[Effect]:
        self._renewal = ""
        if isinstance(event, Stored):
            self._revision = event.value
            lapse_us = self._asked_us + LEASE_US - now_us
            return [SetTimer(cause=event.cause, name=ServerTimer.LAPSE, delay_us=max(0, lapse_us))]
        if isinstance(event.error, Conflict):
            return self._step_down(event.cause, "the lease is no longer mine", now_us)
        return []

    def _step_down(self, cause: str, reason: str, now_us: int) -> list[Effect]:
        self.state = ServerState.WAITING
        self._asked = self._renewal = ""
        self._waiting.clear()
        self._batch = self._records = ()
        timers: list[Effect] = [
            CancelTimer(cause=cause, name=name)
            for name in (ServerTimer.LAPSE, ServerTimer.RENEW, ServerTimer.AGAIN)
        ]
        return [
            Say(cause=cause, text="steps down", facts={"epoch": self._epoch, "reason": reason}),
            *timers,
            SetTimer(cause=cause, name=ServerTimer.CAMPAIGN, delay_us=AGAIN_US),
        ]

    # ── taking over ──────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, cause: str) -> list[Effect]:
        self._asked = self._request("read")
        return [
            ReadLog(
                cause=cause, request=self._asked, log=LOG.name, subject=">", start=self._next, limit=PAGE
            ),
            SetTimer(cause=cause, name=ServerTimer.AGAIN, delay_us=ANSWER_US),
        ]

    def _was_read(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request == self._renewal:
            return self._on_renewal(event, now_us)
        if event.request != self._asked:
            return []
        page: Page = event.value
        for entry in page.entries:
            self._apply(fact(entry.payload))
        self._next = page.next
        if page.next <= page.last:
            return self._read(event.cause)
        self.state = ServerState.OPENING
        return self._open(event.cause)

    def _open(self, cause: str) -> list[Effect]:
        self._asked = self._request("open")
        self._records = (record(Opened(self._epoch, self.address), f"opened-{self._epoch}"),)
        return self._append(cause)

    def _opened(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request == self._renewal:
            return self._on_renewal(event, now_us)
        if event.request != self._asked:
            return []
        self._next = event.value[0] + 1
        self.state = ServerState.HOLDING
        self._asked = ""
        return [Say(cause=event.cause, text="holds", facts={"epoch": self._epoch, "count": self.count})]

    def _active_failed(self, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request == self._renewal:
            return self._on_renewal(event, now_us)
        if event.request != self._asked:
            return []
        return self._failed(event.cause, event.error, now_us)

    def _failed(self, cause: str, error: TocsinError, now_us: int) -> list[Effect]:
        if isinstance(error, Conflict):
            if self.state is ServerState.OPENING:  # something of the last holder came in after we had read
                self.state = ServerState.CATCHING_UP
                return self._read(cause)
            return self._step_down(cause, "somebody else has written", now_us)
        return [SetTimer(cause=cause, name=ServerTimer.AGAIN, delay_us=AGAIN_US)]

    def _append(self, cause: str) -> list[Effect]:
        return [
            Append(
                cause=cause,
                request=self._asked,
                log=LOG.name,
                records=self._records,
                expected=self._expected(),
            ),
            SetTimer(cause=cause, name=ServerTimer.AGAIN, delay_us=ANSWER_US),
        ]

    def _expected(self) -> int | None:
        return self._next - 1

    # ── counting ─────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, what: Opened | Added) -> None:
        if isinstance(what, Added):
            self.count = what.count
            self._applied[what.key] = what.count

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if not isinstance(message, Increment):
            return []
        if self.state is not ServerState.HOLDING:
            refusal = NotHolder(message.number, self._holder)
            return [Send(cause=event.cause, to=message.client, message=refusal)]
        key = (message.client, message.number)
        count = self._already(key)
        if count is not None:
            return [Send(cause=event.cause, to=message.client, message=Counted(message.number, count))]
        if not any(key == underway for underway, _ in self._batch):
            self._waiting[key] = event.cause
        return self._count(event.cause)

    def _already(self, key: Key) -> int | None:
        return self._applied.get(key)

    def _count(self, cause: str) -> list[Effect]:
        """Append what waits, one append at a time: the next one has to know its position."""
        if self._batch or not self._waiting:
            return []
        self._batch = tuple(self._waiting.items())[:BATCH]
        self._records = tuple(
            record(Added(self._epoch, client, number, self.count + place), self._record_id((client, number)))
            for place, ((client, number), _) in enumerate(self._batch, 1)
        )
        for key, _ in self._batch:
            del self._waiting[key]
        self._asked = self._request("count")
        return self._append(cause)

    def _record_id(self, key: Key) -> str:
        client, number = key
        return f"{self._epoch}-{client}-{number}"

    def _counted(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request == self._renewal:
            return self._on_renewal(event, now_us)
        if event.request != self._asked:
            return []
        effects: list[Effect] = []
        for (key, cause), each in zip(self._batch, self._records, strict=True):
            self._apply(fact(each.payload))
            effects.append(Send(cause=cause, to=key[0], message=Counted(key[1], self.count)))
        self._next = event.value[-1] + 1
        self._batch = self._records = ()
        self._asked = ""
        return [*effects, *self._count(event.cause)]

    # ── timers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == ServerTimer.CAMPAIGN:
            if self.state is ServerState.CAMPAIGNING:
                self.state = ServerState.WAITING
            return self._campaign(event.cause, now_us)
        if self.state not in ACTIVE:
            return []
        if event.name == ServerTimer.LAPSE:
            return self._step_down(event.cause, "the lease has lapsed", now_us)
        if event.name == ServerTimer.RENEW:
            renewal: list[Effect] = [SetTimer(cause=event.cause, name=ServerTimer.RENEW, delay_us=RENEW_US)]
            if not self._renewal:
                self._renewal = self._request("renew")
                renewal.append(self._put_lease(event.cause, self._renewal, self._revision, now_us))
            return renewal
        assert event.name == ServerTimer.AGAIN
        if not self._asked:
            return []
        if self.state is ServerState.CATCHING_UP:
            return self._read(event.cause)
        # The same records and the same expected position, so that what did happen is not done again.
        self._asked = self._request("again")
        return self._append(event.cause)

    def _ignore(self, event: Any, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (ServerState.NEW, Started): _start,
        ("*", Watched): _on_watched,
        ("*", TimerFired): _on_timer,
        ("*", Received): _on_message,
        ("*", Stored): _ignore,
        ("*", StoreFailed): _ignore,
        (ServerState.CAMPAIGNING, Stored): _taken,
        (ServerState.CAMPAIGNING, StoreFailed): _not_taken,
        (ServerState.CATCHING_UP, Stored): _was_read,
        (ServerState.CATCHING_UP, StoreFailed): _active_failed,
        (ServerState.OPENING, Stored): _opened,
        (ServerState.OPENING, StoreFailed): _active_failed,
        (ServerState.HOLDING, Stored): _counted,
        (ServerState.HOLDING, StoreFailed): _active_failed,
    }
