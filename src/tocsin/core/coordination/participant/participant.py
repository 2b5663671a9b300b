"""A broker's side of coordination: it declares what it and its clients want, and follows its notices.

    new ──► joining (no notice yet) ──► member ──► left

Transitions of ``Participant``:

    new  Started → joining
    *    InterestsChanged, QueriesChanged, ClientsChanged, AllDispatched, MessageRead, Loaded, GuestCame, GuestWent,
         LinksSeen, LinksEnded, LoadMeasured, Readdressed, Received, Stored, StoreFailed
         Dispatched, TimerFired, Followed → member
         Leaving → left

Commands go to the leader over the bus, whoever that is, and again until a notice acknowledges them. Notices come from
the log, in order. After a gap in the numbers the broker asks for everything. A leader that has
counted this broker as lost says so; then the broker rejoins, with a new incarnation, and declares everything again.
So it does when it is reached at another address: it joins over itself, so that it is never missed in between.

In ``member`` the routes are kept and used however long the coordinator stays silent: existing traffic never depends
on it. Nor does a publisher wait for a coordinator that has not answered lately, or for longer than CLEAR_US.

The answers to queries are **in doubt** while a leader may have given this broker up (``heartbeat``), and when it joins
anew until it was told everything: others may have gone on without it. So they are from the first notice to a newer
process of the same name, a standby in this broker's place or the broker whose place this standby has: nobody waits for
this process any more, and its next beat may be far. Then streams are also learned from messages
(``network_view``). A broker that has learned some has itself told everything when a leader answers; until then
their messages say whether they still satisfy the queries.

They are also in doubt while the broker **lags**: streams left, as it was told, and it has not read all of their
messages yet. A set that was told anew does not say where in the message log a stream left. So the broker lags until it
has delivered all that the log has then (``AwaitAll``). A stream that leaves alone says so: the broker lags if the
notice does not wait for that (``inbox``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import ClassVar, Final

from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.heartbeat import Heartbeat
from tocsin.core.coordination.participant.link_reports import Linkage
from tocsin.core.coordination.participant.load_reports import LoadReports
from tocsin.core.coordination.participant.network_view import Inbox, MessageEvidence, NetworkView
from tocsin.core.coordination.participant.signals import (
    AllDispatched,
    AwaitAll,
    AwaitDispatch,
    ChangesKnown,
    ChangesRouted,
    ChangesSettled,
    ClientsChanged,
    Deposed,
    Dispatched,
    GuestCame,
    GuestWent,
    InterestsChanged,
    Leaving,
    LinksEnded,
    LinksSeen,
    Loaded,
    LoadMeasured,
    MeasureLinks,
    MessageRead,
    ParticipantTimer,
    QueriesChanged,
    Readdressed,
    RoleChanged,
    StreamLeft,
)
from tocsin.core.coordination.participant.submission import CLEAR_US, PendingClears, Submission
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Followed,
    FollowLog,
    ReadLog,
    Received,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Table,
    TableMachine,
    TimerFired,
    stamp,
)
from tocsin.core.survival.refuges import destinations, reference
from tocsin.errors import LevelUnspoken
from tocsin.model.network import COORDINATOR, BrokerInfo, Message, Role, Route, Scheme
from tocsin.model.stream import Metadata
from tocsin.model.versions import speaks
from tocsin.wire.internal.commands import CHANCE_BITS
from tocsin.wire.internal.control import Expected, KnownUpTo, Measure, Pulse, Refresh, Seen, Unknown, Unspoken
from tocsin.wire.internal.notices import Notice, decode_notice

ANSWER_US: Final = 6_000_000  # longer than a store waits; an answer that is not there by then never comes
AGAIN_US: Final = 300_000
HOLD_US: Final = 1_000_000  # that a notice waits for the message log
BEHIND_US: Final = 2_000_000  # that a notice of which the leader knows may take
SUSPECT_AFTER_US: Final = 5_000_000  # the longest silence that a leader bears, as settings have it …
SUSPECT_LEAST_US: Final = 1_000_000  # … and the shortest one that counts


class ParticipantState(StrEnum):
    """Where a broker is on its way into the network."""

    NEW = "new"
    JOINING = "joining"
    MEMBER = "member"
    LEFT = "left"


class Participant(TableMachine):
    """One broker's side of coordination."""

    timers = ParticipantTimer
    state: ParticipantState = ParticipantState.NEW
    receiving: type[Inbox] = Inbox  # so that a variant can be tried

    def __init__(
        self,
        info: BrokerInfo,
        places: StoreNames,
        heartbeat_us: int,
        suspect_after_us: int = SUSPECT_AFTER_US,
        suspect_least_us: int = SUSPECT_LEAST_US,
        *,
        substitute: bool = False,
    ) -> None:
        """``substitute``: it has the name of a lost broker, and gives it back rather than rejoin."""
        self._substitute = substitute
        self.picture = NetworkView(info.cluster if info.outward else None)
        self.epoch = 0  # of the newest leader that was heard of
        self.level = 0  # of the network, as far as it is known: what needs a higher one is not done
        self._info = info
        self._log = places.commands.name
        self._subject = places.notices_subject(info.id)
        self._heartbeat = Heartbeat(info, heartbeat_us, suspect_after_us, suspect_least_us)
        self._submission = Submission(info)
        self._linkage = Linkage(info.id)
        self._loads = LoadReports(info.id)
        self._chance = 0
        self._requests = 0
        self._asked = ""  # for the log's end, before joining
        self._inbox = self.receiving()
        self._applied = 0  # number of the last notice that was applied
        self._evidence = MessageEvidence()
        self._replaced = False  # a notice has named a newer incarnation under our name
        # Topic → queries among whose streams it is though no notice has told of it; since everything was told.
        self._learned: dict[str, list[str]] = {}
        self._awaits = 0  # of ``AwaitAll``: numbers
        self._lags = False  # … the last is not answered
        self._behind_us: int | None = None  # since when the leader knows of more notices than we
        self._clearing = PendingClears()
        self._clear_to = 0  # number of the last of our commands that a leader has said to be clear …
        self._effective = 0  # … and of the last whose consequences were applied here

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        return [] if self.state is ParticipantState.LEFT else super().handle(event, now_us)

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def interests(self) -> Collection[str]:
        """The filters that the broker's clients want now."""
        return self._submission.roll.filters.keys()

    @property
    def queries(self) -> Mapping[str, str]:
        """The queries that they ask now."""
        return self._submission.roll.queries

    @property
    def told(self) -> bool:
        """Whether the coordinator knows everything that the broker's clients want."""
        return self.state is ParticipantState.MEMBER and not self._asked and self._submission.logged

    @property
    def routes(self) -> Collection[Route]:
        return self.picture.routes.keys()

    @property
    def incarnation(self) -> int:
        return self._submission.incarnation

    @property
    def orphaned(self) -> bool:
        """Whether this broker counts as lost, as far as it knows (``heartbeat``)."""
        return self._heartbeat.orphaned

    def in_doubt(self, now_us: int) -> bool:
        """Whether the answers to queries may be stale, so that ``MessageRead`` has to be told."""
        return bool(self._learned) or self._may_lack(now_us)

    def _may_lack(self, now_us: int) -> bool:
        """Whether streams may be missing in the answers to queries."""
        joins_anew = bool(self._asked) or not self._applied
        given_up = self._replaced or self._heartbeat.is_doubtful(now_us)
        lags = self._lags or bool(self._inbox.unread)
        return bool(self.picture.sets) and (joins_anew or given_up or lags)

    def streams(self, query: str) -> Mapping[str, Metadata] | None:
        """The streams of a query, None before it was answered."""
        return self.picture.sets.get(query)

    def refuge(self, scheme: Scheme, turn: int, now_us: int) -> str | None:
        """The server reference for a client that this broker has no room for; None if we know of no broker that has.

        ``turn`` counts the clients that are sent away, so that they do not all go to the same.
        """
        return reference(self._heartbeat.refuges(now_us), scheme, turn)

    def destinations(self, scheme: Scheme, turn: int, now_us: int) -> list[str]:
        """The server references for clients of this broker if it is lost or stops, best first: its backups lead."""
        return destinations(self.picture.backups, self._heartbeat.refuges(now_us), scheme, turn)

    # ── joining ─────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self._chance = event.incarnation
        self.state = ParticipantState.JOINING
        return [*self._find_end(), *self._beat(now_us)]

    def _find_end(self) -> list[Effect]:
        """Ask where the log ends: what comes behind it is for the incarnation that begins here."""
        self._requests += 1
        self._asked = f"end#{self._requests}"
        return [
            ReadLog(request=self._asked, log=self._log, subject=self._subject, start=0, limit=1),
            SetTimer(name=ParticipantTimer.AGAIN, delay_us=ANSWER_US),
        ]

    def _on_end(self, event: Stored, now_us: int) -> list[Effect]:
        if event.request != self._asked:
            return []
        end = event.value.last
        self._asked = ""
        self._chance += 1
        incarnation = end + 1 << CHANCE_BITS | self._chance & (1 << CHANCE_BITS) - 1  # never 0
        said = self._submission.begin(incarnation)
        self._inbox.begin()
        self._applied, self._behind_us, self._replaced = 0, None, False
        self._clear_to = self._effective = 0
        return [
            CancelTimer(name=ParticipantTimer.AGAIN),
            FollowLog(log=self._log, subject=self._subject, start=end + 1),
            ChangesRouted(ticket=0, anew=True),
            *self._clear(self._clearing.all()),
            *said,
        ]

    def _no_end(self, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request != self._asked:
            return []
        return [SetTimer(name=ParticipantTimer.AGAIN, delay_us=AGAIN_US)]

    # ── declarations ────────────────────────────────────────────────────────────────────────────────────────

    def _on_interests(self, event: InterestsChanged, now_us: int) -> list[Effect]:
        self._submission.roll.change_filters(event.added, event.removed)
        return self._tell()

    def _on_queries(self, event: QueriesChanged, now_us: int) -> list[Effect]:
        for query in event.removed:
            self.picture.forget(query)
        self._submission.roll.change_queries(event.added, event.removed, event.user)
        return self._tell()

    def _on_clients(self, event: ClientsChanged, now_us: int) -> list[Effect]:
        number = self._submission.add(event.command, event.ticket)
        effects = self._tell()
        if not self._heartbeat.is_led(now_us):
            return [*effects, *self._clear(self._clearing.all(event.ticket))]
        if not len(self._clearing):
            effects.append(SetTimer(name=ParticipantTimer.CLEAR, delay_us=CLEAR_US))
        self._clearing.wait(number, event.ticket, now_us)
        return effects

    def _tell(self) -> list[Effect]:
        return [] if self.state is ParticipantState.NEW else self._submission.tell()

    def _to_leader(self, message: Message) -> Effect:
        return Send(to=COORDINATOR, message=message)

    def _beat(self, now_us: int) -> list[Effect]:
        timer = SetTimer(name=ParticipantTimer.BEAT, delay_us=self._heartbeat.interval_us)
        return [timer, *self._heartbeat.look(now_us), *self._say_alive(now_us)]

    def _say_alive(self, now_us: int) -> list[Effect]:
        """A beat; at once when somebody begins to listen, so that it need not wait for what it has to know."""
        if not self.incarnation:
            return []
        message = self._heartbeat.beat(self.incarnation, self._applied, now_us)
        asked = self._ask_everything() if self._inbox.gap else []
        return [self._to_leader(message), *asked]

    def _on_clientele(self, event: Loaded | GuestCame | GuestWent, now_us: int) -> list[Effect]:
        self._heartbeat.note(event)
        return []

    def _on_links(self, event: LinksSeen, now_us: int) -> list[Effect]:
        said = self._linkage.see(event, self.incarnation, self.epoch, self.picture.bypass, now_us)
        return [] if said is None else [self._to_leader(said)]

    def _on_load(self, event: LoadMeasured, now_us: int) -> list[Effect]:
        said = self._loads.see(event, self.incarnation, self.epoch, now_us)
        return [] if said is None else [self._to_leader(said)]

    def _on_links_ended(self, event: LinksEnded, now_us: int) -> list[Effect]:
        said = self._linkage.ended(event, self.incarnation, now_us)
        return [] if said is None else [self._to_leader(said)]

    def _on_readdressed(self, event: Readdressed, now_us: int) -> list[Effect]:
        self._info = event.info
        self._submission.readdress(event.info)
        self._heartbeat.guests.readdress(event.info)
        joins_anyway = not self.incarnation or bool(self._asked) or self._replaced
        return [] if joins_anyway else self._find_end()

    # ── what the leader says ────────────────────────────────────────────────────────────────────────────────

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if not isinstance(message, Pulse | Unknown | Expected | KnownUpTo | Measure | Unspoken):
            return []
        if message.epoch < self.epoch or message.incarnation != self.incarnation:
            return []
        self._heartbeat.heard(now_us)
        effects: list[Effect] = []
        if message.epoch > self.epoch:
            self.epoch = message.epoch
            effects += [*self._submission.led_anew(), *self._say_alive(now_us)]
        elif isinstance(message, Pulse) and not message.heard:
            effects += self._say_alive(now_us)
        match message:
            case Unspoken(levels=network):
                own = speaks()
                raise LevelUnspoken((own.oldest, own.newest), (network.oldest, network.newest))
            case Pulse(noticed=noticed):
                self.level = max(self.level, message.level)
                effects += self._heartbeat.answered(message, now_us)
                effects += self._change_role(message.role)
                return [*effects, *self._compare(noticed, now_us), *self._confirm(now_us)]
            case Unknown():
                effects += self._heartbeat.given_up()
                return [*effects, *self._join_anew()]
            case Expected(next=number):
                return [*effects, *self._go_back(number, now_us)]
            case KnownUpTo(number=number):
                self._clear_to = max(self._clear_to, number)
                return [*effects, *self._clear_known()]
            case Measure():
                return [*effects, MeasureLinks()]

    def _change_role(self, role: Role | None) -> list[Effect]:
        """The leader wants this broker to stand by, or to serve again. A broker that has clients, or that others count
        on by the notices that it has read, goes on to serve: the leader says it again."""
        if role is None or role == self._info.role or not self._info.may_stand_by:
            return []
        needed = self._heartbeat.clients > 0 or self.picture.counts_on_it
        return [] if role == Role.STANDBY and needed else [RoleChanged(role=role)]

    def _join_anew(self) -> list[Effect]:
        if self._substitute:
            return [Deposed()]
        return [] if self._asked else self._find_end()

    def _go_back(self, number: int, now_us: int) -> list[Effect]:
        """The leader has nothing from this command on, though a later one has reached it.

        If it lacks what was acknowledged, then nothing that we know of it holds.
        """
        if number <= self._submission.applied:
            return self._join_anew()
        return self._submission.go_back(now_us)

    def _compare(self, noticed: int, now_us: int) -> list[Effect]:
        """The leader knows of so many notices; if they do not come, something is missing."""
        if noticed <= self._inbox.number:
            self._behind_us = None
            return []
        if self._behind_us is None:
            self._behind_us = now_us
        if self._inbox.gap or now_us - self._behind_us < BEHIND_US:
            return []
        self._inbox.miss()
        return self._ask_everything()

    def _confirm(self, now_us: int) -> list[Effect]:
        """Ask about streams that were learned from messages; again with every answer, until everything comes."""
        asks = bool(self._learned) and not self._may_lack(now_us) and not self._inbox.gap
        return self._ask_everything() if asks else []

    def _ask_everything(self) -> list[Effect]:
        """Ask for it; asked again with every beat, until it comes."""
        return [self._to_leader(Refresh(self._info.id, self.incarnation))]

    # ── notices ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_entry(self, event: Followed, now_us: int) -> list[Effect]:
        notice = decode_notice(event.entry.payload)
        self._replaced = self._replaced or notice.incarnation > self.incarnation
        if notice.incarnation != self.incarnation or not self._inbox.is_new(notice):
            return []
        self.epoch = max(self.epoch, notice.epoch)
        self._clear_to = max(self._clear_to, notice.clear)
        effects = [
            *self._submission.refusals(notice.items),
            *self._acknowledge(notice, now_us),
        ]
        missed_already = self._inbox.gap
        first = not self._inbox.number
        if not self._inbox.take(event.cause, notice):
            return effects if missed_already else [*effects, *self._ask_everything()]
        self._behind_us = None
        effects += self._apply()
        return [*effects, *self._say_alive(now_us)] if first else effects

    def _acknowledge(self, notice: Notice, now_us: int) -> list[Effect]:
        if notice.applied <= self._submission.applied:
            return []
        self._heartbeat.heard(now_us)
        ticket, effects = self._submission.acknowledge(notice.applied)
        return [ChangesSettled(ticket=ticket), *effects] if ticket else effects

    def _apply(self) -> list[Effect]:
        """Apply what came, as far as the message log was delivered."""
        effects: list[Effect] = []
        while (notice := self._inbox.next()) is not None:
            if isinstance(notice, int):
                wait = AwaitDispatch(position=notice)
                effects += [wait, SetTimer(name=ParticipantTimer.HOLD, delay_us=HOLD_US)]
                break
            self._applied = notice.number
            self._evidence.forget()
            if notice.fresh:
                self._learned.clear()
            self._effective = max(self._effective, notice.applied)
            self.state = ParticipantState.MEMBER
            changes = self.picture.apply(notice.items, self.queries, fresh=notice.fresh)
            effects += stamp([*changes, *self._lag(changes, fresh=notice.fresh)], notice.cause)
            if notice.ask:
                seen = Seen(self._info.id, self.incarnation, notice.number)
                effects += stamp([self._to_leader(seen)], notice.cause)
        routed = self._submission.routed(self._effective)
        if routed:
            effects.append(ChangesRouted(ticket=routed))
        return [*effects, *self._clear_known()]

    def _lag(self, changes: list[Effect], *, fresh: bool) -> list[Effect]:
        """Streams left whose messages may not be read yet: have it said when they are."""
        if not any(isinstance(each, StreamLeft) for each in changes):
            return []
        if fresh:
            self._awaits, self._lags = self._awaits + 1, True
            return [AwaitAll(number=self._awaits)]
        return [AwaitDispatch(position=self._inbox.unread)] if self._inbox.unread else []

    def _on_all_dispatched(self, event: AllDispatched, now_us: int) -> list[Effect]:
        self._lags = self._lags and event.number < self._awaits
        return []

    def _on_dispatched(self, event: Dispatched, now_us: int) -> list[Effect]:
        self._inbox.dispatched(event.position)
        return self._apply()

    def _on_message_read(self, event: MessageRead, now_us: int) -> list[Effect]:
        topic, metadata = event.topic, event.metadata
        effects: list[Effect] = []
        for query in self._evidence.refuted(metadata, self._learned.get(topic, ()), self.queries):
            self._learned[topic].remove(query)
            effects += self.picture.unlearn(query, topic, metadata)
        if not self._may_lack(now_us):
            return effects
        for query in self._evidence.find(topic, metadata, self.picture.sets, self.queries):
            self._learned.setdefault(topic, []).append(query)
            effects += self.picture.learn(query, topic, metadata)
        return effects

    def _clear_known(self) -> list[Effect]:
        """The changes that are clear everywhere else, and applied here."""
        return self._clear(self._clearing.up_to(min(self._clear_to, self._effective)))

    def _clear(self, ticket: int) -> list[Effect]:
        return [ChangesKnown(ticket=ticket)] if ticket else []

    # ── timers, and the end ─────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case ParticipantTimer.BEAT:
                return self._beat(now_us)
            case ParticipantTimer.TELL:
                return self._submission.told()
            case ParticipantTimer.RESEND:
                return self._submission.resend()
            case ParticipantTimer.AGAIN if self._asked:
                return self._find_end()
            case ParticipantTimer.CLEAR:
                cleared = self._clear(self._clearing.late(now_us))
                if not len(self._clearing):
                    return cleared
                patience_us = self._clearing.patience_us(now_us)
                return [*cleared, SetTimer(name=ParticipantTimer.CLEAR, delay_us=patience_us)]
            case ParticipantTimer.HOLD:
                self._inbox.give_up()
                return self._apply()
        return []

    def _leave(self, event: Leaving, now_us: int) -> list[Effect]:
        self.state = ParticipantState.LEFT
        return self._submission.leave()

    table: ClassVar[Table] = {
        (ParticipantState.NEW, Started): _start,
        ("*", InterestsChanged): _on_interests,
        ("*", QueriesChanged): _on_queries,
        ("*", ClientsChanged): _on_clients,
        ("*", Dispatched): _on_dispatched,
        ("*", AllDispatched): _on_all_dispatched,
        ("*", MessageRead): _on_message_read,
        ("*", Loaded): _on_clientele,
        ("*", GuestCame): _on_clientele,
        ("*", GuestWent): _on_clientele,
        ("*", LinksSeen): _on_links,
        ("*", LinksEnded): _on_links_ended,
        ("*", LoadMeasured): _on_load,
        ("*", Readdressed): _on_readdressed,
        ("*", TimerFired): _on_timer,
        ("*", Received): _on_message,
        ("*", Stored): _on_end,
        ("*", StoreFailed): _no_end,
        ("*", Followed): _on_entry,
        ("*", Leaving): _leave,
    }
