"""Messages at QoS 1 and 2 from a connected client, and acknowledgements of ours, in either version."""

from __future__ import annotations

import pytest
from mqtt5 import (
    Packet,
    PubAckPacket,
    PubCompPacket,
    PubRecPacket,
    PubRelPacket,
)

from tests.unit.core.session.sessions import (
    BOTH,
    LIMITS,
    arrive,
    closing,
    connected,
    kinds,
    message,
    resuming,
    sent,
)
from tocsin.core.session.machine import Session
from tocsin.core.session.signals import (
    Acknowledged,
    Close,
    Commit,
    CommitFailed,
    Committed,
    Release,
    Released,
    Resumed,
    SendPacket,
    WireFailed,
)
from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

# ── publishing at QoS 1 ──────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_message_at_qos_1_is_acknowledged_when_it_is_durable(version: Version) -> None:
    session, packet = connected(version), message(7, 1)
    assert arrive(session, packet) == [Commit(packet=packet, topic="a", packet_id=7, qos=1)]
    assert session.committing == 1
    assert session.handle(Committed(packet_id=7), 0) == [SendPacket(packet=PubAckPacket(7))]
    assert session.committing == 0
    assert kinds(arrive(session, message(7, 1, duplicate=True))) == [Commit]  # the id was free


@BOTH
def test_a_qos_1_repeat_during_its_commit_shares_the_answer(version: Version) -> None:
    session = connected(version)
    arrive(session, message(7, 1))
    assert arrive(session, message(7, 1, duplicate=True)) == []
    assert closing(arrive(session, message(7, 1))).reason_code == 0x82


@pytest.mark.parametrize(
    ("qos", "code", "said"),
    [(1, 0x97, 0x97), (2, 0x87, 0x87), (1, 0x88, 0x80), (2, 0x10, 0x80), (1, 0x93, 0x80)],
)
def test_a_message_that_cannot_be_stored_is_refused_and_its_id_free(qos: int, code: int, said: int) -> None:
    session = connected()
    arrive(session, message(7, qos))
    packet = sent(session.handle(CommitFailed(packet_id=7, reason_code=code, reason="no room"), 0))
    assert isinstance(packet, PubAckPacket if qos == 1 else PubRecPacket)
    assert (packet.packet_id, int(packet.reason_code), packet.reason_str) == (7, said, None)
    assert session.inbound_ids() == ()
    assert kinds(arrive(session, message(7, qos))) == [Commit]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_version_3_client_whose_message_cannot_be_stored_is_disconnected(qos: int) -> None:
    session = connected(V311, clean_start=False)
    arrive(session, message(7, qos))
    effects = session.handle(CommitFailed(packet_id=7, reason_code=0x97), 0)
    assert kinds(effects) == [Close]
    assert (closing(effects).reason_code, closing(effects).fault) == (0x97, "ours")
    assert closing(effects).session_expiry_s == 100


# ── publishing at QoS 2 ──────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_message_at_qos_2_goes_all_the_way(version: Version) -> None:
    session, packet = connected(version), message(7, 2)
    assert arrive(session, packet) == [Commit(packet=packet, topic="a", packet_id=7, qos=2)]
    assert arrive(session, message(7, 2, duplicate=True)) == []
    assert session.inbound_ids() == ()
    received = [SendPacket(packet=PubRecPacket(7))]
    assert session.handle(Committed(packet_id=7), 0) == received
    assert session.inbound_ids() == (7,)
    assert arrive(session, message(7, 2, duplicate=True)) == received
    assert arrive(session, message(7, 2)) == received
    assert arrive(session, PubRelPacket(7)) == [Release(packet_id=7)]
    assert arrive(session, PubRelPacket(7)) == []
    assert session.inbound_ids() == (7,)
    assert session.handle(Released(packet_id=7), 0) == [SendPacket(packet=PubCompPacket(7))]
    assert session.inbound_ids() == ()
    assert kinds(arrive(session, message(7, 2))) == [Commit]


@BOTH
def test_an_id_is_not_free_before_its_release_was_answered(version: Version) -> None:
    session = connected(version)
    arrive(session, message(7, 2))
    session.handle(Committed(packet_id=7), 0)
    arrive(session, PubRelPacket(7))
    assert closing(arrive(session, message(7, 2))).reason_code == 0x82


def resumed(version: Version, *inbound: int) -> Session:
    session = resuming(version, clean_start=False, session_expiry_interval=50)
    session.restore({}, inbound)
    session.handle(Resumed(present=True), 0)
    return session


@BOTH
def test_a_message_received_on_an_earlier_connection_is_not_republished(
    version: Version,
) -> None:
    session = resumed(version, 7, 8)
    assert arrive(session, message(7, 2, duplicate=True)) == [SendPacket(packet=PubRecPacket(7))]
    assert arrive(session, PubRelPacket(8)) == [Release(packet_id=8)]
    session.handle(Released(packet_id=8), 0)
    assert session.inbound_ids() == (7,)
    assert session.handle(WireFailed(error=WireError("x"), version=version), 0)
    assert session.inbound_ids() == (7,)


@BOTH
def test_a_client_that_forgot_a_qos_2_message_may_reuse_its_id(version: Version) -> None:
    session = resumed(version, 7)
    assert kinds(arrive(session, message(7, 1))) == [Commit]
    assert sent(session.handle(Committed(packet_id=7), 0)) == PubAckPacket(7)
    assert session.inbound_ids() == (7,)


def test_a_denied_repeat_of_a_received_message_is_still_acknowledged() -> None:
    session = resuming(clean_start=False, session_expiry_interval=50)
    session.restore({}, [7])
    session.permit(publish=lambda topic: False)
    session.handle(Resumed(present=True), 0)
    assert arrive(session, message(7, 2)) == [SendPacket(packet=PubRecPacket(7))]


# ── how much may be under way ────────────────────────────────────────────────────────────────────────────────


def unreleased(session: Session, *packet_ids: int) -> None:
    """Messages at QoS 2 that are stored, and that their client has not released."""
    for packet_id in packet_ids:
        assert kinds(arrive(session, message(packet_id, 2))) == [Commit]
        session.handle(Committed(packet_id=packet_id), 0)


def test_a_version_5_client_that_releases_nothing_is_disconnected() -> None:
    session = connected()
    unreleased(session, 1, 2, 3)
    effects = arrive(session, message(4, 1))
    assert kinds(effects) == [SendPacket, Close]
    assert int(sent(effects).reason_code) == 0x93


def test_a_burst_on_its_way_to_the_log_is_taken_whole() -> None:
    session = connected()
    for packet_id in range(1, 11):
        assert kinds(arrive(session, message(packet_id, 1))) == [Commit]
    assert session.committing == 10, "by which the shell reads more slowly"


def test_a_version_3_client_cannot_know_the_receive_maximum() -> None:
    session = connected(V311)
    unreleased(session, 1, 2, 3)
    assert kinds(arrive(session, message(4, 1))) == [Commit]


@pytest.mark.parametrize("answered", ["PUBREC", "PUBCOMP"])
def test_every_final_answer_makes_room_for_one_more(answered: str) -> None:
    session = connected()
    unreleased(session, 1, 2)
    if answered == "PUBREC":
        arrive(session, message(3, 2))
        session.handle(CommitFailed(packet_id=3), 0)
    else:
        unreleased(session, 3)
        arrive(session, PubRelPacket(3))
        session.handle(Released(packet_id=3), 0)
    unreleased(session, 4)
    assert closing(arrive(session, message(5, 1))).reason_code == 0x93


def test_messages_of_an_earlier_connection_do_not_count_against_the_receive_maximum() -> None:
    assert kinds(arrive(resumed(V5, 11, 12, 13), message(1, 1))) == [Commit]


def test_what_is_remembered_of_qos_2_is_bounded() -> None:
    packet = sent(arrive(resumed(V5, 11, 12, 13, 14), message(1, 2)))
    assert isinstance(packet, PubRecPacket) and int(packet.reason_code) == 0x97
    session = connected(V311)
    for packet_id in range(1, LIMITS.inbound_max + 1):
        assert kinds(arrive(session, message(packet_id, 2))) == [Commit]
    assert closing(arrive(session, message(9, 2))).reason_code == 0x97


# ── acknowledgements of what we sent ─────────────────────────────────────────────────────────────────────────


@BOTH
@pytest.mark.parametrize("packet", [PubAckPacket(1), PubRecPacket(2), PubCompPacket(3)])
def test_what_the_client_acknowledges_is_handed_on(version: Version, packet: Packet) -> None:
    (effect,) = arrive(connected(version), packet)
    assert isinstance(effect, Acknowledged)
    assert effect.packet is packet


@BOTH
def test_an_unknown_id_is_released_in_the_store_before_it_is_answered(version: Version) -> None:
    session = connected(version)
    assert arrive(session, PubRelPacket(4)) == [Release(packet_id=4)]
    assert arrive(session, PubRelPacket(4)) == []
    complete = sent(session.handle(Released(packet_id=4), 0))
    assert isinstance(complete, PubCompPacket)
    assert (complete.packet_id, int(complete.reason_code)) == (4, 0x92)
    assert len(encode(complete, version)) == (4 if version == V311 else 5)
    assert kinds(arrive(session, message(4, 2))) == [Commit]


@BOTH
def test_an_unknown_id_is_not_free_before_its_release_is_answered(version: Version) -> None:
    session = connected(version)
    arrive(session, PubRelPacket(4))
    assert closing(arrive(session, message(4, 2))).reason_code == 0x82


@BOTH
def test_a_message_cannot_be_released_before_it_was_received(version: Version) -> None:
    session = connected(version)
    arrive(session, message(7, 2))
    assert closing(arrive(session, PubRelPacket(7))).reason_code == 0x82
