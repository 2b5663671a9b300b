"""Critical messages beside the others in one attendance: they overtake, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket

from tests.unit.core.delivery.attended import SESSION, UNAVAILABLE, Attended, of, one, session_of
from tocsin.core.delivery.signals import (
    BatchRead,
    Deliver,
    DeliveryTimer,
    Ended,
    MatchedEntry,
    ReadBatch,
    ReadFailed,
    Reply,
    Subscribed,
)
from tocsin.core.delivery.stored_session import StoredSession, decode_session, encode_session
from tocsin.core.delivery.tracks import SPARED_MAX, spared
from tocsin.core.delivery.window import CRITICAL_MESSAGES, MESSAGES, Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, PutKey, SetTimer, Stored
from tocsin.errors import Trimmed
from tocsin.ports import Entry

SUBSCRIBED = msgspec.structs.replace(SESSION, subscriptions={"a": Subscription(qos=2)})


def entry(position: int, critical: bool = False) -> Entry:
    return Entry(position, "t.c.a" if critical else "t.m.a", b"", str(position), 0)


def read(*positions: int, to: int, tail: int, critical: bool = False, qos: int = 1) -> BatchRead:
    matched = [MatchedEntry(entry(each, critical), qos) for each in positions]
    return BatchRead(entries=matched, next=to, tail=tail, critical=critical)


def sent(effects: Sequence[Effect]) -> list[int]:
    return [each.entry.position for each in of(effects, Deliver)]


def hand_in(attended: Attended, position: int, critical: bool = False, qos: int = 1) -> int:
    return attended.machine.hand_in(position, qos, critical)[0]


# ── overtaking ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("session", [SUBSCRIBED, None])
def test_a_client_that_acknowledges_nothing_still_gets_what_is_critical(
    session: StoredSession | None,
) -> None:
    attended = Attended(session, receive_max=8)
    attended.subscribe("a")
    got = [hand_in(attended, position) for position in range(1, 10)]
    assert [bool(each) for each in got] == [True] * 6 + [False] * 3, "two places are spared"
    assert hand_in(attended, 10, critical=True) == CRITICAL_MESSAGES.of(10)
    assert hand_in(attended, 11, critical=True)
    assert not hand_in(attended, 12, critical=True), "the window is full"


@pytest.mark.parametrize(
    ("receive_max", "left"), [(1, 0), (3, 0), (4, 1), (20, 5), (1_000, SPARED_MAX), (65_535, SPARED_MAX)]
)
def test_a_quarter_of_the_window_is_spared_up_to_a_bound(receive_max: int, left: int) -> None:
    assert spared(receive_max) == left


def test_the_others_wait_while_the_client_is_behind_with_critical_ones() -> None:
    attended = Attended(SUBSCRIBED, receive_max=1)
    first = hand_in(attended, 1)
    assert not hand_in(attended, 2, critical=True)
    assert not hand_in(attended, 3)
    asked = one(attended.answer(PubAckPacket(first)), ReadBatch)
    assert (asked.critical, asked.start) == (True, 2), "critical ones first, and only them"
    effects = attended.tell(read(2, to=4, tail=2, critical=True))
    assert sent(effects) == [2]
    assert not of(effects, ReadBatch), "the window is full"
    asked = one(attended.answer(PubAckPacket(CRITICAL_MESSAGES.of(2))), ReadBatch)
    assert (asked.critical, asked.start) == (False, 3)
    assert sent(attended.tell(read(3, to=4, tail=3))) == [3]


def test_what_is_not_of_the_tracks_waits_for_the_window_only() -> None:
    """Retained messages and those of groups: nobody would tell them that the client has caught up."""
    attended = Attended(SUBSCRIBED, tail=9, critical_tail=9)
    claims = attended.machine.claims
    assert claims is not None and not claims.room
    assert attended.machine.room and claims.reserve() > 0 and attended.machine.extra(1) > 0


def test_who_was_away_gets_critical_ones_first_and_then_the_rest() -> None:
    attended = Attended(SUBSCRIBED, tail=9, critical_tail=9)
    asked = one(attended.first, ReadBatch)
    assert (asked.critical, asked.start) == (True, 1)
    effects = attended.tell(read(5, 9, to=10, tail=9, critical=True))
    assert sent(effects) == [5, 9]
    asked = one(effects, ReadBatch)
    assert (asked.critical, asked.start) == (False, 1)
    assert sent(attended.tell(read(1, 2, 3, to=10, tail=9))) == [1, 2, 3]
    assert hand_in(attended, 10) and hand_in(attended, 11, critical=True), "it has caught up with both"


def test_where_nothing_is_critical_the_log_is_read_once() -> None:
    attended = Attended(SUBSCRIBED, tail=9)
    assert not one(attended.first, ReadBatch).critical
    effects = attended.tell(read(1, 2, to=10, tail=9))
    assert sent(effects) == [1, 2] and not of(effects, ReadBatch)
    assert attended.machine.messages.critical is None


def test_who_is_beyond_all_critical_ones_has_none_read() -> None:
    session = msgspec.structs.replace(SUBSCRIBED, progress=Progress(6), critical_messages=Progress(6))
    assert not one(Attended(session, tail=9, critical_tail=5).first, ReadBatch).critical
    assert one(Attended(session, tail=9, critical_tail=6).first, ReadBatch).critical


def test_nothing_is_read_beyond_what_was_dispatched_lest_something_critical_is_overtaken() -> None:
    attended = Attended(SUBSCRIBED, tail=3)
    assert sent(attended.tell(read(1, 2, 3, 5, to=6, tail=3))) == [1, 2, 3]
    assert hand_in(attended, 4, critical=True), "that is older than the last one"
    assert hand_in(attended, 5)


def test_critical_ones_are_not_kept_waiting_by_a_busy_log() -> None:
    """They have caught up when there are no more of them, however many others were dispatched meanwhile."""
    attended = Attended(SUBSCRIBED, tail=9, critical_tail=9)
    effects = attended.tell(read(5, to=10, tail=9, critical=True))
    assert not one(effects, ReadBatch).critical
    attended.machine.passed(50)
    assert hand_in(attended, 51, critical=True)


# ── the session ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_without_a_critical_position_begins_where_the_others_are() -> None:
    """It was stored before there was one, or before anything critical came: the oldest that may not be settled."""
    session = msgspec.structs.replace(SUBSCRIBED, progress=Progress(8, (3,)))
    old = msgspec.msgpack.decode(encode_session(session)[1:])  # behind the version
    del old["critical_messages"]
    stored = decode_session(msgspec.msgpack.encode(old))
    asked = one(Attended(stored, tail=9, critical_tail=9).first, ReadBatch)
    assert (asked.critical, asked.start) == (True, 3)


def test_a_client_ahead_of_its_broker_gets_no_older_critical_message() -> None:
    """The broker is late with the log; the one that the client was at had dispatched more of it."""
    stored = msgspec.structs.replace(SUBSCRIBED, progress=Progress(9))
    attended = Attended(stored, tail=2)
    assert not hand_in(attended, 6, critical=True)
    assert attended.machine.messages.critical is None
    assert hand_in(attended, 9, critical=True)


def test_at_a_broker_that_is_behind_the_session_nothing_begins_before_it() -> None:
    """The broker that had it before was further: what is critical up to there was not for this client."""
    attended = Attended(msgspec.structs.replace(SUBSCRIBED, progress=Progress(8)), tail=5)
    assert not hand_in(attended, 6, critical=True) and not hand_in(attended, 7)
    assert attended.machine.messages.critical is None
    assert hand_in(attended, 8, critical=True) and hand_in(attended, 9)


def test_without_a_critical_message_the_session_has_no_critical_position() -> None:
    attended = Attended(SUBSCRIBED)
    hand_in(attended, 1)
    assert session_of(attended.tell(Ended(expiry_s=60))).critical_messages is None


def test_both_positions_are_stored_and_gone_on_from() -> None:
    attended = Attended(SUBSCRIBED, receive_max=8)
    first, second = hand_in(attended, 1), hand_in(attended, 2, critical=True)
    hand_in(attended, 3, critical=True)
    attended.answer(PubAckPacket(second))
    session = session_of(attended.tell(Ended(expiry_s=60)))
    assert (session.progress, session.critical_messages) == (Progress(2, (1,)), Progress(4, (3,)))
    again = Attended(session, tail=3, critical_tail=3)
    asked = one(again.first, ReadBatch)
    assert (asked.critical, asked.start) == (True, 3)
    effects = again.tell(read(3, to=4, tail=3, critical=True))
    assert [(each.packet_id, each.repeat) for each in of(effects, Deliver)] == [
        (CRITICAL_MESSAGES.of(3), True)
    ]
    assert first == MESSAGES.of(1)
    effects = again.tell(read(1, to=4, tail=3))
    assert [(each.packet_id, each.repeat) for each in of(effects, Deliver)] == [(first, True)]


def test_a_critical_qos_2_message_is_released_when_its_receipt_is_stored() -> None:
    attended = Attended(SUBSCRIBED)
    identifier = hand_in(attended, 1, critical=True, qos=2)
    effects = attended.answer(PubRecPacket(identifier))
    assert not of(effects, Reply)
    session = session_of(effects)
    assert session.critical_messages == Progress(2, (), (identifier,))
    assert one(attended.stored(), Reply).packet.packet_id == identifier
    again = Attended(session, tail=1, critical_tail=1)
    assert one(again.first, Reply).packet.packet_id == identifier, "also on the next connection"
    again.answer(PubCompPacket(identifier))
    assert again.machine.messages.critical is not None
    assert again.machine.messages.critical.delivery.progress().releasing == ()


def test_the_first_critical_message_may_come_while_the_session_is_being_stored() -> None:
    attended = Attended(SUBSCRIBED)
    first = hand_in(attended, 1, qos=2)
    assert session_of(attended.answer(PubRecPacket(first))).critical_messages is None
    second = hand_in(attended, 2, critical=True, qos=2)
    attended.answer(PubRecPacket(second))
    effects = attended.stored()
    assert one(effects, Reply).packet.packet_id == first
    assert session_of(effects).critical_messages == Progress(3, (), (second,))
    assert one(attended.stored(9), Reply).packet.packet_id == second


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failed_critical_read_is_retried_and_other_messages_wait() -> None:
    attended = Attended(SUBSCRIBED, tail=9, critical_tail=9)
    effects = attended.tell(ReadFailed(error=UNAVAILABLE, critical=True))
    assert one(effects, SetTimer).name == DeliveryTimer.READ_AGAIN and not of(effects, ReadBatch)
    assert one(attended.fire(DeliveryTimer.READ_AGAIN), ReadBatch).critical


def test_what_was_trimmed_is_passed_over_in_both() -> None:
    attended = Attended(SUBSCRIBED, tail=9, critical_tail=9)
    asked = one(attended.tell(ReadFailed(error=Trimmed("m", 1, 5), critical=True)), ReadBatch)
    assert (asked.critical, asked.start) == (True, 5)


def test_a_subscription_that_is_made_during_a_read_loses_no_critical_message() -> None:
    attended = Attended(SUBSCRIBED, tail=9, critical_tail=9)
    attended.tell(Subscribed(topic_filter="b", subscription=Subscription(qos=1, since=9)))
    asked = one(attended.tell(read(4, to=12, tail=9, critical=True)), ReadBatch)
    assert (asked.critical, asked.start) == (False, 1), "it is level with the critical ones up to 9"
    assert hand_in(attended, 10, critical=True), "which the read did not look for"


def test_an_answer_of_an_unknown_critical_message_is_nobodys() -> None:
    attended = Attended(SUBSCRIBED)
    hand_in(attended, 1)
    attended.answer(PubAckPacket(CRITICAL_MESSAGES.of(1)))
    assert attended.machine.messages.delivery is not None
    assert attended.machine.messages.delivery.under_way == 1


# ── against a log, a store and a client that fail ───────────────────────────────────────────────────────────


class Life:
    """A log of (critical, QoS), a broker that follows it, one client with a memory of its packet ids, and its cell.

    What the client is to get is what the log has. Everything that is promised is checked when the client takes it.
    """

    def __init__(self, receive_max: int) -> None:
        self.receive_max = receive_max
        self.log: dict[int, tuple[bool, int]] = {}
        self.tail = self.critical_tail = 0  # dispatched
        self.cell, self.revision = SUBSCRIBED, 7
        self.took: dict[bool, list[int]] = {True: [], False: []}
        self.held: set[int] = set()  # QoS 2 ids that the client has taken, and not released
        self.connect()

    def connect(self) -> None:
        self.reads: dict[bool, ReadBatch] = {}
        self.put: PutKey | None = None
        self.unanswered: dict[int, int] = {}  # packet id → QoS
        self.to_complete: list[int] = []
        self.began_at = self.tail
        self.attended = Attended(
            self.cell,
            receive_max=self.receive_max,
            tail=self.tail,
            critical_tail=self.critical_tail,
            revision=self.revision,
        )
        self.take(self.attended.first)

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case ReadBatch(critical=critical):
                    assert critical not in self.reads, "one read of each at a time"
                    self.reads[critical] = effect
                case PutKey():
                    assert self.put is None
                    self.put = effect
                case Reply(packet=packet):
                    self.held.discard(packet.packet_id)
                    self.to_complete.append(packet.packet_id)
                case Deliver():
                    self.receive(effect.entry.position, effect.packet_id, effect.qos)

    def receive(self, position: int, packet_id: int, qos: int) -> None:
        critical, published = self.log[position]
        assert qos == published
        assert packet_id in (CRITICAL_MESSAGES if critical else MESSAGES)
        assert packet_id not in self.unanswered and packet_id not in self.to_complete
        self.unanswered[packet_id] = qos
        assert len(self.unanswered) + len(self.to_complete) <= self.receive_max
        if not critical:
            before = max(self.began_at, position)
            older = [each for each, (alarm, _) in self.log.items() if alarm and each <= before]
            assert {*older} <= {*self.took[True]}, "critical ones overtake"
        if qos == 2 and packet_id in self.held:
            return  # a repeat, and known as one
        if position in self.took[critical]:
            assert qos == 1, "at QoS 2 once"
            return
        assert not self.took[critical] or position > max(self.took[critical]), "in order, in each class"
        self.took[critical].append(position)
        if qos == 2:
            self.held.add(packet_id)

    def happen(self, what: str, detail: int) -> None:
        match what:
            case "publish" | "alarm":
                self.log[len(self.log) + 1] = (what == "alarm", 1 + detail % 2)
            case "dispatch" if self.tail < len(self.log):
                self.dispatch()
            case "read":
                critical = detail % 2 == 0
                if critical in self.reads:
                    self.read(self.reads.pop(critical), failing=detail % 5 == 4)
            case "again":
                self.take(self.attended.fire(DeliveryTimer.READ_AGAIN))
            case "answer" if self.unanswered:
                packet_id = [*self.unanswered][detail % len(self.unanswered)]
                qos = self.unanswered.pop(packet_id)
                self.take(
                    self.attended.answer(PubAckPacket(packet_id) if qos == 1 else PubRecPacket(packet_id))
                )
            case "complete" if self.to_complete:
                packet_id = self.to_complete.pop(detail % len(self.to_complete))
                self.take(self.attended.answer(PubCompPacket(packet_id)))
            case "save":
                self.attended.machine.passed(self.tail)
                self.take(self.attended.fire("save soon"))
            case "store" if self.put is not None:
                self.store()
            case "crash":
                if detail % 2 and self.put is not None:  # the write took effect, and nobody heard of it
                    self.cell, self.revision = decode_session(self.put.value), self.revision + 1
                if detail % 3 == 0:  # the client comes to a broker that knows little of the log yet
                    self.critical_tail = self.tail
                self.connect()
            case "leave":
                self.attended.machine.passed(self.tail)
                self.take(self.attended.tell(Ended(expiry_s=60)))
                while self.put is not None:
                    self.store()
                self.connect()

    @property
    def at_rest(self) -> bool:
        busy = self.unanswered or self.to_complete or self.reads or self.put is not None
        return self.tail == len(self.log) and not busy and self.attended.machine.level

    def dispatch(self) -> None:
        self.tail += 1
        critical, qos = self.log[self.tail]
        if critical:
            self.critical_tail = self.tail
        packet_id, _ = self.attended.machine.hand_in(self.tail, qos, critical)
        if packet_id:
            self.receive(self.tail, packet_id, qos)

    def read(self, asked: ReadBatch, *, failing: bool) -> None:
        if failing:
            self.take(self.attended.tell(ReadFailed(error=UNAVAILABLE, critical=asked.critical)))
            return
        matching = [each for each, (alarm, _) in self.log.items() if alarm is asked.critical]
        page = [each for each in matching if each >= asked.start][:3]
        end = page[-1] + 1 if len(page) == 3 else max(asked.start, len(self.log) + 1)
        matched = [MatchedEntry(entry(each, asked.critical), self.log[each][1]) for each in page]
        tail = self.critical_tail if asked.critical else self.tail
        event = BatchRead(entries=matched, next=end, tail=tail, critical=asked.critical)
        self.take(self.attended.tell(event))

    def store(self) -> None:
        assert self.put is not None
        self.cell, self.revision, put = decode_session(self.put.value), self.revision + 1, self.put
        self.put = None
        self.take(self.attended.tell(Stored(request=put.request, value=self.revision)))


OFTEN = ("publish", "alarm", "dispatch", "dispatch", "read", "read", "answer", "answer", "complete", "store")
SOMETIMES = ("again", "save", "crash", "leave")
happenings = st.tuples(st.sampled_from((*OFTEN, *OFTEN, *SOMETIMES)), st.integers(0, 11))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 9), st.lists(happenings, min_size=50, max_size=120))
def test_both_arrive_in_order_and_in_full_and_critical_ones_first(
    receive_max: int, story: list[tuple[str, int]]
) -> None:
    life = Life(receive_max)
    for what, detail in story:
        life.happen(what, detail)
    for _ in range(8 * len(life.log) + 20):
        for what in ("dispatch", "read", "again", "answer", "complete", "save", "store"):
            life.happen(what, 0)
        life.happen("read", 1)
        if life.at_rest:
            break
    for critical in (True, False):
        assert life.took[critical] == [each for each, (alarm, _) in life.log.items() if alarm is critical]
    life.happen("leave", 0)
    for progress in (life.cell.progress, life.cell.critical_messages or Progress(1)):
        assert progress.unsettled == progress.releasing == ()
