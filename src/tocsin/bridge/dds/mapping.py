"""A DDS sample as a message of the network, and the other way round; and the names of topics.

| DDS | MQTT 5 |
| --- | --- |
| topic ``Square`` | topic ``PREFIX/Square``; ``+``, ``#`` and ``%`` are written ``%2B``, ``%23``, ``%25`` |
| serialized data, with its header | payload, content type ``application/vnd.omg.cdr`` |
| the same, with ``payload = "json"`` | payload, content type ``application/json`` |
| RELIABLE | QoS 1; BEST_EFFORT is QoS 0 |
| LIFESPAN | message expiry, rounded up to seconds |
| source timestamp | user property ``dds-time``, in nanoseconds since 1970 |
| writer | user property ``dds-writer``, its GUID |
| disposed, unregistered | user property ``dds-state``; the payload has the key alone |
| partitions | user property ``dds-partition``, one for each |
| ownership strength | user property ``dds-strength`` |

**Loops.** A message has the names of the bridges that it passed in the property ``tocsin-bridge``, as with other
bridges. A sample that a bridge wrote is never taken: bridges know each other's endpoints by their user data.

What follows the prefix and begins with ``$`` is said between bridges: ``PREFIX/$ask/Square`` asks for what late
readers get, and ``PREFIX/$told/NAME/Square`` is the answer to the bridge of that name. ``PREFIX/$bridges`` and
``PREFIX/$writers`` are described in ``announced``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tocsin.client.message import Message
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication

BRIDGED: Final = "tocsin-bridge"
CDR: Final = "application/vnd.omg.cdr"
JSON: Final = "application/json"
HOPS_MAX: Final = 8
SECOND_NS: Final = 1_000_000_000
EXPIRY_MAX_S: Final = (1 << 32) - 1
PARTITIONS_MAX: Final = 64
STRENGTH_MAX: Final = (1 << 31) - 1
STATE: Final = "dds-state"  # the property that says that an instance is not alive
ASK: Final = "$ask"
TOLD: Final = "$told"
BRIDGES: Final = "$bridges"
WRITERS: Final = "$writers"
_ESCAPED = re.compile("%(2B|23|25)")
_UNESCAPED: Final = {"2B": "+", "23": "#", "25": "%"}


class State(StrEnum):
    """What a sample says of its instance."""

    ALIVE = "alive"
    DISPOSED = "disposed"
    UNREGISTERED = "unregistered"


class Sample(msgspec.Struct, frozen=True):
    """One sample; ``data`` is CDR with its header of four bytes, of the key alone unless the instance is alive."""

    data: bytes
    time_ns: int  # of its source
    writer: str  # GUID, in hexadecimal digits
    state: State = State.ALIVE
    partitions: tuple[str, ...] = ()
    strength: int = 0


class Unmappable(TocsinError):
    """A message that is no sample."""

    fault = "peer"


class Looped(TocsinError):
    """A message that has passed this bridge before."""


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────


class Names(msgspec.Struct, frozen=True):
    """Which DDS topics are bridged, and what they are called."""

    prefix: str = "dds"
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def allows(self, topic: str) -> bool:
        """Whether a DDS topic is bridged."""
        if any(fnmatchcase(topic, each) for each in self.deny):
            return False
        return any(fnmatchcase(topic, each) for each in self.allow)

    def mqtt(self, topic: str) -> str:
        """The MQTT topic of a DDS topic."""
        return f"{self.prefix}/{_escaped(topic)}"

    def ask(self, topic: str) -> str:
        """The topic of a question for what late readers of a DDS topic get."""
        return f"{self.prefix}/{ASK}/{_escaped(topic)}"

    def told(self, bridge: str, topic: str) -> str:
        """The topic of the answers to a bridge."""
        return f"{self.prefix}/{TOLD}/{bridge}/{_escaped(topic)}"

    def presence(self, bridge: str) -> str:
        """The topic on which a bridge says that it is there."""
        return f"{self.prefix}/{BRIDGES}/{bridge}"

    def writers(self, bridge: str, topic: str) -> str:
        """The topic on which a bridge announces the writers of a DDS topic."""
        return f"{self.prefix}/{WRITERS}/{bridge}/{_escaped(topic)}"

    def read(self, topic: str) -> tuple[str, str, str]:
        """What kind of message an MQTT topic is of (empty: a sample, or ASK, TOLD, BRIDGES, WRITERS), which bridge it
        names, and its DDS topic."""
        rest = topic.removeprefix(f"{self.prefix}/")
        if rest[:1] != "$":
            return "", "", _plain(rest) if "%" in rest else rest
        kind, _, more = rest.partition("/")
        if kind == ASK:
            return ASK, "", _plain(more)
        if kind in (TOLD, BRIDGES, WRITERS):
            bridge, _, name = more.partition("/")
            return kind, bridge, _plain(name)
        return "", "", _plain(rest)


def _escaped(topic: str) -> str:
    return topic.replace("%", "%25").replace("+", "%2B").replace("#", "%23")


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: _UNESCAPED[found[1]], text)


# ── samples ──────────────────────────────────────────────────────────────────────────────────────────────────


def message_of(
    sample: Sample, topic: str, bridge: str, *, qos: int, lifespan_ns: int, content_type: str = CDR
) -> Publication:
    """The message to publish."""
    properties = [("dds-time", str(sample.time_ns)), ("dds-writer", sample.writer), (BRIDGED, bridge)]
    if sample.state is not State.ALIVE:
        properties.append((STATE, sample.state))
    if sample.strength:
        properties.append(("dds-strength", str(sample.strength)))
    properties += [("dds-partition", each) for each in sample.partitions]
    expiry_s = -(-lifespan_ns // SECOND_NS)
    return Publication(
        topic,
        sample.data,
        qos,
        "",
        expiry_s=expiry_s if expiry_s <= EXPIRY_MAX_S else None,
        payload_format=int(content_type == JSON),
        content_type=content_type,
        user_properties=tuple(properties),
    )


def sample_of(message: Message, bridge: str, now_ns: int) -> tuple[Sample, str]:
    """The sample of a message, and its content type. What is not said is as a plain MQTT client leaves it.

    Raises ``Unmappable``, ``Looped``.
    """
    hops: tuple[str, ...] = ()
    time_ns, writer, state, strength = now_ns, "", State.ALIVE, 0
    partitions: list[str] = []
    for name, value in message.user_properties:
        if name == BRIDGED:
            hops = tuple(value.split())
        elif name == "dds-time":
            time_ns = _number(name, value, (1 << 63) - 1)
        elif name == "dds-writer":
            writer = value[:64]
        elif name == STATE:
            state = _state(value)
        elif name == "dds-strength":
            strength = _number(name, value, STRENGTH_MAX)
        elif name == "dds-partition":
            partitions.append(value)
    if bridge in hops:
        raise Looped(f"it has passed the bridge {bridge} before")
    if len(hops) >= HOPS_MAX:
        raise Unmappable(f"it has passed {len(hops)} bridges; {HOPS_MAX} are the most")
    if len(partitions) > PARTITIONS_MAX:
        raise Unmappable(f"it names {len(partitions)} partitions; {PARTITIONS_MAX} are the most")
    kind = message.content_type or (JSON if message.payload[:1] in (b"{", b"[") else CDR)
    if kind not in (CDR, JSON):
        raise Unmappable(f"its content type is {kind[:60]}; {CDR} and {JSON} can be bridged")
    if kind == CDR and len(message.payload) < 4:
        raise Unmappable("it is too short for CDR with its header of four bytes")
    return Sample(message.payload, time_ns, writer, state, tuple(partitions), strength), kind


def _number(name: str, value: str, most: int) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 19 or int(value) > most:
        raise Unmappable(f"its property {name} is no number from 0 to {most}")
    return int(value)


def _state(value: str) -> State:
    try:
        return State(value)
    except ValueError:
        raise Unmappable(f"its property dds-state is {value[:20]!r}; disposed or unregistered") from None
