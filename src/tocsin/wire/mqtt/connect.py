"""CONNECT in all versions: its protocol name and level, its flags, and the will's topic.

MQTT 3.1 is spoken as a dialect of 3.1.1: once the CONNECT is read, all but a few bits are the same. ``Level`` is what
the wire says, ``Version`` is what the rest of the broker knows.
"""

from __future__ import annotations

from typing import Final, Literal

from tocsin.errors import Malformed, ProtocolViolation, UnsupportedVersion
from tocsin.wire.mqtt.fields import read_binary, read_u8
from tocsin.wire.mqtt.topics import TopicInvalid, check_topic

Version = Literal[4, 5]  # 4 is MQTT 3.1.1 (and 3.1), 5 is MQTT 5
Level = Literal[3, 4, 5]  # the protocol level on the wire; 3 is MQTT 3.1
V31: Final = 3
V311: Final = 4
V5: Final = 5

BRIDGE_BIT: Final = 0x80  # that mosquitto's bridges set in the level of 3.1 and 3.1.1

_LEVELS: Final[dict[tuple[bytes, int], Level]] = {(b"MQTT", 5): V5, (b"MQTT", 4): V311, (b"MQIsdp", 3): V31}

_MQTT5: Final = b"\x00\x04MQTT\x05"  # how the body of most CONNECTs begins
_NAME_MAX_BYTES = 16  # of an unknown protocol's name that an error repeats


def level_of(frame: bytes, at: int) -> tuple[Level, bool]:
    """The protocol level that a CONNECT speaks, and whether a bridge does; ``at`` is where its body begins.

    MQTT 5 has options for what a bridge needs, and no such bit.
    """
    if frame.startswith(_MQTT5, at):
        return V5, False
    name, at = read_binary(frame, at, len(frame), "the protocol name")
    number, _ = read_u8(frame, at, len(frame), "the protocol level")
    level = _LEVELS.get((name, number & ~BRIDGE_BIT))
    bridges = number >= BRIDGE_BIT
    if level is None or (bridges and level == V5):
        raise UnsupportedVersion(name[:_NAME_MAX_BYTES].decode("ascii", "replace"), number)
    return level, bridges


def version_of(level: Level | None) -> Version | None:
    """The version whose packets are spoken at this level."""
    return V311 if level == V31 else level


def check_connect_flags(flags: int) -> None:
    if flags & 0x01:
        raise Malformed("the reserved bit of the connect flags is set")
    if flags & 0x18 == 0x18:
        raise Malformed("the will's QoS is 3")
    if not flags & 0x04 and flags & 0x38:
        raise Malformed("the connect flags have a will QoS or will retain, but no will")


def check_will_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except TopicInvalid as error:
        raise ProtocolViolation(f"the will's {error.problem}", error.reason_code) from None
