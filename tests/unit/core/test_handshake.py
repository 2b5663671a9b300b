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

from tocsin.core.machine import Effect, SetTimer, TimerFired
from tocsin.core.session import (
    CONNECT_DEADLINE,
    KEEP_ALIVE,
    Accepted,
    Authenticate,
    Authenticated,
    Close,
    Opened,
    PacketArrived,
    Publish,
    Rejected,
    SendPacket,
    Session,
    SessionLimits,
    Subscribe,
    WireFailed,
)
from tocsin.errors import Malformed, PacketTooLarge, UnsupportedVersion, WireError
from tocsin.wire.codec import V5, V311, Version, encode

LIMITS = SessionLimits(
    subscriptions_max=3,
    topic_max_bytes=20,
    topic_max_levels=4,
    client_id_max_bytes=10,
    keep_alive_max_s=60,
    early_max_bytes=1_000,
)
S = 1_000_000
BOTH = pytest.mark.parametrize("version", [V311, V5])


def connecting(limits: SessionLimits = LIMITS) -> Session:
    session = Session(limits)
    session.handle(Opened(assigned_client_id="tocsin-1"), 0)
    return session


def arrive(session: Session, packet: Packet, version: Version = V5, now_us: int = 0) -> list[Effect]:
    return session.handle(PacketArrived(packet=packet, version=version), now_us)


def connected(version: Version = V5, limits: SessionLimits = LIMITS, **fields: Any) -> Session:
    session = connecting(limits)
    arrive(session, ConnectPacket("c", clean_start=True, **fields), version)
    session.handle(Authenticated(), 0)
    assert session.state == "connected"
    return session


def answer(packet: ConnectPacket, version: Version, limits: SessionLimits = LIMITS) -> list[Effect]:
    """What a CONNECT leads to when the client is who it says."""
    session = connecting(limits)
    effects = arrive(session, packet, version)
    return session.handle(Authenticated(), 0) if session.state == "authenticating" else effects


def sent(effects: list[Effect]) -> Any:
    """The one packet that is sent."""
    (packet,) = [effect.packet for effect in effects if isinstance(effect, SendPacket)]
    return packet


def closing(effects: list[Effect]) -> Close:
    assert isinstance(effects[-1], Close)
    return effects[-1]


def test_an_open_connection_has_a_deadline_for_its_connect() -> None:
    effects = Session(LIMITS).handle(Opened(assigned_client_id="x", cause="c7"), 0)
    assert effects == [
        SetTimer(cause="c7", name=CONNECT_DEADLINE, delay_us=LIMITS.connect_deadline_us),
    ]


@BOTH
def test_a_connect_is_authenticated_and_then_welcomed(version: Version) -> None:
    session = connecting()
    packet = ConnectPacket("me", username="u", password=b"p", clean_start=True, keep_alive=10)
    asked = arrive(session, packet, version)
    assert asked == [Authenticate(client_id="me", username="u", password=b"p")]
    assert session.state == "authenticating"
    accepted, welcome, timer = session.handle(Authenticated(cause="c1"), 5)
    assert isinstance(accepted, Accepted) and isinstance(welcome, SendPacket)
    assert (accepted.client_id, accepted.version, accepted.username) == ("me", version, "u")
    assert (accepted.clean_start, accepted.keep_alive_s, accepted.session_expiry_s) == (True, 10, 0)
    assert isinstance(welcome.packet, ConnAckPacket) and int(welcome.packet.reason_code) == 0
    assert timer == SetTimer(cause="c1", name=KEEP_ALIVE, delay_us=15 * S)
    assert {effect.cause for effect in (accepted, welcome)} == {"c1"}
    assert session.version == version


def test_connack_says_what_is_not_offered() -> None:
    packet = sent(answer(ConnectPacket("c", keep_alive=5, session_expiry_interval=100), V5))
    assert packet.max_qos == QoS.AT_MOST_ONCE
    assert packet.retain_available is False
    assert packet.shared_subscription_available is False
    assert packet.subscription_id_available is False
    assert packet.wildcard_subscription_available is True
    assert packet.topic_alias_max == 0
    assert packet.max_packet_size == LIMITS.packet_max_bytes
    assert packet.session_expiry_interval == 0
    assert packet.session_present is False
    assert packet.server_keep_alive is None


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
    (ConnectPacket("c", will=Will("t", qos=QoS.AT_LEAST_ONCE)), V5, 0x9B, 0x9B),
    (ConnectPacket("c", will=Will("t", qos=QoS.EXACTLY_ONCE)), V311, 0x9B, 3),
    (ConnectPacket("c", will=Will("t", retain=True)), V5, 0x9A, 0x9A),
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
    effects = connecting().handle(TimerFired(name=CONNECT_DEADLINE), 10 * S)
    assert [type(effect) for effect in effects] == [Close]


def test_an_authentication_that_takes_too_long_is_our_fault() -> None:
    session = connecting()
    arrive(session, ConnectPacket("c"))
    effects = session.handle(TimerFired(name=CONNECT_DEADLINE), 10 * S)
    assert int(sent(effects).reason_code) == 0x88
    assert closing(effects).fault == "ours"
    assert session.handle(Authenticated(), 11 * S) == []


def test_a_deadline_that_was_met_does_nothing() -> None:
    assert connected().handle(TimerFired(name=CONNECT_DEADLINE), 10 * S) == []


def test_packets_behind_the_connect_wait_for_its_answer() -> None:
    session = connecting()
    arrive(session, ConnectPacket("c"))
    early: list[Packet] = [
        SubscribePacket(1, [TopicFilter("a")]),
        PublishPacket("a", b"x"),
        DisconnectPacket(),
        PingReqPacket(),
    ]
    for packet in early:
        assert arrive(session, packet) == []
    effects = session.handle(Authenticated(), 0)
    kinds = [type(effect) for effect in effects]
    assert kinds == [Accepted, SendPacket, SetTimer, Subscribe, SendPacket, Publish, Close]


def test_what_waits_for_the_answer_is_bounded() -> None:
    session = connecting()
    arrive(session, ConnectPacket("c"))
    assert arrive(session, PublishPacket("a", bytes(800))) == []
    effects = arrive(session, SubscribePacket(1, [TopicFilter("a"), TopicFilter("b")]))
    assert int(sent(effects).reason_code) == 0x97
    assert closing(effects).reason_code == 0x97
