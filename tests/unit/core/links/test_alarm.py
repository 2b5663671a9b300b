"""A dialler whose broker is said to be lost: it asks the broker, and leaves one that does not answer."""

from __future__ import annotations

import pytest
from mqtt5 import ConnAckPacket, PingReqPacket, PingRespPacket, PublishPacket

from tests.unit.core.links.diallers import GREETING, dialled, dials, down, timer, told
from tocsin.core.links.dialler import PROBE_MOST_US, PROBE_US, Dialler, DiallerTimer
from tocsin.core.links.signals import Alarmed, Dialled, Heard, Lost
from tocsin.core.machine import Effect, Started, TimerFired
from tocsin.core.session.signals import SendPacket

ANSWER = (("broker", "north-1"), ("server", "local:1"), ("server", "remote:2"))
ALARM = Alarmed(broker="north-1")
SILENCE = TimerFired(name=DiallerTimer.PROBE)
LOCAL, REMOTE = ("local", 1), ("remote", 2)


def at_home(*, keep_alive_s: int | None = None) -> Dialler:
    dialler = Dialler(GREETING, redial=True, follow=True, home="home:1")
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    answer = ConnAckPacket(user_properties=list(ANSWER), server_keep_alive=keep_alive_s)
    dialler.handle(Heard(packet=answer), 0)
    assert dialler.state == "up"
    return dialler


def pings(effects: list[Effect]) -> int:
    return sum(isinstance(each, SendPacket) and isinstance(each.packet, PingReqPacket) for each in effects)


@pytest.mark.parametrize("keep_alive_s", [None, 0])
def test_a_silent_broker_is_left_for_its_local_backup_at_once(keep_alive_s: int | None) -> None:
    dialler = at_home(keep_alive_s=keep_alive_s)
    asked = dialler.handle(ALARM, 100)
    assert pings(asked) == 1 and timer(asked, DiallerTimer.PROBE) == PROBE_US
    assert dialler.handle(ALARM, 200) == [], "it is asked already"
    gone = dialler.handle(SILENCE, 100 + PROBE_US)
    assert dials(gone) == [(LOCAL, 0)] and down(gone).retry_us == 0


@pytest.mark.parametrize("sign", [PingRespPacket(), PublishPacket("news", b"x")])
def test_a_broker_that_says_anything_keeps_its_clients(sign: PingRespPacket | PublishPacket) -> None:
    dialler = at_home()
    dialler.handle(ALARM, 100)
    dialler.handle(Heard(packet=sign), 200)
    assert dialler.handle(SILENCE, 100 + PROBE_US) == [] and dialler.state == "up"
    dialler.handle(Heard(packet=PingRespPacket()), 300)
    assert pings(dialler.handle(ALARM, 400)) == 1, "a later alarm counts again"


def test_the_loss_of_another_broker_concerns_nobody_here() -> None:
    assert at_home().handle(Alarmed(broker="north-2"), 100) == []


def test_a_broker_far_away_has_longer_to_answer() -> None:
    dialler = at_home()
    dialler.handle(TimerFired(name=DiallerTimer.PING), 0)
    dialler.handle(Heard(packet=PingRespPacket()), 300_000)
    assert timer(dialler.handle(ALARM, 400_000), DiallerTimer.PROBE) == 1_200_000
    dialler.handle(Heard(packet=PingRespPacket()), 5_000_000)
    assert timer(dialler.handle(ALARM, 6_000_000), DiallerTimer.PROBE) == PROBE_MOST_US


def test_a_home_that_accepts_in_silence_is_left_when_alarmed() -> None:
    dialler = at_home()
    dialler.handle(Lost(reason="broken"), 10)
    dialler.handle(TimerFired(name=DiallerTimer.RETRY), 20)
    dialler.handle(Dialled(), 30)
    assert timer(dialler.handle(ALARM, 40), DiallerTimer.PROBE) == PROBE_US
    assert dials(dialler.handle(SILENCE, 50)) == [(LOCAL, 0)]


def test_a_lost_home_is_passed_over_once() -> None:
    dialler = at_home()
    dialler.handle(ALARM, 0)
    dialler.handle(SILENCE, PROBE_US)
    dialler.handle(Dialled(), PROBE_US)
    answer = told(("broker", "north-2"), ("server", "third:3"))
    dialler.handle(Heard(packet=answer), PROBE_US)
    dialler.handle(Lost(reason="killed"), PROBE_US)
    first = dialler.handle(TimerFired(name=DiallerTimer.RETRY), 10**6)
    assert dials(first) == [(("third", 3), 0)], "and not the home, which is frozen"
    dialler.handle(Lost(reason="refused"), 10**6)
    again = dialler.handle(TimerFired(name=DiallerTimer.RETRY), 10**7)
    assert dialled(again).server is None, "then home is tried as ever"


def test_a_client_that_was_sent_home_leaves_for_the_first_backup_too() -> None:
    dialler = at_home()
    dialler.handle(ALARM, 0)
    dialler.handle(SILENCE, PROBE_US)
    dialler.handle(Dialled(), PROBE_US)
    dialler.handle(
        Heard(packet=told(*ANSWER)), PROBE_US
    )  # a standby has the home's name, at the backup's address
    dialler.handle(ALARM, 10**6)
    assert dials(dialler.handle(SILENCE, 10**7)) == [(LOCAL, 0)]
