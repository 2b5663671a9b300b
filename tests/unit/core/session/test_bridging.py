"""What bridges say of themselves."""

from __future__ import annotations

import pytest
from mqtt5 import ConnectPacket, PublishPacket, Will

from tocsin.core.session.bridging import BRIDGES_MAX, Bridges, state_topic
from tocsin.core.session.connect import Arrival, ConnectRefused
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.publish import Publishing
from tocsin.wire.mqtt.connect import V311

LIMITS = SessionLimits()


def test_a_bridge_that_went_is_down_once() -> None:
    bridges = Bridges()
    assert bridges.said("far", b"1") == [(state_topic("far"), b"1")]
    assert bridges.went("far") == [(state_topic("far"), b"0")]
    assert bridges.went("far") == bridges.went("another") == []


def test_a_bridge_says_one_or_nought() -> None:
    assert Bridges().said("far", b"2") is None


def test_the_bridge_that_is_gone_longest_makes_room() -> None:
    bridges = Bridges()
    for number in range(BRIDGES_MAX):
        assert bridges.said(f"far-{number}", b"1")
    assert bridges.said("one-more", b"1") is None, "all of them are connected"
    bridges.went("far-7")
    bridges.went("far-3")
    assert bridges.said("one-more", b"1") == [(state_topic("far-7"), b""), (state_topic("one-more"), b"1")]


def test_a_client_states_its_own_connection_and_no_other() -> None:
    publishing, asked = Publishing(LIMITS, "far"), list[str]()
    own, other = state_topic("far"), state_topic("near")
    assert publishing.topic_of(PublishPacket(own, b"1")) == own
    assert publishing.topic_of(PublishPacket(other, b"1")) is None and publishing.refused == 1

    def refuse(topic: str) -> bool:
        asked.append(topic)
        return False

    publishing.permit(refuse)
    assert publishing.topic_of(PublishPacket(own, b"1")) == own and not asked, "no rule is about it"
    assert Publishing(LIMITS, "near").topic_of(PublishPacket(own, b"1")) is None, "nobody else remembers it"


def test_the_will_of_a_bridge_about_itself_is_no_message() -> None:
    def arrival(topic: str) -> Arrival:
        packet = ConnectPacket("far", clean_start=True, will=Will(topic=topic, payload=b"0", retain=True))
        return Arrival(packet, V311, LIMITS, "")

    came = arrival(state_topic("far"))
    assert came.will is None and came.credentials().will_topic is None
    with pytest.raises(ConnectRefused, match="belong to the server"):
        arrival(state_topic("near"))
