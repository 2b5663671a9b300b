"""What a client says and hears, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from mqtt5 import PublishPacket

from tocsin.core.description import PROPERTY_PREFIX
from tocsin.errors import MetadataInvalid
from tocsin.model.publication import Publication
from tocsin.model.stream import PERMANENT, Diff, Metadata, diff_problem
from tocsin.wire.codec import V5, encode
from tocsin.wire.frames import publish_frame


class Message(msgspec.Struct, frozen=True):
    """What a subscriber gets."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False  # it was there before the subscription
    user_properties: tuple[tuple[str, str], ...] = ()
    metadata: Metadata | None = None  # of its stream when it arrived; only of a query ``with_streams``

    @classmethod
    def of(cls, packet: PublishPacket) -> Message:
        properties = tuple(packet.user_properties)
        return cls(packet.topic, packet.payload, int(packet.qos), packet.retain, properties)

    @property
    def text(self) -> str:
        """The payload as text; bytes that are none are shown with a backslash."""
        return self.payload.decode(errors="backslashreplace")

    def json(self) -> Any:
        """The payload as JSON; ``ValueError`` if it is none."""
        return msgspec.json.decode(self.payload)


def checked_qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise ValueError(f"a quality of service is 0, 1 or 2, not {qos!r}")
    return qos


def payload_of(value: object) -> bytes:
    """Bytes as they are, text in UTF-8, anything else as JSON; ``TypeError`` if JSON cannot say it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def checked(topic: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A change of metadata that a broker can take. Raises ``MetadataInvalid``."""
    for key, value in changes.items():
        if not (value is None or isinstance(value, str | int | float | bool)):
            kind = type(value).__name__
            problem = f"the value of {key!r} is a {kind}; it must be text, a number, true or false (or None)"
            raise MetadataInvalid(topic, problem)
    if problem_found := diff_problem(changes):
        raise MetadataInvalid(topic, problem_found)
    return dict(changes)


def as_properties(changes: Diff) -> tuple[tuple[str, str], ...] | None:
    """The change as user properties, which travel with a message; None if they cannot say it.

    They are text only (but for what is permanent), and an empty text takes a key away.
    """
    said = {key: "" if value is None else value for key, value in changes.items()}
    if isinstance(permanent := said.get(PERMANENT), bool):
        said[PERMANENT] = "true" if permanent else "false"
    if not all(
        isinstance(value, str) and bool(value) == (changes[key] is not None) for key, value in said.items()
    ):
        return None
    return tuple((PROPERTY_PREFIX + key, str(value)) for key, value in said.items())


def frame_of(message: Publication) -> bytes:
    """As it is sent, but for the packet id."""
    if not message.qos and message.plain:
        return publish_frame(message.topic, message.payload, V5, retain=message.retain)
    number = 1 if message.qos else None
    return encode(message.packet(qos=message.qos, packet_id=number, retain=message.retain), V5)
