"""One connection of either version: how a client stays and goes, the codes that are said, and what never happens."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    AuthPacket,
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.core.session.sessions import (
    BOTH,
    LIMITS,
    WILL,
    S,
    answer,
    arrive,
    closing,
    connected,
    connecting,
    kinds,
    message,
    resuming,
    sent,
)
from tocsin.core.machine import Effect, Event, IllegalEvent, SetTimer, TimerFired
from tocsin.core.session.machine import Session, SessionTimer
from tocsin.core.session.signals import (
    Authenticated,
    Close,
    CommitFailed,
    Committed,
    DelayWill,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    Rejected,
    Released,
    Resumed,
    ResumeFailed,
    SendPacket,
    ServerStopping,
    TakenOver,
    WillAnnounced,
    WireFailed,
)
from tocsin.errors import Malformed, PacketTooLarge
from tocsin.wire.mqtt.connect import V5, V311, Version

# ── staying ──────────────────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_ping_is_answered(version: Version) -> None:
    assert sent(arrive(connected(version), PingReqPacket())) == PingRespPacket()


def test_a_client_may_be_silent_for_one_and_a_half_keep_alives() -> None:
    session = connected(keep_alive=10, will=WILL)
    session.heard(4 * S)
    again = session.handle(TimerFired(name=SessionTimer.KEEP_ALIVE), 15 * S)
    assert again == [SetTimer(name=SessionTimer.KEEP_ALIVE, delay_us=4 * S)]
    assert arrive(session, PingReqPacket(), now_us=18 * S)
    again = session.handle(TimerFired(name=SessionTimer.KEEP_ALIVE), 19 * S)
    assert again == [SetTimer(name=SessionTimer.KEEP_ALIVE, delay_us=14 * S)]
    effects = session.handle(TimerFired(name=SessionTimer.KEEP_ALIVE), 33 * S)
    assert kinds(effects) == [SendPacket, Publish, Close]
    assert int(sent(effects).reason_code) == 0x8D


# ── the will ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_will_is_the_message_that_the_client_left() -> None:
    effects = connected(will=WILL).handle(PeerClosed(), 0)
    will = PublishPacket("gone", b"bye", content_type="text/plain")
    assert effects[0] == Publish(packet=will, topic="gone", will=True)
    assert closing(effects).fault == "peer"


@BOTH
def test_a_will_has_its_qos_and_its_retain_flag(version: Version) -> None:
    will = Will("gone", payload=b"bye", qos=QoS.EXACTLY_ONCE, retain=True)
    published, _ = connected(version, will=will).handle(PeerClosed(), 0)
    assert isinstance(published, Publish)
    assert (published.packet.qos, published.packet.retain) == (QoS.EXACTLY_ONCE, True)


@pytest.mark.parametrize(
    ("version", "packet", "published"),
    [
        (V311, DisconnectPacket(), False),
        (V5, DisconnectPacket(), False),
        (V5, DisconnectPacket(reason_code=DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE), True),
        (V5, DisconnectPacket(reason_code=DisconnectReasonCode.UNSPECIFIED_ERROR), True),
    ],
)
def test_a_disconnect_says_whether_the_will_is_wanted(
    version: Version, packet: DisconnectPacket, published: bool
) -> None:
    effects = arrive(connected(version, will=WILL), packet)
    assert kinds(effects) == ([Publish] if published else []) + [Close]


@pytest.mark.parametrize(("expiry_s", "delay_s"), [(100, 30), (30, 30), (20, 20), (1, 1)])
def test_a_will_waits_no_longer_than_its_delay_or_the_session(expiry_s: int, delay_s: int) -> None:
    effects = connected(will=WILL, session_expiry_interval=expiry_s).handle(PeerClosed(), 0)
    assert effects[0] == DelayWill(
        packet=PublishPacket("gone", b"bye", content_type="text/plain"), delay_s=delay_s
    )
    assert closing(effects).session_expiry_s == expiry_s


def test_a_disconnect_that_ends_the_session_publishes_the_will_at_once() -> None:
    with_will = DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE
    session = connected(will=WILL, session_expiry_interval=50)
    effects = arrive(session, DisconnectPacket(reason_code=with_will, session_expiry_interval=0))
    assert kinds(effects) == [Publish, Close]
    assert closing(effects).session_expiry_s == 0


@pytest.mark.parametrize(
    ("expiry_s", "delay_s", "clean_start", "published"),
    [(50, 30, False, False), (50, 30, True, True), (50, 0, False, True), (0, 30, False, True)],
)
def test_a_client_back_in_time_voids_its_will_unless_it_starts_clean(
    expiry_s: int, delay_s: int, clean_start: bool, published: bool
) -> None:
    will = Will("gone", will_delay_interval=delay_s)
    session = connected(will=will, session_expiry_interval=expiry_s)
    effects = session.handle(TakenOver(clean_start=clean_start), 0)
    assert kinds(effects) == [SendPacket, *([Publish] if published else []), Close]


def test_a_will_that_another_broker_announced_is_not_repeated() -> None:
    session = connected(will=WILL)
    assert session.handle(WillAnnounced(), 0) == []
    assert session.will is None
    assert kinds(session.handle(PeerClosed(), 0)) == [Close]


def test_a_will_that_the_client_may_not_publish_is_not() -> None:
    session = resuming(will=WILL)
    session.permit(publish=lambda topic: topic != "gone")
    session.handle(Resumed(present=False), 0)
    assert kinds(session.handle(PeerClosed(), 0)) == [Close]
    assert session.refused == 1


# ── going ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked_s", "changed_s", "kept_s"),
    [(0, None, 0), (0, 0, 0), (9, None, 9), (9, 5, 5), (9, 0, 0), (9, 101, 100), (9, 0xFFFFFFFF, 100)],
)
def test_a_disconnect_changes_how_long_the_session_is_kept(
    asked_s: int, changed_s: int | None, kept_s: int
) -> None:
    session = connected(session_expiry_interval=asked_s)
    end = closing(arrive(session, DisconnectPacket(session_expiry_interval=changed_s)))
    assert (end.reason_code, end.session_expiry_s) == (0, kept_s)


def test_a_disconnect_cannot_ask_for_a_session_that_connect_did_not() -> None:
    end = closing(arrive(connected(), DisconnectPacket(session_expiry_interval=5)))
    assert (end.reason_code, end.session_expiry_s) == (0x82, 0)


@pytest.mark.parametrize(("clean", "kept_s"), [(True, 0), (False, 100)])
def test_a_version_3_session_is_kept_unless_it_was_to_be_clean(clean: bool, kept_s: int) -> None:
    session = connected(V311, clean_start=clean)
    assert closing(arrive(session, DisconnectPacket())).session_expiry_s == kept_s


ENDS: list[tuple[Event, int, str]] = [
    (TakenOver(), 0x8E, "none"),
    (ServerStopping(), 0x8B, "none"),
    (ServerStopping(server_reference="b:1"), 0x9C, "none"),
    (WireFailed(error=Malformed("bad"), version=V5), 0x81, "peer"),
    (WireFailed(error=PacketTooLarge(9, 8), version=V5), 0x95, "peer"),
    (PacketArrived(packet=ConnectPacket("c"), version=V5), 0x82, "peer"),
    (PacketArrived(packet=AuthPacket(), version=V5), 0x82, "peer"),
    (PacketArrived(packet=ConnAckPacket(), version=V5), 0x82, "peer"),
]


@pytest.mark.parametrize(("event", "code", "fault"), ENDS)
@BOTH
def test_a_connected_version_5_client_is_told_why_it_must_go(
    event: Event, code: int, fault: str, version: Version
) -> None:
    effects = connected(version, will=WILL).handle(event, 0)
    told: list[type[Effect]] = [SendPacket] if version == V5 else []
    assert kinds(effects) == [*told, Publish, Close]
    assert (closing(effects).reason_code, closing(effects).fault) == (code, fault)
    if version == V5:
        packet = sent(effects)
        assert int(packet.reason_code) == code
        assert packet.reason_str
        assert packet.server_reference == getattr(event, "server_reference", None)


@pytest.mark.parametrize(
    ("event", "code"),
    [(ServerStopping(), 0x88), (ServerStopping(server_reference="b:1"), 0x9C), (PeerClosed(), None)],
)
def test_a_client_that_connects_while_the_server_stops_gets_a_connack(event: Event, code: int | None) -> None:
    session = connecting()
    arrive(session, ConnectPacket("c", will=WILL))
    effects = session.handle(event, 0)
    assert kinds(effects) == ([SendPacket, Close] if code else [Close])
    if code:
        assert int(sent(effects).reason_code) == code
    assert kinds(connecting().handle(event, 0)) == [Close]


def test_no_packet_is_larger_than_the_client_takes() -> None:
    tiny = answer(ConnectPacket("c", max_packet_size=5), V5)
    assert kinds(tiny) == [Close]
    assert closing(tiny).reason_code == 0x95
    short = connected(max_packet_size=30).handle(TakenOver(), 0)
    assert sent(short).reason_str is None
    session = connected(max_packet_size=30)
    assert sent(arrive(session, SubscribePacket(1, [TopicFilter("a/b/c/d/e/f/g")]))).reason_str is None
    effects = arrive(session, SubscribePacket(1, [TopicFilter("a")] * 40))
    assert kinds(effects) == [SendPacket, Close]
    assert int(sent(effects).reason_code) == 0x95


# ── whose fault ──────────────────────────────────────────────────────────────────────────────────────────────


def illegal() -> list[tuple[Session, Event]]:
    return [
        (Session(LIMITS), PeerClosed()),
        (connecting(), Authenticated()),
        (connecting(), TakenOver()),
        (connecting(), Resumed(present=False)),
        (resuming(), Authenticated()),
        (resuming(), Committed(packet_id=1)),
        (connected(), Opened(assigned_client_id="x")),
        (connected(), Rejected()),
        (connected(), Resumed(present=False)),
        (connected(), ResumeFailed()),
        (connected(), Committed(packet_id=1)),
        (connected(), CommitFailed(packet_id=1)),
        (connected(), Released(packet_id=1)),
    ]


def test_an_event_in_the_wrong_state_raises_and_changes_nothing() -> None:
    for session, event in illegal():
        before = session.state
        with pytest.raises(IllegalEvent):
            session.handle(event, 0)
        assert session.state == before


def test_a_client_has_no_rights_before_its_connack_and_after_its_end() -> None:
    gone = connected()
    gone.handle(PeerClosed(), 0)
    for session in (connecting(), gone):
        with pytest.raises(IllegalEvent):
            session.permit()


def test_an_answer_that_comes_after_the_end_is_not_needed_any_more() -> None:
    session = connected()
    arrive(session, message(1, 2))
    session.handle(PeerClosed(), 0)
    late: list[Any] = [Committed(packet_id=1), CommitFailed(packet_id=1), Released(packet_id=1)]
    assert [session.handle(event, 0) for event in late] == [[], [], []]
    assert session.inbound_ids() == ()
