"""The control messages between brokers and coordinators, and their bytes (MessagePack).

All of them may be lost, repeated or overtaken, and none says anything that is not in the command log or can be said
again: commands are numbered and sent until a notice acknowledges them (``wire.internal.commands``,
``wire.internal.notices``), beats and pulses are followed by others. Brokers speak to whichever coordinator leads, at
an address that all of them hear; the epoch in a leader's messages lets a broker ignore a deposed leader.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tocsin.model.network import Address, BrokerInfo, Message, Role
from tocsin.model.versions import Levels, Packed
from tocsin.wire.internal.commands import BrokerCommand

HOMES_MAX: Final = 64  # that a beat may ask about
REFUGES_MAX: Final = 16  # that a pulse may name
CUTS_MAX: Final = 64  # links that a broker may call cut
PEERS_MAX: Final = 256  # links whose delays it may tell
NAME_MAX: Final = 300  # characters of a home: an id, or an address
SLOT_LOADS_MAX: Final = 256  # slots of which a member of a tier tells what they bring, the heaviest first
TOPIC_LOADS_MAX: Final = 24  # … and topics: the busiest, and those that are carried apart from their slots
TOPIC_MAX: Final = 256  # characters of such a topic; what longer ones bring counts for their slots
ENDS_MAX: Final = 8  # clusters between which a slot's messages go, the most used first

Number = Annotated[int, Meta(ge=0)]
Home = Annotated[str, Meta(max_length=NAME_MAX)]


class ControlMessage(Message, frozen=True, gc=False, array_like=True):
    """Base of all: a list of its fields behind its tag. Frequent messages have a short one."""


class Beat(ControlMessage, frozen=True, gc=False, tag="B"):
    """Broker → coordinator: I am here."""

    broker: str
    incarnation: int
    seen: int  # the number of the last notice that it has applied
    load: int = 0  # how full it is, in thousandths of the clients that it takes
    # The homes of its guests, by id or address: the broker wants to know when they are back.
    homes: Annotated[tuple[Home, ...], Meta(max_length=HOMES_MAX)] = ()
    number: Number = 0  # counts the beats of a process, so that what is lost is noticed; 0: not counted
    interval_ms: Number = 0  # after which the next one comes
    refuges: Number = 0  # the checksum of the refuges that it knows
    clients: Number = 0  # that are connected to it
    recruited: bool = False  # it is being emptied to stand by: a new leader goes on with that
    # It takes no new clients, because it is being emptied. None: it is of an earlier release, which does not say.
    refuses: bool | None = None


class Submit(ControlMessage, frozen=True, gc=False):
    """Broker → coordinator: commands, of which the first has the number ``first``."""

    broker: str
    incarnation: int
    first: int
    commands: tuple[BrokerCommand, ...]


class Seen(ControlMessage, frozen=True, gc=False):
    """Broker → coordinator: I have applied the notices up to this one, which asked for it."""

    broker: str
    incarnation: int
    number: int


class Refresh(ControlMessage, frozen=True, gc=False):
    """Broker → coordinator: I missed something; tell me everything."""

    broker: str
    incarnation: int


class Links(ControlMessage, frozen=True, gc=False):
    """Broker → coordinator: how my links are, all of them. Replaces what I said before."""

    broker: str
    incarnation: int
    # Peers to which I have something to send, and no connection for a while.
    cut: Annotated[tuple[Home, ...], Meta(max_length=CUTS_MAX)] = ()
    # Peers to which I have one, and the round trip in microseconds.
    delays: Annotated[tuple[tuple[Home, Number], ...], Meta(max_length=PEERS_MAX)] = ()
    # Peers that have just closed my connection without a word, and those that refuse another one since.
    closed: Annotated[tuple[Home, ...], Meta(max_length=CUTS_MAX)] = ()
    refused: Annotated[tuple[Home, ...], Meta(max_length=CUTS_MAX)] = ()


class SlotLoad(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one slot of a tier brings to the member that carries it."""

    slot: Annotated[int, Meta(ge=0, le=1_023)]
    messages_s: Number
    bytes_s: Number
    topics: Number  # that had messages
    # Clusters, by their places in the message's list, and the messages a second that come from there or go there.
    ends: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=ENDS_MAX)] = ()


class TopicLoad(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The same of one topic."""

    topic: Annotated[str, Meta(max_length=TOPIC_MAX)]
    messages_s: Number
    bytes_s: Number
    origins: Number  # clusters that it comes from …
    # … those with most, by their places in the message's list, and the messages a second that come from there.
    ends: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=ENDS_MAX)] = ()


class Load(ControlMessage, frozen=True, gc=False):
    """Member of a tier → coordinator: what I carried in the last seconds. Replaces what I said before."""

    broker: str
    incarnation: int
    busy: Number  # thousandths of the time, in which the process worked or waited for a processor
    messages_s: Number
    bytes_s: Number
    links: Number  # over which something was carried
    clusters: Annotated[tuple[Home, ...], Meta(max_length=PEERS_MAX)] = ()  # that slots and topics name
    slots: Annotated[tuple[SlotLoad, ...], Meta(max_length=SLOT_LOADS_MAX)] = ()  # the heaviest
    topics: Annotated[tuple[TopicLoad, ...], Meta(max_length=TOPIC_LOADS_MAX)] = ()  # the heaviest


class Measure(ControlMessage, frozen=True, gc=False):
    """Leader → broker: something near you is cut; measure your links, and tell me."""

    epoch: int
    incarnation: int


class Moves(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a leader asks of a broker's clients, with each answer to a beat for as long as it holds."""

    drain: bool  # the broker is being emptied: it takes no new clients
    count: Number  # so many clients may be moved now
    # Where they go, best first; none: there is no room anywhere.
    to: Annotated[tuple[BrokerInfo, ...], Meta(max_length=REFUGES_MAX)] = ()
    others: bool = False  # also clients that are not known to follow a redirect
    recruits: bool = False  # the broker is being emptied to stand by
    left: Number = (
        0  # so many are to go in all, with these, so that both brokers are as full; 0: it is not said
    )


class Pulse(ControlMessage, frozen=True, gc=False, tag="P"):
    """Leader → broker, for a beat: I lead, this is your last notice, these brokers have room for your clients, and
    these of the homes that you asked about are there."""

    epoch: int
    incarnation: int
    noticed: int
    # None: those that you know.
    refuges: Annotated[tuple[BrokerInfo, ...], Meta(max_length=REFUGES_MAX)] | None = None
    # As they were asked about, and who that is. None: you did not ask.
    homes: Annotated[tuple[tuple[Home, BrokerInfo], ...], Meta(max_length=HOMES_MAX)] | None = None
    heard: Number = 0  # the number of the beat that this answers; 0: it answers none, and asks for one
    level: Number = 0  # that the network works at
    moves: Moves | None = None  # None: nobody is to be moved
    role: Role | None = None  # start again with this role; None: as you are


class Unknown(ControlMessage, frozen=True, gc=False):
    """Leader → broker: this incarnation is over, because it was silent for too long; join again with a new one."""

    epoch: int
    incarnation: int


class Expected(ControlMessage, frozen=True, gc=False):
    """Leader → broker: something is missing before what you sent; go on with the command of this number."""

    epoch: int
    incarnation: int
    next: int


class KnownUpTo(ControlMessage, frozen=True, gc=False, tag="Clear"):
    """Leader → broker: all brokers concerned know your commands up to this one."""

    epoch: int
    incarnation: int
    number: int


class Unspoken(ControlMessage, frozen=True, gc=False):
    """Leader → broker: you cannot join, because we have no level in common; these are the network's."""

    epoch: int
    incarnation: int
    levels: Levels


Control = (
    Beat
    | Submit
    | Seen
    | Refresh
    | Links
    | Load
    | Measure
    | Pulse
    | Unknown
    | Expected
    | KnownUpTo
    | Unspoken
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A control message on the bus, the story that it belongs to, and who sent it. Beats and pulses have neither."""

    message: Control
    cause: str = ""
    sender: Address = ""


ENVELOPE: Final = Packed("a control message", msgspec.msgpack.Decoder(Envelope), spoken=True)


def encode_envelope(sender: Address, cause: str, message: Message) -> bytes:
    """The bytes. For a frequent message, its own only."""
    if isinstance(message, Beat | Pulse):
        return ENVELOPE.write((message,))
    return ENVELOPE.write((message, cause, sender))


def decode_envelope(data: bytes) -> Envelope:
    """Decode an envelope; anything else raises ``Malformed``."""
    return ENVELOPE.read(data)
