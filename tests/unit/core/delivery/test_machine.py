"""What a broker does for one client: how it begins, what is stored and when, how it ends."""

from __future__ import annotations

import msgspec
import pytest
from mqtt5 import (
    PubAckPacket,
    PubCompPacket,
    PubRecPacket,
    PubRecReasonCode,
    PubRelReasonCode,
)

from tests.unit.core.delivery.attended import (
    CONFLICT,
    OF_THE_CLIENT,
    OF_THE_LOG,
    OF_THE_STORE,
    SESSION,
    SUBSCRIPTION,
    UNAVAILABLE,
    UNKNOWN,
    Attended,
    of,
    one,
    session_of,
)
from tocsin.core.delivery.machine import LAST_TRIES, ClientDelivery
from tocsin.core.delivery.session_cell import (
    CHECK,
    FORGET,
    OLD_BYTES_US,
    SAVE,
    SAVE_AFTER_US,
    SESSIONS,
)
from tocsin.core.delivery.signals import (
    AwaitSave,
    BatchRead,
    DeliveryTimer,
    Durable,
    Ended,
    Gone,
    Kept,
    Overfull,
    ReadBatch,
    ReadFailed,
    ReleaseAsked,
    Reply,
    Subscribed,
    Unsubscribed,
    Usurped,
    Writable,
)
from tocsin.core.delivery.stored_session import SERVED_S, decode_session, encode_session, session_key
from tocsin.core.delivery.window import WAIT, Progress, packet_id
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import (
    DeleteKey,
    GetKey,
    IllegalEvent,
    PutKey,
    Say,
    SetTimer,
    Stored,
    TimerFired,
)
from tocsin.errors import Conflict, StoreFull, StoreUnavailable
from tocsin.ports import Cell

RELEASED = Cell("k", encode_session(msgspec.structs.replace(SESSION, broker="")), 8)
THEIRS = Cell("k", encode_session(msgspec.structs.replace(SESSION, epoch=2, broker="there")), 8)

# ── clients without a stored session ────────────────────────────────────────────────────────────────────────


def test_nothing_of_a_client_without_a_stored_session_is_written() -> None:
    some = Attended(None)
    assert some.first == []
    assert some.subscribe() == []
    assert some.tell(AwaitSave(ticket=4)) == [Durable(tickets=(4,))]
    some.machine.record_ids.give(5, 2, "t", 7)
    assert some.tell(Kept(packet_id=5)) == []
    assert some.tell(ReleaseAsked(packet_id=5, ticket=6)) == [Durable(tickets=(6,))]
    identifier, repeat = some.machine.hand_in(1, 2)
    assert (identifier, repeat) == (packet_id(1), False)
    assert one(some.answer(PubRecPacket(identifier)), Reply).packet.packet_id == identifier
    assert some.answer(PubCompPacket(identifier)) == []
    assert some.tell(Ended(expiry_s=0)) == [Gone()]


def test_nothing_is_delivered_from_the_log_before_a_subscription_above_qos_0() -> None:
    some = Attended(None)
    some.tell(Subscribed(topic_filter="a", subscription=Subscription(qos=0)))
    assert some.machine.hand_in(1, 1) == (0, False)
    assert some.machine.extra(1) == WAIT
    assert some.answer(PubAckPacket(3)) == []
    assert some.answer(PubCompPacket(3)) == []


def test_an_unknown_pubrec_is_answered_with_not_found_unless_it_refuses() -> None:
    some = Attended(None)
    reply = one(some.answer(PubRecPacket(3)), Reply).packet
    assert reply.reason_code == PubRelReasonCode.PACKET_ID_NOT_FOUND
    assert some.answer(PubRecPacket(3, reason_code=PubRecReasonCode.QUOTA_EXCEEDED)) == []


# ── beginning ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_resumed_client_gets_pending_releases_and_missed_messages() -> None:
    session = msgspec.structs.replace(
        SESSION, subscriptions={"a": SUBSCRIPTION}, progress=Progress(5, (3,), (9, 10))
    )
    some = Attended(session, tail=20)
    assert [each.packet.packet_id for each in of(some.first, Reply)] == [9, 10]
    assert one(some.first, ReadBatch) == ReadBatch(filters=("a",), start=3)
    assert not of(some.first, SetTimer), "a session for ever is not refreshed"


def test_a_client_that_has_missed_nothing_reads_nothing() -> None:
    some = Attended(
        msgspec.structs.replace(SESSION, subscriptions={"a": SUBSCRIPTION}, progress=Progress(21)), tail=20
    )
    assert some.first == []
    assert some.machine.hand_in(20, 1) == (0, False), "that it has"
    assert some.machine.hand_in(21, 1) == (packet_id(21), False)


def test_a_client_without_subscriptions_reads_nothing_until_it_subscribes() -> None:
    some = Attended(tail=20)
    assert some.first == []
    some.subscribe(since=20)
    assert some.machine.hand_in(21, 1) == (packet_id(21), False)


def test_a_new_session_is_confirmed_though_its_client_changes_nothing() -> None:
    some = Attended(msgspec.structs.replace(SESSION, confirmed=False))
    first = one(some.first, SetTimer)
    silent = one(some.fire(DeliveryTimer.CONFIRM), SetTimer)
    assert first.name == silent.name == DeliveryTimer.CONFIRM
    assert silent.delay_us == 2 * first.delay_us, "it was not heard: later again"
    some.machine.heard_us = 1
    assert session_of(some.fire(DeliveryTimer.CONFIRM)).confirmed, "it has pinged"
    some.stored()
    assert some.fire(DeliveryTimer.CONFIRM) == []


def test_a_session_that_expires_is_refreshed_in_time() -> None:
    some = Attended(msgspec.structs.replace(SESSION, expiry_s=60))
    timer = one(some.first, SetTimer)
    assert timer.name == DeliveryTimer.REFRESH
    kept_us = (60 + SERVED_S) * 1_000_000
    assert timer.delay_us == 60_000_000
    again = some.fire(DeliveryTimer.REFRESH)
    assert one(again, SetTimer) == timer
    assert one(again, PutKey).ttl_us == kept_us


# ── storing ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiter_is_told_after_the_write_that_contains_its_change() -> None:
    some = Attended()
    some.subscribe("a")
    put = one(some.tell(AwaitSave(ticket=1)), PutKey)
    assert (put.request, put.table, put.key, put.revision) == (SAVE, SESSIONS, session_key("me"), 7)
    assert put.ttl_us is None
    assert list(decode_session(put.value).subscriptions) == ["a"]
    some.subscribe("b")
    assert some.tell(AwaitSave(ticket=2)) == [], "one write at a time"
    effects = some.stored(8)
    assert one(effects, Durable).tickets == (1,)
    second = one(effects, PutKey)
    assert second.revision == 8
    assert list(decode_session(second.value).subscriptions) == ["a", "b"]
    assert one(some.stored(9), Durable).tickets == (2,)


def test_what_nobody_waits_for_is_written_once_within_a_second() -> None:
    some = Attended()
    assert some.subscribe("a") == [SetTimer(name=DeliveryTimer.SAVE_SOON, delay_us=SAVE_AFTER_US)]
    assert some.subscribe("b") == []
    assert list(session_of(some.fire(DeliveryTimer.SAVE_SOON)).subscriptions) == ["a", "b"]
    assert some.stored() == []
    some.tell(Unsubscribed(topic_filter="b"))
    some.subscribe("b")
    assert some.fire(DeliveryTimer.SAVE_SOON) == [], "it is as it was"


def test_a_change_made_during_a_write_is_written_next_if_due() -> None:
    some = Attended()
    some.subscribe("a")
    some.tell(AwaitSave(ticket=1))
    some.subscribe("b")
    assert some.fire(DeliveryTimer.SAVE_SOON) == []
    assert list(session_of(some.stored()).subscriptions) == ["a", "b"]
    assert some.stored(9) == []


def test_a_write_that_was_refused_is_tried_again_as_it_was() -> None:
    some = Attended()
    first = one(some.tell(AwaitSave(ticket=1)), PutKey)
    effects = some.failed(UNAVAILABLE)
    assert one(effects, Say).level == "warning"
    assert one(effects, SetTimer).name == DeliveryTimer.SAVE_AGAIN
    some.subscribe("later")
    assert some.fire(DeliveryTimer.SAVE_AGAIN) == [first]
    assert one(some.stored(), Durable).tickets == (1,)


def test_a_write_without_an_answer_is_looked_for() -> None:
    some = Attended()
    put = one(some.tell(AwaitSave(ticket=1)), PutKey)
    assert one(some.failed(UNKNOWN), SetTimer).name == DeliveryTimer.SAVE_AGAIN
    assert one(some.fire(DeliveryTimer.SAVE_AGAIN), GetKey).request == CHECK
    effects = some.tell(Stored(request=CHECK, value=Cell(put.key, put.value, 8)))
    assert one(effects, Durable).tickets == (1,)
    assert one(some.tell(AwaitSave(ticket=2)), PutKey).revision == 8


def test_a_write_that_takes_effect_late_is_not_taken_for_a_rivals() -> None:
    some = Attended()
    put = one(some.tell(AwaitSave(ticket=1)), PutKey)
    some.failed(UNKNOWN)
    some.fire(DeliveryTimer.SAVE_AGAIN)
    assert some.tell(Stored(request=CHECK, value=Cell(put.key, b"before", 7))) == [put]
    assert one(some.failed(CONFLICT), GetKey).request == CHECK, "the first try came in between"
    effects = some.tell(Stored(request=CHECK, value=Cell(put.key, put.value, 8)))
    assert one(effects, Durable).tickets == (1,)


def test_a_check_that_fails_is_tried_again() -> None:
    some = Attended()
    some.tell(AwaitSave(ticket=1))
    some.failed(UNKNOWN)
    some.fire(DeliveryTimer.SAVE_AGAIN)
    assert one(some.failed(UNAVAILABLE, CHECK), SetTimer).name == DeliveryTimer.SAVE_AGAIN
    assert one(some.fire(DeliveryTimer.SAVE_AGAIN), GetKey).request == CHECK


def without_a_cell() -> tuple[Attended, PutKey]:
    """Attended, and the write that found none."""
    some = Attended(msgspec.structs.replace(SESSION, expiry_s=5))
    put = one(some.tell(AwaitSave(ticket=1)), PutKey)
    some.failed(UNKNOWN)
    some.fire(DeliveryTimer.SAVE_AGAIN)
    assert one(some.tell(Stored(request=CHECK, value=None)), SetTimer).name == DeliveryTimer.SAVE_AGAIN
    return some, put


def test_a_cell_that_has_expired_under_a_connected_client_is_written_anew() -> None:
    some, put = without_a_cell()
    assert of(some.fire(DeliveryTimer.SAVE_AGAIN), PutKey) == [], "it was not heard since"
    some.machine.heard_us = OLD_BYTES_US + 1
    anew = one(some.fire(DeliveryTimer.SAVE_AGAIN), PutKey)
    assert (anew.value, anew.revision) == (put.value, 0)
    assert one(some.stored(9), Durable).tickets == (1,)


def test_a_client_that_ends_unheard_does_not_get_its_cell_back() -> None:
    some, _ = without_a_cell()
    assert some.tell(Ended(expiry_s=5)) == [Gone()]


@pytest.mark.parametrize("unsure", [False, True])
def test_a_client_that_has_ended_cannot_be_heard_any_more(unsure: bool) -> None:
    some = Attended(msgspec.structs.replace(SESSION, expiry_s=5))
    some.tell(AwaitSave(ticket=1))
    if unsure:
        some.failed(UNKNOWN)
    assert some.tell(Ended(expiry_s=5)) == []
    if unsure:
        some.fire(DeliveryTimer.SAVE_AGAIN)
        assert some.tell(Stored(request=CHECK, value=None)) == [Gone()]
    else:
        assert some.failed(Conflict("put", 7, 0)) == [Gone()]


def test_a_client_that_says_goodbye_does() -> None:
    some, _ = without_a_cell()
    some.machine.heard_us = OLD_BYTES_US + 1
    assert one(some.tell(Ended(expiry_s=5)), PutKey).revision == 0
    last = one(some.stored(9), PutKey)
    assert (decode_session(last.value).broker, last.revision, last.ttl_us) == ("", 9, 5_000_000)
    assert some.stored(10) == [Gone()]


def test_a_cell_that_is_anothers_ends_everything() -> None:
    some = Attended()
    some.tell(AwaitSave(ticket=1))
    some.failed(UNKNOWN)
    some.fire(DeliveryTimer.SAVE_AGAIN)
    assert some.tell(Stored(request=CHECK, value=Cell("k", b"a rival's", 9))) == [Usurped()]
    for event in (*OF_THE_CLIENT, *OF_THE_LOG, *OF_THE_STORE):
        assert some.tell(event) == [], "nothing is promised any more"
    assert some.tell(Ended(expiry_s=60)) == [Gone()]


def test_a_client_is_lost_if_another_broker_has_its_cell() -> None:
    some = Attended()
    some.tell(AwaitSave(ticket=1))
    assert one(some.failed(CONFLICT), GetKey).fresh
    assert some.tell(Stored(request=CHECK, value=THEIRS)) == [Usurped()]
    assert some.machine.state == "lost"


def test_a_client_is_not_lost_if_its_session_was_only_released() -> None:
    some = Attended()
    some.tell(AwaitSave(ticket=1))
    some.failed(CONFLICT)
    assert one(some.tell(Stored(request=CHECK, value=RELEASED)), PutKey).revision == 8
    assert of(some.stored(9), Durable) == [Durable(tickets=(1,))]


def test_answers_to_nothing_change_nothing() -> None:
    some = Attended()
    assert some.stored() == []
    assert some.failed(CONFLICT) == []
    assert some.fire(DeliveryTimer.SAVE_AGAIN) == []
    assert some.fire("no such timer") == []
    assert some.tell(BatchRead(entries=(), next=2, tail=1)) == []
    assert some.tell(ReadFailed(error=UNAVAILABLE)) == []


# ── ending ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_write_leaves_the_session_as_nobodys() -> None:
    some = Attended()
    some.subscribe()
    put = one(some.tell(Ended(expiry_s=60)), PutKey)
    left = decode_session(put.value)
    assert (left.broker, left.expiry_s, list(left.subscriptions)) == ("", 60, ["a"])
    assert put.ttl_us == 60_000_000
    assert some.stored() == [Gone()]
    assert some.machine.state == "ended"


@pytest.mark.parametrize("settled", [True, False])
def test_that_a_client_went_and_no_will_is_left_is_stored(settled: bool) -> None:
    some = Attended()
    put = one(some.tell(Ended(expiry_s=60, settled=settled)), PutKey)
    stored = decode_session(put.value)
    assert stored.left == (stored.epoch if settled else 0)


def test_a_session_that_is_not_to_be_kept_is_removed() -> None:
    some = Attended()
    delete = one(some.tell(Ended(expiry_s=0)), DeleteKey)
    assert (delete.request, delete.revision) == (FORGET, 7)
    assert some.tell(Stored(request=FORGET)) == [Gone()]


def test_a_removal_that_conflicts_is_somebody_elses_affair() -> None:
    some = Attended()
    some.tell(Ended(expiry_s=0))
    some.failed(CONFLICT, FORGET)
    assert some.tell(Stored(request=CHECK, value=THEIRS)) == [Gone()]


def test_the_last_write_follows_the_current_one_and_promises_nothing_before() -> None:
    some = Attended()
    some.subscribe()
    identifier, _ = some.machine.hand_in(1, 2)
    some.answer(PubRecPacket(identifier))
    some.tell(AwaitSave(ticket=1))
    assert some.tell(Ended(expiry_s=60)) == []
    some.failed(UNAVAILABLE)
    assert one(some.fire(DeliveryTimer.SAVE_AGAIN), PutKey).revision == 7
    effects = some.stored(8)
    assert [type(each) for each in effects] == [PutKey]
    assert session_of(effects).broker == ""
    assert some.stored(9) == [Gone()]


def test_a_removal_follows_the_current_write_even_if_that_failed() -> None:
    some = Attended()
    some.tell(AwaitSave(ticket=1))
    some.tell(Ended(expiry_s=0))
    some.failed(UNAVAILABLE)
    some.fire(DeliveryTimer.SAVE_AGAIN)
    assert one(some.stored(8), DeleteKey).revision == 8
    assert one(some.failed(UNAVAILABLE, FORGET), SetTimer).name == DeliveryTimer.SAVE_AGAIN
    assert one(some.fire(DeliveryTimer.SAVE_AGAIN), DeleteKey).revision == 8
    assert some.tell(Stored(request=FORGET)) == [Gone()]


@pytest.mark.parametrize("error", [UNAVAILABLE, UNKNOWN], ids=["unavailable", "unknown"])
def test_what_cannot_be_stored_is_left_as_it_was_after_some_tries(error: StoreUnavailable) -> None:
    some = Attended()
    some.tell(Ended(expiry_s=60))
    asked = SAVE
    for _ in range(LAST_TRIES - 1):
        assert not of(some.failed(error, asked), Gone)
        (again,) = some.fire(DeliveryTimer.SAVE_AGAIN)
        assert isinstance(again, PutKey | GetKey)
        asked = again.request
    assert some.failed(error, asked) == [Gone(unstored=True)]


def test_a_client_that_another_broker_has_leaves_nothing() -> None:
    some = Attended()
    some.tell(Ended(expiry_s=60))
    some.failed(CONFLICT)
    assert some.tell(Stored(request=CHECK, value=THEIRS)) == [Gone()]


def test_whatever_comes_after_the_end_changes_nothing() -> None:
    some = Attended()
    some.tell(Ended(expiry_s=60))
    for event in (
        *OF_THE_CLIENT,
        *OF_THE_LOG,
        TimerFired(name=DeliveryTimer.REFRESH),
        TimerFired(name=DeliveryTimer.SAVE_SOON),
    ):
        assert some.tell(event) == []
    some.stored()
    for event in (*OF_THE_CLIENT, *OF_THE_LOG, *OF_THE_STORE, Ended(expiry_s=0)):
        assert some.tell(event) == []


def test_a_connection_that_was_never_accepted_leaves_nothing() -> None:
    machine = ClientDelivery()
    assert machine.handle(Writable(), 0) == []
    with pytest.raises(IllegalEvent):
        machine.handle(AwaitSave(ticket=1), 0)
    assert machine.handle(Ended(expiry_s=60), 0) == [Gone()]


def test_who_would_rather_wait_goes_on_when_the_store_is_full() -> None:
    attended = Attended()
    attended.tell(AwaitSave(ticket=5, needed=False))
    effects = attended.failed(StoreFull("put", "no room"))
    assert one(effects, Durable).tickets == (5,)
    assert of(effects, Overfull) == []
