"""An inward rule: messages of an AMQP address are published to a topic.

    came ──► publishing ──PUBACK──► accepted
               │  ▲
               ▼  │ back-off
             waiting ──too many tries, or refused for good──► burying ──PUBACK──► rejected, with the reason
                                                                │
                                                                ▼ the network does not take that either
                                                              given back (modified, failed); credit pauses

An AMQP message is **accepted only after the network's PUBACK**. One that cannot be published is published to the place
of dead messages, and then rejected, so that the peer can keep it too. A message that passed this bridge before is
accepted and goes nowhere.

**Bounds.** Credit is granted so that what is held and what may still come are never more than ``window`` messages and
``window_bytes``: each credit counts as a message of ``message_max_bytes``.

**Breaks.** When the connection is lost, what waits is forgotten: the peer sends it again. What is being published is
still counted, and its answer is told to nobody. The message that comes again has the same message-id.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from tocsin.bridge.limits import Limits, delay_us
from tocsin.bridge.mapping import Looped, Unmappable, dead_inward, inward
from tocsin.bridge.peer import ACCEPTED, FAILED, rejected
from tocsin.bridge.rules import InRule
from tocsin.bridge.signals import (
    Attach,
    Came,
    CameTooLarge,
    Connected,
    Disconnected,
    Figures,
    Grant,
    LinkDown,
    LinkUp,
    Note,
    Publish,
    Published,
    PublishFailed,
    Settle,
)
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired
from tocsin.errors import WireError
from tocsin.model.publication import Publication
from tocsin.wire.amqp.message import read_message
from tocsin.wire.amqp.performatives import Outcome

ATTACH: Final = "attach"
PAUSE: Final = "pause"
AGAIN: Final = "again "  # and a token


class Stage(StrEnum):
    """What happens to a message just now."""

    PUBLISHING = "publishing"
    WAITING = "waiting"
    BURYING = "burying"


class _Held(msgspec.Struct):
    """A message that came and is not dealt with."""

    delivery: int | None  # None: its connection is gone, or it came settled
    payload: bytes
    publication: Publication | None  # None: it cannot be published
    settled: bool = False
    stage: Stage = Stage.PUBLISHING
    tries: int = 0
    reason: str = ""  # why it is dead


class Inward:
    """Decides about the messages of one inward rule."""

    def __init__(self, rule: InRule, bridge: str, dead: str, limits: Limits) -> None:
        self.rule = rule
        self.figures = Figures()
        self._bridge, self._dead, self._limits = bridge, dead, limits
        self._connected = False
        self._up = False
        self._paused = False
        self._failures = 0  # links that were not granted, or messages that nobody takes, one after the other
        self._credit = 0  # messages that may still come
        self._held: dict[int, _Held] = {}  # by token
        self._held_bytes = 0
        self._token = 0

    @property
    def in_flight(self) -> int:
        """How many messages are not dealt with."""
        return len(self._held)

    @property
    def under_way(self) -> bool:
        """Whether the network is still to answer."""
        return any(held.stage is not Stage.WAITING for held in self._held.values())

    @property
    def committed_bytes(self) -> int:
        """The bytes that are held, and that may still come."""
        return self._held_bytes + self._credit * self._limits.message_max_bytes

    @property
    def committed(self) -> int:
        """The messages that are held, and that may still come."""
        return len(self._held) + self._credit

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Connected():
                self._connected = True
                return [Attach()]
            case Disconnected():
                self._connected = False
                return self._lose()
            case LinkUp():
                self._up, self._credit = True, 0
                self.figures.problem = ""
                return self._grant()
            case LinkDown():
                return [*self._lose(), *self._refused_link(event.reason)]
            case Came():
                return self._came(event)
            case CameTooLarge():
                return self._came_too_large(event)
            case Published():
                return self._published(event.token)
            case PublishFailed():
                return self._failed(event)
            case TimerFired():
                return self._fired(event.name)
        raise AssertionError(f"an inward rule was told {event!r}")

    # ── the link ────────────────────────────────────────────────────────────────────────────────────────────

    def _refused_link(self, reason: str) -> list[Effect]:
        self.figures.problem = reason
        self._failures += 1
        return [
            Note(event="the AMQP peer has no link for a rule", reason=reason),
            SetTimer(name=ATTACH, delay_us=delay_us(self._failures)),
        ]

    def _lose(self) -> list[Effect]:
        """The link is gone: forget what waits, which comes again, and whom to tell of the rest."""
        self._up, self._credit = False, 0
        for token, held in list(self._held.items()):
            if held.stage is Stage.WAITING and not held.settled:
                self._forget(token)
            held.delivery = None
        return []

    def _grant(self) -> list[Effect]:
        """More credit, if there is room and it is worth a word."""
        if not self._up or self._paused:
            return []
        limits = self._limits
        room = min(
            limits.window - len(self._held),
            (limits.window_bytes - self._held_bytes) // limits.message_max_bytes,
        )
        if room <= self._credit or (self._credit and room - self._credit < limits.window // 2):
            return []
        self._credit = room
        return [Grant(credit=room)]

    def _fired(self, name: str) -> list[Effect]:
        if name == ATTACH:
            return [Attach()] if self._connected and not self._up else []
        if name == PAUSE:
            self._paused = False
            return self._grant()
        token = int(name.removeprefix(AGAIN))
        held = self._held.get(token)
        if held is None or held.stage is not Stage.WAITING:
            return []
        return self._publish(token, held)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _came(self, event: Came) -> list[Effect]:
        self._credit = max(self._credit - 1, 0)
        self.figures.taken += 1
        held = _Held(event.delivery, event.payload, None, event.settled)
        try:
            message = read_message(event.payload)
            held.publication = inward(
                message, self.rule, self._bridge, volatile_qos=self._limits.volatile_qos
            )
        except Looped:
            self.figures.looped += 1
            return [*self._settled(held, ACCEPTED), *self._grant()]
        except Unmappable as error:
            held.reason = str(error)
        except WireError as error:
            held.reason = f"it is not a message of AMQP 1.0: {error}"
        self._token += 1
        self._held[self._token] = held
        self._held_bytes += len(event.payload)
        return [*self._publish(self._token, held), *self._grant()]

    def _publish(self, token: int, held: _Held) -> list[Effect]:
        if held.publication is not None and not held.reason:
            held.stage = Stage.PUBLISHING
            return [Publish(token=token, publication=held.publication)]
        held.stage = Stage.BURYING
        dead = dead_inward(held.payload, self._dead, self.rule, held.reason, self._bridge)
        return [Publish(token=token, publication=dead)]

    def _came_too_large(self, event: CameTooLarge) -> list[Effect]:
        self._credit = max(self._credit - 1, 0)
        if not event.size:  # its sender took it back
            return self._grant()
        self.figures.taken += 1
        reason = f"a message of {event.size} bytes is over the limit of {self._limits.message_max_bytes}"
        note = Note(event="the bridge refused an AMQP message", reason=reason)
        if event.settled:
            self.figures.dropped += 1
            return [note, *self._grant()]
        self.figures.refused += 1
        outcome = rejected(reason, "amqp:link:message-size-exceeded")
        return [note, Settle(delivery=event.delivery, outcome=outcome), *self._grant()]

    def _published(self, token: int) -> list[Effect]:
        held = self._held.get(token)
        if held is None:
            return []
        self._forget(token)
        self._failures = 0
        if held.stage is not Stage.BURYING:
            self.figures.passed += 1
            return [*self._settled(held, ACCEPTED), *self._grant()]
        self.figures.dead += 1
        note = Note(event="an AMQP message is dead", reason=held.reason)
        return [note, *self._settled(held, rejected(held.reason)), *self._grant()]

    def _failed(self, event: PublishFailed) -> list[Effect]:
        held = self._held.get(event.token)
        if held is None:
            return []
        if held.delivery is None and not held.settled:  # the peer sends it again
            self._forget(event.token)
            return self._grant()
        held.tries += 1
        if held.stage is Stage.BURYING:
            return self._not_buried(event, held)
        tries = self._limits.tries
        if event.final or (tries and held.tries >= tries):
            held.reason = f"the network does not take it: {event.reason}"
            return self._publish(event.token, held)
        self.figures.retried += 1
        return self._wait(event.token, held)

    def _not_buried(self, event: PublishFailed, held: _Held) -> list[Effect]:
        """Not even the place of dead messages takes it: give it back, if that is possible."""
        self._failures += 1
        note = Note(event="the place of dead messages does not take a message", reason=event.reason)
        if held.settled:
            return [note, *self._wait(event.token, held)]
        self._forget(event.token)
        self.figures.refused += 1
        self._paused = True
        pause = SetTimer(name=PAUSE, delay_us=delay_us(self._failures))
        return [note, *self._settled(held, FAILED), pause]

    def _wait(self, token: int, held: _Held) -> list[Effect]:
        held.stage = Stage.WAITING
        return [SetTimer(name=f"{AGAIN}{token}", delay_us=delay_us(held.tries))]

    def _settled(self, held: _Held, outcome: Outcome) -> list[Effect]:
        if held.settled or held.delivery is None:
            return []
        return [Settle(delivery=held.delivery, outcome=outcome)]

    def _forget(self, token: int) -> None:
        self._held_bytes -= len(self._held.pop(token).payload)
