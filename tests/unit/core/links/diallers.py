"""What tests of the dialler share: one that is up, and what is read from its effects."""

from __future__ import annotations

from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
)

from tocsin.core.links.dialler import Dialler, DiallerTimer
from tocsin.core.links.signals import Dial, Dialled, Down, FlowSeen, Heard, LookAtFlow
from tocsin.core.machine import Effect, SetTimer, Started, TimerFired
from tocsin.core.session.signals import SendPacket

GREETING = ConnectPacket("me", keep_alive=10)
ELSEWHERE = ConnAckPacket(reason_code=ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="other:1884")


def dialler_up(*, redial: bool = True, follow: bool = False, home: str = "") -> Dialler:
    dialler = Dialler(GREETING, redial=redial, follow=follow, home=home)
    dialler.handle(Started(incarnation=1), 0)
    dialler.handle(Dialled(), 0)
    dialler.handle(Heard(packet=ConnAckPacket()), 0)
    assert dialler.state == "up"
    return dialler


def unanswered(dialler: Dialler, now_us: int) -> list[Effect]:
    """What follows when the peer has not answered by the next PINGREQ, and nobody can tell how bytes flow."""
    assert kinds(dialler.handle(TimerFired(name=DiallerTimer.PING), now_us)) == [LookAtFlow]
    return dialler.handle(FlowSeen(flow=None), now_us)


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


def timer(effects: list[Effect], name: str) -> int:
    return next(e.delay_us for e in effects if isinstance(e, SetTimer) and e.name == name)


def down(effects: list[Effect]) -> Down:
    return next(effect for effect in effects if isinstance(effect, Down))


def dialled(effects: list[Effect]) -> Dial:
    return next(effect for effect in effects if isinstance(effect, Dial))


def turns(effects: list[Effect]) -> list[int]:
    return [effect.turn for effect in effects if isinstance(effect, Dial)]


def told(*properties: tuple[str, str]) -> ConnAckPacket:
    return ConnAckPacket(user_properties=list(properties))


def greeted(effects: list[Effect]) -> ConnectPacket:
    packet = next(effect.packet for effect in effects if isinstance(effect, SendPacket))
    assert isinstance(packet, ConnectPacket)
    return packet


def dials(effects: list[Effect]) -> list[tuple[object, int]]:
    return [(effect.server, effect.turn) for effect in effects if isinstance(effect, Dial)]
