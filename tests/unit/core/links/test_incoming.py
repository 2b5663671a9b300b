"""What another broker may say over its link to this one."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tocsin.core.links.incoming import (
    KEEP_ALIVE_MAX_S,
    PROBE_MAX_BYTES,
    PROBE_US,
    PROPERTY_EXTRA,
    PROPERTY_PROBE,
    IncomingLink,
    LinkTimer,
    LinkUp,
    ProbeTaken,
)
from tocsin.core.machine import Effect, SetTimer, TimerFired
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.signals import (
    Close,
    Opened,
    PacketArrived,
    PeerClosed,
    SendPacket,
    ServerStopping,
    TakenOver,
    WireFailed,
)
from tocsin.errors import Malformed
from tocsin.wire.mqtt.connect import V5, V311
from tocsin.wire.mqtt.topics import PROBE_TOPIC

S = 1_000_000


def opened() -> IncomingLink:
    link = IncomingLink("north-2", SessionLimits())
    assert [type(each) for each in link.handle(Opened(assigned_client_id=""), 0)] == [SetTimer]
    return link


def greeting(client_id: str = "$link/north-2", **fields: Any) -> ConnectPacket:
    given: dict[str, Any] = {"clean_start": True, "keep_alive": 4, "user_properties": [("cluster", "north")]}
    return ConnectPacket(client_id, **(given | fields))


def up() -> IncomingLink:
    link = opened()
    arrive(link, greeting())
    assert link.state == "up"
    return link


def arrive(link: IncomingLink, packet: Packet, now_us: int = 0) -> list[Effect]:
    return link.handle(PacketArrived(packet=packet, version=V5), now_us)


def words(effects: list[Effect]) -> Any:
    """The last word before the link is closed, which it is."""
    assert isinstance(effects[-1], Close)
    return effects[0].packet if isinstance(effects[0], SendPacket) else None


def test_a_broker_that_says_who_it_is_is_welcome() -> None:
    welcome, told, timer = arrive(opened(), greeting())
    assert isinstance(welcome, SendPacket) and isinstance(welcome.packet, ConnAckPacket)
    assert welcome.packet.max_packet_size == SessionLimits().packet_max_bytes
    assert told == LinkUp(cluster="north")
    assert timer == SetTimer(name=LinkTimer.KEEP_ALIVE, delay_us=6 * S)


@pytest.mark.parametrize(
    ("connect", "code"),
    [
        (greeting("$link/north-1"), 0x85),  # another broker of the network
        (greeting("north-2"), 0x85),
        (greeting(""), 0x85),
        (greeting(user_properties=[]), 0x82),
        (greeting(user_properties=[("cluster", "x" * 400)]), 0x82),
        (greeting(clean_start=False), 0x82),
        (greeting(session_expiry_interval=5), 0x82),
        (greeting(will=Will("a", payload=b"")), 0x82),
        (greeting(user_properties=[("cluster", "north"), ("levels", "900-901")]), 0x84),
    ],
)
def test_who_says_anything_else_is_refused(connect: ConnectPacket, code: int) -> None:
    link = opened()
    answer = words(arrive(link, connect))
    assert isinstance(answer, ConnAckPacket) and int(answer.reason_code) == code
    assert arrive(link, PingReqPacket()) == []


@pytest.mark.parametrize(
    "levels", ["0-0", "900-901", "1", "1-", "-1", "a-b", "1-1-1", "0-99999999999999999999"]
)
def test_a_peer_with_no_common_level_is_refused_with_advice(levels: str) -> None:
    link = opened()
    effects = arrive(link, greeting(user_properties=[("cluster", "north"), ("levels", levels)]))
    answer = words(effects)
    assert isinstance(answer, ConnAckPacket) and int(answer.reason_code) == 0x84
    assert answer.reason_str is not None and "upgrade the older one" in answer.reason_str
    assert not any(isinstance(each, LinkUp) for each in effects)


@pytest.mark.parametrize("levels", ["1-1", "0-1", "1-7", "0-9"])
def test_a_peer_with_a_level_in_common_is_welcome(levels: str) -> None:
    link = opened()
    arrive(link, greeting(user_properties=[("cluster", "north"), ("levels", levels)]))
    assert link.state == "up"


def test_links_speak_mqtt_5() -> None:
    effects = opened().handle(PacketArrived(packet=greeting(), version=V311), 0)
    assert int(words(effects).reason_code) == 0x84


def test_the_first_word_is_connect() -> None:
    assert words(arrive(opened(), PingReqPacket())) is None


@pytest.mark.parametrize(
    "packet",
    [
        SubscribePacket(1, [TopicFilter("#")]),
        UnsubscribePacket(1, ["#"]),
        PublishPacket("a", b"", qos=QoS.AT_LEAST_ONCE, packet_id=1),
        greeting(),
        PingRespPacket(),
    ],
)
def test_a_link_carries_messages_and_nothing_else(packet: Packet) -> None:
    answer = words(arrive(up(), packet))
    assert isinstance(answer, DisconnectPacket) and int(answer.reason_code) == 0x82


def test_a_sign_of_life_is_answered() -> None:
    assert arrive(up(), PingReqPacket()) == [SendPacket(packet=PingRespPacket())]


def test_a_peer_that_is_silent_is_given_up() -> None:
    link = up()
    link.heard(4 * S)
    assert link.handle(TimerFired(name=LinkTimer.KEEP_ALIVE), 6 * S) == [
        SetTimer(name=LinkTimer.KEEP_ALIVE, delay_us=4 * S)
    ]
    assert int(words(link.handle(TimerFired(name=LinkTimer.KEEP_ALIVE), 10 * S)).reason_code) == 0x8D


def test_nobody_is_silent_for_ever() -> None:
    for asked_s in (0, 65_535):
        welcome, _, timer = arrive(opened(), greeting(keep_alive=asked_s))
        assert isinstance(welcome, SendPacket) and isinstance(welcome.packet, ConnAckPacket)
        assert welcome.packet.server_keep_alive == KEEP_ALIVE_MAX_S
        assert isinstance(timer, SetTimer) and timer.delay_us == KEEP_ALIVE_MAX_S * 3 * S // 2


def test_who_does_not_greet_is_given_up() -> None:
    assert words(opened().handle(TimerFired(name=LinkTimer.CONNECT_DEADLINE), 10 * S)) is None
    assert up().handle(TimerFired(name=LinkTimer.CONNECT_DEADLINE), 10 * S) == []


def test_how_it_ends() -> None:
    assert words(arrive(up(), DisconnectPacket())) is None
    assert words(up().handle(PeerClosed(), 0)) is None
    assert int(words(up().handle(TakenOver(), 0)).reason_code) == 0x8E
    assert int(words(up().handle(ServerStopping(), 0)).reason_code) == 0x8B
    assert words(opened().handle(ServerStopping(), 0)) is None
    assert int(words(up().handle(WireFailed(error=Malformed("?")), 0)).reason_code) == 0x81
    assert words(opened().handle(WireFailed(error=Malformed("?")), 0)) is None


# ── probes ───────────────────────────────────────────────────────────────────────────────────────────────────

PROBING = [("cluster", "north"), (PROPERTY_PROBE, "1")]


def probed() -> IncomingLink:
    link = opened()
    arrive(link, greeting(user_properties=PROBING))
    assert link.state == "probed"
    return link


def test_an_extra_connection_says_which_one_it_is() -> None:
    said = [("cluster", "north"), (PROPERTY_EXTRA, "twin")]
    effects = arrive(opened(), greeting(user_properties=said))
    assert LinkUp(cluster="north", extra="twin") in effects


def test_an_extra_connection_has_a_short_name() -> None:
    said = [("cluster", "north"), (PROPERTY_EXTRA, "x" * 17)]
    effects = arrive(opened(), greeting(user_properties=said))
    assert isinstance(effects[-1], Close) and effects[-1].reason_code == 0x82


def test_a_probe_is_welcome_and_is_no_link() -> None:
    effects = arrive(opened(), greeting(user_properties=PROBING))
    welcome, timer = effects
    assert isinstance(welcome, SendPacket) and isinstance(welcome.packet, ConnAckPacket)
    assert dict(welcome.packet.user_properties) == {PROPERTY_PROBE: str(PROBE_MAX_BYTES)}
    assert timer == SetTimer(name=LinkTimer.KEEP_ALIVE, delay_us=PROBE_US)
    assert not any(isinstance(each, LinkUp) for each in effects)


def test_a_link_is_not_told_of_probes() -> None:
    welcome = arrive(opened(), greeting())[0]
    assert isinstance(welcome, SendPacket) and isinstance(welcome.packet, ConnAckPacket)
    assert PROPERTY_PROBE not in dict(welcome.packet.user_properties)


def test_a_probe_is_answered_and_what_it_brings_goes_nowhere() -> None:
    link = probed()
    assert arrive(link, PingReqPacket()) == [SendPacket(packet=PingRespPacket())]
    assert arrive(link, PublishPacket(PROBE_TOPIC, b"x" * 100)) == [ProbeTaken(size=100)]


def test_a_probe_has_a_bound_in_bytes() -> None:
    link = probed()
    arrive(link, PublishPacket(PROBE_TOPIC, b"x" * PROBE_MAX_BYTES))
    assert int(words(arrive(link, PublishPacket(PROBE_TOPIC, b"x"))).reason_code) == 0x97


def test_a_probe_has_a_bound_in_time_however_often_it_speaks() -> None:
    link = probed()
    arrive(link, PingReqPacket(), PROBE_US - 1)
    assert int(words(link.handle(TimerFired(name=LinkTimer.KEEP_ALIVE), PROBE_US)).reason_code) == 0x8D


@pytest.mark.parametrize(
    "packet",
    [
        PublishPacket("a", b""),
        PublishPacket("$near/x", b""),
        PublishPacket("$carried", b""),
        PublishPacket(PROBE_TOPIC, b"", qos=QoS.AT_LEAST_ONCE, packet_id=1),
        SubscribePacket(1, [TopicFilter("a")]),
    ],
)
def test_a_probe_may_do_what_probes_do_and_nothing_else(packet: Packet) -> None:
    assert int(words(arrive(probed(), packet)).reason_code) == 0x82


def test_too_many_probes_are_refused() -> None:
    link = IncomingLink("north-2", SessionLimits(), may_probe=lambda: False)
    link.handle(Opened(assigned_client_id=""), 0)
    assert int(words(arrive(link, greeting(user_properties=PROBING))).reason_code) == 0x9F


def test_a_link_does_not_bring_what_probes_bring() -> None:
    assert not up().takes(PROBE_TOPIC, 1)
