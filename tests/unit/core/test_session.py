"""One connection of either version: every transition, the codes that are said, and what never happens."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    AuthPacket,
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.core.machine import Effect, Event, IllegalEvent, SetTimer, TimerFired
from tocsin.core.session import (
    KEEP_ALIVE,
    Authenticated,
    Close,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    Rejected,
    SendPacket,
    ServerMoved,
    ServerStopping,
    Session,
    SessionLimits,
    Subscribe,
    TakenOver,
    Unsubscribe,
    WireFailed,
)
from tocsin.errors import Malformed, PacketTooLarge, WireError
from tocsin.wire.codec import V5, V311, Decoder, Version, encode

LIMITS = SessionLimits(
    subscriptions_max=3,
    topic_max_bytes=20,
    topic_max_levels=4,
    client_id_max_bytes=10,
    keep_alive_max_s=60,
    early_max_bytes=1_000,
)
S = 1_000_000
WILL = Will("gone", payload=b"bye", will_delay_interval=30, content_type="text/plain")
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


# ── subscribing ──────────────────────────────────────────────────────────────────────────────────────────────


def any_filter(pattern: str) -> TopicFilter:
    """A filter as a peer can send it; the constructor refuses some that the reader lets through."""
    decoder = Decoder(1 << 16)
    decoder.feed(encode(ConnectPacket("c"), V5))
    raw = pattern.encode()
    body = b"\0\1\0" + len(raw).to_bytes(2, "big") + raw + b"\0"
    (packet,) = decoder.feed(bytes((0x82, len(body))) + body)
    assert isinstance(packet, SubscribePacket)
    return packet.topic_filters[0]


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("a/+/#", 0x00),
        ("$SYS/#", 0x00),
        ("a#", 0x8F),
        ("#/a", 0x8F),
        ("a+", 0x8F),
        ("", 0x8F),
        ("a/b/c/d/e", 0x8F),
        ("a" * 21, 0x8F),
        ("$share/g/a", 0x9E),
        ("$share/g", 0x8F),
    ],
)
def test_every_filter_is_granted_or_refused_by_itself(pattern: str, code: int) -> None:
    session = connected()
    effects = arrive(session, SubscribePacket(9, [TopicFilter("good"), any_filter(pattern)]))
    packet = sent(effects)
    assert isinstance(packet, SubAckPacket)
    assert packet.packet_id == 9
    assert [int(each) for each in packet.reason_codes] == [0, code]
    assert bool(packet.reason_str) is bool(code)
    patterns = [effect.pattern for effect in effects if isinstance(effect, Subscribe)]
    assert patterns == (["good"] if code else ["good", pattern])
    assert isinstance(effects[-1], SendPacket)


@BOTH
def test_a_higher_qos_is_granted_as_0(version: Version) -> None:
    wanted = TopicFilter("a", max_qos=QoS.EXACTLY_ONCE, no_local=True)
    effects = arrive(connected(version), SubscribePacket(1, [wanted]), version)
    assert isinstance(effects[0], Subscribe)
    assert (effects[0].qos, effects[0].no_local, effects[0].existed) == (QoS.AT_MOST_ONCE, True, False)
    assert [int(each) for each in sent(effects).reason_codes] == [0]


def test_a_version_3_client_learns_of_a_refusal_by_0x80() -> None:
    session = connected(V311)
    packet = sent(arrive(session, SubscribePacket(1, [TopicFilter("$share/g/a")]), V311))
    assert encode(packet, V311) == b"\x90\x03\x00\x01\x80"


def test_subscriptions_are_counted_by_filter() -> None:
    session = connected()
    wanted = [TopicFilter(each) for each in ("a", "b", "a", "c", "d", "b")]
    effects = arrive(session, SubscribePacket(1, wanted))
    assert [int(each) for each in sent(effects).reason_codes] == [0, 0, 0, 0, 0x97, 0]
    existed = [effect.existed for effect in effects if isinstance(effect, Subscribe)]
    assert existed == [False, False, True, False, True]
    effects = arrive(session, UnsubscribePacket(2, ["a", "x", "a"]))
    assert [effect.pattern for effect in effects if isinstance(effect, Unsubscribe)] == ["a"]
    packet = sent(effects)
    assert isinstance(packet, UnsubAckPacket)
    assert [int(each) for each in packet.reason_codes] == [0x00, 0x11, 0x11]
    effects = arrive(session, SubscribePacket(3, [TopicFilter("d")]))
    assert [int(each) for each in sent(effects).reason_codes] == [0]


def test_subscription_identifiers_are_refused_unless_they_are_offered() -> None:
    packet = SubscribePacket(1, [TopicFilter("a")], subscription_id=7)
    assert closing(arrive(connected(), packet)).reason_code == 0xA1
    limits = SessionLimits(subscription_ids=True)
    assert sent(answer(ConnectPacket("c"), V5, limits)).subscription_id_available is True
    effects = arrive(connected(limits=limits), packet)
    assert isinstance(effects[0], Subscribe)
    assert effects[0].subscription_id == 7


def test_a_client_that_wants_no_reasons_gets_none_with_a_suback() -> None:
    session = connected(request_problem_info=False)
    assert sent(arrive(session, SubscribePacket(1, [TopicFilter("$share/a/b")]))).reason_str is None


# ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_publish_gives_its_topic() -> None:
    session, packet = connected(), PublishPacket("a/b", b"x")
    assert session.check_publish(packet) == "a/b"
    assert arrive(session, packet) == [Publish(packet=packet)]


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (PublishPacket("a", b"", qos=QoS.AT_LEAST_ONCE, packet_id=1), 0x9B),
        (PublishPacket("a", b"", qos=QoS.EXACTLY_ONCE, packet_id=1), 0x9B),
        (PublishPacket("a", b"", retain=True), 0x9A),
        (PublishPacket("a", b"", topic_alias=1), 0x94),
        (PublishPacket("", b"", topic_alias=1), 0x94),
        (PublishPacket("a" * 21, b""), 0x90),
        (PublishPacket("ü" * 11, b""), 0x90),
        (PublishPacket("a/b/c/d/e", b""), 0x90),
    ],
)
@BOTH
def test_a_publish_that_is_not_offered_ends_the_connection(
    packet: PublishPacket, code: int, version: Version
) -> None:
    session = connected(version)
    with pytest.raises(WireError) as caught:
        session.check_publish(packet)
    assert caught.value.reason_code == code
    effects = session.handle(WireFailed(error=caught.value, version=version), 0)
    assert arrive(connected(version), packet, version) == effects
    assert closing(effects).reason_code == code
    if version == V5:
        assert int(sent(effects).reason_code) == code
    else:
        assert len(effects) == 1


@BOTH
def test_acknowledgements_of_an_earlier_session_do_no_harm(version: Version) -> None:
    session = connected(version)
    assert arrive(session, PubAckPacket(1), version) == []
    assert arrive(session, PubCompPacket(1), version) == []
    released = sent(arrive(session, PubRecPacket(3), version))
    assert isinstance(released, PubRelPacket) and (released.packet_id, int(released.reason_code)) == (3, 0x92)
    complete = sent(arrive(session, PubRelPacket(4), version))
    assert isinstance(complete, PubCompPacket) and (complete.packet_id, int(complete.reason_code)) == (
        4,
        0x92,
    )


# ── staying and going ────────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_ping_is_answered(version: Version) -> None:
    assert sent(arrive(connected(version), PingReqPacket(), version)) == PingRespPacket()


def test_a_client_may_be_silent_for_one_and_a_half_keep_alives() -> None:
    session = connected(keep_alive=10, will=WILL)
    session.heard(4 * S)
    again = session.handle(TimerFired(name=KEEP_ALIVE), 15 * S)
    assert again == [SetTimer(name=KEEP_ALIVE, delay_us=4 * S)]
    assert arrive(session, PingReqPacket(), now_us=18 * S)
    again = session.handle(TimerFired(name=KEEP_ALIVE), 19 * S)
    assert again == [SetTimer(name=KEEP_ALIVE, delay_us=14 * S)]
    effects = session.handle(TimerFired(name=KEEP_ALIVE), 33 * S)
    assert [type(effect) for effect in effects] == [SendPacket, Publish, Close]
    assert int(sent(effects).reason_code) == 0x8D


def test_a_will_is_the_message_that_the_client_left() -> None:
    effects = connected(will=WILL).handle(PeerClosed(), 0)
    will = PublishPacket("gone", b"bye", content_type="text/plain")
    assert effects[0] == Publish(packet=will, will=True)
    assert closing(effects).fault == "peer"


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
    effects = arrive(connected(version, will=WILL), packet, version)
    assert [type(effect) for effect in effects] == ([Publish] if published else []) + [Close]


def test_a_disconnect_cannot_ask_for_a_session_that_connect_did_not() -> None:
    packet = DisconnectPacket(session_expiry_interval=5)
    assert closing(arrive(connected(), packet)).reason_code == 0x82
    assert closing(arrive(connected(session_expiry_interval=9), packet)).reason_code == 0


ENDS: list[tuple[Event, int, str]] = [
    (TakenOver(), 0x8E, "none"),
    (ServerStopping(), 0x8B, "none"),
    (ServerMoved(server_reference="b:1"), 0x9C, "none"),
    (ServerMoved(server_reference="b:1", permanent=True), 0x9D, "none"),
    (WireFailed(error=Malformed("bad"), version=V5), 0x81, "peer"),
    (WireFailed(error=PacketTooLarge(9, 8), version=V5), 0x95, "peer"),
    (PacketArrived(packet=ConnectPacket("c"), version=V5), 0x82, "peer"),
    (PacketArrived(packet=AuthPacket(), version=V5), 0x82, "peer"),
    (PacketArrived(packet=ConnAckPacket(), version=V5), 0x82, "peer"),
]


@pytest.mark.parametrize(("event", "code", "fault"), ENDS)
@BOTH
def test_a_connected_client_is_told_why_it_has_to_go_if_it_can_be(
    event: Event, code: int, fault: str, version: Version
) -> None:
    effects = connected(version, will=WILL).handle(event, 0)
    told: list[type[Effect]] = [SendPacket] if version == V5 else []
    assert [type(effect) for effect in effects] == [*told, Publish, Close]
    assert (closing(effects).reason_code, closing(effects).fault) == (code, fault)
    if version == V5:
        packet = sent(effects)
        assert int(packet.reason_code) == code
        assert packet.reason_str
        assert packet.server_reference == (event.server_reference if isinstance(event, ServerMoved) else None)


@pytest.mark.parametrize(
    ("event", "code"),
    [(ServerStopping(), 0x88), (ServerMoved(server_reference="b:1"), 0x9C), (PeerClosed(), None)],
)
def test_a_client_that_is_coming_in_when_the_server_goes_gets_a_connack(
    event: Event, code: int | None
) -> None:
    session = connecting()
    arrive(session, ConnectPacket("c", will=WILL))
    effects = session.handle(event, 0)
    assert [type(effect) for effect in effects] == ([SendPacket, Close] if code else [Close])
    if code:
        assert int(sent(effects).reason_code) == code
    assert [type(effect) for effect in connecting().handle(event, 0)] == [Close]


def test_no_packet_is_larger_than_the_client_takes() -> None:
    tiny = answer(ConnectPacket("c", max_packet_size=5), V5)
    assert [type(effect) for effect in tiny] == [Close]
    assert closing(tiny).reason_code == 0x95
    short = connected(max_packet_size=30).handle(TakenOver(), 0)
    assert sent(short).reason_str is None
    session = connected(max_packet_size=30)
    many = SubscribePacket(1, [TopicFilter("a")] * 40)
    effects = arrive(session, many)
    assert [type(effect) for effect in effects] == [SendPacket, Close]
    assert int(sent(effects).reason_code) == 0x95


def test_an_event_at_the_wrong_moment_is_a_bug_of_ours_and_changes_nothing() -> None:
    for session, event in (
        (Session(LIMITS), PeerClosed()),
        (connecting(), Authenticated()),
        (connecting(), TakenOver()),
        (connected(), Opened(assigned_client_id="x")),
        (connected(), Rejected()),
    ):
        before = session.state
        with pytest.raises(IllegalEvent):
            session.handle(event, 0)
        assert session.state == before
