"""Messages that a client sends and receives, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from tocsin.core.quality.judging import OFFER_PREFIX
from tocsin.core.quality.texts import policies_of, read_request, request_text
from tocsin.core.streams.metadata_payload import PROPERTY_PREFIX
from tocsin.errors import MetadataInvalid
from tocsin.model.priority import priority_of, property_of
from tocsin.model.publication import Publication
from tocsin.model.quality import Offer, Request
from tocsin.model.stream import PERMANENT, Diff, Metadata, diff_problem
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.frames import publish_frame
from tocsin.wire.mqtt.topics import QUALITY_PREFIX, split_filter


class Message(msgspec.Struct, frozen=True):
    """A message that a subscriber gets, or that a client leaves as its will."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False  # it was there before the subscription
    user_properties: tuple[tuple[str, str], ...] = ()
    metadata: Metadata | None = None  # of its stream when it arrived; only of a query ``with_streams``
    expiry_s: int | None = None  # how long it is of use from now on
    content_type: str | None = None
    response_topic: str | None = None  # where its publisher wants an answer
    correlation: bytes | None = None  # to be sent back with that answer

    @classmethod
    def of(cls, packet: PublishPacket) -> Message:
        return cls(
            packet.topic,
            packet.payload,
            int(packet.qos),
            packet.retain,
            tuple(packet.user_properties),
            None,
            packet.message_expiry_interval,
            packet.content_type,
            packet.response_topic,
            packet.correlation_data,
        )

    @property
    def priority(self) -> int:
        """The publisher's priority, 0 to 9; from 7 on it is critical."""
        return priority_of(self.user_properties)

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


def publication_of(
    topic: str,
    value: object,
    *,
    qos: int = 0,
    retain: bool = False,
    expiry_s: int | None = None,
    content_type: str | None = None,
    response_topic: str | None = None,
    correlation: bytes | None = None,
    user_properties: Iterable[tuple[str, str]] = (),
    priority: int | str | None = None,
    offer: Offer | str | None = None,
) -> Publication:
    """A message to publish. Raises ``ValueError``, ``TypeError``, ``QualityInvalid``."""
    return Publication(
        topic,
        payload_of(value),
        checked_qos(qos),
        "",
        retain,
        expiry_s,
        content_type=content_type,
        response_topic=response_topic,
        correlation=correlation,
        user_properties=(*said_of(priority), *offered(offer), *user_properties),
    )


def said_of(priority: int | str | None) -> tuple[tuple[str, str], ...]:
    """The user properties that say it. Raises ``ValueError``."""
    return () if priority is None else (property_of(priority),)


def offered(offer: Offer | str | None) -> tuple[tuple[str, str], ...]:
    """The user properties that say what a stream offers. Raises ``QualityInvalid``."""
    if offer is None:
        return ()
    return tuple((OFFER_PREFIX + policy, value) for policy, value in policies_of(offer))


def requested(text: str, request: Request | str | None) -> str:
    """A topic filter with a request of quality. Raises ``QualityInvalid``."""
    if request is None:
        return text
    said = read_request(request) if isinstance(request, str) else request
    return f"{QUALITY_PREFIX}{request_text(said)}/{text}"


def filter_of(text: str, qos: int, *, no_local: bool = False, retained: bool = True) -> TopicFilter:
    """A subscription that a program asks for. Raises ``WireError``, ``ValueError``."""
    _, group = split_filter(text)
    if no_local and group is not None:
        raise ValueError(
            f"{text!r}: a shared subscription cannot be no_local; somebody is to get each message"
        )
    handling = RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS if retained else RetainHandling.SEND_NEVER
    return TopicFilter(
        text,
        max_qos=QoS(checked_qos(qos)),
        no_local=no_local,
        retain_as_published=False,
        retain_handling=handling,
    )


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
