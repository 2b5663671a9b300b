"""Watches one broker for the clients of a process that are there: tells them when the network counts it as lost.

    calling ──► there ◄──► lost
       ▲ └────────┴─────────┴──► calling            (the connection broke: another one is dialled)
       └── deaf (the server does not know what a watch is: it is asked again, or another one, later)

Transitions of ``Watch``:

    calling  Called → there, lost, deaf
    there    Heard → lost
    lost     Heard → there
             TimerFired
    deaf     TimerFired → calling
    *        Called, Heard, TimerFired → nothing
             Hung → calling
             Joined

The watch connection goes to a server to which the clients would go (``core.survival.watchers``); a ``Dialler`` keeps
it. While the broker counts as lost, all its clients are alarmed, at once and then every AGAIN_US: a client that
had a sign of life stays, and its broker may fall silent later.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Final

from mqtt5 import ConnAckPacket, ConnectPacket, PublishPacket

from tocsin.core.links.signals import Heard
from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, Table, TableMachine, TimerFired
from tocsin.core.survival.homes import GUEST, PROPERTY_VERSION, PROPERTY_WATCH
from tocsin.core.survival.watchers import BACK_TOPIC, LOST, LOST_TOPIC, THERE

AGAIN_US: Final = 1_000_000
DEAF_US: Final = (
    60_000_000  # before a server that does not know watches is asked again: releases change rarely
)
KEEP_ALIVE_S: Final = 60
PACKET_MAX_BYTES: Final = 4_096  # of what a watcher takes: far more than a CONNACK with its properties
CLIENT_ID_MAX_CHARS: Final = 60  # of the client's own id, in that of its watch connection


class Called(Event, frozen=True, kw_only=True):
    """A server has accepted the watch connection."""

    answer: ConnAckPacket


class Hung(Event, frozen=True, kw_only=True):
    """The watch connection is over, or leads elsewhere from now on."""


class Joined(Event, frozen=True, kw_only=True):
    """One more client is at the broker."""


class Alarm(Effect, frozen=True, kw_only=True):
    """Tell all clients that the broker counts as lost (``core.links.signals.Alarmed``)."""


class EndCall(Effect, frozen=True, kw_only=True):
    """End the watch connection: the server is of no use."""


class CallAgain(Effect, frozen=True, kw_only=True):
    """Begin a watch connection anew."""


class WatchState(StrEnum):
    """What is known of the broker."""

    CALLING = "calling"
    THERE = "there"
    LOST = "lost"
    DEAF = "deaf"


class WatchTimer(StrEnum):
    """The timers of a watch."""

    AGAIN = "again"  # alarm the clients once more
    DEAF = "deaf"  # the server is asked again


class Watch(TableMachine):
    """Watches one broker."""

    timers = WatchTimer
    state: WatchState = WatchState.CALLING

    def __init__(self, broker: str) -> None:
        self._broker = broker

    def _on_answer(self, event: Called, now_us: int) -> list[Effect]:
        said = dict(event.answer.user_properties).get(PROPERTY_WATCH)
        if said == LOST:
            return self._on_loss()
        if said != THERE:
            self.state = WatchState.DEAF
            return [EndCall(), SetTimer(name=WatchTimer.DEAF, delay_us=DEAF_US)]
        self.state = WatchState.THERE
        return []

    def _on_loss(self) -> list[Effect]:
        self.state = WatchState.LOST
        return self._alarm()

    def _alarm(self) -> list[Effect]:
        return [Alarm(), SetTimer(name=WatchTimer.AGAIN, delay_us=AGAIN_US)]

    def _hear_loss(self, event: Heard, now_us: int) -> list[Effect]:
        return self._on_loss() if self._is_about(event, LOST_TOPIC) else []

    def _hear_return(self, event: Heard, now_us: int) -> list[Effect]:
        if not self._is_about(event, BACK_TOPIC):
            return []
        self.state = WatchState.THERE
        return [CancelTimer(name=WatchTimer.AGAIN)]

    def _is_about(self, event: Heard, topic: str) -> bool:
        packet = event.packet
        return (
            isinstance(packet, PublishPacket)
            and packet.topic == topic
            and bytes(packet.payload or b"") == self._broker.encode()
        )

    def _on_again(self, event: TimerFired, now_us: int) -> list[Effect]:
        return self._alarm() if event.name == WatchTimer.AGAIN else []

    def _on_deaf(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name != WatchTimer.DEAF:
            return []
        self.state = WatchState.CALLING
        return [CallAgain()]

    def _hang(self, event: Hung, now_us: int) -> list[Effect]:
        self.state = WatchState.CALLING
        return [CancelTimer(name=WatchTimer.AGAIN), CancelTimer(name=WatchTimer.DEAF)]

    def _join(self, event: Joined, now_us: int) -> list[Effect]:
        return [Alarm()] if self.state is WatchState.LOST else []

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (WatchState.CALLING, Called): _on_answer,
        (WatchState.THERE, Heard): _hear_loss,
        (WatchState.LOST, Heard): _hear_return,
        (WatchState.LOST, TimerFired): _on_again,
        (WatchState.DEAF, TimerFired): _on_deaf,
        ("*", Called): _ignore,
        ("*", Heard): _ignore,
        ("*", TimerFired): _ignore,
        ("*", Hung): _hang,
        ("*", Joined): _join,
    }


def greeting(client_id: str, broker: str, username: str | None, password: bytes | None) -> ConnectPacket:
    """The CONNECT of a watch connection: with the credentials of a client, and an id made from its own."""
    properties: Iterable[tuple[str, str]] = ((PROPERTY_VERSION, GUEST.text), (PROPERTY_WATCH, broker))
    return ConnectPacket(
        f"watch-{client_id[:CLIENT_ID_MAX_CHARS]}",
        clean_start=True,
        keep_alive=KEEP_ALIVE_S,
        username=username,
        password=password,
        max_packet_size=PACKET_MAX_BYTES,
        user_properties=list(properties),
    )
