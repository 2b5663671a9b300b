"""What CONNECT has in common in all versions: its protocol name and level, its flags, and the will's topic."""

from __future__ import annotations

from typing import Final, Literal

from tocsin.errors import Malformed, ProtocolViolation, UnsupportedVersion
from tocsin.wire.fields import read_binary, read_u8
from tocsin.wire.topics import TopicInvalid, check_topic

Version = Literal[4, 5]  # the protocol level on the wire: 4 is MQTT 3.1.1, 5 is MQTT 5
V311: Final = 4
V5: Final = 5

_NAME_MAX_BYTES = 16  # of an unknown protocol's name that an error repeats


def version_of(frame: bytes, at: int) -> Version:
    """The version that a CONNECT speaks; ``at`` is where its body begins."""
    name, at = read_binary(frame, at, len(frame), "the protocol name")
    level, _ = read_u8(frame, at, len(frame), "the protocol level")
    if name == b"MQTT":
        if level == V5:
            return V5
        if level == V311:
            return V311
    raise UnsupportedVersion(name[:_NAME_MAX_BYTES].decode("ascii", "replace"), level)


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
