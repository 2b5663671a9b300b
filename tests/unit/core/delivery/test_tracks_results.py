"""Results of channels beside messages in one attendance: critical ones, the others, one window, all stored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PubAckPacket, PubRecPacket

from tests.unit.core.delivery.attended import SESSION, Attended, batch, of, one, session_of
from tocsin.core.delivery.signals import (
    BatchRead,
    DeliverResult,
    DeliveryTimer,
    Ended,
    MatchedResult,
    ReadBatch,
    ReadResults,
    ResultsFailed,
    ResultsRead,
    Subscribed,
    Violated,
)
from tocsin.core.delivery.tracks import CHECKPOINT_US
from tocsin.core.delivery.window import (
    CRITICAL,
    CRITICAL_MESSAGES,
    EXTRA_IDS,
    MESSAGES,
    PACKET_IDS,
    RESULTS,
    Ids,
    Progress,
)
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, PutKey, Say, SetTimer
from tocsin.errors import StoreUnavailable, Trimmed
from tocsin.model.results import ORDINALS, result_position

NAME = "$channel/Near/alice"
TAIL = result_position(3, 0) - 1  # two notices were dispatched
FIRST = result_position(3, 0)


def subscribe(attended: Attended, name: str = NAME, since: int = TAIL, qos: int = 1) -> list[Effect]:
    return attended.tell(Subscribed(topic_filter=name, subscription=Subscription(qos=qos, since=since)))


def hand_in(attended: Attended, where: int, critical: bool = False) -> int:
    return attended.machine.results.hand_in(where, critical, attended.machine.congested)[0]


def read(*places: int, to: int, tail: int, critical: bool = False) -> ResultsRead:
    entries = [MatchedResult(each, NAME, each) for each in places]
    return ResultsRead(entries=entries, next=to, tail=tail, critical=critical)


def sent(effects: Sequence[Effect]) -> list[int]:
    return [each.result for each in of(effects, DeliverResult)]


def test_each_track_has_packet_ids_of_its_own() -> None:
    ranges = (MESSAGES, CRITICAL_MESSAGES, RESULTS, CRITICAL)
    assert Ids(1, 41_215) == MESSAGES, "sessions are stored that need these"
    for lower, upper in pairwise(ranges):
        assert upper.first == lower.first + lower.count
    assert CRITICAL.first + CRITICAL.count + EXTRA_IDS <= PACKET_IDS + 1
    for own in (RESULTS, CRITICAL):
        ids = {
            own.of(result_position(position, ordinal)) for position in range(1, 40) for ordinal in range(400)
        }
        others = {*ranges} - {own}
        assert all(identifier in own for identifier in ids)
        assert not any(identifier in other for identifier in ids for other in others)


@pytest.mark.parametrize("ids", [RESULTS, CRITICAL])
def test_the_results_of_neighbouring_notices_do_not_wait_for_each_others_ids(ids: Ids) -> None:
    """Also if each notice has a thousand of them, the most that can be under way."""
    some = [
        {ids.of(result_position(position, ordinal)) for ordinal in range(1_000)} for position in range(1, 6)
    ]
    assert len(set().union(*some)) == 5_000


def test_a_subscription_begins_where_the_results_are() -> None:
    attended = Attended()
    subscribe(attended)
    assert hand_in(attended, FIRST) == RESULTS.of(FIRST)
    assert hand_in(attended, FIRST) == 0, "it was handed in before"


def test_at_qos_0_there_is_no_track() -> None:
    attended = Attended()
    subscribe(attended, qos=0)
    assert hand_in(attended, FIRST) == 0
    assert attended.machine.results.others is attended.machine.results.critical is None


@pytest.mark.parametrize("lasting", [True, False])
def test_both_tracks_share_one_window_whichever_was_first(lasting: bool) -> None:
    for results_first in (True, False):
        attended = Attended(SESSION if lasting else None, receive_max=2)
        for each in (True, False) if results_first else (False, True):
            if each:
                subscribe(attended)
            else:
                attended.subscribe("a")
        assert hand_in(attended, FIRST)
        assert attended.machine.hand_in(1, 1)[0] == MESSAGES.of(1)
        assert not hand_in(attended, FIRST + 1), "the window is full"
        assert attended.machine.hand_in(2, 1) == (0, False)
        asked = attended.answer(PubAckPacket(MESSAGES.of(1)))
        assert len(of(asked, ReadBatch)) == len(of(asked, ReadResults)) == 1


def test_an_answer_tells_by_its_id_which_track_is_meant() -> None:
    attended = Attended(receive_max=1)
    subscribe(attended)
    identifier = hand_in(attended, FIRST)
    attended.answer(PubAckPacket(MESSAGES.of(FIRST)))
    assert not hand_in(attended, FIRST + 1)
    attended.answer(PubAckPacket(identifier))
    assert sent(attended.tell(read(FIRST + 1, to=result_position(4, 0), tail=result_position(4, 0) - 1))) == [
        FIRST + 1
    ]


def test_a_client_that_answers_a_result_with_pubrec_breaks_the_protocol() -> None:
    attended = Attended()
    subscribe(attended)
    violated = one(attended.answer(PubRecPacket(hand_in(attended, FIRST))), Violated)
    assert violated.error.reason_code == 0x82


def test_a_client_that_is_behind_reads_from_its_position_until_caught_up() -> None:
    attended = Attended(receive_max=2)
    subscribe(attended)
    first, second = hand_in(attended, FIRST), hand_in(attended, FIRST + 1)
    assert not hand_in(attended, FIRST + 2)
    asked = one(attended.answer(PubAckPacket(first)), ReadResults)
    assert (asked.names, asked.start) == ((NAME,), FIRST + 2)
    assert sent(
        attended.tell(read(FIRST + 2, FIRST + 3, to=result_position(4, 0), tail=TAIL + ORDINALS))
    ) == [FIRST + 2]
    again = one(attended.answer(PubAckPacket(second)), ReadResults)
    assert again.start == FIRST + 3
    attended.tell(read(FIRST + 3, to=result_position(4, 0), tail=result_position(4, 0) - 1))
    attended.answer(PubAckPacket(RESULTS.of(FIRST + 2)))
    assert hand_in(attended, result_position(4, 0)), "it is live again"


def test_what_is_slow_to_read_holds_up_no_messages() -> None:
    attended = Attended(receive_max=1)
    attended.subscribe("a")
    subscribe(attended)
    identifier = hand_in(attended, FIRST)
    hand_in(attended, FIRST + 1)
    asked = attended.answer(PubAckPacket(identifier))
    assert of(asked, ReadResults) and not of(asked, ReadBatch)
    assert attended.machine.hand_in(1, 1)[0]


def test_a_subscription_that_is_made_during_a_read_loses_nothing() -> None:
    attended = Attended(receive_max=1)
    subscribe(attended)
    identifier = hand_in(attended, FIRST)
    hand_in(attended, FIRST + 1)
    assert of(attended.answer(PubAckPacket(identifier)), ReadResults)
    subscribe(attended, "$channel/Near/bob", since=result_position(5, 0) - 1)
    effects = attended.tell(read(FIRST + 1, to=result_position(9, 0), tail=result_position(9, 0) - 1))
    assert sent(effects) == [FIRST + 1]
    asked = one(attended.answer(PubAckPacket(RESULTS.of(FIRST + 1))), ReadResults)
    assert asked.start == result_position(5, 0), "what was read did not know of the new one"


def test_progress_is_stored_and_what_was_not_acknowledged_is_sent_again() -> None:
    attended = Attended()
    subscribe(attended)
    first, _ = hand_in(attended, FIRST), hand_in(attended, FIRST + 1)
    attended.answer(PubAckPacket(first))
    attended.machine.results.passed(result_position(4, 0) - 1)
    stored = session_of(attended.tell(Ended(expiry_s=60)))
    assert stored.results == Progress(result_position(4, 0), (FIRST + 1,))
    back = Attended(msgspec.structs.replace(stored, broker="b"), results_tail=result_position(4, 0) - 1)
    assert one(back.first, ReadResults).start == FIRST + 1
    (again,) = of(
        back.tell(read(FIRST + 1, FIRST + 2, to=result_position(4, 0), tail=result_position(4, 0) - 1)),
        DeliverResult,
    )
    assert (again.result, again.repeat, again.packet_id) == (FIRST + 1, True, RESULTS.of(FIRST + 1))


def test_who_comes_back_level_is_live_at_once() -> None:
    session = msgspec.structs.replace(SESSION, results=Progress(1), subscriptions={NAME: Subscription(qos=1)})
    assert not of(Attended(session).first, ReadBatch)
    assert of(Attended(session).first, ReadResults) == []
    behind = msgspec.structs.replace(session, results=Progress(0))
    assert len(of(Attended(behind).first, ReadResults)) == 1


def test_the_position_of_a_quiet_client_is_stored_now_and_then() -> None:
    attended = Attended()
    later = SetTimer(name=DeliveryTimer.CHECKPOINT, delay_us=CHECKPOINT_US)
    assert later in subscribe(attended)
    attended.machine.results.passed(result_position(9, 0) - 1)
    effects = attended.fire(DeliveryTimer.CHECKPOINT)
    assert later in effects
    assert session_of(effects).results == session_of(effects).critical == Progress(result_position(9, 0))
    attended.stored()
    assert of(attended.fire(DeliveryTimer.CHECKPOINT), PutKey) == [], "nothing is new"


def test_a_failed_read_is_retried_and_trimmed_results_are_reported_lost() -> None:
    attended = Attended(receive_max=1)
    subscribe(attended)
    identifier = hand_in(attended, FIRST)
    hand_in(attended, FIRST + 1)
    attended.answer(PubAckPacket(identifier))
    failed = attended.tell(ResultsFailed(error=StoreUnavailable("read", "x")))
    assert [each.name for each in of(failed, SetTimer)] == [DeliveryTimer.READ_AGAIN]
    assert one(attended.fire(DeliveryTimer.READ_AGAIN), ReadResults).start == FIRST + 1
    lost = attended.tell(ResultsFailed(error=Trimmed("notices", FIRST + 1, result_position(7, 0))))
    assert "results were trimmed" in one(lost, Say).text
    assert one(lost, ReadResults).start == result_position(7, 0)


# ── critical ones ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_critical_result_overtakes_what_waits() -> None:
    attended = Attended(receive_max=2)
    subscribe(attended)
    first, _ = hand_in(attended, FIRST), hand_in(attended, FIRST + 1)
    assert not hand_in(attended, FIRST + 2) and not hand_in(attended, FIRST + 3, critical=True)
    asked = one(attended.answer(PubAckPacket(first)), ReadResults)
    assert (asked.critical, asked.start) == (True, FIRST + 3), "others wait until the client has it"
    effects = attended.tell(
        read(FIRST + 3, to=result_position(4, 0), tail=result_position(4, 0) - 1, critical=True)
    )
    assert sent(effects) == [FIRST + 3] and not of(effects, ReadResults), "the window is full again"
    then = one(attended.answer(PubAckPacket(CRITICAL.of(FIRST + 3))), ReadResults)
    assert (then.critical, then.start) == (False, FIRST + 2)


def test_who_comes_back_gets_critical_results_first() -> None:
    here = Progress(FIRST)
    session = msgspec.structs.replace(
        SESSION, results=here, critical=here, subscriptions={NAME: Subscription(qos=1)}
    )
    back = Attended(session, results_tail=result_position(9, 0) - 1)
    asked = one(back.first, ReadResults)
    assert asked.critical
    more = one(
        back.tell(read(FIRST + 5, to=result_position(5, 0), tail=result_position(9, 0) - 1, critical=True)),
        ReadResults,
    )
    assert (more.critical, more.start) == (True, result_position(5, 0)), "there may be more of them"
    effects = back.tell(read(to=result_position(9, 0), tail=result_position(9, 0) - 1, critical=True))
    others = one(effects, ReadResults)
    assert (others.critical, others.start) == (False, FIRST)


def test_a_part_of_the_window_is_spared_for_critical_results() -> None:
    attended = Attended(receive_max=8)
    subscribe(attended)
    attended.subscribe("a")
    assert [bool(hand_in(attended, FIRST + number)) for number in range(4)] == [True] * 4
    taken = [attended.machine.hand_in(position, 1)[0] for position in range(1, 6)]
    assert list(map(bool, taken)) == [True, True, False, False, False], "two of eight are not for messages"
    assert hand_in(attended, FIRST + 6, critical=True) == CRITICAL.of(FIRST + 6)
    assert hand_in(attended, FIRST + 7, critical=True)
    assert not hand_in(attended, FIRST + 8, critical=True), "the window is full"


def test_a_session_that_was_stored_without_critical_results_loses_none() -> None:
    """It is of a time when all were one track: the oldest that was not acknowledged is where critical ones begin."""
    session = msgspec.structs.replace(
        SESSION,
        results=Progress(FIRST + 5, (FIRST + 2,)),
        subscriptions={NAME: Subscription(qos=1)},
    )
    asked = one(Attended(session, results_tail=result_position(4, 0) - 1).first, ReadResults)
    assert (asked.critical, asked.start) == (True, FIRST + 2)


# ── all tracks, whatever happens ────────────────────────────────────────────────────────────────────────────

KINDS = {"message": MESSAGES, "result": RESULTS, "critical": CRITICAL}
WHAT = st.sampled_from([*KINDS, "acknowledge", *(f"read {kind}" for kind in KINDS), "leave", "crash"])


class All:
    """A client with all three, and the shell around it: what it gets, and that the window is never passed."""

    def __init__(self, receive_max: int) -> None:
        self.receive_max = receive_max
        self.messages, self.results = 0, TAIL  # the newest of each
        self.critical: set[int] = set()  # of the results
        self.known = TAIL  # where the results were when the connection began
        self.got: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.unanswered: list[tuple[int, str, int]] = []
        self.saved = msgspec.structs.replace(SESSION, expiry_s=60)
        self.begin()
        self.attended.subscribe("a")
        self.take(subscribe(self.attended))
        self.save()

    def begin(self) -> None:
        self.unanswered = []
        self.reads: dict[str, int] = {}
        self.known = self.results
        self.attended = Attended(
            self.saved, receive_max=self.receive_max, tail=self.messages, results_tail=self.results
        )
        self.take(self.attended.first)

    def save(self) -> None:
        machine = self.attended.machine
        assert machine._custody is not None
        self.saved = machine._current(machine._custody)

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case ReadBatch(start=start):
                    self.reads["message"] = start
                case ReadResults(start=start, critical=critical):
                    self.reads["critical" if critical else "result"] = start
                case DeliverResult(result=where, packet_id=packet_id):
                    self.receive(packet_id, "critical" if where in self.critical else "result", where)
                case _ if hasattr(effect, "entry"):
                    self.receive(effect.packet_id, "message", effect.entry.position)  # type: ignore[attr-defined]

    def receive(self, packet_id: int, kind: str, where: int) -> None:
        assert packet_id not in [each for each, _, _ in self.unanswered], (
            "an id is used for one thing at a time"
        )
        assert packet_id in KINDS[kind]
        self.unanswered.append((packet_id, kind, where))
        assert len(self.unanswered) <= self.receive_max
        if kind == "result":
            first = {each for each in self.critical if each <= self.known}
            assert first <= set(self.got["critical"]), "critical ones overtake"
        if where not in self.got[kind]:
            assert not self.got[kind] or where > max(self.got[kind]), "new ones come in order"
            self.got[kind].append(where)

    def happen(self, what: str) -> None:
        machine = self.attended.machine
        match what:
            case "message":
                self.messages += 1
                packet_id, _ = machine.hand_in(self.messages, 1)
                if packet_id:
                    self.receive(packet_id, "message", self.messages)
            case "result" | "critical":
                self.results += 1
                if what == "critical":
                    self.critical.add(self.results)
                packet_id, _ = machine.results.hand_in(self.results, what == "critical", machine.congested)
                if packet_id:
                    self.receive(packet_id, what, self.results)
            case "acknowledge" if self.unanswered:
                self.take(self.attended.answer(PubAckPacket(self.unanswered.pop(0)[0])))
            case "read message" if "message" in self.reads:
                start = self.reads.pop("message")
                self.take(self.attended.tell(batch_at_qos_1(start, self.messages)))
            case "read result" | "read critical" if (kind := what.removeprefix("read ")) in self.reads:
                start, critical = self.reads.pop(kind), kind == "critical"
                end = min(start + 3, self.results + 1)
                places = [each for each in range(start, end) if (each in self.critical) is critical]
                self.take(self.attended.tell(read(*places, to=end, tail=self.results, critical=critical)))
            case "leave":
                self.save()
                self.begin()
            case "crash":
                self.begin()


def batch_at_qos_1(start: int, newest: int) -> BatchRead:
    end = min(start + 3, newest + 1)
    read = batch(*range(start, end), to=end, tail=newest)
    entries = [msgspec.structs.replace(each, qos=1) for each in read.entries]
    return msgspec.structs.replace(read, entries=entries)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6), st.lists(WHAT, max_size=60))
def test_all_arrive_in_order_and_in_full_within_one_window(receive_max: int, happenings: list[str]) -> None:
    every = All(receive_max)
    for what in happenings:
        every.happen(what)
    for _ in range(6 * (every.messages + every.results - TAIL + 5)):
        for what in ("acknowledge", *(f"read {kind}" for kind in KINDS)):
            every.happen(what)
    assert every.got["message"] == list(range(1, every.messages + 1))
    assert every.got["critical"] == sorted(every.critical)
    assert every.got["result"] == [
        each for each in range(FIRST, every.results + 1) if each not in every.critical
    ]
