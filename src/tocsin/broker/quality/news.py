"""What clients are told of quality: the topics of this news, and what is said on them."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.model.versions import Document
from tocsin.wire.mqtt.topics import QUALITY_NEWS, QUALITY_PREFIX

ADMISSION, HISTORY, INCOMPATIBLE, LATE, LIVELINESS, OFFERED_DEADLINE, REQUESTED_DEADLINE = (
    f"{QUALITY_PREFIX}{word}/" for word in QUALITY_NEWS
)


class HistoryCut(msgspec.Struct, frozen=True):
    """History that is shorter than it was asked for, for people and their programs."""

    missing: int  # messages for which there was no room; 0: a broker did not say what it has


HISTORY_NEWS: Final = Document("history that is cut short", msgspec.json.Decoder(HistoryCut))


class Incompatible(msgspec.Struct, frozen=True):
    """A stream and a subscription that do not match, for people and their programs."""

    policy: str
    offered: str
    requested: str
    peer: str  # the other end; empty: all that publish there


INCOMPATIBLE_NEWS: Final = Document("what does not match", msgspec.json.Decoder(Incompatible))


class Missed(msgspec.Struct, frozen=True):
    """Deadlines that were missed, for people and their programs."""

    deadline: str
    total: int  # since the subscription, or the promise
    change: int  # of those, not told before


MISSED_NEWS: Final = Document("missed deadlines", msgspec.json.Decoder(Missed))


class LateMessages(msgspec.Struct, frozen=True):
    """Messages that were longer under way than they may be, for people and their programs."""

    budget: str
    longest: str  # of those that were not told before
    total: int  # since the subscription
    change: int  # of those, not told before


LATE_NEWS: Final = Document("messages that came late", msgspec.json.Decoder(LateMessages))


class Alive(msgspec.Struct, frozen=True):
    """How many publishers of a topic are alive, for people and their programs."""

    alive: int
    not_alive: int  # their leases are over
    alive_change: int  # since it was told last
    not_alive_change: int


ALIVE_NEWS: Final = Document("how many publishers are alive", msgspec.json.Decoder(Alive))


class LateThere(msgspec.Struct, frozen=True):
    """The same for publishers: of all subscribers at one broker."""

    budget: str  # the least
    longest: str
    total: int  # since its first subscription
    change: int
    peer: str  # the broker


LATE_THERE_NEWS: Final = Document("messages that came late elsewhere", msgspec.json.Decoder(LateThere))


class Admission(msgspec.Struct, frozen=True):
    """Whether a topic gets the ways that its budget needs, for people and their programs."""

    admitted: bool
    reason: str  # what stands against it; empty if it is admitted
    budget: str
    expected: float  # share of messages that are expected late, with the ways that it has
    peer: str  # the broker of the publishers; in what they are told, that of the subscribers


ADMISSION_NEWS: Final = Document("news of an admission", msgspec.json.Decoder(Admission))
