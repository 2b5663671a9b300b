"""What brokers tell each other of quality of service."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tocsin.model.network import BrokerInfo
from tocsin.model.quality import Flow, Life
from tocsin.model.versions import Packed

ROWS_MAX: Final = 500  # in one word

Name = Annotated[str, Meta(max_length=300)]


class Unmatched(msgspec.Struct, frozen=True, array_like=True):
    """Broker → all: somebody here would have a stream's messages, if it offered as much as is requested."""

    topic: str
    policy: str
    offered: str
    requested: str
    peer: str  # the subscriber


class Lives(msgspec.Struct, frozen=True, array_like=True, tag="L"):
    """Broker → all: publishers here that are alive, lost or gone. Also an answer, in one word or more."""

    broker: Name
    rows: tuple[Life, ...]
    to: Name = ""  # who has asked; empty: nobody
    ask: int = 0
    last: bool = True  # nothing more belongs to the answer


class WhoLives(msgspec.Struct, frozen=True, array_like=True, tag="W"):
    """Broker → all: which publishers on topics that match these filters have a lease with you?"""

    broker: Name
    ask: int
    filters: tuple[str, ...]


class Enrol(msgspec.Struct, frozen=True, array_like=True, tag="E"):
    """Broker → all: somebody here requests reliability of what is published on topics that match these filters, and of
    nothing else."""

    broker: Name
    filters: tuple[str, ...]


class Begins(msgspec.Struct, frozen=True, array_like=True, tag="B"):
    """Origin → destination: a flow is kept for you from this number on."""

    broker: Name
    flow: Flow
    number: int


class Has(msgspec.Struct, frozen=True, array_like=True, tag="H"):
    """Destination → origin: everything of these flows has come up to these numbers."""

    broker: Name
    rows: tuple[tuple[Flow, int], ...]


class Again(msgspec.Struct, frozen=True, array_like=True, tag="A"):
    """Origin → destination: what you lack of a flow. Nothing before ``first`` is kept any more."""

    broker: Name
    flow: Flow
    first: int
    messages: tuple[tuple[int, bytes], ...]  # numbers, and messages as they are stored


class Recall(msgspec.Struct, frozen=True, array_like=True, tag="R"):
    """Broker → all, or one: a new subscription here wants history of topics that match a filter."""

    broker: Name
    ask: int
    filter: str
    request: str  # in canonical form
    answered: tuple[str, ...] = ()  # brokers that have answered already


class Past(msgspec.Struct, frozen=True, array_like=True):
    """What a broker has of one client on one topic."""

    ends: tuple[tuple[Flow, int], ...]  # of each flow the last number
    messages: tuple[bytes, ...]  # as they are stored, with their stamps; oldest first
    missing: int  # messages that were asked for, and for which there was no room


class Recalled(msgspec.Struct, frozen=True, array_like=True, tag="D"):
    """Broker → broker that has asked: history, in one word or more."""

    broker: Name
    ask: int
    rows: tuple[Past, ...]
    last: bool  # nothing more belongs to the answer


# ── second ways (core.quality.second_ways) ──────────────────────────────────────────────────────────────────

PARTS_MAX: Final = 64  # of a distribution
WISHES_MAX: Final = 1_000
LEGS_MAX: Final = 64  # that a relay tells one origin of
COPIED_MAX: Final = 500  # topics in one word

Micros = Annotated[int, Meta(ge=0, le=1 << 53)]


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """Somebody wants what is published on topics that match, within a latency budget."""

    filter: str
    budget_us: Micros


class Wishes(msgspec.Struct, frozen=True, array_like=True, tag="T"):
    """Destination → all: all that subscribers here want within a latency budget."""

    broker: BrokerInfo
    rows: Annotated[tuple[Wish, ...], Meta(max_length=WISHES_MAX)]


class Seeks(msgspec.Struct, frozen=True, array_like=True, tag="S"):
    """Origin → all: who has links to these destinations, and how long do messages take over them?"""

    broker: Name
    destinations: Annotated[tuple[Name, ...], Meta(max_length=LEGS_MAX)]


class Leg(msgspec.Struct, frozen=True, array_like=True):
    """The delay of a link, as far as it is known: a few parts of its distribution."""

    to: Name
    parts: Annotated[
        tuple[tuple[Micros, Micros, Micros], ...], Meta(max_length=PARTS_MAX)
    ]  # empty: it is down
    lost_ppm: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    repeated_ppm: Annotated[int, Meta(ge=-1, le=1_000_000)] = -1
    samples: Micros = 0


class Reaches(msgspec.Struct, frozen=True, array_like=True, tag="V"):
    """Broker → origin: so it is with my links to what you seek."""

    broker: Name
    legs: Annotated[tuple[Leg, ...], Meta(max_length=LEGS_MAX)]


class Given(msgspec.Struct, frozen=True, array_like=True):
    """What a topic gets for one destination."""

    topic: str
    budget_us: Micros
    ways: tuple[str, ...]
    why: str  # it does not get what it should have; empty: it does
    miss: float  # expected, with these ways
    alone: float  # expected of the usual way


class Gives(msgspec.Struct, frozen=True, array_like=True, tag="G"):
    """Origin → destination: second ways of these topics have changed."""

    broker: Name
    rows: Annotated[tuple[Given, ...], Meta(max_length=COPIED_MAX)]


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What a destination has seen of a topic from one origin, since it saw it first."""

    topic: str
    came: Micros  # messages, each once
    missed: Micros  # of them later than the budget, or given up
    longest_us: Micros  # delay among those missed that were not told before
    repeated: Micros  # copies of what was there
    ahead: Micros  # messages of which a copy came first
    budget_us: Micros


class Sees(msgspec.Struct, frozen=True, array_like=True, tag="O"):
    """Destination → origin: so it is with these topics."""

    broker: Name
    rows: Annotated[tuple[Seen, ...], Meta(max_length=COPIED_MAX)]


class ShownWay(msgspec.Struct, frozen=True):
    """A way as people see it."""

    way: str  # "base", "straight", "twin", or the relay
    taken: bool
    least_us: int
    p99_us: int
    miss: float  # share of messages that are expected late on this way alone


class ShownSeen(msgspec.Struct, frozen=True):
    """What a destination has seen of a topic, as people see it."""

    came: int
    missed: int
    ahead: int  # messages of which a copy came first
    repeated: int


class ShownWays(msgspec.Struct, frozen=True):
    """The ways of one topic to one destination, as people see them."""

    topic: str
    destination: str
    budget_us: int
    over: str  # the broker that the usual way leads over; empty: none
    ways: tuple[ShownWay, ...]
    expected: float  # share that is expected late, with the ways that are taken …
    alone: float  # … and on the usual way alone
    reason: str  # why there are no better ones; empty: none are needed
    seen: ShownSeen | None = None  # what the destination has told


class WaysAnswer(msgspec.Struct, frozen=True):
    """What an origin answers who asks for the ways of a topic."""

    rows: tuple[ShownWays, ...]


Word = (
    Lives
    | WhoLives
    | Enrol
    | Begins
    | Has
    | Again
    | Recall
    | Recalled
    | Wishes
    | Seeks
    | Reaches
    | Gives
    | Sees
)

UNMATCHED: Final = Packed("a word of what does not match", msgspec.msgpack.Decoder(Unmatched), spoken=True)
WORD: Final[Packed[Word]] = Packed("a word of quality", msgspec.msgpack.Decoder(Word), spoken=True)


def unmatched_subject(network: str) -> str:
    """Where all brokers hear what does not match."""
    return f"{network}.quality.unmatched"


def words_subject(network: str) -> str:
    """Where all brokers hear the other words."""
    return f"{network}.quality.words"


def destination_subject(network: str, broker: str) -> str:
    """Where one broker hears words that are for it alone."""
    return f"{network}.quality.at-{broker}"


def ways_subject(network: str, broker: str) -> str:
    """Where a broker answers which second ways its topics have."""
    return f"{network}.quality.ways-{broker}"


WAYS_ANSWER: Final = Packed("an answer about second ways", msgspec.msgpack.Decoder(WaysAnswer))


def encode_unmatched(word: Unmatched) -> bytes:
    return UNMATCHED.write(word)
