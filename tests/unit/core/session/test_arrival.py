"""A client that is coming in."""

from __future__ import annotations

import pytest
from mqtt5 import ConnectPacket, PingReqPacket, Will

from tocsin.core.session.arrival import Arrival
from tocsin.core.session.handshake import ConnectRefused, SessionLimits
from tocsin.wire.connect import V5, V311

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
    (plain,) = coming.welcomes(LIMITS)
    assert not plain.session_present and not plain.user_properties
    full, short = coming.welcomes(LIMITS, present=True, told=(("at", "north-1"),))
    assert full.session_present and short.session_present
    assert (list(full.user_properties), list(short.user_properties)) == ([("at", "north-1")], [])


def test_what_is_sent_early_is_kept_up_to_a_bound() -> None:
    coming = Arrival(ConnectPacket("c"), V5, SessionLimits(early_max_bytes=100), "given")
    assert coming.early.keep(PingReqPacket())
    assert not coming.early.keep(PingReqPacket())
    assert len(coming.early.take()) == 1
