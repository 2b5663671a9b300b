"""One client's durable side: deliveries from the log, and the stored session.

States: ``new`` → ``attending`` → ``ending`` → ``ended``, or ``attending`` → ``lost`` → ``ended``. The machine begins
when the client is accepted, with its stored session if that lasts. It ends when the connection does, once what the
client leaves is stored. It is lost when another broker has taken the client; from then on it does nothing.

Transitions of ``ClientDelivery``:

    new        Began → attending
               Writable → nothing
               Ended → ended
    attending  Subscribed, Begins, Unsubscribed, Kept, StreamSaid, AwaitSave, ReleaseAsked, Answered, ClaimsForgotten,
               BatchRead, ReadFailed, ResultsRead, ResultsFailed, Writable, TimerFired
               Stored, StoreFailed → lost, ended
               Ended → ending, ended
    ending     Stored, StoreFailed → lost, ended
               TimerFired
               Subscribed, Begins, Unsubscribed, AwaitSave, Kept, StreamSaid, ReleaseAsked, Answered, BatchRead,
               ReadFailed, ResultsRead, ResultsFailed, Writable, ClaimsForgotten → nothing
    lost       Ended → ended
               Subscribed, Begins, Unsubscribed, AwaitSave, Kept, StreamSaid, ReleaseAsked, Answered, BatchRead,
               ReadFailed, ResultsRead, ResultsFailed, Writable, ClaimsForgotten, Stored, StoreFailed,
               TimerFired → nothing
    ended      Subscribed, Begins, Unsubscribed, AwaitSave, Kept, StreamSaid, ReleaseAsked, Answered, BatchRead,
               ReadFailed, ResultsRead, ResultsFailed, Writable, ClaimsForgotten, Stored, StoreFailed, TimerFired,
               Ended → nothing

**Deliveries** above QoS 0 come from the log (``core.delivery.window``). While the client keeps up, the shell hands in
entries as the log brings them (``hand_in``: the hot path, no event). When the client's window is full, or its
connection is congested, the client is behind: the machine asks for batches of the log (``ReadBatch``) until it has
caught up. Critical messages are a track of their own (``core.delivery.tracks``), and so are results of
channels (``core.delivery.tracks``).

**The stored session** is one cell (``core.delivery.session_cell``). A packet that must wait for a change to be
durable (SUBACK, PUBREL, PUBCOMP) waits for the next write that contains it; so does what would rather wait (the word
that a publisher is alive), until a write fails at most. Other changes are written soon. If the
store has no room for what a client waits for, the client has to go (``Overfull``): it was promised nothing.

**Record ids.** A message of the client goes into the log under an id that is used once. At QoS 2 the id is stored
with the session before the message is appended, so that its repeat has the same id, whichever broker serves the
client by then.

Invariants: PUBREL goes out after the write that contains the PUBREC; ``Durable`` after a write that contains what its
tickets stand for; one write at a time; after ``Usurped``, and after ``Ended``, nothing is promised to the client any
more; after ``Ended`` there is one ``Gone``.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from mqtt5 import PubRelPacket

from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.delivery.record_ids import RecordIds
from tocsin.core.delivery.session_cell import SessionCell
from tocsin.core.delivery.signals import (
    AFTERWARDS,
    Answered,
    AwaitSave,
    BatchRead,
    Began,
    Begins,
    ClaimsForgotten,
    ClaimsSettled,
    DeliveryState,
    DeliveryTimer,
    Durable,
    Ended,
    Gone,
    Kept,
    Overfull,
    ReadFailed,
    ReleaseAsked,
    Reply,
    ResultsFailed,
    ResultsRead,
    StreamSaid,
    Subscribed,
    Unsubscribed,
    Usurped,
    Violated,
    Writable,
)
from tocsin.core.delivery.stored_session import StoredSession, within
from tocsin.core.delivery.tracks import CatchingUp, MessagesTrack, ResultsTrack, checkpoint_later
from tocsin.core.delivery.window import ALL_RESULTS, POSITION_IDS, WAIT, DeliveryWindow, Progress, hear
from tocsin.core.filters import filter_type
from tocsin.core.forwarding.table import UNBEGUN, Subscription
from tocsin.core.machine import Effect, Event, SetTimer, Stored, StoreFailed, Table, TableMachine, TimerFired
from tocsin.errors import ProtocolViolation, StoreFull, Trimmed
from tocsin.model.stream import Value

LAST_TRIES: Final = 3  # failures in storing what an ended connection leaves, before it is left as it is
# Between two looks whether the client of a new session was heard, at first and at most. The looks become rarer: a
# client that says nothing costs little, and one with a keep-alive is heard before that has passed once.
CONFIRM_FIRST_US, CONFIRM_MOST_US = 1_000_000, 60_000_000
WINDOW_MAX: Final = 1_000  # unacknowledged messages of one client, whatever it asks for


_NO_IDS: Final = RecordIds("")


class ClientDelivery(TableMachine):
    """Delivers durable messages and results to one connected client, and stores its session."""

    timers = DeliveryTimer
    state: DeliveryState = DeliveryState.NEW

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.congested = False  # set by the shell: the connection takes no more for now
        self.heard_us = 0  # set by the shell before each event: when the client was heard last
        self._began_us = 0
        self._confirm_us = CONFIRM_FIRST_US  # before the next look whether the client was heard
        self._receive_max = 1
        self.results = ResultsTrack()
        self.messages = MessagesTrack(self.results)
        self._custody: SessionCell | None = None  # None: nothing is stored
        # The ids under which the client's messages go into the log. At QoS 2 an id is part of the session: the message
        # is appended only when it is durable (``AwaitSave``).
        self.record_ids = _NO_IDS  # until it begins
        self.streams: dict[
            str, dict[str, Value]
        ] = {}  # the metadata of the streams that the client publishes on
        self.unkept: dict[str, None] = {}  # those of which no coordinator has it
        self._expiry_s = 0  # when ending: how long the session is kept
        self._leaving = self._settled = False  # when ending: the last write is under way; no will is left
        self._last_failures = 0

    # ── beginning ───────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, event: Began, now_us: int) -> list[Effect]:
        self.state, self._began_us = DeliveryState.ATTENDING, now_us
        self._receive_max = min(event.receive_max, WINDOW_MAX)
        session = event.session
        self.record_ids = RecordIds(event.prefix, session)
        if session is None:
            return []
        self._custody = SessionCell(session, event.revision)
        self.subscriptions, self.streams = dict(session.subscriptions), within(session.streams)
        self.unkept = dict.fromkeys(session.unkept_streams)
        self.messages.begin(
            session.progress,
            session.critical_messages,
            tail=event.tail,
            critical_tail=event.critical_tail,
            receive_max=self._receive_max,
            durable=True,
        )
        effects: list[Effect] = [
            Reply(packet=PubRelPacket(each))
            for delivery in self.messages.deliveries
            for each in delivery.to_release()
        ]
        for group, claim in event.claims:
            if claim.packet_id and self.claims is not None:
                self.claims.restore(claim.packet_id, group, claim.position)
        effects += [*self._custody.refresh_later(), *self._confirm_later(session)]
        if session.results is not None:
            at = event.results_tail
            effects += self._follow_results(session.results, session.critical, at)
        return [*effects, *self._settle_claims(), *self._catch_up()]

    def _follow_results(self, rest: Progress, critical: Progress | None, at: int) -> list[Effect]:
        durable, most = self._custody is not None, self._receive_max
        self.results.begin(rest, critical, at, receive_max=most, durable=durable)
        self.messages.link()
        return [checkpoint_later()] if durable else []

    @property
    def inbound_ids(self) -> tuple[int, ...]:
        """The QoS 2 packet ids whose messages are in the log, without a PUBREL yet."""
        return tuple(self.record_ids.kept)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, event: Subscribed, now_us: int) -> list[Effect]:
        subscription, before = event.subscription, self.subscriptions.get(event.topic_filter)
        if before is not None and before.qos:  # what it is still to get is not lost (MQTT 5, section 3.8.4)
            subscription = msgspec.structs.replace(subscription, since=min(before.since, subscription.since))
        self.subscriptions[event.topic_filter] = subscription
        if filter_type(event.topic_filter) is ChannelFilter:
            since, known = subscription.since, self.results.subscribed(subscription)
            began = [] if known else self._follow_results(Progress(since + 1), None, since)
            return [*began, *self._save_soon()]
        if not self.messages.subscribed(subscription):
            since = event.tail if subscription.since == UNBEGUN else subscription.since
            most = self._receive_max
            self.messages.begin(Progress(since + 1), tail=since, receive_max=most, durable=False)
        return self._save_soon()

    def _begins(self, event: Begins, now_us: int) -> list[Effect]:
        if self.subscriptions.get(event.topic_filter) is not event.before:
            return []  # it is another one by now
        self.subscriptions[event.topic_filter] = event.subscription
        self.messages.subscribed(event.subscription)  # a read that is under way did not look for it
        return self._save_soon()

    def _unsubscribe(self, event: Unsubscribed, now_us: int) -> list[Effect]:
        self.subscriptions.pop(event.topic_filter, None)
        return self._save_soon()

    # ── messages of the client ──────────────────────────────────────────────────────────────────────────────

    def _on_kept(self, event: Kept, now_us: int) -> list[Effect]:
        return self._save_soon() if self.record_ids.keep(event.packet_id) else []

    def _release(self, event: ReleaseAsked, now_us: int) -> list[Effect]:
        self.record_ids.release(event.packet_id)
        return self._await(event.ticket)

    # ── messages to the client ──────────────────────────────────────────────────────────────────────────────

    def hand_in(self, position: int, qos: int, critical: bool = False) -> tuple[int, bool]:
        """An entry that the log has just brought → the packet id to send it with (0: don't), repeat."""
        return self.messages.hand_in(position, qos, critical, self.congested)

    def passed(self, tail: int) -> None:
        """Every entry up to here was dispatched, and handed in if it matched: what is stored next may say so."""
        self.messages.passed(tail)

    def extra(self, qos: int) -> int:
        """A packet id for a message that is not of the log, or WAIT."""
        return WAIT if self.claims is None else self.claims.extra(qos)

    def _on_answer(self, event: Answered, now_us: int) -> list[Effect]:
        packet_id = event.packet.packet_id
        of_results = packet_id > POSITION_IDS and packet_id in ALL_RESULTS
        track = self.results.of_packet(packet_id) if of_results else self.messages.of_packet(packet_id)
        try:
            reply, waits = hear(track, event.packet)
        except ProtocolViolation as error:
            return [Violated(error=error)]
        effects: list[Effect] = [] if reply is None else [Reply(packet=reply)]
        if waits and self.messages.urgent:
            effects += self._save()
        settled = self._settle_claims()
        return [*effects, *settled, *self._save_soon(), *self._catch_up()]

    # ── as a member of groups ───────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> bool:
        """Whether the client takes one more message of a group's."""
        space = self.claims is None or self.claims.space
        return space and not self.congested and self.state is DeliveryState.ATTENDING

    @property
    def claims(self) -> DeliveryWindow | None:
        """The window that has the packet ids of claims."""
        return self.messages.delivery

    def _settle_claims(self) -> list[Effect]:
        claims = self.messages.delivery
        settled = () if claims is None else claims.take_settled()
        return [ClaimsSettled(claims=settled)] if settled else []

    def _forget_claims(self, event: ClaimsForgotten, now_us: int) -> list[Effect]:
        if self.claims is not None:
            self.claims.forget_claims(event.packet_ids)
        return self._save_soon()

    @property
    def level(self) -> bool:
        """Whether the client was sent everything that the log has for it so far."""
        return self.messages.level

    # ── catching up ─────────────────────────────────────────────────────────────────────────────────────────

    def _on_writable(self, event: Writable, now_us: int) -> list[Effect]:
        return self._catch_up()

    def _catch_up(self) -> list[Effect]:
        if self.congested:
            return []
        messages = self.messages.ask(self.subscriptions)
        return [*messages, *self.results.ask(self.subscriptions)]

    def _reader(self, event: BatchRead | ReadFailed | ResultsRead | ResultsFailed) -> CatchingUp | None:
        of_results = isinstance(event, ResultsRead | ResultsFailed)
        return (self.results if of_results else self.messages).reading(event.critical)

    def _on_batch(self, event: BatchRead | ResultsRead, now_us: int) -> list[Effect]:
        catching_up = self._reader(event)
        if catching_up is None or not catching_up.reading:
            return []
        sent, all_of_it = catching_up.take(event, self.congested)
        effects: list[Effect] = [*sent, *self._save_soon()]
        return [*effects, *self._catch_up()] if all_of_it else effects

    def _on_read_failure(self, event: ReadFailed | ResultsFailed, now_us: int) -> list[Effect]:
        catching_up = self._reader(event)
        if catching_up is None or not catching_up.reading:
            return []
        effects = catching_up.failed(event.error)
        return [*effects, *self._catch_up()] if isinstance(event.error, Trimmed) else effects

    def _note_stream(self, event: StreamSaid, now_us: int) -> list[Effect]:
        self.streams.pop(event.topic, None)
        self.unkept.pop(event.topic, None)
        if event.keys:
            self.streams = within({**self.streams, event.topic: dict(event.keys)})
            if not event.kept:
                self.unkept[event.topic] = None
        return self._save_soon()

    # ── storing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_awaited(self, event: AwaitSave, now_us: int) -> list[Effect]:
        return self._await(event.ticket, needed=event.needed)

    def _await(self, ticket: int, *, needed: bool = True) -> list[Effect]:
        if self._custody is None:
            return [Durable(tickets=(ticket,))]
        self._custody.wait(ticket, needed=needed)
        return self._save()

    def _save_soon(self) -> list[Effect]:
        return [] if self._custody is None else self._custody.soon()

    def _save(self) -> list[Effect]:
        """Write everything as it is now, unless a write is under way; then once that is done."""
        custody = self._custody
        if custody is None or custody.busy:
            return []
        session = self._current(custody)
        self.messages.save()
        return [custody.write(session)]

    def _current(self, custody: SessionCell) -> StoredSession:
        stored = self.record_ids.written_into(custody.session)
        stored = self.messages.written_into(self.results.written_into(stored))
        unkept = tuple(place for place, topic in enumerate(self.streams) if topic in self.unkept)
        return msgspec.structs.replace(
            stored,
            subscriptions=dict(self.subscriptions),
            streams=dict(self.streams),
            unkept=unkept or msgspec.UNSET,
            broker="" if self._leaving else stored.broker,
            expiry_s=self._expiry_s if self._leaving else stored.expiry_s,
            confirmed=stored.confirmed or self.heard_us > self._began_us,
            left=stored.epoch if self._leaving and self._settled else stored.left,
        )

    def _on_stored(self, event: Stored, now_us: int) -> list[Effect]:
        assert self._custody is not None, "nothing else asks the store"
        outcome, effects = self._custody.stored(event, now_us)
        if outcome == "written":
            return self._on_written(self._custody)
        if self.state is DeliveryState.ENDING and self._custody.missing:
            return self._vanish()  # it cannot be heard any more
        return effects if outcome == "under way" else self._lose()

    def _on_store_failure(self, event: StoreFailed, now_us: int) -> list[Effect]:
        assert self._custody is not None, "nothing else asks the store"
        outcome, effects = self._custody.failed(event, now_us)
        if outcome in ("lost", "forgotten"):
            return self._lose()
        if self.state is DeliveryState.ENDING and self._custody.missing:
            return self._vanish()  # it cannot be heard any more
        if outcome == "failed" and self.state is DeliveryState.ENDING:
            self._last_failures += 1
            if self._last_failures >= LAST_TRIES:
                return self._vanish(unstored=True)
            return effects
        if outcome == "failed" and (wishes := self._custody.take_wishes()):
            effects = [*effects, Durable(tickets=wishes)]
        if isinstance(event.error, StoreFull) and self._custody.waited_for:
            return [*effects, Overfull()]
        return effects

    def _on_written(self, custody: SessionCell) -> list[Effect]:
        released = self.messages.saved()
        tickets = custody.take_tickets()
        if self.state is DeliveryState.ENDING:
            return self._vanish() if self._leaving else self._leave(custody)
        effects: list[Effect] = [Reply(packet=PubRelPacket(each)) for each in released]
        effects += self._settle_claims()
        effects += [Durable(tickets=tickets)] if tickets else []
        if custody.awaited or self.messages.urgent:
            effects += self._save()
        return [*effects, *self._catch_up()]

    def _lose(self) -> list[Effect]:
        """Another broker has the client: nothing of its session is ours to write any more."""
        if self.state is DeliveryState.ENDING:
            return self._vanish()
        self.state = DeliveryState.LOST
        return [Usurped()]

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case DeliveryTimer.SAVE_SOON:
                return self._save_if_stale()
            case DeliveryTimer.CHECKPOINT:
                return [checkpoint_later(), *self._save_if_stale()]
            case DeliveryTimer.CONFIRM:
                return self._confirm()
            case DeliveryTimer.SAVE_AGAIN:
                return self._try_again(event, now_us)
            case DeliveryTimer.READ_AGAIN:
                return self._catch_up()
            case DeliveryTimer.REFRESH if self._custody is not None:
                return [*self._custody.refresh_later(), *self._save()]
        return []

    def _confirm_later(self, session: StoredSession) -> list[Effect]:
        """Look again whether the client of a session that is not confirmed was heard. A client that only pings, or
        publishes at QoS 0, changes nothing else that would be written; were its broker killed, the next one would take
        its session for one that it does not know of."""
        if session.confirmed:
            return []
        delay_us, self._confirm_us = self._confirm_us, min(2 * self._confirm_us, CONFIRM_MOST_US)
        return [SetTimer(name=DeliveryTimer.CONFIRM, delay_us=delay_us)]

    def _confirm(self) -> list[Effect]:
        custody = self._custody
        if custody is None or custody.session.confirmed:
            return []
        heard = self.heard_us > self._began_us
        return [*self._confirm_later(custody.session), *(self._save() if heard else [])]

    def _save_if_stale(self) -> list[Effect]:
        custody = self._custody
        if custody is None or not custody.due() or self._current(custody) == custody.session:
            return []
        return self._save()

    def _try_again(self, event: TimerFired, now_us: int) -> list[Effect]:
        custody = self._custody if event.name == DeliveryTimer.SAVE_AGAIN else None
        return [] if custody is None else custody.again(self.heard_us)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, event: Ended, now_us: int) -> list[Effect]:
        self.state = DeliveryState.ENDING
        self._expiry_s, self._settled = event.expiry_s, event.settled
        if self._custody is None:
            return self._vanish()
        if self._custody.missing:
            again = self._custody.again(self.heard_us)
            return again if not self._custody.missing else self._vanish()
        return [] if self._custody.busy else self._leave(self._custody)

    def _end_at_once(self, event: Ended, now_us: int) -> list[Effect]:
        return self._vanish()

    def _leave(self, custody: SessionCell) -> list[Effect]:
        """The last write: the session as nobody's, or its removal."""
        self._leaving = True
        return self._save() if self._expiry_s else [custody.forget()]

    def _vanish(self, *, unstored: bool = False) -> list[Effect]:
        self.state = DeliveryState.ENDED
        return [Gone(unstored=unstored)]

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (DeliveryState.NEW, Began): _begin,
        (DeliveryState.NEW, Writable): _ignore,
        (DeliveryState.NEW, Ended): _end_at_once,
        (DeliveryState.ATTENDING, Subscribed): _subscribe,
        (DeliveryState.ATTENDING, Begins): _begins,
        (DeliveryState.ATTENDING, Unsubscribed): _unsubscribe,
        (DeliveryState.ATTENDING, Kept): _on_kept,
        (DeliveryState.ATTENDING, StreamSaid): _note_stream,
        (DeliveryState.ATTENDING, AwaitSave): _on_awaited,
        (DeliveryState.ATTENDING, ReleaseAsked): _release,
        (DeliveryState.ATTENDING, Answered): _on_answer,
        (DeliveryState.ATTENDING, ClaimsForgotten): _forget_claims,
        (DeliveryState.ATTENDING, BatchRead): _on_batch,
        (DeliveryState.ATTENDING, ReadFailed): _on_read_failure,
        (DeliveryState.ATTENDING, ResultsRead): _on_batch,
        (DeliveryState.ATTENDING, ResultsFailed): _on_read_failure,
        (DeliveryState.ATTENDING, Writable): _on_writable,
        (DeliveryState.ATTENDING, Stored): _on_stored,
        (DeliveryState.ATTENDING, StoreFailed): _on_store_failure,
        (DeliveryState.ATTENDING, TimerFired): _on_timer,
        (DeliveryState.ATTENDING, Ended): _end,
        (DeliveryState.ENDING, Stored): _on_stored,
        (DeliveryState.ENDING, StoreFailed): _on_store_failure,
        (DeliveryState.ENDING, TimerFired): _try_again,
        (DeliveryState.LOST, Ended): _end_at_once,
        **dict.fromkeys(AFTERWARDS, _ignore),
        (DeliveryState.ENDED, Ended): _ignore,
    }
