"""Deliveries from the log to a client that loses connections, beside a broker that crashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.delivery import window as module
from tocsin.core.delivery.window import (
    EXTRA_IDS,
    PACKET_IDS,
    POSITION_IDS,
    SETTLED,
    WAIT,
    DeliveryWindow,
    Ids,
    Progress,
    packet_id,
)


def delivery(position: int = 0, *, receive_max: int = 10, durable: bool = True) -> DeliveryWindow:
    made = DeliveryWindow(Progress(position + 1), receive_max=receive_max, durable=durable)
    made.live = True
    return made


def test_messages_are_sent_while_there_is_room_and_then_wait() -> None:
    some = delivery(receive_max=2)
    assert [some.hand_in(position, 1) for position in (1, 2, 3)] == [packet_id(1), packet_id(2), WAIT]
    assert (some.live, some.behind) == (False, False), "there is no room yet"
    assert some.puback(packet_id(1))
    assert (some.behind, some.next) == (True, 3)
    assert some.hand_in(3, 1) == packet_id(3)


def test_progress_names_what_was_sent_and_not_acknowledged() -> None:
    some = delivery()
    for position in (2, 5, 9):
        some.hand_in(position, 1)
    some.passed(12)
    some.puback(packet_id(5))
    assert some.progress() == Progress(13, (2, 9))
    assert some.progress().position == 1


def test_what_was_not_acknowledged_is_sent_again_and_nothing_else() -> None:
    again = DeliveryWindow(Progress(13, (2, 9)), receive_max=10, durable=True)
    assert again.next == 2
    assert [again.hand_in(position, 1) for position in (2, 5, 9, 14)] == [
        packet_id(2),
        SETTLED,
        packet_id(9),
        packet_id(14),
    ]
    assert again.is_repeat(9)
    assert not again.is_repeat(14)


def test_an_entry_to_be_sent_again_that_matches_no_more_is_settled() -> None:
    again = DeliveryWindow(Progress(13, (2, 9)), receive_max=10, durable=True)
    again.passed(20)
    assert again.progress() == Progress(21)


def test_an_entry_to_be_sent_again_that_is_passed_over_is_settled() -> None:
    """Entries are offered in order, so the client no longer subscribes to what lies before this one."""
    delivery = DeliveryWindow(Progress(6, (3, 5)), receive_max=9, durable=True)
    delivery.hand_in(6, 1)
    assert delivery.puback(packet_id(6))
    assert delivery.progress() == Progress(7)


def test_pubrel_waits_until_it_is_stored_that_the_client_has_the_message() -> None:
    some = delivery()
    identifier = some.hand_in(1, 2)
    assert (some.pubrec(identifier), some.urgent) == ((True, False), True)
    assert some.save() == Progress(2, (), (identifier,))
    assert some.pubrec(identifier) == (True, False), "a repeated PUBREC does not hasten it"
    assert not some.urgent, "it is under way"
    assert some.saved() == (identifier,)
    assert some.pubrec(identifier) == (True, True), "PUBREL may be repeated now"
    assert some.pubcomp(identifier)
    assert not some.pubcomp(identifier)


def test_a_message_received_during_a_save_waits_for_the_next_one() -> None:
    some = delivery()
    first, second = some.hand_in(1, 2), some.hand_in(2, 2)
    some.pubrec(first)
    some.save()
    some.pubrec(second)
    assert some.saved() == (first,)
    assert some.urgent
    some.save()
    assert some.saved() == (second,)


def test_a_client_that_keeps_nothing_gets_its_pubrel_at_once() -> None:
    some = delivery(durable=False)
    identifier = some.hand_in(1, 2)
    assert some.pubrec(identifier) == (True, True)


def test_ids_that_the_client_still_holds_are_released_on_the_next_connection() -> None:
    again = DeliveryWindow(Progress(5, (), (3, 4)), receive_max=10, durable=True)
    assert again.to_release() == (3, 4)
    assert again.pubcomp(3)
    assert again.to_release() == (4,)


def test_acknowledgements_of_the_wrong_kind_or_of_nothing_are_not_taken() -> None:
    some = delivery()
    one, two = some.hand_in(1, 1), some.hand_in(2, 2)
    assert not some.puback(two)
    assert some.pubrec(one) == (False, False)
    assert not some.puback(99)
    assert some.pubrec(99) == (False, False)
    assert not some.pubcomp(two)


def test_a_message_that_the_client_refuses_for_good_is_settled() -> None:
    some = delivery()
    identifier = some.hand_in(1, 2)
    assert some.pubrec(identifier, refused=True) == (True, False)
    assert some.progress() == Progress(2)


def test_a_packet_id_in_use_delays_a_position_with_the_same_id() -> None:
    some = delivery()
    some.hand_in(7, 1)
    assert some.hand_in(7 + POSITION_IDS, 1) == WAIT
    some.puback(packet_id(7))
    assert some.hand_in(7 + POSITION_IDS, 1) == packet_id(7)


def test_a_qos_2_id_is_reused_only_after_its_completion_is_stored() -> None:
    some = delivery()
    identifier = some.hand_in(7, 2)
    some.pubrec(identifier)
    some.save()
    some.saved()
    some.pubcomp(identifier)
    assert some.hand_in(7 + POSITION_IDS, 2) == WAIT
    some.save()
    some.saved()
    assert some.hand_in(7 + POSITION_IDS, 2) == identifier


def test_messages_that_are_not_of_the_log_have_ids_of_their_own() -> None:
    some = delivery(receive_max=EXTRA_IDS)
    extras = {some.extra(1) for _ in range(EXTRA_IDS)}
    assert extras == set(range(PACKET_IDS - EXTRA_IDS + 1, PACKET_IDS + 1))
    assert some.extra(1) == WAIT
    assert max(packet_id(position) for position in range(2 * PACKET_IDS)) == POSITION_IDS
    assert some.puback(PACKET_IDS)
    assert some.progress() == Progress(1), "they are not sent again"


def test_an_extra_qos_2_message_is_released_by_the_next_connection() -> None:
    some = delivery(receive_max=EXTRA_IDS)
    identifier = some.extra(2)
    again = DeliveryWindow(some.progress(), receive_max=10, durable=True)
    assert again.to_release() == (identifier,)
    assert some.pubrec(identifier) == (True, True), "nothing of it has to be stored first"
    some.pubcomp(identifier)
    some.save()
    some.saved()
    assert identifier in [some.extra(2) for _ in range(EXTRA_IDS)], "it may be used again"


def test_a_message_that_no_longer_matches_is_settled_beyond_the_last_offer() -> None:
    again = DeliveryWindow(Progress(13, (2, 9)), receive_max=10, durable=True)
    assert again.hand_in(9, 1) == packet_id(9)
    again.passed(9)
    assert again.progress() == Progress(13, (9,))


def test_the_window_counts_until_the_exchange_is_complete() -> None:
    some = delivery(receive_max=1)
    identifier = some.hand_in(1, 2)
    some.pubrec(identifier)
    assert some.hand_in(2, 2) == WAIT
    some.save()
    some.saved()
    assert some.hand_in(2, 2) == WAIT
    some.pubcomp(identifier)
    assert some.hand_in(2, 2) == packet_id(2)


# ── claims ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reserved_id_counts_and_nobody_else_gets_it() -> None:
    some = delivery(receive_max=2)
    identifier = some.reserve()
    assert identifier > POSITION_IDS
    assert some.extra(1) not in (identifier, WAIT)
    assert some.reserve() == WAIT
    some.give_back(identifier)
    assert some.reserve() != WAIT


def test_a_reserved_id_cannot_be_acknowledged() -> None:
    some = delivery()
    identifier = some.reserve()
    assert not some.puback(identifier)
    assert some.pubrec(identifier) == (False, False)
    assert some.take_settled() == ()


def test_a_qos_1_claim_is_settled_by_its_ack_and_then_stored() -> None:
    some = delivery(receive_max=EXTRA_IDS)
    identifier = some.reserve()
    assert some.claimed(identifier, "g", 7, 1)
    assert some.progress() == Progress(1), "the claim says it, and not the session"
    assert some.puback(identifier)
    assert some.take_settled() == (("g", 7, identifier),)
    assert some.take_settled() == ()
    assert identifier not in [some.reserve() for _ in range(EXTRA_IDS - 1)]
    assert some.reserve() == WAIT
    some.forget_claims([identifier])
    assert some.reserve() == identifier


def test_a_qos_2_claim_is_settled_when_its_receipt_is_stored() -> None:
    some = delivery()
    identifier = some.reserve()
    some.claimed(identifier, "g", 7, 2)
    assert some.progress().releasing == ()
    assert some.pubrec(identifier) == (True, False)
    assert some.take_settled() == ()
    assert some.save().releasing == (identifier,)
    assert some.saved() == (identifier,)
    assert some.take_settled() == (("g", 7, identifier),)


def test_its_id_stays_stored_as_releasing_until_the_claim_is_durably_settled() -> None:
    some = delivery(receive_max=1)
    identifier = some.reserve()
    some.claimed(identifier, "g", 7, 2)
    some.pubrec(identifier)
    some.save()
    some.saved()
    assert some.pubcomp(identifier)
    assert some.room, "the client is done with it"
    assert some.progress().releasing == (identifier,)
    some.forget_claims([identifier])
    assert some.progress().releasing == ()


@pytest.mark.parametrize("durable", [True, False])
def test_a_refused_claim_is_settled_at_once(durable: bool) -> None:
    some = delivery(durable=durable)
    identifier = some.reserve()
    some.claimed(identifier, "g", 7, 2)
    assert some.pubrec(identifier, refused=True) == (True, False)
    assert some.take_settled() == (("g", 7, identifier),)


def test_without_a_stored_session_a_qos_2_claim_is_released_at_once() -> None:
    some = delivery(durable=False)
    identifier = some.reserve()
    some.claimed(identifier, "g", 7, 2)
    assert some.pubrec(identifier) == (True, True)
    assert some.take_settled() == (("g", 7, identifier),)


def test_an_earlier_connections_claim_is_resent_under_its_id() -> None:
    some = delivery(receive_max=1)
    some.restore(PACKET_IDS, "g", 7)
    some.restore(PACKET_IDS - 1, "g", 8)
    assert some.send_again(PACKET_IDS, 1)
    assert not some.send_again(PACKET_IDS - 1, 1)
    assert some.puback(PACKET_IDS)
    assert some.send_again(PACKET_IDS - 1, 1)
    assert not some.send_again(PACKET_IDS - 2, 1), "that is no claim"


def test_a_claim_that_the_session_received_is_settled_and_not_resent() -> None:
    some = DeliveryWindow(Progress(1, (), (PACKET_IDS,)), receive_max=10, durable=True)
    some.restore(PACKET_IDS, "g", 7)
    assert some.take_settled() == (("g", 7, PACKET_IDS),)
    assert not some.send_again(PACKET_IDS, 2)


def test_acknowledging_a_claim_that_another_member_has_means_nothing() -> None:
    some = delivery()
    identifier = some.reserve()
    some.claimed(identifier, "g", 7, 1)
    some.forget_claims([identifier])
    assert some.puback(identifier)
    assert some.take_settled() == ()


def test_what_was_reserved_on_another_connection_is_not_claimed_here() -> None:
    assert not delivery().claimed(PACKET_IDS, "g", 7, 1)


# ── against a client and a broker that fail ─────────────────────────────────────────────────────────────────


class Subscriber:
    """The client's side of QoS 1 and 2, with its memory of packet ids that survives connections."""

    def __init__(self) -> None:
        self.once: list[int] = []  # positions taken at QoS 2, in order
        self.at_least_once: list[int] = []
        self._held: set[int] = set()

    def publish(self, position: int, identifier: int, qos: int) -> None:
        if qos == 1:
            self.at_least_once.append(position)
        elif identifier not in self._held:
            self._held.add(identifier)
            self.once.append(position)

    def pubrel(self, identifier: int) -> None:
        self._held.discard(identifier)


class Broker:
    """The shell, as small as can be: a log of (position, QoS) and a stored progress."""

    def __init__(self, log: dict[int, int], receive_max: int) -> None:
        self.log = log
        self.receive_max = receive_max
        self.stored = Progress(1)
        self.client = Subscriber()
        self.unacknowledged: list[tuple[int, int]] = []  # (id, QoS) that the client has and will acknowledge
        self.releases: list[int] = []  # PUBREL on the way to the client
        self.connect()

    def connect(self) -> None:
        self.delivery = DeliveryWindow(self.stored, receive_max=self.receive_max, durable=True)
        self.unacknowledged.clear()
        self.releases = list(self.delivery.to_release())
        self.saving: Progress | None = None

    def read(self) -> None:
        last = max(self.log, default=0)
        for position in sorted(each for each in self.log if each >= self.delivery.next):
            identifier = self.delivery.hand_in(position, self.log[position])
            if identifier == WAIT:
                return
            if identifier != SETTLED:
                self.client.publish(position, identifier, self.log[position])
                self.unacknowledged.append((identifier, self.log[position]))
        self.delivery.passed(last)

    def acknowledge(self, index: int) -> None:
        assert self.delivery.position == self.delivery.progress().position
        if self.unacknowledged:
            identifier, qos = self.unacknowledged.pop(index % len(self.unacknowledged))
            if qos == 1:
                assert self.delivery.puback(identifier)
            else:
                known, now = self.delivery.pubrec(identifier)
                assert known
                if now:
                    self.releases.append(identifier)

    def release(self, index: int) -> None:
        if self.releases:
            identifier = self.releases.pop(index % len(self.releases))
            self.client.pubrel(identifier)
            self.delivery.pubcomp(identifier)

    def start_save(self) -> None:
        assert self.delivery.position == self.delivery.progress().position
        if self.saving is None:
            self.saving = self.delivery.save()

    def end_save(self) -> None:
        if self.saving is not None:
            self.stored, self.saving = self.saving, None
            self.releases += self.delivery.saved()

    def crash(self, durable: bool) -> None:
        """The broker is gone, the save under way just before or just after it became durable."""
        if self.saving is not None and durable:
            self.stored = self.saving
        self.connect()

    def leave(self) -> None:
        """The connection ends in order: progress is stored."""
        self.stored = self.delivery.progress()
        self.connect()


happenings = st.one_of(
    st.just(("read", 0)),
    st.tuples(st.just("acknowledge"), st.integers(0, 20)),
    st.tuples(st.just("release"), st.integers(0, 20)),
    st.just(("start save", 0)),
    st.just(("end save", 0)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.just(("leave", 0)),
)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([3, 5, POSITION_IDS]),
    st.dictionaries(st.integers(1, 40), st.sampled_from([1, 2, 2]), min_size=5, max_size=20),
    st.integers(1, 4),
    st.lists(happenings, min_size=20, max_size=80),
)
def test_every_message_arrives_in_order_qos_2_exactly_once(
    packet_ids: int, log: dict[int, int], receive_max: int, story: list[tuple[str, int]]
) -> None:
    """Also with so few packet ids that positions share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MESSAGES", Ids(1, packet_ids))
        tell(log, receive_max, story)


def tell(log: dict[int, int], receive_max: int, story: list[tuple[str, int]]) -> None:
    broker = Broker(log, receive_max)
    for what, detail in story:
        match what:
            case "read":
                broker.read()
            case "acknowledge":
                broker.acknowledge(detail)
            case "release":
                broker.release(detail)
            case "start save":
                broker.start_save()
            case "end save":
                broker.end_save()
            case "crash":
                broker.crash(bool(detail))
            case _:
                broker.leave()
    for _ in range(8 * len(log) + 4):  # then all goes well
        broker.read()
        broker.acknowledge(0)
        broker.release(0)
        broker.start_save()
        broker.end_save()
    once = [position for position in sorted(log) if log[position] == 2]
    assert broker.client.once == once
    first_seen = list(dict.fromkeys(broker.client.at_least_once))
    assert first_seen == [position for position in sorted(log) if log[position] == 1]
    assert broker.delivery.progress().unsettled == ()
    assert broker.delivery.progress().releasing == ()
