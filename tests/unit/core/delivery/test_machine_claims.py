"""What a client has as a member of groups, as far as its own session is concerned."""

from __future__ import annotations

import msgspec
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket, PubRecReasonCode

from tests.unit.core.delivery.attended import SESSION, Attended, of, one, session_of
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.signals import (
    Began,
    ClaimsForgotten,
    ClaimsSettled,
    DeliveryTimer,
    Ended,
    ReadBatch,
    Reply,
    Subscribed,
)
from tocsin.core.delivery.window import PACKET_IDS, DeliveryWindow, Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import PutKey
from tocsin.core.shared.stored_group import Claim

NAME = "$share/g/a"


def member(session: object = SESSION) -> Attended:
    attended = Attended(session)  # type: ignore[arg-type]
    attended.tell(Subscribed(topic_filter=NAME, subscription=Subscription(qos=2)))
    return attended


def claims_of(attended: Attended) -> DeliveryWindow:
    claims = attended.machine.claims
    assert claims is not None
    return claims


def has_room(attended: Attended) -> bool:
    return attended.machine.room


def sent(attended: Attended, position: int, qos: int) -> int:
    claims = claims_of(attended)
    identifier = claims.reserve()
    assert claims.claimed(identifier, NAME, position, qos)
    return identifier


def test_an_acknowledged_claim_is_settled_at_qos_1() -> None:
    attended = member()
    identifier = sent(attended, 7, 1)
    assert one(attended.answer(PubAckPacket(identifier)), ClaimsSettled).claims == ((NAME, 7, identifier),)


def test_a_qos_2_claim_settles_and_releases_when_its_receipt_is_stored() -> None:
    attended = member()
    identifier = sent(attended, 7, 2)
    effects = attended.answer(PubRecPacket(identifier))
    assert not of(effects, ClaimsSettled)
    assert not of(effects, Reply)
    assert session_of(effects).progress.releasing == (identifier,)
    effects = attended.stored()
    assert one(effects, Reply).packet.packet_id == identifier
    assert one(effects, ClaimsSettled).claims == ((NAME, 7, identifier),)


def test_its_id_leaves_the_session_after_it_has_left_the_group() -> None:
    attended = member()
    identifier = sent(attended, 7, 2)
    attended.answer(PubRecPacket(identifier))
    attended.stored()
    attended.answer(PubCompPacket(identifier))
    assert attended.fire(DeliveryTimer.SAVE_SOON) == [], "nothing has changed"
    attended.tell(ClaimsForgotten(packet_ids=(identifier,)))
    assert session_of(attended.fire(DeliveryTimer.SAVE_SOON)).progress.releasing == ()


def test_a_refused_claim_is_settled() -> None:
    attended = member()
    identifier = sent(attended, 7, 2)
    refusal = PubRecPacket(identifier, reason_code=PubRecReasonCode.UNSPECIFIED_ERROR)
    assert one(attended.answer(refusal), ClaimsSettled).claims == ((NAME, 7, identifier),)


def test_a_returning_client_has_its_claims_and_received_ones_are_settled() -> None:
    stored = msgspec.structs.replace(SESSION, progress=Progress(1, (), (PACKET_IDS,)))
    machine = ClientDelivery()
    claims = ((NAME, Claim(7, PACKET_IDS, 2)), (NAME, Claim(8, PACKET_IDS - 1, 2)), (NAME, Claim(9, 0, 0)))
    effects = machine.handle(
        Began(receive_max=10, prefix="p", session=stored, revision=7, tail=9, claims=claims), 0
    )
    assert one(effects, Reply).packet.packet_id == PACKET_IDS
    assert one(effects, ClaimsSettled).claims == ((NAME, 7, PACKET_IDS),)
    assert machine.claims is not None
    assert machine.claims.send_again(PACKET_IDS - 1, 2)


def test_the_log_is_not_read_for_groups() -> None:
    session = msgspec.structs.replace(SESSION, subscriptions={NAME: Subscription(qos=2)})
    attended = Attended(session, tail=100)
    assert not of(attended.first, ReadBatch)


def test_there_is_room_while_the_client_is_there_and_keeps_up() -> None:
    assert not ClientDelivery().room
    attended = Attended(None, receive_max=1)
    assert has_room(attended), "for messages at QoS 0"
    attended.tell(Subscribed(topic_filter=NAME, subscription=Subscription(qos=1)))
    identifier = sent(attended, 7, 1)
    assert not has_room(attended)
    attended.answer(PubAckPacket(identifier))
    attended.machine.congested = True
    assert not has_room(attended)
    attended.machine.congested = False
    assert has_room(attended)
    attended.tell(Ended(expiry_s=0))
    assert not has_room(attended)
    assert attended.tell(ClaimsForgotten(packet_ids=(identifier,))) == []


def test_without_a_stored_session_nothing_is_written_for_claims() -> None:
    attended = member(None)
    identifier = sent(attended, 7, 2)
    effects = attended.answer(PubRecPacket(identifier))
    assert one(effects, Reply).packet.packet_id == identifier
    assert one(effects, ClaimsSettled).claims == ((NAME, 7, identifier),)
    assert not of(effects, PutKey)
