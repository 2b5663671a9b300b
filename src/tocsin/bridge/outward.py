"""An outward rule: messages of a subscription go to an AMQP address.

    heard ──► pending ──credit──► sent ──accepted──► acknowledged
                ▲                  │
                │ back-off         ▼
                └── waiting ◄── released, modified, rejected ──too many tries, or of no use there──► burying
                                                                                                       │ PUBACK
                                                                                                       ▼
                                                                                                  acknowledged

A message of the network is **acknowledged only after the AMQP peer has settled it as accepted**, or after the place of
dead messages has it. Until then the network's broker keeps it for the rule's session, and repeats it to the next
process. At QoS 0 there is nothing to acknowledge: a message is sent as settled, once.

**Bounds.** The network's broker sends no more than the receive maximum of the rule's session (``receive_max``). At
QoS 0 it may send any number: what is over ``window`` pending messages, or ``window_bytes`` of them, is dropped.

**Order.** Messages are sent in the order in which they came. One that the peer did not take comes behind those that it
took meanwhile. When the connection is lost, all that were sent and not settled are pending again, in their order.
"""

from __future__ import annotations

from bisect import insort
from enum import StrEnum
from typing import Final

import msgspec

from tocsin.bridge.limits import Limits, delay_us
from tocsin.bridge.mapping import Looped, Unmappable, dead_outward, identity, outward
from tocsin.bridge.rules import OutRule
from tocsin.bridge.signals import (
    Acknowledge,
    Attach,
    Connected,
    Credit,
    Disconnected,
    Figures,
    Heard,
    LinkDown,
    LinkUp,
    Note,
    Publish,
    Published,
    PublishFailed,
    Settled,
    Transmit,
)
from tocsin.client.message import Message
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired
from tocsin.wire.amqp.message import write_message
from tocsin.wire.amqp.performatives import Accepted, Modified, Rejected, Released

ATTACH: Final = "attach"
AGAIN: Final = "again "  # and a token
NETWORK_MESSAGE_MAX_BYTES: Final = 1 << 20  # no broker takes a larger one from a client


class Stage(StrEnum):
    """What happens to a message just now."""

    PENDING = "pending"
    SENT = "sent"
    WAITING = "waiting"
    BURYING = "burying"


class _Held(msgspec.Struct):
    """A message that came and is not dealt with."""

    message: Message
    packet_id: int | None
    until_us: int | None  # when it expires
    stage: Stage = Stage.PENDING
    tries: int = 0
    reason: str = ""  # why it is dead


def receive_max(limits: Limits) -> int:
    """How many messages the network may send unacknowledged, so that they are within the window's bytes."""
    return max(1, min(limits.window, limits.window_bytes // NETWORK_MESSAGE_MAX_BYTES, 65_535))


class Outward:
    """Decides about the messages of one outward rule. ``session`` names it in ids of messages."""

    def __init__(self, rule: OutRule, bridge: str, session: str, dead: str, limits: Limits) -> None:
        self.rule = rule
        self.figures = Figures()
        self._bridge, self._session, self._dead, self._limits = bridge, session, dead, limits
        self._connected = False
        self._up = False
        self._max_bytes: int | None = None
        self._failures = 0  # links that were not granted, one after the other
        self._credit = 0
        self._held: dict[int, _Held] = {}  # by token
        self._pending: list[int] = []  # tokens, in order
        self._volatile = 0  # those of QoS 0 that are held …
        self._volatile_bytes = 0  # … and their bytes

    @property
    def in_flight(self) -> int:
        """How many messages are not dealt with."""
        return len(self._held)

    @property
    def under_way(self) -> bool:
        """Whether the AMQP peer is still to say what became of a message."""
        return any(held.stage is Stage.SENT for held in self._held.values())

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Connected():
                self._connected = True
                return [Attach()]
            case Disconnected():
                self._connected = False
                return self._lose()
            case LinkUp():
                self._up, self._credit, self._max_bytes = True, 0, event.max_bytes
                self.figures.problem, self._failures = "", 0
                return []
            case LinkDown():
                return [*self._lose(), *self._refused_link(event.reason)]
            case Credit():
                self._credit = event.credit
                return self._pump(now_us)
            case Heard():
                return self._heard(event, now_us)
            case Settled():
                return self._settled(event, now_us)
            case Published():
                return self._buried(event.token)
            case PublishFailed():
                return self._not_buried(event)
            case TimerFired():
                return self._fired(event.name, now_us)
        raise AssertionError(f"an outward rule was told {event!r}")

    # ── the link ────────────────────────────────────────────────────────────────────────────────────────────

    def _refused_link(self, reason: str) -> list[Effect]:
        self.figures.problem = reason
        self._failures += 1
        return [
            Note(event="the AMQP peer has no link for a rule", reason=reason),
            SetTimer(name=ATTACH, delay_us=delay_us(self._failures)),
        ]

    def _lose(self) -> list[Effect]:
        self._up, self._credit = False, 0
        for token, held in self._held.items():
            if held.stage is Stage.SENT:
                self._queue(token, held)
        return []

    def _queue(self, token: int, held: _Held) -> None:
        held.stage = Stage.PENDING
        insort(self._pending, token)

    def _fired(self, name: str, now_us: int) -> list[Effect]:
        if name == ATTACH:
            return [Attach()] if self._connected and not self._up else []
        token = int(name.removeprefix(AGAIN))
        held = self._held.get(token)
        if held is None or held.stage is not Stage.WAITING:
            return []
        if held.reason:
            return self._bury(token, held, held.reason)
        self._queue(token, held)
        return self._pump(now_us)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, event: Heard, now_us: int) -> list[Effect]:
        self.figures.taken += 1
        message = event.message
        if event.packet_id is None:
            size = self._volatile_bytes + _size(message)
            if self._volatile >= self._limits.window or size > self._limits.window_bytes:
                self.figures.dropped += 1
                return []
            self._volatile += 1
            self._volatile_bytes = size
        until_us = None if message.expiry_s is None else now_us + message.expiry_s * 1_000_000
        held = self._held[event.token] = _Held(message, event.packet_id, until_us)
        self._queue(event.token, held)
        return self._pump(now_us)

    def _pump(self, now_us: int) -> list[Effect]:
        """Send what credit allows."""
        effects: list[Effect] = []
        sent = 0
        for token in self._pending:
            if not self._up or self._credit <= 0:
                break
            effects += self._send(token, self._held[token], now_us)
            sent += 1
        del self._pending[:sent]
        return effects

    def _send(self, token: int, held: _Held, now_us: int) -> list[Effect]:
        ttl_ms = None if held.until_us is None else (held.until_us - now_us) // 1000
        if ttl_ms is not None and ttl_ms <= 0:
            self.figures.expired += 1
            return self._finish(token, held)
        message_id = identity(held.message, self._session, held.packet_id)
        try:
            message = outward(held.message, self._bridge, message_id=message_id, ttl_ms=ttl_ms)
        except Looped:
            self.figures.looped += 1
            return self._finish(token, held)
        except Unmappable as error:
            return self._bury(token, held, str(error))
        payload = write_message(message)
        if self._max_bytes is not None and len(payload) > self._max_bytes:
            reason = f"it has {len(payload)} bytes, and the AMQP peer takes {self._max_bytes}"
            return self._bury(token, held, reason)
        self._credit -= 1
        settled = held.packet_id is None
        transmit = Transmit(token=token, payload=payload, settled=settled)
        if settled:
            self.figures.passed += 1
            return [transmit, *self._finish(token, held)]
        held.stage = Stage.SENT
        return [transmit]

    def _finish(self, token: int, held: _Held) -> list[Effect]:
        del self._held[token]
        if held.packet_id is None:
            self._volatile -= 1
            self._volatile_bytes -= _size(held.message)
            return []
        return [Acknowledge(token=token)]

    def _settled(self, event: Settled, now_us: int) -> list[Effect]:
        held = self._held.get(event.token)
        if held is None or held.stage is not Stage.SENT:
            return []
        if isinstance(event.outcome, Accepted):
            self.figures.passed += 1
            return [*self._finish(event.token, held), *self._pump(now_us)]
        held.tries += 1
        reason = _words(event.outcome)
        useless = isinstance(event.outcome, Modified) and bool(event.outcome.undeliverable_here)
        if useless or (self._limits.tries and held.tries >= self._limits.tries):
            return [*self._bury(event.token, held, f"{reason}, {held.tries} times"), *self._pump(now_us)]
        self.figures.retried += 1
        held.stage = Stage.WAITING
        return [
            Note(event="the AMQP peer did not take a message", reason=reason, warn=False),
            SetTimer(name=f"{AGAIN}{event.token}", delay_us=delay_us(held.tries)),
        ]

    # ── dead messages ───────────────────────────────────────────────────────────────────────────────────────

    def _bury(self, token: int, held: _Held, reason: str) -> list[Effect]:
        held.stage, held.reason = Stage.BURYING, reason
        dead = dead_outward(held.message, self._dead, str(self.rule), reason, self._bridge)
        return [Publish(token=token, publication=dead)]

    def _buried(self, token: int) -> list[Effect]:
        held = self._held.get(token)
        if held is None:
            return []
        self.figures.dead += 1
        note = Note(event="a message is dead", reason=f"{held.message.topic}: {held.reason}")
        return [note, *self._finish(token, held)]

    def _not_buried(self, event: PublishFailed) -> list[Effect]:
        """Not even the place of dead messages takes it: keep it, and try again."""
        held = self._held.get(event.token)
        if held is None:
            return []
        held.stage = Stage.WAITING
        held.tries += 1
        return [
            Note(event="the place of dead messages does not take a message", reason=event.reason),
            SetTimer(name=f"{AGAIN}{event.token}", delay_us=delay_us(held.tries)),
        ]


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload)


def _words(outcome: object) -> str:
    match outcome:
        case Rejected(error=error) if error is not None:
            return f"the AMQP peer rejected it ({error})"[:400]
        case Rejected():
            return "the AMQP peer rejected it"
        case Released():
            return "the AMQP peer released it"
        case Modified():
            return "the AMQP peer gave it back as modified"
    return "the AMQP peer settled it without an outcome"
