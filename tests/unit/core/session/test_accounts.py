"""A connection that makes or changes accounts, and does nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.core.session.sessions import BOTH, arrive, connected, connecting, resuming
from tocsin.core.machine import SetTimer, TimerFired
from tocsin.core.session.machine import ACCOUNTS_US, REQUESTS_MAX, Session
from tocsin.core.session.signals import AskAccount, Authenticate, Close, Resumed, SendPacket
from tocsin.errors import ProtocolViolation
from tocsin.wire.mqtt.connect import V5, Version

REQUEST = PublishPacket("$account/register", b"{}", qos=QoS.AT_LEAST_ONCE, packet_id=7)


def asking(version: Version = V5) -> Session:
    return connected(version, username="$account")


@BOTH
def test_a_request_is_acknowledged_and_handed_on(version: Version) -> None:
    assert arrive(asking(version), REQUEST) == [
        SendPacket(packet=PubAckPacket(7)),
        AskAccount(packet=REQUEST),
    ]


@BOTH
@pytest.mark.parametrize(
    "packet",
    [
        SubscribePacket(1, [TopicFilter("#")]),
        PublishPacket("a", b"", qos=QoS.EXACTLY_ONCE, packet_id=1),
        PublishPacket("", b"", qos=QoS.AT_LEAST_ONCE, packet_id=1, topic_alias=1),
    ],
)
def test_whatever_else_such_a_connection_says_ends_it(version: Version, packet: Any) -> None:
    close = arrive(asking(version), packet)[-1]
    assert isinstance(close, Close) and close.reason_code == 0x82 and "about accounts" in close.reason


def test_such_a_connection_publishes_nothing_at_qos_0() -> None:
    session = asking()
    with pytest.raises(ProtocolViolation, match="about accounts"):
        session.check_publish(PublishPacket("a", b""))
    with pytest.raises(ProtocolViolation, match="about accounts"):
        session.takes("a", 3)


def test_such_a_connection_may_be_kept_alive_but_not_for_long() -> None:
    session = asking()
    assert isinstance(arrive(session, PingReqPacket())[0], SendPacket)
    said = session.handle(TimerFired(name="accounts"), ACCOUNTS_US)
    assert isinstance(said[0], SendPacket) and isinstance(said[0].packet, DisconnectPacket)
    assert isinstance(said[-1], Close) and "60 s" in said[-1].reason


def test_such_a_connection_asks_so_often_and_no_more() -> None:
    session = asking()
    for _ in range(REQUESTS_MAX):
        assert isinstance(arrive(session, REQUEST)[-1], AskAccount)
    close = arrive(session, REQUEST)[-1]
    assert isinstance(close, Close) and close.reason_code == 0x97


@pytest.mark.parametrize(
    "leaves", [{"will": Will("gone")}, {"session_expiry_interval": 9}, {"clean_start": False}]
)
def test_such_a_connection_leaves_nothing_behind(leaves: dict[str, Any]) -> None:
    session = connecting()
    fields = {"clean_start": True, "username": "$account", **leaves}
    close = arrive(session, ConnectPacket("c", **fields), V5)[-1]
    assert isinstance(close, Close) and "clean start" in close.reason


def test_such_a_connection_is_not_one_that_watches() -> None:
    session = connecting()
    said = [("home.v", "1"), ("watch", "north-1")]
    connect = ConnectPacket("c", clean_start=True, username="$account", user_properties=said)
    (asked,) = arrive(session, connect, V5)
    assert isinstance(asked, Authenticate) and asked.accounts and not asked.watches and asked.aside


def test_the_end_is_set_when_the_connection_is_welcomed() -> None:
    session = resuming(username="$account")
    welcomed = session.handle(Resumed(present=False), 0)
    assert SetTimer(name="accounts", delay_us=ACCOUNTS_US) in welcomed
    ordinary = resuming().handle(Resumed(present=False), 0)
    assert not any(isinstance(each, SetTimer) and each.name == "accounts" for each in ordinary)
