"""What a connected client says and is answered: subscriptions, and where messages may go, in either version."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    ConnectPacket,
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
)

from tests.unit.core.session.sessions import (
    BOTH,
    answer,
    any_filter,
    arrive,
    closing,
    connected,
    kinds,
    message,
    resuming,
    sent,
)
from tocsin.core.filters import SharedFilter
from tocsin.core.filters import TopicFilter as Topics
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.signals import (
    Close,
    Commit,
    Publish,
    Release,
    Released,
    Resumed,
    SendPacket,
    Subscribe,
    Unsubscribe,
    WireFailed,
)
from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

# ── subscribing ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("a/+/#", 0x00),
        ("$SYS/#", 0x00),
        ("$share/g/a/+", 0x00),
        ("a#", 0x8F),
        ("#/a", 0x8F),
        ("a+", 0x8F),
        ("a/b/c/d/e", 0x8F),
        ("a" * 21, 0x8F),
        ("$share/g", 0x8F),
        ("$share//a", 0x8F),
        ("$share/g+/a", 0x8F),
        ("$share/g/", 0x8F),
    ],
)
def test_every_filter_is_granted_or_refused_by_itself(pattern: str, code: int) -> None:
    session = connected()
    effects = arrive(
        session, SubscribePacket(9, [TopicFilter("good", max_qos=QoS.AT_MOST_ONCE), any_filter(pattern)])
    )
    packet = sent(effects)
    assert isinstance(packet, SubAckPacket)
    assert packet.packet_id == 9
    assert [int(each) for each in packet.reason_codes] == [0, code]
    assert bool(packet.reason_str) is bool(code)
    names = [effect.filter.name for effect in effects if isinstance(effect, Subscribe)]
    assert names == (["good"] if code else ["good", pattern])
    assert isinstance(effects[-1], SendPacket)


@BOTH
@pytest.mark.parametrize("qos", [QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE])
def test_the_qos_that_is_asked_for_is_granted(version: Version, qos: QoS) -> None:
    wanted = TopicFilter("a", max_qos=qos, no_local=True)
    effects = arrive(connected(version), SubscribePacket(1, [wanted]))
    assert isinstance(effects[0], Subscribe)
    assert (effects[0].qos, effects[0].no_local, effects[0].existed) == (qos, True, False)
    assert encode(sent(effects), version)[-1] == int(qos)


@BOTH
def test_a_shared_subscription_is_one_of_its_own(version: Version) -> None:
    session = connected(version)
    effects = arrive(session, SubscribePacket(1, [TopicFilter("a/b"), TopicFilter("$share/g/a/b")]))
    wanted = [effect for effect in effects if isinstance(effect, Subscribe)]
    shared = SharedFilter("$share/g/a/b", "g", "a/b")
    assert [(each.filter, each.existed) for each in wanted] == [(Topics("a/b"), False), (shared, False)]
    effects = arrive(session, UnsubscribePacket(2, ["$share/g/a/b", "$share/h/a/b"]))
    assert effects[0] == Unsubscribe(filter=shared)
    assert effects[0].filter.name == "$share/g/a/b"
    assert [int(code) for code in sent(effects).reason_codes] == [0, 0x11]


def test_no_local_on_a_shared_subscription_is_a_protocol_error() -> None:
    wanted = [TopicFilter("a"), TopicFilter("$share/g/a", no_local=True)]
    effects = arrive(connected(), SubscribePacket(1, wanted))
    assert kinds(effects) == [SendPacket, Close]
    assert int(sent(effects).reason_code) == 0x82


def test_a_version_3_client_learns_of_a_refusal_by_0x80() -> None:
    packet = sent(arrive(connected(V311), SubscribePacket(1, [TopicFilter("a/b/c/d/e")])))
    assert encode(packet, V311) == b"\x90\x03\x00\x01\x80"


def test_subscriptions_are_counted_by_filter() -> None:
    session = connected()
    wanted = [TopicFilter(each) for each in ("a", "b", "a", "c", "d", "b")]
    effects = arrive(session, SubscribePacket(1, wanted))
    assert [int(each) for each in sent(effects).reason_codes] == [2, 2, 2, 2, 0x97, 2]
    existed = [effect.existed for effect in effects if isinstance(effect, Subscribe)]
    assert existed == [False, False, True, False, True]
    effects = arrive(session, UnsubscribePacket(2, ["a", "x", "a"]))
    assert [effect.filter.name for effect in effects if isinstance(effect, Unsubscribe)] == ["a"]
    packet = sent(effects)
    assert isinstance(packet, UnsubAckPacket)
    assert [int(each) for each in packet.reason_codes] == [0x00, 0x11, 0x11]
    effects = arrive(session, SubscribePacket(3, [TopicFilter("d")]))
    assert [int(each) for each in sent(effects).reason_codes] == [2]


def test_subscription_identifiers_are_handed_on_unless_they_are_not_offered() -> None:
    packet = SubscribePacket(1, [TopicFilter("a")], subscription_id=7)
    effects = arrive(connected(), packet)
    assert isinstance(effects[0], Subscribe)
    assert effects[0].subscription_id == 7
    limits = SessionLimits(subscription_ids=False)
    assert sent(answer(ConnectPacket("c"), V5, limits)).subscription_id_available is False
    assert closing(arrive(connected(limits=limits), packet)).reason_code == 0xA1


def test_a_client_that_wants_no_reasons_gets_none() -> None:
    session = connected(request_problem_info=False)
    assert sent(arrive(session, SubscribePacket(1, [TopicFilter("a/b/c/d/e")]))).reason_str is None
    assert sent(arrive(session, message(1, 1, "$x"))).reason_str is None


@pytest.mark.parametrize(
    ("fields", "noted"),
    [({}, True), ({"request_problem_info": False}, False), ({"max_packet_size": 30}, False)],
)
def test_an_unsuback_carries_a_reason_if_wanted_and_if_it_fits(fields: dict[str, Any], noted: bool) -> None:
    session, note = connected(**fields), "stored later" * 3
    packet = sent(arrive(session, UnsubscribePacket(1, ["a"])))
    found = session.noted(packet, note)
    assert (found.packet_id, found.reason_codes) == (1, packet.reason_codes)
    assert found.reason_str == (note if noted else None)


def test_a_forbidden_filter_is_refused_whether_or_not_it_is_shared() -> None:
    session = resuming()
    session.permit(subscribe=lambda pattern: pattern == "a")
    session.handle(Resumed(present=False), 0)
    names = ["a", "b", "$share/g/a", "$share/g/b"]
    effects = arrive(session, SubscribePacket(1, [TopicFilter(name) for name in names]))
    assert [int(code) for code in sent(effects).reason_codes] == [2, 0x80, 2, 0x80]
    assert "may not subscribe" in sent(effects).reason_str


# ── publishing at QoS 0 ──────────────────────────────────────────────────────────────────────────────────────


def test_a_publish_gives_its_topic() -> None:
    session, packet = connected(), PublishPacket("a/b", b"x", retain=True)
    assert session.check_publish(packet) == "a/b"
    assert arrive(session, packet) == [Publish(packet=packet, topic="a/b")]


def test_a_publish_by_alias_carries_the_topic_of_the_alias() -> None:
    session = connected()
    assert session.check_publish(PublishPacket("a/b", b"x", topic_alias=1)) == "a/b"
    by_alias = PublishPacket("", b"y", topic_alias=1)
    assert session.check_publish(by_alias) == "a/b"
    assert arrive(session, by_alias) == [Publish(packet=by_alias, topic="a/b")]
    committed = message(5, 1, "", topic_alias=1)
    assert arrive(session, committed) == [Commit(packet=committed, topic="a/b", packet_id=5, qos=1)]


BAD: list[tuple[PublishPacket, int]] = [
    (PublishPacket("a", b"", topic_alias=3), 0x94),
    (PublishPacket("", b"", topic_alias=3), 0x94),
    (PublishPacket("", b"", topic_alias=1), 0x82),
    (PublishPacket("a" * 21, b""), 0x90),
    (PublishPacket("ü" * 11, b""), 0x90),
    (PublishPacket("a/b/c/d/e", b""), 0x90),
    (message(1, 1, "a/b/c/d/e"), 0x90),
    (message(1, 2, "", topic_alias=2), 0x82),
]


@pytest.mark.parametrize(("packet", "code"), BAD)
@BOTH
def test_a_publish_that_is_a_mistake_ends_the_connection(
    packet: PublishPacket, code: int, version: Version
) -> None:
    session = connected(version)
    with pytest.raises(WireError) as caught:
        session.check_publish(packet)
    assert caught.value.reason_code == code
    effects = session.handle(WireFailed(error=caught.value, version=version), 0)
    assert arrive(connected(version), packet) == effects
    assert closing(effects).reason_code == code
    if version == V5:
        assert int(sent(effects).reason_code) == code
    else:
        assert len(effects) == 1


@BOTH
def test_a_message_to_the_servers_own_topics_goes_nowhere(version: Version) -> None:
    session = connected(version)
    assert session.check_publish(PublishPacket("$SYS/a", b"")) is None
    assert arrive(session, PublishPacket("$SYS/a", b"")) == []
    at_least_once, exactly_once = (
        sent(arrive(session, message(1, 1, "$a"))),
        sent(arrive(session, message(2, 2, "$a"))),
    )
    assert isinstance(at_least_once, PubAckPacket) and isinstance(exactly_once, PubRecPacket)
    expected = 0x87 if version == V5 else 0
    assert (int(at_least_once.reason_code), int(exactly_once.reason_code)) == (expected, expected)
    assert session.refused == 4
    assert session.inbound_ids() == ()
    if version == V311:
        assert arrive(session, PubRelPacket(2)) == [Release(packet_id=2)]
        assert isinstance(sent(session.handle(Released(packet_id=2), 0)), PubCompPacket)


def test_the_servers_own_topics_are_not_a_clients_to_publish_to() -> None:
    assert connected().check_publish(PublishPacket("$SYS/a", b"")) is None


def test_a_message_that_the_client_may_not_publish_goes_nowhere() -> None:
    session = resuming()
    session.permit(publish=lambda topic: topic == "mine")
    session.handle(Resumed(present=False), 0)
    assert session.check_publish(PublishPacket("mine", b"")) == "mine"
    assert session.check_publish(PublishPacket("yours", b"")) is None
    assert (session.takes("mine", 3), session.takes("yours", 3)) == (True, False)
    assert session.refused == 4
    assert int(sent(arrive(session, message(1, 1, "yours"))).reason_code) == 0x87
    assert kinds(arrive(session, message(1, 1, "mine"))) == [Commit]


def test_rights_may_change_while_the_client_is_connected() -> None:
    session = connected()
    session.permit(publish=lambda topic: False)
    assert session.check_publish(PublishPacket("a", b"")) is None
    session.permit()
    assert session.check_publish(PublishPacket("a", b"")) == "a"
