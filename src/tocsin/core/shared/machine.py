"""One group at one broker: which messages its members here take from the group's source, and what becomes of them.

The source is the message log, or the results of a channel; the machine is the same, and a result is one of its
messages. Every broker that has members of a group runs this machine, and all of them write one cell
(``core.shared.stored_group``). A broker takes messages by writing claims, many at a time, and sends them once the
claims are written. Only the cell decides which member has what: after a conflict, or a write without an answer, the
broker reads the cell, and its contents count.

States: ``new`` → ``here`` → ``vanished``. The machine begins with the first member. It vanishes when no member is
left here and the cell says so.

Transitions of ``Sharing``:

    new       Join, SessionOver → here
    here      Join, Leave, Quit, SessionOver, Settle, Crowded, RoomMade, Arrived, PartRead, PartFailed, EndFound,
              Watched, Held, NotHeld, Stored, StoreFailed, TimerFired → vanished
              EndUnknown, OutOfSight
    vanished  Leave, Quit, Settle, RoomMade, Arrived, PartRead, PartFailed, EndFound, EndUnknown, OutOfSight, Held,
              NotHeld, Watched, Stored, StoreFailed, TimerFired → nothing

**Where a new group begins** is decided by ``core.shared.start``. Members whose group ends before they leave (it was
taken for dead here, or the cell has expired) have missed something, and are sent away (``Bereft``).

**A group of results** is made by a broker that holds its backend subscription (``core.shared.holding``). Results are
kept while a group may need them, so how far it is must not lag far behind, also if there is nothing for it: then the
cell is written every CHECKPOINT_US.

**Which member takes what** is decided by ``core.shared.claims``: the broker whose turn it is claims at once, the
others claim what is still unclaimed after GRACE_US. Members of one broker that have room take turns.

**Writes.** Claims, and members that come and go: at once. Settled messages: with the next write, or
SETTLE_AFTER_US later. A cell with members is refreshed before it expires. If the store has no room, a client that
waits to become a member is turned away, and everything else is retried until there is room: messages wait in the log.

**Ended brokers.** Members at a broker whose incarnation has ended are away (``GroupDraft.bury``). A broker that was
taken for dead, and is not, finds its members away and has them join again; messages that it sent under claims that
are gone count for nothing.

``now_us`` is the wall clock here: other brokers read when a member that is away is to be forgotten.

Invariants: a message is given to a member only after the cell says that it is that member's; a packet id that is
reserved is in the write under way; one request for the cell at a time; after ``Vanished`` nothing is asked for.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tocsin.core.delivery.tracks import CHECKPOINT_US
from tocsin.core.machine import (
    Effect,
    Event,
    Say,
    SetTimer,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
    Watched,
)
from tocsin.core.shared.backlog import Backlog
from tocsin.core.shared.cell import PUT, GroupCell
from tocsin.core.shared.claims import Claiming, Planned
from tocsin.core.shared.draft import GroupDraft
from tocsin.core.shared.holding import Holding
from tocsin.core.shared.incarnations import ASK, Incarnations
from tocsin.core.shared.member import LocalMember
from tocsin.core.shared.signals import (
    AFTERWARDS,
    Arrived,
    Bereft,
    Crowded,
    EndFound,
    EndUnknown,
    Follow,
    Held,
    Join,
    Leave,
    MemberPorts,
    NotHeld,
    OutOfSight,
    PartFailed,
    PartRead,
    Quit,
    RoomMade,
    SessionOver,
    Settle,
    SharingState,
    SharingTimer,
    Turned,
    Unwanted,
    Vanished,
)
from tocsin.core.shared.start import Beginning
from tocsin.core.shared.stored_group import MEMBERS_MAX_BYTES, ResultsSource, StoredGroup, ttl_us
from tocsin.errors import StoreFull, Trimmed

NO_ROOM: Final = "the store has no room for groups (shares.groups_bytes, or its disk)"
GRACE_US: Final = 30_000  # a few writes to the store: time enough for whose turn it is
SETTLE_AFTER_US: Final = 1_000_000  # how long settled messages wait for a claim to be written with
READ_AGAIN_US: Final = 500_000
LOOK_US: Final = (
    1_000_000  # how often it is seen to whether incarnations are over, and whether the cell grows old
)


class Sharing(TableMachine):
    """One broker's part in one shared subscription: claims messages and gives them to members."""

    timers = SharingTimer
    state: SharingState = SharingState.NEW

    def __init__(
        self, name: str, incarnation: str, ports: MemberPorts, members_max: int, *, of_results: bool = False
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._of_results = of_results
        self._holding = Holding(incarnation, of_results=of_results)
        self._source: ResultsSource | None = None  # what is followed here
        self._ports = ports
        self._members_max = members_max
        self._cell = GroupCell(name)
        self._beginning = Beginning()
        self._backlog = Backlog(ports)
        self._holders: dict[str, LocalMember] = {}  # by client id; the next in turn is the first
        self._claiming = Claiming(incarnation, self._holders, self._backlog, ports)
        self._over: dict[tuple[str, str], None] = {}  # sessions that ended, and the cell may not know it
        self._incarnations = Incarnations(incarnation, ports)
        self._planned: list[Planned] = []  # what the write under way claims
        self._unwanted = 0  # messages that it settles because nobody can take them
        self._soon = False  # the SETTLE_SOON timer runs
        self._overdue = False  # … or ran out
        self._ageing = False  # the cell has to be written before it expires
        self._waiting_for = 0  # the position for which the GRACE timer runs, if it does
        self._patience_for = 0  # the position for which it ran out
        self._dropped = False  # entries were let go, and no member here had room since
        self._heard_us = 0  # when the cell was written last, as far as is known here

    # ── members ─────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, event: Join | SessionOver, now_us: int) -> list[Effect]:
        self.state = SharingState.HERE
        effects = [SetTimer(name=SharingTimer.LOOK, delay_us=LOOK_US), *self._cell.look()]
        return [*effects, *self.handle(event, now_us)]

    def _join(self, event: Join, now_us: int) -> list[Effect]:
        if self._cell.problem:
            reason = self._cell.problem
            return [Turned(client=event.client, session=event.session, reason=reason)]
        before = self._holders.get(event.client)
        if before is not None and (before.session, before.epoch) == (event.session, event.epoch):
            before.quits, before.told = False, False  # it subscribes again, and is told again
            effects = before.learn(self._cell.group) if self._cell.known else []
            return [*effects, *self._go_on(now_us)]
        holder = LocalMember(
            event.client,
            event.session,
            event.epoch,
            event.expiry_s,
            self._incarnation,
            user=event.user,
            entitled=event.entitled,
        )
        if before is not None and before.session == event.session:
            holder.settled = before.settled
        elif before is not None:
            self._over[event.client, before.session] = None
        self._holders[event.client] = holder
        return self._go_on(now_us)

    def _leave(self, event: Leave, now_us: int) -> list[Effect]:
        holder = self._holders.get(event.client)
        if holder is not None and holder.session == event.session:
            holder.gone, holder.expiry_s = True, event.expiry_s
        return self._go_on(now_us)

    def _quit(self, event: Quit, now_us: int) -> list[Effect]:
        holder = self._holders.get(event.client)
        if holder is not None and holder.session == event.session:
            holder.quits = True
        return self._go_on(now_us)

    def _on_session_over(self, event: SessionOver, now_us: int) -> list[Effect]:
        self._over[event.client, event.session] = None
        return self._go_on(now_us)

    def _settle(self, event: Settle, now_us: int) -> list[Effect]:
        holder = self._holders.get(event.client)
        if holder is not None and (event.position in holder.sent or event.position in holder.again):
            claim = holder.again.pop(event.position, None)
            if claim is not None:
                holder.sent[event.position] = claim.packet_id
            holder.settled[event.position] = None
        return self._go_on(now_us)

    # ── what the log brings ─────────────────────────────────────────────────────────────────────────────────

    def _on_arrival(self, event: Arrived, now_us: int) -> list[Effect]:
        self._backlog.arrived(event.matched)
        return self._go_on(now_us)

    def _on_part(self, event: PartRead, now_us: int) -> list[Effect]:
        if self._backlog.reading:
            self._backlog.take(event)
        return self._go_on(now_us)

    def _on_part_failure(self, event: PartFailed, now_us: int) -> list[Effect]:
        if not self._backlog.reading:
            return []
        if not isinstance(event.error, Trimmed):
            self._backlog.failed()
            return [SetTimer(name=SharingTimer.READ_AGAIN, delay_us=READ_AGAIN_US)]
        effects: list[Effect] = []
        if self._backlog.trimmed(event.error.oldest):
            what = "results" if self._of_results else "messages"
            words = f"{what} were trimmed before a group got them"
            facts = {"group": self._name, "problem": str(event.error)}
            effects.append(Say(text=words, level="warning", facts=facts))
        return [*effects, *self._go_on(now_us)]

    def _on_crowd(self, event: Crowded, now_us: int) -> list[Effect]:
        if not self._has_room:
            self._backlog.drop()
            self._dropped = True
        return self._go_on(now_us)

    def _on_room(self, event: RoomMade, now_us: int) -> list[Effect]:
        return self._go_on(now_us)

    @property
    def _has_room(self) -> bool:
        """Whether a member here can take a message."""
        return any(self._ports.room(client) for client in self._holders)

    def _on_end(self, event: EndFound, now_us: int) -> list[Effect]:
        self._beginning.found(event)
        return self._go_on(now_us)

    def _on_no_end(self, event: EndUnknown, now_us: int) -> list[Effect]:
        if not self._beginning.failed(event):
            return []
        return [SetTimer(name=SharingTimer.READ_AGAIN, delay_us=READ_AGAIN_US)]

    # ── the backend subscription of a group of results ──────────────────────────────────────────────────────

    def _on_held(self, event: Held, now_us: int) -> list[Effect]:
        self._holding.held(event)
        return self._go_on(now_us)

    def _on_not_held(self, event: NotHeld, now_us: int) -> list[Effect]:
        """The group can be made by nobody here; if there is one, its holder stays who it is."""
        effects = self._holding.failed()
        if self._cell.known and self._holding.waits(self._cell.group):
            effects += self._turn_away(event.reason, full=event.full)
        return [*effects, *self._end_if_idle()]

    def _follow(self, group: StoredGroup | None) -> list[Effect]:
        """Have what arrives be what the cell says."""
        source = None if group is None else group.source
        before, self._source = self._source, source
        if before == source:
            return []
        if before is not None and source is not None and before.bound != source.bound:
            self._backlog.drop()  # the channel was altered: the group's results are others from now on
        return [Follow(source=source)]

    # ── what the cell says ──────────────────────────────────────────────────────────────────────────────────

    def _on_stored(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request.startswith(ASK):
            return self._on_incarnation(event, now_us)
        known, effects = self._cell.stored(event)
        if self._cell.problem:
            return [*effects, *self._turn_away(self._cell.problem)]
        return [*effects, *self._learn(now_us)] if known else effects

    def _turn_away(self, reason: str, *, full: bool = False) -> list[Effect]:
        """The clients that wait to hear that they are members."""
        waiting = [
            holder for holder in self._holders.values() if not holder.told and not (full and holder.gone)
        ]
        for holder in waiting:
            del self._holders[holder.client]
        return [
            Turned(client=each.client, session=each.session, reason=reason, full=full) for each in waiting
        ]

    @staticmethod
    def _waits(holder: LocalMember) -> bool:
        return not holder.told and not holder.gone

    def _on_no_room(self, event: StoreFailed, now_us: int) -> list[Effect]:
        """The store has no room for the cell as it should be."""
        if not any(map(self._waits, self._holders.values())):
            return self._cell.failed(event)
        if not self._cell.unsure:
            self._cell.give_up()
            self._unwanted = 0
            effects = self._end_write(self._cell.group)
            effects += self._turn_away(NO_ROOM, full=True)
            return [*effects, *self._go_on(now_us)]
        members = {} if self._cell.group is None else self._cell.group.members
        effects = self._cell.failed(event)
        for holder in [each for each in self._holders.values() if self._waits(each)]:
            client, session = holder.client, holder.session
            if client in members:
                holder.gone = True  # it is away, as it was
            else:  # in case that the write takes effect after all
                del self._holders[client]
                self._over[client, session] = None
            effects.append(Turned(client=client, session=session, reason=NO_ROOM, full=True))
        return effects

    def _on_store_failure(self, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request.startswith(ASK):
            self._incarnations.failed(event)
            return []
        if isinstance(event.error, StoreFull) and event.request == PUT:
            return self._on_no_room(event, now_us)
        return self._cell.failed(event)

    def _on_change(self, event: Watched, now_us: int) -> list[Effect]:
        known, effects = self._cell.watched(event.change)
        return [*effects, *self._learn(now_us)] if known else effects

    def _learn(self, now_us: int) -> list[Effect]:
        """The cell has changed: only its content counts."""
        group = self._cell.group
        self._heard_us = now_us
        effects = self._end_write(group)
        for holder in list(self._holders.values()):
            if holder.bereft(group):
                del self._holders[holder.client]
                effects.append(Bereft(client=holder.client, session=holder.session))
            else:
                effects += holder.learn(group)
        members = {} if group is None else group.members
        self._incarnations.learn(group)
        self._over = {
            (client, session): None
            for client, session in self._over
            if client in members and members[client].session == session
        }
        effects += [*self._holding.learn(group), *self._follow(group)]
        self._backlog.passed(self._ports.done)
        if group is not None and group.begun:
            self._backlog.rebase(group.next, self._claiming.wanted(group), self._ports.horizon)
        return [*effects, *self._go_on(now_us)]

    def _end_write(self, group: StoredGroup | None) -> list[Effect]:
        """The effects of the current write: its claims are ours if the cell has them."""
        effects: list[Effect] = [Unwanted(messages=self._unwanted)] if self._unwanted else []
        planned, self._planned, self._unwanted = self._planned, [], 0
        for each in planned:
            holder, claim = each.holder, each.claim
            has = () if group is None else group.claims.get(holder.client, ())
            if claim in has and not holder.gone and self._holders.get(holder.client) is holder:
                effects.append(holder.give(claim, each.matched, repeat=False))
            else:
                self._ports.give_back(holder.client, claim.packet_id)
        return effects

    # ── what there is to do ─────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, now_us: int) -> list[Effect]:
        if self._cell.busy:
            return []
        group = self._cell.group
        effects: list[Effect] = []
        for holder in list(self._holders.values()):
            if holder.done(group):
                del self._holders[holder.client]
                effects += holder.farewell()
                continue
            effects += holder.send_again(self._backlog, self._ports)
        if group is not None and self._holders:
            if not group.begun:
                effects += self._beginning.ask(self._cell.revision)
            elif not self._dropped or self._has_room:
                self._dropped = False
                effects += self._backlog.ask(self._claiming.wanted(group))
        if self._holders:
            effects += self._holding.ask(group)
        first = self._claiming.first(group)
        if self._is_due(group, first):
            effects += self._write(now_us)
        return [*effects, *self._wait(first)]

    def _is_due(self, group: StoredGroup | None, first: int) -> bool:
        """Whether the cell is to be written now."""
        if self._holders and self._holding.waits(group):
            return False
        if self._over or self._incarnations.over or self._overdue or self._ageing:
            return True
        if group is not None and self._holders and self._holding.due(group):
            return True
        if any(holder.restless(group) for holder in self._holders.values()):
            return True
        if group is not None and not group.begun:
            return self._beginning.position(self._cell.revision) > 0
        if group is None or not first:
            return False
        return first == self._patience_for or self._claiming.is_our_turn(group, first)

    def _wait(self, first: int) -> list[Effect]:
        """Timers for what need not be done at once; or the end, if there is nothing to do any more."""
        effects: list[Effect] = []
        if self._cell.busy:
            return effects
        if ended := self._end_if_idle():
            return ended
        if not self._soon and any(holder.settled for holder in self._holders.values()):
            self._soon = True
            effects.append(SetTimer(name=SharingTimer.SETTLE_SOON, delay_us=SETTLE_AFTER_US))
        if first and first not in (self._waiting_for, self._patience_for):
            self._waiting_for = first
            effects.append(SetTimer(name=SharingTimer.GRACE, delay_us=GRACE_US))
        return effects

    def _end_if_idle(self) -> list[Effect]:
        """There is nobody here, and nothing to store."""
        if self._cell.busy or self._holders or self._over:
            return []
        self.state = SharingState.VANISHED
        return [*self._holding.drop(), Vanished()]

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, now_us: int) -> list[Effect]:
        before, now_s = self._cell.group, now_us // 1_000_000
        draft = GroupDraft(before or StoredGroup(self._name, 0))
        draft.expire(now_s)
        for incarnation in self._incarnations.over:
            draft.bury(incarnation, now_s)
        for client, session in self._over:
            draft.end(client, session)
        effects = self._apply(draft, now_s)
        draft.source = self._holding.source(before)
        self._unwanted = draft.tidy()
        if before is not None and not before.begun:
            self._begin(draft)
        elif before is not None:
            self._planned = self._claiming.claim(before, draft, now_us)
            self._unwanted += draft.tidy()
        refresh, self._overdue, self._ageing = self._ageing, False, False
        group = draft.done()
        if group == before and (group is None or not refresh):
            self._unwanted = 0
            self._over.clear()
            self._incarnations.over.clear()
            return effects
        return [*effects, self._cell.write(group, ttl_us(group))]

    def _begin(self, draft: GroupDraft) -> None:
        """The cell is there, and nobody has begun the group: do so, if it is known where."""
        position = self._beginning.position(self._cell.revision)
        if position:
            draft.begin(max(position, self._ports.tail + 1))

    def _apply(self, draft: GroupDraft, now_s: int) -> list[Effect]:
        """Bring the members here into a draft; those that cannot be members are told so."""
        effects: list[Effect] = []
        for client, holder in list(self._holders.items()):
            fresh = client not in draft.members and not holder.gone
            foreign = not holder.admitted(draft)
            if foreign:
                reason = "not authorized: the group belongs to another user, and no rule admits this user"
            elif fresh and len(draft.members) >= self._members_max:
                reason = f"a group may have at most {self._members_max} members"
            elif fresh and not draft.has_room(client, holder.member(), MEMBERS_MAX_BYTES):
                reason = f"the members of a group may take {MEMBERS_MAX_BYTES} bytes together"
            elif not holder.apply(draft, now_s):
                reason = "a later connection of the client is a member"
            else:
                continue
            del self._holders[client]
            effects.append(Turned(client=client, session=holder.session, reason=reason, foreign=foreign))
        return effects

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case SharingTimer.CELL_AGAIN:
                return self._cell.again()
            case SharingTimer.GRACE:
                self._patience_for, self._waiting_for = self._waiting_for, 0
            case SharingTimer.SETTLE_SOON:
                self._soon, self._overdue = False, True
            case SharingTimer.LOOK:
                look = SetTimer(name=SharingTimer.LOOK, delay_us=LOOK_US)
                return [look, *self._look(now_us), *self._go_on(now_us)]
            case SharingTimer.READ_AGAIN:
                pass  # what could not be read is asked for again
        return self._go_on(now_us)

    def _look(self, now_us: int) -> list[Effect]:
        """Ask after incarnations that seem to be over, and see to it that the cell does not expire."""
        group = self._cell.group
        if group is None:
            return []
        kept_us = ttl_us(group)
        self._ageing = kept_us is not None and now_us - self._heard_us > kept_us // 3
        if self._of_results and now_us - self._heard_us > CHECKPOINT_US:
            self._backlog.passed(self._ports.done)
            self._ageing = self._ageing or self._backlog.below > group.next
        return [*self._incarnations.look(group)]

    def _on_incarnation(self, event: Stored, now_us: int) -> list[Effect]:
        incarnation = self._incarnations.answered(event)
        if not incarnation:
            return []
        facts = {"group": self._name, "incarnation": incarnation}
        said = Say(text="members of a group were at a broker that is gone", facts=facts)
        return [said, *self._go_on(now_us)]

    def _on_lost_sight(self, event: OutOfSight, now_us: int) -> list[Effect]:
        return self._cell.look()

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (SharingState.NEW, Join): _start,
        (SharingState.NEW, SessionOver): _start,
        (SharingState.HERE, Join): _join,
        (SharingState.HERE, Leave): _leave,
        (SharingState.HERE, Quit): _quit,
        (SharingState.HERE, SessionOver): _on_session_over,
        (SharingState.HERE, Settle): _settle,
        (SharingState.HERE, Crowded): _on_crowd,
        (SharingState.HERE, RoomMade): _on_room,
        (SharingState.HERE, Arrived): _on_arrival,
        (SharingState.HERE, PartRead): _on_part,
        (SharingState.HERE, PartFailed): _on_part_failure,
        (SharingState.HERE, EndFound): _on_end,
        (SharingState.HERE, EndUnknown): _on_no_end,
        (SharingState.HERE, Watched): _on_change,
        (SharingState.HERE, OutOfSight): _on_lost_sight,
        (SharingState.HERE, Held): _on_held,
        (SharingState.HERE, NotHeld): _on_not_held,
        (SharingState.HERE, Stored): _on_stored,
        (SharingState.HERE, StoreFailed): _on_store_failure,
        (SharingState.HERE, TimerFired): _on_timer,
        **dict.fromkeys(AFTERWARDS, _ignore),
    }
