"""How a client comes in, or is told why it cannot, in either version."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
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
    resuming,
    sent,
)
from tocsin.core.machine import Event, IllegalEvent, SetTimer, TimerFired
from tocsin.core.session.machine import Session, SessionTimer
from tocsin.core.session.signals import (
    Accepted,
    Authenticate,
    Authenticated,
    Close,
    Opened,
    PeerClosed,
    Publish,
    Rejected,
    Resumed,
    ResumeFailed,
    SendPacket,
    ServerStopping,
    Subscribe,
    TakenOver,
    WireFailed,
)
from tocsin.errors import Malformed, PacketTooLarge, ProtocolViolation, UnsupportedVersion, WireError
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version


def test_an_open_connection_has_a_deadline_for_its_connect() -> None:
    effects = Session(LIMITS).handle(Opened(assigned_client_id="x", cause="c7"), 0)
    assert effects == [
        SetTimer(cause="c7", name=SessionTimer.CONNECT_DEADLINE, delay_us=LIMITS.connect_deadline_us),
    ]


@BOTH
def test_a_connect_is_authenticated_given_its_session_and_then_welcomed(version: Version) -> None:
    session = connecting()
    packet = ConnectPacket("me", username="u", password=b"p", clean_start=True, keep_alive=10, will=WILL)
    asked = arrive(session, packet, version)
    assert asked == [Authenticate(client_id="me", username="u", password=b"p", will_topic=WILL.topic)]
    assert session.state == "authenticating"
    (accepted,) = session.handle(Authenticated(cause="c1"), 5)
    assert session.state == "resuming"
    assert isinstance(accepted, Accepted)
    assert (accepted.client_id, accepted.version, accepted.username) == ("me", version, "u")
    assert (accepted.clean_start, accepted.keep_alive_s, accepted.session_expiry_s) == (True, 10, 0)
    assert (accepted.will_delay_s, accepted.cause) == (30, "c1")
    welcome, timer = session.handle(Resumed(present=False, cause="c2"), 6)
    assert session.state == "connected"
    assert isinstance(welcome, SendPacket) and welcome.cause == "c2"
    assert isinstance(welcome.packet, ConnAckPacket) and int(welcome.packet.reason_code) == 0
    assert timer == SetTimer(cause="c2", name=SessionTimer.KEEP_ALIVE, delay_us=15 * S)
    assert session.version == version


def test_connack_says_what_is_offered() -> None:
    packet = sent(answer(ConnectPacket("c", keep_alive=5, session_expiry_interval=100), V5))
    assert packet.max_qos == QoS.EXACTLY_ONCE
    assert packet.retain_available is True
    assert packet.shared_subscription_available is True
    assert packet.subscription_id_available is True
    assert packet.wildcard_subscription_available is True
    assert packet.topic_alias_max == 2
    assert packet.receive_max == 3
    assert packet.max_packet_size == LIMITS.packet_max_bytes
    assert packet.session_expiry_interval is None
    assert packet.session_present is False
    assert packet.server_keep_alive is None
    assert packet.response_info is None


def test_no_response_information_is_given_to_whom_asks_for_it() -> None:
    assert sent(answer(ConnectPacket("c", request_response_info=True), V5)).response_info is None


FOREVER_S = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("version", "fields", "granted_s", "told_s"),
    [
        (V5, {"clean_start": True}, 0, None),
        (V5, {"clean_start": True, "session_expiry_interval": 100}, 100, None),
        (V5, {"session_expiry_interval": 101}, 100, 100),
        (V5, {"session_expiry_interval": FOREVER_S}, 100, 100),
        (V311, {"clean_start": True}, 0, None),
        (V311, {"clean_start": False, "session_expiry_interval": FOREVER_S}, 100, 100),
    ],
)
def test_a_session_is_kept_as_long_as_was_asked_within_the_bound(
    version: Version, fields: dict[str, Any], granted_s: int, told_s: int | None
) -> None:
    effects = answer(ConnectPacket("c", **fields), version)
    assert isinstance(effects[0], Accepted)
    assert effects[0].session_expiry_s == granted_s
    assert sent(effects).session_expiry_interval == told_s


@BOTH
def test_a_stored_session_is_said_to_be_present(version: Version) -> None:
    session = resuming(version, clean_start=False, session_expiry_interval=50)
    session.restore({"a": None, "$share/g/a": None}, [7, 3])
    effects = session.handle(Resumed(present=True), 0)
    assert sent(effects).session_present is True
    assert encode(sent(effects), version)[2] == 1
    assert session.inbound_ids() == (3, 7)
    granted = arrive(session, SubscribePacket(1, [TopicFilter("a"), TopicFilter("b"), TopicFilter("c")]))
    assert [effect.existed for effect in granted if isinstance(effect, Subscribe)] == [True, False]
    assert [int(code) for code in sent(granted).reason_codes] == [2, 2, 0x97]


def test_no_session_is_present_after_a_clean_start() -> None:
    session = resuming(session_expiry_interval=50)
    with pytest.raises(IllegalEvent):
        session.handle(Resumed(present=True), 0)
    assert session.state == "resuming"


def test_a_session_is_prepared_between_its_acceptance_and_the_answer_only() -> None:
    for session in (connecting(), connected()):
        with pytest.raises(IllegalEvent):
            session.restore((), ())
    resuming().restore((), ())


@pytest.mark.parametrize(
    ("event", "code", "fault"),
    [
        (ResumeFailed(), 0x88, "ours"),
        (ResumeFailed(reason_code=0x97, reason="full"), 0x97, "ours"),
        (ResumeFailed(reason_code=0x9C, reason="elsewhere"), 0x9C, "none"),
        (TimerFired(name=SessionTimer.CONNECT_DEADLINE), 0x88, "ours"),
        (ServerStopping(), 0x88, "none"),
        (ServerStopping(server_reference="b:1"), 0x9C, "none"),
        (WireFailed(error=Malformed("bad"), version=V5), 0x81, "peer"),
        (WireFailed(error=ProtocolViolation("removed", 0x87)), 0x87, "peer"),
    ],
)
def test_a_client_whose_session_is_unavailable_is_refused_and_keeps_it(
    event: Event, code: int, fault: str
) -> None:
    session = resuming(session_expiry_interval=50, will=WILL)
    effects = session.handle(event, 0)
    assert kinds(effects) == [SendPacket, Close]
    assert int(sent(effects).reason_code) == code
    assert sent(effects).session_present is False
    assert (closing(effects).reason_code, closing(effects).fault) == (code, fault)
    assert closing(effects).session_expiry_s == 50


def test_a_client_taken_over_while_its_session_loads_gets_a_connack() -> None:
    effects = resuming(will=WILL).handle(TakenOver(), 0)
    assert kinds(effects) == [SendPacket, Close]
    assert int(sent(effects).reason_code) == 0x80  # CONNACK has no 0x8E
    assert closing(effects).reason_code == 0x8E


def test_a_client_that_goes_while_its_session_is_loaded_leaves_no_will() -> None:
    effects = resuming(session_expiry_interval=50, will=WILL).handle(PeerClosed(), 0)
    assert kinds(effects) == [Close]
    assert closing(effects).session_expiry_s == 50


@pytest.mark.parametrize(
    ("version", "asked_s", "told_s", "in_force_s"),
    [(V5, 60, None, 60), (V5, 61, 60, 60), (V5, 0, 60, 60), (V311, 61, None, 61), (V311, 0, None, 0)],
)
def test_only_a_version_5_client_can_be_told_another_keep_alive(
    version: Version, asked_s: int, told_s: int | None, in_force_s: int
) -> None:
    effects = answer(ConnectPacket("c", clean_start=True, keep_alive=asked_s), version)
    assert sent(effects).server_keep_alive == told_s
    assert isinstance(effects[0], Accepted)
    assert effects[0].keep_alive_s == in_force_s
    timers = [effect.delay_us for effect in effects if isinstance(effect, SetTimer)]
    assert timers == ([in_force_s * 3 * S // 2] if in_force_s else [])


@BOTH
def test_a_client_without_an_id_gets_one(version: Version) -> None:
    effects = answer(ConnectPacket("", clean_start=True), version)
    assert isinstance(effects[0], Accepted)
    assert effects[0].client_id == "tocsin-1"
    assert sent(effects).assigned_client_id == "tocsin-1"


REFUSED: list[tuple[ConnectPacket, Version, int, int]] = [
    (ConnectPacket("c", authentication_method="SCRAM"), V5, 0x8C, 0x8C),
    (ConnectPacket("", clean_start=False), V311, 0x85, 2),
    (ConnectPacket("c" * 11), V5, 0x85, 0x85),
    (ConnectPacket("ü" * 6), V311, 0x85, 2),
    (ConnectPacket("c", will=Will("$SYS/t")), V5, 0x87, 0x87),
    (ConnectPacket("c", will=Will("$SYS/t")), V311, 0x87, 5),
    (ConnectPacket("c", will=Will("a/b/c/d/e")), V5, 0x90, 0x90),
]


@pytest.mark.parametrize(("packet", "version", "code", "on_the_wire"), REFUSED)
def test_a_connect_that_cannot_be_served_is_refused_with_a_reason(
    packet: ConnectPacket, version: Version, code: int, on_the_wire: int
) -> None:
    effects = answer(packet, version)
    assert len(effects) == 2
    assert encode(sent(effects), version)[3] == on_the_wire
    assert closing(effects).reason_code == code
    assert closing(effects).fault == "peer"


@pytest.mark.parametrize(
    ("code", "reference", "version", "on_the_wire", "fault"),
    [
        (0x87, None, V5, 0x87, "peer"),
        (0x87, None, V311, 5, "peer"),
        (0x86, None, V311, 4, "peer"),
        (0x89, None, V5, 0x89, "ours"),
        (0x89, None, V311, 3, "ours"),
        (0x9C, "other:1883", V5, 0x9C, "none"),
        (0x9D, "other:1883", V311, 3, "none"),
        (0x8E, None, V5, 0x80, "peer"),  # no reason of CONNACK's
    ],
)
def test_a_rejected_client_is_told_why(
    code: int, reference: str | None, version: Version, on_the_wire: int, fault: str
) -> None:
    session = connecting()
    arrive(session, ConnectPacket("c", clean_start=True), version)
    rejection = Rejected(reason_code=code, reason="because", server_reference=reference)
    effects = session.handle(rejection, 0)
    assert sent(effects).server_reference == reference
    assert encode(sent(effects), version)[3] == on_the_wire
    assert (closing(effects).reason_code, closing(effects).fault) == (code, fault)


def test_a_first_packet_that_is_not_connect_closes_without_a_word() -> None:
    effects = arrive(connecting(), PingReqPacket())
    assert [type(effect) for effect in effects] == [Close]


@pytest.mark.parametrize(
    ("error", "version", "answered"),
    [
        (UnsupportedVersion("MQIsdp", 3), None, b"\x20\x02\x00\x01"),
        (UnsupportedVersion("MQTT", 3), None, b"\x20\x02\x00\x01"),
        (UnsupportedVersion("MQTT", 6), None, b"\x84"),
        (UnsupportedVersion("HTTP", 5), None, None),
        (Malformed("bad"), None, None),
        (Malformed("bad"), V311, None),
        (Malformed("bad"), V5, b"\x81"),
        (PacketTooLarge(5, 4), V5, b"\x95"),
    ],
)
def test_bytes_that_are_no_connect_are_answered_if_the_peer_would_understand(
    error: WireError, version: Version | None, answered: bytes | None
) -> None:
    session = connecting()
    effects = session.handle(WireFailed(error=error, version=version), 0)
    assert closing(effects).reason_code == error.reason_code
    if answered is None:
        assert len(effects) == 1
    else:
        frame = encode(sent(effects), session.version)
        assert frame == answered if len(answered) > 1 else frame[3:4] == answered


def test_a_connect_that_does_not_come_in_time_closes() -> None:
    effects = connecting().handle(TimerFired(name=SessionTimer.CONNECT_DEADLINE), 10 * S)
    assert [type(effect) for effect in effects] == [Close]


def test_an_authentication_that_takes_too_long_is_our_fault() -> None:
    session = connecting()
    arrive(session, ConnectPacket("c"))
    effects = session.handle(TimerFired(name=SessionTimer.CONNECT_DEADLINE), 10 * S)
    assert int(sent(effects).reason_code) == 0x88
    assert closing(effects).fault == "ours"
    assert session.handle(Authenticated(), 11 * S) == []


def test_a_deadline_that_was_met_does_nothing() -> None:
    assert connected().handle(TimerFired(name=SessionTimer.CONNECT_DEADLINE), 10 * S) == []


def test_packets_behind_the_connect_wait_for_its_answer() -> None:
    session = connecting()
    arrive(session, ConnectPacket("c"))
    early: list[Packet] = [
        SubscribePacket(1, [TopicFilter("a")]),
        PublishPacket("a", b"x"),
        DisconnectPacket(),
        PingReqPacket(),
    ]
    for packet in early[:2]:
        assert arrive(session, packet) == []
    assert kinds(session.handle(Authenticated(), 0)) == [Accepted]
    for packet in early[2:]:
        assert arrive(session, packet) == []
    effects = session.handle(Resumed(present=False), 0)
    assert kinds(effects) == [SendPacket, SetTimer, Subscribe, SendPacket, Publish, Close]


def test_what_waits_for_the_answer_is_bounded() -> None:
    session = connecting()
    arrive(session, ConnectPacket("c"))
    assert arrive(session, PublishPacket("a", bytes(800))) == []
    effects = arrive(session, SubscribePacket(1, [TopicFilter("a"), TopicFilter("b")]))
    assert int(sent(effects).reason_code) == 0x97
    assert closing(effects).reason_code == 0x97
