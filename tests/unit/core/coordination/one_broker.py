"""A broker's machine with a clock, for tests of what it does."""

from __future__ import annotations

from typing import TypeVar

from tests.unit.core.coordination.histories import NORTH
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    ClientsChanged,
)
from tocsin.core.machine import (
    Effect,
    Event,
    Followed,
    ReadLog,
    Received,
    Send,
    Started,
    Stored,
    TimerFired,
)
from tocsin.model.network import COORDINATOR, BrokerInfo, Message
from tocsin.ports import Entry, Page
from tocsin.wire.internal import notices
from tocsin.wire.internal.commands import ClientBack, ClientGone, Streams
from tocsin.wire.internal.control import Pulse

BEAT_US = 1_000_000
PLACES = StoreNames("net")
CHANGE = Streams("anna", 60, (("a", {"kind": "lamp"}),), 0, 3)
EffectT = TypeVar("EffectT", bound=Effect)
MessageT = TypeVar("MessageT", bound=Message)


def of(kind: type[EffectT], effects: list[Effect]) -> list[EffectT]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(kind: type[MessageT], effects: list[Effect]) -> list[MessageT]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


class Broker:
    """A participant with a clock."""

    def __init__(self, info: BrokerInfo = NORTH) -> None:
        self.machine = Participant(info, PLACES, BEAT_US)
        self.now_us = 0
        self._positions = 10
        self.number = 0

    def handle(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, self.now_us)

    def start(self, last: int = 10) -> list[Effect]:
        (read,) = of(ReadLog, self.handle(Started(incarnation=5)))
        return self.handle(Stored(request=read.request, value=Page((), 1, last)))

    def joined(self) -> Broker:
        """It has joined and was told all that there is."""
        self.start()
        self.notice(applied=1, fresh=True)
        return self

    def led(self) -> Broker:
        self.joined()
        self.hear(Pulse(1, self.machine.incarnation, self.number))
        return self

    def fire(self, name: str) -> list[Effect]:
        return self.handle(TimerFired(name=name))

    def hear(self, message: Message) -> list[Effect]:
        return self.handle(Received(sender=COORDINATOR, message=message))

    def say(self, command: Streams | ClientGone | ClientBack, ticket: int) -> list[Effect]:
        return self.handle(ClientsChanged(ticket=ticket, command=command))

    def notice(
        self,
        *items: notices.Item,
        applied: int = 0,
        clear: int = 0,
        fresh: bool = False,
        ask: bool = False,
        number: int | None = None,
        incarnation: int | None = None,
        epoch: int = 1,
    ) -> list[Effect]:
        self.number = self.number + 1 if number is None else number
        self._positions += 1
        payload = notices.encode_notice(
            incarnation=self.machine.incarnation if incarnation is None else incarnation,
            number=self.number,
            epoch=epoch,
            applied=applied,
            clear=clear,
            fresh=fresh,
            more=False,
            ask=ask,
            items=notices.encode_items([*map(notices.encode_item, items)]),
        )
        entry = Entry(self._positions, "net.n.north", payload, f"id-{self._positions}", 0)
        return self.handle(Followed(log="net-commands", entry=entry))
