"""What the machines of rules are told, and what they want done."""

from __future__ import annotations

import msgspec

from tocsin.client.message import Message
from tocsin.core.machine import Effect, Event
from tocsin.model.publication import Publication
from tocsin.wire.amqp.performatives import Outcome

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class Connected(Event, frozen=True, kw_only=True):
    """There is a connection to the AMQP peer."""


class Disconnected(Event, frozen=True, kw_only=True):
    """There is none any more."""


class LinkUp(Event, frozen=True, kw_only=True):
    """The rule's link is there."""

    max_bytes: int | None = None  # the largest message that the peer takes


class LinkDown(Event, frozen=True, kw_only=True):
    """The peer does not want the rule's link, or no longer."""

    reason: str


class Came(Event, frozen=True, kw_only=True):
    """An AMQP message came on an inward link."""

    delivery: int
    payload: bytes
    settled: bool = False


class CameTooLarge(Event, frozen=True, kw_only=True):
    """An AMQP message came that is larger than a message may be; it is not here."""

    delivery: int
    size: int
    settled: bool = False


class Published(Event, frozen=True, kw_only=True):
    """The network has a message: PUBACK came."""

    token: int


class PublishFailed(Event, frozen=True, kw_only=True):
    """The network did not take a message."""

    token: int
    reason: str
    final: bool = False  # the same message would be refused again


class Heard(Event, frozen=True, kw_only=True):
    """A message of the network came for an outward rule."""

    token: int  # increases; of the shell
    message: Message
    packet_id: int | None = None  # None at QoS 0


class Credit(Event, frozen=True, kw_only=True):
    """The AMQP peer takes so many messages from now on."""

    credit: int


class Settled(Event, frozen=True, kw_only=True):
    """What the AMQP peer did with a message; None: it does not say."""

    token: int
    outcome: Outcome | None


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Attach(Effect, frozen=True, kw_only=True):
    """Begin the rule's link."""


class Grant(Effect, frozen=True, kw_only=True):
    """So many AMQP messages may come from now on."""

    credit: int


class Publish(Effect, frozen=True, kw_only=True):
    """Publish a message → ``Published``, ``PublishFailed``."""

    token: int
    publication: Publication


class Settle(Effect, frozen=True, kw_only=True):
    """Tell the AMQP peer what became of a message."""

    delivery: int
    outcome: Outcome


class Transmit(Effect, frozen=True, kw_only=True):
    """Send a message to the AMQP peer → ``Settled``, unless it is sent as settled."""

    token: int
    payload: bytes
    settled: bool = False


class Acknowledge(Effect, frozen=True, kw_only=True):
    """Acknowledge a message to the network's broker: it is dealt with."""

    token: int


class Note(Effect, frozen=True, kw_only=True):
    """Write a line to the log."""

    event: str
    reason: str
    warn: bool = True


class Figures(msgspec.Struct):
    """What a rule has done since the process began."""

    taken: int = 0  # messages that came
    passed: int = 0  # that the other side has
    retried: int = 0
    looped: int = 0  # not sent back to where they came from
    expired: int = 0
    dead: int = 0  # in the place of dead messages
    refused: int = 0  # given back to the AMQP peer, rejected or failed
    dropped: int = 0  # at QoS 0, or sent as settled: nobody can be asked to send them again
    problem: str = ""  # why the rule does not work just now
