"""What brokers tell each other of quality of service."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

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


Word = Lives | WhoLives | Enrol | Begins | Has | Again | Recall | Recalled

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


def encode_unmatched(word: Unmatched) -> bytes:
    return UNMATCHED.write(word)


def decode_unmatched(data: bytes) -> Unmatched:
    """The word, or ``Malformed`` for whatever is none."""
    return UNMATCHED.read(data)
