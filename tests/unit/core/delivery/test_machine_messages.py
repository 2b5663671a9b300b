"""Messages of one client and to it, as far as they must survive its connection."""

from __future__ import annotations

import msgspec
from mqtt5 import (
    PubAckPacket,
    PubRecPacket,
)

from tests.unit.core.delivery.attended import (
    SESSION,
    SUBSCRIPTION,
    UNAVAILABLE,
    Attended,
    batch,
    of,
    one,
    session_of,
)
from tocsin.core.delivery.signals import (
    AwaitSave,
    Deliver,
    DeliveryTimer,
    Durable,
    Kept,
    ReadBatch,
    ReadFailed,
    ReleaseAsked,
    Reply,
    Subscribed,
    Unsubscribed,
    Writable,
)
from tocsin.core.delivery.window import Progress, packet_id
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import (
    PutKey,
    Say,
    SetTimer,
)
from tocsin.errors import Trimmed

# ── messages of the client ──────────────────────────────────────────────────────────────────────────────────


def test_a_qos_2_record_id_is_stored_and_survives_a_reconnect() -> None:
    some = Attended()
    assert some.machine.record_ids.give(5, 1, "t", 7) == "p.1"
    record_id = some.machine.record_ids.give(5, 2, "t", 7)
    assert some.machine.record_ids.give(5, 2, "t", 7) == record_id
    session = session_of(some.tell(AwaitSave(ticket=1)))
    assert session.inbound == {5: record_id}
    again = Attended(session)
    assert again.machine.inbound_ids == (), "it is not known to be in the log"
    assert again.machine.record_ids.give(5, 2, "t", 7) == record_id


def test_a_logged_message_is_recognised_after_a_reconnect_until_its_release() -> None:
    some = Attended()
    some.machine.record_ids.give(5, 2, "t", 7)
    assert one(some.tell(Kept(packet_id=5)), SetTimer).name == DeliveryTimer.SAVE_SOON
    session = session_of(some.fire(DeliveryTimer.SAVE_SOON))
    again = Attended(session)
    assert again.machine.inbound_ids == (5,)
    put = again.tell(ReleaseAsked(packet_id=5, ticket=1))
    assert session_of(put).inbound == {}
    assert session_of(put).received == ()
    assert one(again.stored(), Durable).tickets == (1,)


def test_a_refused_message_leaves_its_packet_id_free() -> None:
    some = Attended()
    first = some.machine.record_ids.give(5, 2, "t", 7)
    some.tell(ReleaseAsked(packet_id=5, ticket=1))
    assert some.tell(Kept(packet_id=5)) == []
    assert some.machine.record_ids.give(5, 2, "t", 7) != first


# ── messages to the client ──────────────────────────────────────────────────────────────────────────────────


def test_pubrel_waits_for_the_write_that_has_the_pubrec() -> None:
    some = Attended()
    some.subscribe()
    identifier, _ = some.machine.hand_in(1, 2)
    effects = some.answer(PubRecPacket(identifier))
    assert not of(effects, Reply)
    assert session_of(effects).progress.releasing == (identifier,)
    assert not of(some.answer(PubRecPacket(identifier)), Reply), "nor is it hastened"
    assert one(some.stored(), Reply).packet.packet_id == identifier
    assert one(some.answer(PubRecPacket(identifier)), Reply), "repeated at once now"


def test_a_pubrec_during_a_write_waits_for_the_next_one() -> None:
    some = Attended()
    some.subscribe()
    first, second = some.machine.hand_in(1, 2)[0], some.machine.hand_in(2, 2)[0]
    some.answer(PubRecPacket(first))
    assert not of(some.answer(PubRecPacket(second)), PutKey)
    effects = some.stored()
    assert one(effects, Reply).packet.packet_id == first
    assert session_of(effects).progress.releasing == (first, second)
    assert one(some.stored(9), Reply).packet.packet_id == second


def test_a_full_window_is_read_for_when_there_is_room_again() -> None:
    some = Attended(receive_max=1)
    some.subscribe()
    identifier, _ = some.machine.hand_in(1, 1)
    assert some.machine.hand_in(2, 1) == (0, False)
    assert some.machine.hand_in(3, 1) == (0, False)
    assert one(some.answer(PubAckPacket(identifier)), ReadBatch).start == 2
    effects = some.tell(batch(2, 3, to=4, tail=3))
    assert [each.entry.position for each in of(effects, Deliver)] == [2]
    assert not of(effects, ReadBatch), "the window is full"


def test_a_batch_to_the_tail_ends_the_catching_up() -> None:
    some = Attended(msgspec.structs.replace(SESSION, subscriptions={"a": SUBSCRIPTION}), tail=3)
    assert one(some.first, ReadBatch).start == 1
    effects = some.tell(batch(1, to=2, tail=3))
    assert one(effects, ReadBatch).start == 2
    effects = some.tell(batch(3, to=4, tail=3))
    assert not of(effects, ReadBatch)
    assert some.machine.hand_in(3, 1) == (0, False), "it came with the batch"
    assert some.machine.hand_in(4, 1) == (packet_id(4), False)


def test_a_subscription_made_during_a_read_gets_what_the_read_skipped() -> None:
    some = Attended(msgspec.structs.replace(SESSION, subscriptions={"a": SUBSCRIPTION}), tail=3)
    some.subscribe("b", since=3)
    effects = some.tell(batch(2, 5, to=9, tail=4))
    assert [each.entry.position for each in of(effects, Deliver)] == [2]
    assert one(effects, ReadBatch) == ReadBatch(filters=("a", "b"), start=4)


def test_a_client_that_subscribes_again_loses_nothing_of_what_it_missed() -> None:
    some = Attended(
        msgspec.structs.replace(SESSION, subscriptions={"a": Subscription(qos=1, since=2)}), tail=9
    )
    some.subscribe("a", since=9)
    assert some.machine.subscriptions["a"] == Subscription(qos=2, since=2)
    some.tell(Subscribed(topic_filter="b", subscription=Subscription(qos=0, since=3)))
    some.subscribe("b", since=9)
    assert some.machine.subscriptions["b"].since == 9, "what was sent at QoS 0 is not sent again"


def test_a_congested_connection_takes_nothing_until_it_is_writable() -> None:
    some = Attended()
    some.subscribe()
    some.machine.congested = True
    assert some.machine.hand_in(1, 1) == (0, False)
    some.machine.congested = False
    assert one(some.tell(Writable()), ReadBatch).start == 1
    some.machine.congested = True
    assert not of(some.tell(batch(1, to=2, tail=1)), Deliver)
    some.machine.congested = False
    assert one(some.tell(Writable()), ReadBatch).start == 1
    assert [each.entry.position for each in of(some.tell(batch(1, to=2, tail=1)), Deliver)] == [1]


def test_a_failed_read_is_retried_and_a_late_one_starts_oldest() -> None:
    some = Attended(msgspec.structs.replace(SESSION, subscriptions={"a": SUBSCRIPTION}), tail=30)
    assert one(some.tell(ReadFailed(error=UNAVAILABLE)), SetTimer).name == DeliveryTimer.READ_AGAIN
    assert one(some.fire(DeliveryTimer.READ_AGAIN), ReadBatch).start == 1
    effects = some.tell(ReadFailed(error=Trimmed("messages", 1, 20)))
    assert one(effects, Say).level == "warning"
    assert one(effects, ReadBatch).start == 20


def test_an_unsubscribed_client_that_is_behind_reads_no_more() -> None:
    some = Attended(msgspec.structs.replace(SESSION, subscriptions={"a": SUBSCRIPTION}), tail=30)
    some.tell(Unsubscribed(topic_filter="a"))
    assert not of(some.tell(batch(to=5, tail=30)), ReadBatch)


def test_what_was_dispatched_and_did_not_match_is_not_read_again() -> None:
    some = Attended()
    some.subscribe()
    some.machine.passed(50)
    assert session_of(some.tell(AwaitSave(ticket=1))).progress == Progress(51)


def test_a_retained_messages_packet_id_differs_from_all_of_the_log() -> None:
    some = Attended()
    some.subscribe()
    identifier = some.machine.extra(2)
    assert identifier not in {packet_id(each) for each in range(70_000)}
    session = session_of(some.tell(AwaitSave(ticket=1)))
    assert session.progress.releasing == (identifier,), "the client may have it"
