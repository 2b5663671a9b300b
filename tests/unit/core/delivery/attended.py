"""An attendance for tests, with its effects at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mqtt5 import (
    PubAckPacket,
    PubCompPacket,
    PubRecPacket,
)

from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.session_cell import SAVE
from tocsin.core.delivery.signals import (
    Answered,
    AwaitSave,
    BatchRead,
    Began,
    DeliveryTimer,
    Kept,
    MatchedEntry,
    ReadFailed,
    ReleaseAsked,
    Subscribed,
    Unsubscribed,
    Writable,
)
from tocsin.core.delivery.stored_session import FOREVER_S, StoredSession, decode_session
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import (
    Effect,
    Event,
    PutKey,
    Stored,
    StoreFailed,
    TimerFired,
)
from tocsin.errors import Conflict, OutcomeUnknown, StoreFull, StoreUnavailable
from tocsin.ports import Entry

SESSION = StoredSession("me", uid="u", expiry_s=FOREVER_S, broker="b")
SUBSCRIPTION = Subscription(qos=2)
OF_THE_CLIENT: tuple[Event, ...] = (
    Subscribed(topic_filter="a", subscription=SUBSCRIPTION),
    Unsubscribed(topic_filter="a"),
    AwaitSave(ticket=1),
    ReleaseAsked(packet_id=1, ticket=1),
    Kept(packet_id=1),
    Answered(packet=PubAckPacket(1)),
)
OF_THE_LOG: tuple[Event, ...] = (
    BatchRead(entries=(), next=2, tail=1),
    ReadFailed(error=StoreUnavailable("read", "x")),
    Writable(),
)
OF_THE_STORE: tuple[Event, ...] = (
    Stored(request=SAVE, value=2),
    StoreFailed(request=SAVE, error=StoreUnavailable("put", "x")),
    TimerFired(name=DeliveryTimer.SAVE_AGAIN),
    TimerFired(name=DeliveryTimer.REFRESH),
)

Kind = TypeVar("Kind", bound=Effect)


def of(effects: Sequence[Effect], kind: type[Kind]) -> list[Kind]:
    return [each for each in effects if isinstance(each, kind)]


def one(effects: Sequence[Effect], kind: type[Kind]) -> Kind:
    (only,) = of(effects, kind)
    return only


class Attended:
    """An attendance whose effects are at hand."""

    def __init__(
        self,
        session: StoredSession | None = SESSION,
        *,
        receive_max: int = 10,
        tail: int = 0,
        critical_tail: int = 0,
        results_tail: int = 0,
        revision: int = 7,
    ) -> None:
        self.machine = ClientDelivery()
        began = Began(
            receive_max=receive_max,
            prefix="p",
            session=session,
            revision=revision,
            tail=tail,
            critical_tail=critical_tail,
            results_tail=results_tail,
        )
        self.first = self.machine.handle(began, 0)

    def tell(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, 0)

    def answer(self, packet: PubAckPacket | PubRecPacket | PubCompPacket) -> list[Effect]:
        return self.tell(Answered(packet=packet))

    def subscribe(self, topic_filter: str = "a", since: int = 0) -> list[Effect]:
        subscription = Subscription(qos=2, since=since)
        return self.tell(Subscribed(topic_filter=topic_filter, subscription=subscription))

    def fire(self, name: str) -> list[Effect]:
        return self.tell(TimerFired(name=name))

    def stored(self, revision: int = 8) -> list[Effect]:
        return self.tell(Stored(request=SAVE, value=revision))

    def failed(
        self, error: StoreUnavailable | OutcomeUnknown | Conflict | StoreFull, request: str = SAVE
    ) -> list[Effect]:
        return self.tell(StoreFailed(request=request, error=error))


def session_of(effects: Sequence[Effect]) -> StoredSession:
    return decode_session(one(effects, PutKey).value)


def batch(*positions: int, to: int, tail: int) -> BatchRead:
    entries = [MatchedEntry(Entry(each, "t.m.a", b"", str(each), 0), 2) for each in positions]
    return BatchRead(entries=entries, next=to, tail=tail)


UNAVAILABLE = StoreUnavailable("put", "no leader")
UNKNOWN = OutcomeUnknown("put", 5.0)
CONFLICT = Conflict("put", 7, 9)
