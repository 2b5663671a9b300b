"""One coordinator: it follows the command log, and leads while it holds the lease and the log accepts it.

    new ──► restoring ──► following ──► claiming ──► reading ──► opening ──► leading
                ▲  ▲          ▲            │            │           │           │
                │  └── a gap ─┘            └─── not granted, lapsed ┘           │
                └──────────────────── conflict, lapsed ─────────────────────────┘
    any ──► stopped

Transitions of ``Coordinator``:

    new        Started → restoring
    restoring  Stored, StoreFailed → following
               Followed → nothing
    claiming   Stored → reading
               StoreFailed → following
    reading    Stored, StoreFailed → restoring, following, reading, opening, leading
    opening    Stored, StoreFailed → restoring, following, reading, opening, leading
    leading    Stored, StoreFailed → restoring, following, reading, opening, leading
               Received
               Followed → restoring, following
    stopped    Stored, StoreFailed
               Watched, TimerFired, Followed → nothing
    *          Watched → restoring, following, claiming
               TimerFired → restoring, following, claiming, reading
               Received → nothing
               Followed → restoring, following
               Stored, StoreFailed, PlanMade, StandbyTold, Presence
               Resigning → stopped

- **restoring**: the newest snapshot is read, if there is one, and the state worked out from it, slice by slice; then
  the log is followed from there.
- **following**: a hot replica. Every batch is applied as it comes. When nobody holds the lease, it claims it.
- **reading**: it holds the lease, and reads the log to its end, so that it knows all that was ever acknowledged. From
  here on it hears what brokers say; who only follows has no use for that.
- **opening**: it asks the log to take ``Elected`` there. Only if the log does, it leads.
- **leading**: see ``leader``.

The lease makes leaders rare; the expected position makes them one: of two that believe to lead, the log refuses one.
A leader steps down when its lease lapses by its own clock, or when somebody else has written. Then it throws its
state away, which may be ahead of the log, and restores. Asked to stop, it gives the lease back.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

from tocsin.core.coordination.leader import lease as leases
from tocsin.core.coordination.leader import snapshot_writer as archive
from tocsin.core.coordination.leader.backup_planning import PlanMade
from tocsin.core.coordination.leader.balancing import DrainOrders
from tocsin.core.coordination.leader.broker_watch import Presence
from tocsin.core.coordination.leader.election import Election
from tocsin.core.coordination.leader.leader import Leader
from tocsin.core.coordination.leader.lease import Lease
from tocsin.core.coordination.leader.pinning import Pins
from tocsin.core.coordination.leader.promotions import StandbyTold
from tocsin.core.coordination.leader.snapshot_reader import (
    AGAIN_US,
    ANSWER_US,
    UNREADABLE_US,
    Restored,
    Restorer,
)
from tocsin.core.coordination.leader.snapshot_writer import Archivist
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Followed,
    FollowLog,
    Listen,
    Received,
    Say,
    SetTimer,
    Started,
    Stop,
    StopListening,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
    Watched,
    WatchTable,
    stamp,
)
from tocsin.errors import Conflict, FormatNewer, LevelUnspoken, StoreFull, Trimmed
from tocsin.model.network import COORDINATOR
from tocsin.model.versions import common, fits, speaks
from tocsin.ports import Entry, Page
from tocsin.wire.internal.commands import decode_batch

# Followers write snapshots at once; the leader only if nobody has done so, for it has other things to do.
LEADERS_PATIENCE_US: Final = 5_000_000
PREFIX: Final = "core."  # of the keys that are watched


class CoordinatorState(StrEnum):
    """Where a coordinator is."""

    NEW = "new"
    RESTORING = "restoring"
    FOLLOWING = "following"
    CLAIMING = "claiming"
    READING = "reading"
    OPENING = "opening"
    LEADING = "leading"
    STOPPED = "stopped"


HOLDING: Final = (CoordinatorState.READING, CoordinatorState.OPENING, CoordinatorState.LEADING)
OF_A_LEADERSHIP: Final = (
    CoordinatorTimer.RENEW,
    CoordinatorTimer.LAPSE,
    CoordinatorTimer.AGAIN,
    CoordinatorTimer.SNAPSHOT,
    CoordinatorTimer.CHECK,
    CoordinatorTimer.APPEND,
    CoordinatorTimer.PACE,
    CoordinatorTimer.PLAN,
    CoordinatorTimer.PROMOTE,
    CoordinatorTimer.ARCHIVE,
)


class Resigning(Event, frozen=True, kw_only=True):
    """The process stops on purpose."""


class Coordinator(TableMachine):
    """One coordinator: follows the command log, and leads while it holds the lease."""

    timers = CoordinatorTimer
    state: CoordinatorState = CoordinatorState.NEW
    leading: type[Leader] = Leader  # so that a variant can be tried
    electing: type[Election] = Election

    def __init__(self, name: str, places: StoreNames, options: Options) -> None:
        self.name = name
        self.replica = State()  # that of the log up to ``position``, or ahead of it while leading
        self.position = 0  # of the last batch that was applied
        self.leader: Leader | None = None  # while leading
        self._places = places
        self._options = options
        self._prefix = name  # of our records' ids: ours, and of this process
        self._count = 0  # of requests and records
        self._claim = ""  # the request for the lease whose answer is awaited
        self._ready = False  # the watch has told everything
        self._problem = ""  # why the log cannot be followed
        self._orders = DrainOrders()
        self._pins = Pins()
        self._lease = Lease(places.table.name, name, options.lease_us)
        self._restorer = Restorer(places.snapshots.name, self._request, options.slice_size)
        self._election = self.electing(name, places, options.limits, self._request, self._record_id)
        self._archivist = Archivist(places, options, self._request, self._record_id)

    @property
    def problem(self) -> str:
        """Why this coordinator cannot read the log, and so cannot lead; empty if all is well."""
        return self._problem or self._archivist.problem or self._restorer.problem

    @property
    def epoch(self) -> int:
        return self.replica.epoch

    def _request(self, what: str) -> str:
        self._count += 1
        return f"{what}#{self._count}"

    def _record_id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        lapsed = self.state in HOLDING and self._is_lapsed(now_us)
        effects = self._step_down("the lease has lapsed") if lapsed else []
        return [*stamp(effects, event.cause), *super().handle(event, now_us)]

    def _is_lapsed(self, now_us: int) -> bool:
        """By our own clock, and looked at before anything else: a leader that was frozen wakes up to this."""
        return now_us >= self._lease.until_us

    def _await(self, asked: Effect) -> list[Effect]:
        """Something that is asked for, and asked for again if no answer comes."""
        return [asked, SetTimer(name=CoordinatorTimer.AGAIN, delay_us=ANSWER_US)]

    # ── restoring ───────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self._prefix = f"{self.name}-{event.incarnation:x}"
        self._lease = Lease(self._places.table.name, self._prefix, self._options.lease_us)
        self.state = CoordinatorState.RESTORING
        return [WatchTable(table=self._places.table.name, prefix=PREFIX)]

    def _restore(self) -> list[Effect]:
        """Start again, with the newest snapshot."""
        self.state, self.leader = CoordinatorState.RESTORING, None
        self._restorer.stop()
        self._archivist.stop()
        if not self._ready:
            return []
        if self._archivist.problem:
            return self._wait_for_help(self._archivist.problem)
        if self._archivist.manifest is None:
            return self._restored(State(), 0)
        return self._restorer.begin(self._archivist.manifest)

    def _on_piece(self, event: Stored | StoreFailed, now_us: int) -> list[Effect]:
        return self._step(self._restorer.answered(event))

    def _step(self, came: Restored | list[Effect]) -> list[Effect]:
        """A step of restoring: perhaps it was the last."""
        return self._restored(*came) if isinstance(came, Restored) else came

    def _restored(self, replica: State, position: int) -> list[Effect]:
        self.replica, self.position, self.state = replica, position, CoordinatorState.FOLLOWING
        self._restorer.stop()
        self._restorer.problem = ""
        facts = {"position": position, "streams": len(replica.presence.streams), "epoch": replica.epoch}
        log, subject = self._places.commands.name, self._places.commands_subject
        return [
            CancelTimer(name=CoordinatorTimer.AGAIN),
            Say(text="follows", facts=facts),
            FollowLog(log=log, subject=subject, start=position + 1),
            SetTimer(name=CoordinatorTimer.CAMPAIGN, delay_us=AGAIN_US),
        ]

    # ── following ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_entry(self, event: Followed, now_us: int) -> list[Effect]:
        return self._apply(event.entry)

    def _apply(self, entry: Entry) -> list[Effect]:
        if entry.position <= self.position:
            return []
        try:
            batch = decode_batch(entry.payload)
        except FormatNewer as error:
            return self._cannot_read(str(error))
        if batch.previous != self.position:
            self.state = CoordinatorState.RESTORING  # what lies between is no longer kept
            return self._restorer.later()
        self.replica.follow(batch)
        self.position, self._problem = entry.position, ""
        return self._archivist.look(self.replica, 0)

    def _cannot_read(self, problem: str) -> list[Effect]:
        """The log or the network is of another release: leave it to others, and look again in a while."""
        self._problem = problem
        effects: list[Effect] = []
        if self.state in HOLDING:
            effects = [self._lease.resign(self._request("resign")), *self._step_down(problem)]
        self.state = CoordinatorState.RESTORING
        return [*effects, *self._wait_for_help(problem)]

    def _wait_for_help(self, problem: str) -> list[Effect]:
        said = Say(level="error", text="cannot follow the network", facts={"problem": problem})
        return [said, *self._restorer.later(UNREADABLE_US)]

    def _on_entry_leading(self, event: Followed, now_us: int) -> list[Effect]:
        entry = event.entry
        if entry.position <= self.position or entry.id.startswith(f"{self._prefix}-"):
            return []
        return self._step_down("somebody else has written")

    def _on_watched(self, event: Watched, now_us: int) -> list[Effect]:
        change = event.change
        self._orders.watched(change)
        self._pins.watched(change)
        if change.kind == "reset":
            self._ready = False
        if change.key == leases.KEY or change.kind == "reset":
            self._lease.watched(change)
        if change.key == archive.KEY or change.kind == "reset":
            self._archivist.watched(change)
        if change.kind == "ready":
            self._ready = True
            if self.state is CoordinatorState.RESTORING and not self._restorer.busy:
                return self._restore()
        return self._campaign(now_us)

    # ── becoming the leader ─────────────────────────────────────────────────────────────────────────────────

    def _campaign(self, now_us: int) -> list[Effect]:
        if self.state is not CoordinatorState.FOLLOWING or not self._ready or self._lease.holder is not None:
            return []
        self.state = CoordinatorState.CLAIMING
        self._claim = self._request("claim")
        return [
            self._lease.ask(self._claim, now_us, renew=False),
            SetTimer(name=CoordinatorTimer.CAMPAIGN, delay_us=ANSWER_US),
        ]

    def _claimed(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request != self._claim:
            return self._archivist.answered(event)
        self._lease.granted(event.request, event.value)
        return [
            CancelTimer(name=CoordinatorTimer.CAMPAIGN),
            Listen(address=COORDINATOR),
            *self._lease.held(now_us),
            *self._read(),
        ]

    def _not_claimed(self, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request != self._claim:
            return self._archivist.answered(event)
        self.state = CoordinatorState.FOLLOWING
        return [SetTimer(name=CoordinatorTimer.CAMPAIGN, delay_us=AGAIN_US)]

    def _read(self) -> list[Effect]:
        self.state = CoordinatorState.READING
        return self._await(self._election.read(self.position + 1))

    def _was_read(self, page: Page) -> list[Effect]:
        for entry in page.entries:
            effects = self._apply(entry)
            if self.state is not CoordinatorState.READING:
                return effects
        if page.next <= page.last:
            return self._read()
        if (unspoken := self._unspoken()) is not None:
            return self._cannot_read(str(unspoken))
        self.state = CoordinatorState.OPENING
        return self._await(self._election.open(self.replica, self.position, page.last))

    def _unspoken(self) -> LevelUnspoken | None:
        """Why this process cannot lead the network's brokers, if it cannot."""
        own = speaks()
        members = (member.speaks for member in self.replica.members.values())
        network = common(self.replica.level, members)
        if fits(own, network):
            return None
        return LevelUnspoken((own.oldest, own.newest), (network.oldest, network.newest))

    def _opened(self, position: int, now_us: int) -> list[Effect]:
        if self.position < position:  # the follow has not returned it yet
            self.replica.follow(self._election.batch)
            self.position = position
        self.state = CoordinatorState.LEADING
        self.leader = self.leading(
            self.replica,
            self._places,
            self._options,
            self._request,
            self._record_id,
            position,
            now_us,
            uncovered=lambda: self._archivist.uncovered_bytes(self.replica),
            orders=self._orders,
            pins=self._pins,
        )
        facts = {"epoch": self.epoch, "position": position, "coordinator": self.name}
        leads = Say(text="leads", facts=facts)
        return [CancelTimer(name=CoordinatorTimer.AGAIN), leads, *self.leader.begin(now_us)]

    # ── holding the lease ───────────────────────────────────────────────────────────────────────────────────

    def _on_holding_answer(self, event: Stored | StoreFailed, now_us: int) -> list[Effect]:
        """An answer while we hold the lease: to its renewal, to the archivist, to the leader, or on the way there."""
        if event.request == self._lease.renewal:
            renewed = self._lease.renewed(event, now_us)
            return self._step_down("the lease is not ours") if renewed is None else renewed
        if event.request == self._archivist.asked:
            return self._archivist.answered(event)
        if self.leader is not None:
            return self._on_append_answer(self.leader, event, now_us)
        if event.request != self._election.asked:
            return []
        if isinstance(event, StoreFailed):
            return self._not_elected(event)
        if self.state is CoordinatorState.READING:
            return self._was_read(event.value)
        return self._opened(event.value[0], now_us)

    def _on_append_answer(self, leader: Leader, event: Stored | StoreFailed, now_us: int) -> list[Effect]:
        if event.request != leader.asked:
            return []
        if isinstance(event, StoreFailed):
            error = event.error
            if error.retryable or isinstance(error, StoreFull):
                return leader.failed(error)
            return self._step_down(str(error))
        effects = leader.stored(event.value, now_us)
        self.position = leader.previous
        archiving = self._archivist.look(self.replica, LEADERS_PATIENCE_US)
        return [*effects, *archiving, *leader.pump(now_us)]

    def _not_elected(self, event: StoreFailed) -> list[Effect]:
        if isinstance(event.error, Trimmed):
            return [*self._step_down(str(event.error)), *self._restore()]
        if isinstance(event.error, Conflict):
            return self._read()
        return [SetTimer(name=CoordinatorTimer.AGAIN, delay_us=AGAIN_US)]

    def _step_down(self, reason: str) -> list[Effect]:
        self._lease.renewal = ""
        effects: list[Effect] = [CancelTimer(name=name) for name in OF_A_LEADERSHIP]
        effects.append(StopListening(address=COORDINATOR))
        if self.state is CoordinatorState.LEADING:
            facts = {"epoch": self.epoch, "reason": reason}
            say = Say(text="steps down", level="warning", facts=facts)
            return [*effects, say, *self._restore()]
        self.state = CoordinatorState.FOLLOWING
        return [*effects, SetTimer(name=CoordinatorTimer.CAMPAIGN, delay_us=AGAIN_US)]

    def _resign(self, event: Resigning, now_us: int) -> list[Effect]:
        held = self.state in HOLDING
        self.state, self.leader = CoordinatorState.STOPPED, None
        resigned = [self._lease.resign(self._request("resign"))] if held else []
        return resigned or self._stop(event, now_us)

    def _stop(self, event: Event, now_us: int) -> list[Effect]:
        return [Stop(reason="asked to")]

    # ── timers ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        leader = self.leader
        match event.name:
            case CoordinatorTimer.CAMPAIGN:
                if self.state is CoordinatorState.CLAIMING:
                    self.state = CoordinatorState.FOLLOWING
                return self._campaign(now_us)
            case CoordinatorTimer.SNAPSHOT:
                clean = self.state is CoordinatorState.FOLLOWING or (leader is not None and leader.idle)
                return self._archivist.take(self.replica, self.position, clean=clean)
            case CoordinatorTimer.AGAIN:
                return self._ask_again()
            case CoordinatorTimer.REBUILD if self.state is CoordinatorState.RESTORING:
                return self._step(self._restorer.go_on())
            case CoordinatorTimer.RENEW if self.state in HOLDING:
                return self._lease.renew(self._request("renew"), now_us)
            case CoordinatorTimer.ARCHIVE:
                return self._archivist.again()
            case CoordinatorTimer.CHECK if leader is not None:
                archiving = self._archivist.look(self.replica, LEADERS_PATIENCE_US)
                return [*leader.check(now_us), *archiving]
            case CoordinatorTimer.APPEND if leader is not None:
                return leader.again()
            case CoordinatorTimer.PACE if leader is not None:
                return leader.pump(now_us)
            case CoordinatorTimer.PLAN if leader is not None:
                return leader.look_at_plan(now_us)
            case CoordinatorTimer.PROMOTE if leader is not None:
                return leader.promote(now_us)
            case CoordinatorTimer.LAPSE:
                return []  # whether the lease has lapsed is asked before every event
        return []

    def _ask_again(self) -> list[Effect]:
        match self.state:
            case CoordinatorState.RESTORING:
                return self._restore()
            case CoordinatorState.READING:
                return self._read()
            case CoordinatorState.OPENING:
                return self._await(self._election.again())
        return []

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        assert self.leader is not None
        return self.leader.hear(event.message, now_us)

    def _on_told(self, event: StandbyTold, now_us: int) -> list[Effect]:
        return [] if self.leader is None else self.leader.told(event, now_us)

    def _on_presence(self, event: Presence, now_us: int) -> list[Effect]:
        return [] if self.leader is None else self.leader.present(event, now_us)

    def _on_plan(self, event: PlanMade, now_us: int) -> list[Effect]:
        return [] if self.leader is None else self.leader.planned(event, now_us)

    def _on_other_answer(self, event: Stored | StoreFailed, now_us: int) -> list[Effect]:
        return self._archivist.answered(event)

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (CoordinatorState.NEW, Started): _start,
        ("*", Watched): _on_watched,
        ("*", TimerFired): _on_timer,
        ("*", Received): _ignore,
        ("*", Followed): _on_entry,
        ("*", Stored): _on_other_answer,
        ("*", StoreFailed): _on_other_answer,
        ("*", Resigning): _resign,
        ("*", PlanMade): _on_plan,
        ("*", StandbyTold): _on_told,
        ("*", Presence): _on_presence,
        (CoordinatorState.RESTORING, Stored): _on_piece,
        (CoordinatorState.RESTORING, StoreFailed): _on_piece,
        (CoordinatorState.RESTORING, Followed): _ignore,
        (CoordinatorState.CLAIMING, Stored): _claimed,
        (CoordinatorState.CLAIMING, StoreFailed): _not_claimed,
        (CoordinatorState.READING, Stored): _on_holding_answer,
        (CoordinatorState.READING, StoreFailed): _on_holding_answer,
        (CoordinatorState.OPENING, Stored): _on_holding_answer,
        (CoordinatorState.OPENING, StoreFailed): _on_holding_answer,
        (CoordinatorState.LEADING, Stored): _on_holding_answer,
        (CoordinatorState.LEADING, StoreFailed): _on_holding_answer,
        (CoordinatorState.LEADING, Received): _on_message,
        (CoordinatorState.LEADING, Followed): _on_entry_leading,
        (CoordinatorState.STOPPED, Stored): _stop,
        (CoordinatorState.STOPPED, StoreFailed): _stop,
        (CoordinatorState.STOPPED, Watched): _ignore,
        (CoordinatorState.STOPPED, TimerFired): _ignore,
        (CoordinatorState.STOPPED, Followed): _ignore,
    }
