"""How far the peer is, and whether it is there: signs of life and their round trips."""

from __future__ import annotations

from mqtt5 import (
    ConnectPacket,
    PingReqPacket,
    PingRespPacket,
)

from tests.unit.core.links.diallers import (
    GREETING,
    dialler_up,
    kinds,
    timer,
    unanswered,
)
from tocsin.core.links.dialler import Dialler, DiallerTimer
from tocsin.core.links.signals import HangUp, Heard, Lost, Pinging
from tocsin.core.machine import SetTimer, Started, TimerFired
from tocsin.core.session.signals import SendPacket


def test_the_round_trip_is_that_of_the_last_sign_of_life() -> None:
    dialler = dialler_up()
    assert kinds(dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)) == [SendPacket, SetTimer]
    dialler.handle(Heard(packet=PingRespPacket()), 5_012_000)
    assert dialler.round_trip_us == 12_000
    dialler.handle(Heard(packet=PingRespPacket()), 9_000_000)  # nobody asked for it
    assert dialler.round_trip_us == 12_000


def test_a_ping_on_request_gives_the_peer_its_full_deadline() -> None:
    dialler = dialler_up()
    effects = dialler.handle(Pinging(), 4_990_000)
    assert [e.packet for e in effects if isinstance(e, SendPacket)] == [PingReqPacket()]
    assert timer(effects, DiallerTimer.PING) == 5_000_000
    assert dialler.handle(Pinging(), 4_991_000) == []  # it is asked already
    dialler.handle(Heard(packet=PingRespPacket()), 4_995_000)
    assert dialler.round_trip_us == 5_000


def test_nobody_is_asked_while_there_is_no_connection() -> None:
    dialler = Dialler(GREETING, redial=True)
    dialler.handle(Started(incarnation=1), 0)
    assert dialler.handle(Pinging(), 1) == []
    assert Dialler(ConnectPacket("me", keep_alive=0), redial=True).handle(Pinging(), 1) == []


def test_data_written_to_a_silent_peer_must_not_arrive_later() -> None:
    dialler = dialler_up()
    dialler.handle(TimerFired(name=DiallerTimer.PING), 5_000_000)
    (hung_up,) = [e for e in unanswered(dialler, 10_000_000) if isinstance(e, HangUp)]
    assert hung_up.abrupt
    dialler = dialler_up()
    (hung_up,) = [e for e in dialler.handle(Lost(reason="reset"), 10_000_000) if isinstance(e, HangUp)]
    assert not hung_up.abrupt
