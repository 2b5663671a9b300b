"""A client that is coming in: what it is granted, and what is kept of what it sends early."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import (
    ConnectPacket,
    Packet,
    PingReqPacket,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tocsin.core.session.connect import Arrival, ConnectRefused, Early
from tocsin.core.session.limits import SessionLimits
from tocsin.wire.mqtt.connect import V5, V311

LIMITS = SessionLimits(session_expiry_max_s=60)


def arrival(packet: ConnectPacket) -> Arrival:
    return Arrival(packet, V5, LIMITS, "given")


def test_a_connect_that_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConnectRefused, match="clean session"):
        Arrival(ConnectPacket("", clean_start=False), V311, LIMITS, "given")


def test_the_shell_is_told_who_comes_and_what_it_is_granted() -> None:
    packet = ConnectPacket(
        "",
        clean_start=True,
        username="ann",
        password=b"secret",
        session_expiry_interval=3_600,
        will=Will("gone", payload=b"x", will_delay_interval=5),
        user_properties=[("home", "north-1")],
    )
    coming = arrival(packet)
    asked, accepted = coming.credentials(), coming.acceptance()
    assert (asked.client_id, asked.username, asked.password) == ("given", "ann", b"secret")
    assert asked.user_properties == accepted.user_properties == (("home", "north-1"),)
    assert (accepted.client_id, accepted.session_expiry_s, accepted.will_delay_s) == ("given", 60, 5)


def test_a_welcome_with_words_can_be_said_without_them() -> None:
    coming = arrival(ConnectPacket("c"))
    (plain,) = coming.welcomes()
    assert not plain.session_present and not plain.user_properties
    full, short = coming.welcomes(present=True, told=(("at", "north-1"),))
    assert full.session_present and short.session_present
    assert (list(full.user_properties), list(short.user_properties)) == ([("at", "north-1")], [])


def test_what_is_sent_early_is_kept_up_to_a_bound() -> None:
    coming = Arrival(ConnectPacket("c"), V5, SessionLimits(early_max_bytes=100), "given")
    assert coming.early.keep(PingReqPacket())
    assert not coming.early.keep(PingReqPacket())
    assert len(coming.early.take()) == 1


def test_packets_are_taken_once_in_the_order_in_which_they_came() -> None:
    early = Early(1_000)
    packets: list[Packet] = [PingReqPacket(), PublishPacket("a", b"x"), PingReqPacket()]
    assert all(early.keep(packet) for packet in packets)
    assert early.take() == packets
    assert early.take() == []


def test_contents_and_numbers_count_against_the_bound() -> None:
    assert not Early(1_000).keep(PublishPacket("a", bytes(1_000)))
    assert not Early(1_000).keep(PublishPacket("a", b"", user_properties=[("k" * 500, "v" * 500)]))
    assert not Early(1_000).keep(SubscribePacket(1, [TopicFilter("a")] * 20))
    assert not Early(1_000).keep(UnsubscribePacket(1, ["a"] * 20))
    pings = Early(1_000)
    assert 10 < sum(pings.keep(PingReqPacket()) for _ in range(100)) < 20


def watching(**changes: Any) -> ConnectPacket:
    fields: dict[str, Any] = {"clean_start": True, "user_properties": [("home.v", "1"), ("watch", "north-1")]}
    return ConnectPacket("watch-c", **{**fields, **changes})


def test_a_connection_that_watches_a_broker_is_known_by_its_connect() -> None:
    coming = arrival(watching())
    assert coming.credentials().watches == coming.acceptance().watches == "north-1"
    unversioned = arrival(watching(user_properties=[("watch", "north-1")]))
    assert unversioned.acceptance().watches == "", "it is a property of the client's own"
    newer = arrival(watching(user_properties=[("home.v", "9"), ("watch", "north-1")]))
    assert newer.acceptance().watches == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"clean_start": False},
        {"session_expiry_interval": 60},
        {"will": Will("gone", payload=b"x")},
        {"user_properties": [("home.v", "1"), ("watch", "x" * 301)]},
    ],
)
def test_a_connection_that_watches_may_want_nothing_else(changes: dict[str, Any]) -> None:
    with pytest.raises(ConnectRefused):
        arrival(watching(**changes))
