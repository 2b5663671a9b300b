"""A message of AMQP as a message of the network, and the other way round.

| AMQP 1.0 | MQTT 5 |
| --- | --- |
| data, or a value that is a string or binary | payload; on the way out always data |
| durable | QoS 1; on the way out it is set above QoS 0 |
| ttl | message expiry, rounded up to seconds |
| priority | user property ``priority`` (9 at most) |
| message-id | user property ``message-id`` |
| correlation-id, content-type | the same |
| reply-to | response topic, if it can be one; else user property ``reply-to`` |
| subject | user property ``subject``; on the way out the subject is the topic |
| content-encoding, group-id | user properties of these names |
| application properties | user properties; of a name that is there several times, the values with commas |
| annotations, footer, to, user-id | left out |

**Loops.** Each bridge that a message passes adds its name to the property ``tocsin-bridge``. A message that has passed
this bridge, in either direction, does not pass it again (``Looped``), and none passes more than HOPS_MAX.

**Ids.** A repeat has the message-id of the first. On the way in the id is the AMQP sender's. On the way out it is the
property ``message-id``, for a channel's result its ``id``; for any other message it follows from the content and the
packet id, which a broker keeps when it repeats a message (``identity``).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from tocsin.bridge.limits import check_topic
from tocsin.bridge.rules import InRule, fill
from tocsin.client.message import Message
from tocsin.errors import TocsinError, WireError
from tocsin.model.priority import MOST, PROPERTY, priority_of
from tocsin.model.publication import Publication
from tocsin.wire.amqp.message import AmqpMessage, Body
from tocsin.wire.amqp.values import Uuid

BRIDGED: Final = "tocsin-bridge"
MESSAGE_ID: Final = "message-id"
SUBJECT: Final = "subject"
REPLY_TO: Final = "reply-to"
CONTENT_TYPE: Final = "content-type"
OWN: Final = frozenset({BRIDGED, MESSAGE_ID, SUBJECT, REPLY_TO, PROPERTY, "content-encoding", "group-id"})
HOPS_MAX: Final = 8
PROPERTIES_MAX: Final = 128  # of a message; MQTT has no bound of its own
TEXT_MAX_BYTES: Final = 65_535  # as MQTT has it
TTL_MAX_MS: Final = (1 << 32) - 1
EXPIRY_MAX_S: Final = (1 << 32) - 1


class Unmappable(TocsinError):
    """A message that has no counterpart on the other side."""

    fault = "peer"


class Looped(TocsinError):
    """A message that has passed this bridge before."""


# ── from AMQP to the network ─────────────────────────────────────────────────────────────────────────────────


def inward(message: AmqpMessage, rule: InRule, bridge: str, *, volatile_qos: int = 1) -> Publication:
    """The message to publish; ``volatile_qos`` is the QoS of a message that is not durable.

    Raises ``Unmappable``, ``Looped``.
    """
    hops = _hops(message.application.get(BRIDGED), bridge)
    payload = _payload(message)
    said = {name: _text(name, value) for name, value in message.application.items() if name != BRIDGED}
    properties: list[tuple[str, str]] = []
    if message.message_id is not None:
        properties.append((MESSAGE_ID, _text(MESSAGE_ID, message.message_id)))
    if message.priority is not None:
        properties.append((PROPERTY, str(min(message.priority, MOST))))
    for name, value in (
        (SUBJECT, message.subject),
        ("content-encoding", message.content_encoding),
        ("group-id", message.group_id),
    ):
        if value is not None:
            properties.append((name, _text(name, value)))
    response = _response(message.reply_to)
    if message.reply_to is not None and response is None:
        properties.append((REPLY_TO, _text(REPLY_TO, message.reply_to)))
    own = {name for name, _ in properties}
    properties.extend((name, value) for name, value in said.items() if name not in own)
    if len(properties) >= PROPERTIES_MAX:
        raise Unmappable(f"it has more than {PROPERTIES_MAX - 1} properties")
    return Publication(
        _topic(message, rule, said),
        payload,
        1 if message.durable else volatile_qos,
        "",
        expiry_s=_expiry_s(message.ttl_ms),
        payload_format=int(message.kind is Body.VALUE and isinstance(message.body, str)),
        content_type=None if message.content_type is None else _text(CONTENT_TYPE, message.content_type),
        response_topic=response,
        correlation=_correlation(message.correlation_id),
        user_properties=(*properties, (BRIDGED, " ".join((*hops, bridge)))),
    )


def _hops(said: object, bridge: str) -> tuple[str, ...]:
    """The bridges that a message has passed. Raises ``Looped``, ``Unmappable``."""
    hops = tuple(said.split()) if isinstance(said, str) else ()
    if bridge in hops:
        raise Looped(f"it has passed the bridge {bridge} before")
    if len(hops) >= HOPS_MAX:
        raise Unmappable(f"it has passed {len(hops)} bridges; {HOPS_MAX} are the most")
    return hops


def _payload(message: AmqpMessage) -> bytes:
    if message.kind is Body.DATA:
        return bytes(message.body)
    if message.kind is Body.SEQUENCE:
        raise Unmappable("its body is a sequence; send data, or a value that is a string or binary")
    if type(message.body) is str:
        return message.body.encode()
    if type(message.body) is bytes:
        return message.body
    kind = "null" if message.body is None else type(message.body).__name__.lower()
    raise Unmappable(f"its body is a value of type {kind}; send data, or a value that is a string or binary")


def _text(name: str, value: Any) -> str:
    """A simple value as text. Raises ``Unmappable``."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, Uuid):
        text = str(value)
    elif isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, str | int | float):
        text = str(value)
    elif value is None:
        text = ""
    else:
        raise Unmappable(f"its property {name[:80]!r} is a {type(value).__name__}; it must be a simple value")
    if "\0" in text or "\0" in name or max(len(text.encode()), len(name.encode())) > TEXT_MAX_BYTES:
        raise Unmappable(
            f"its property {name[:80]!r} has a zero character, or more than {TEXT_MAX_BYTES} bytes"
        )
    return text


def _topic(message: AmqpMessage, rule: InRule, properties: dict[str, str]) -> str:
    try:
        topic = fill(rule.topic, message.subject, properties)
        check_topic(topic)
    except ValueError as error:
        raise Unmappable(str(error)) from None
    except WireError as error:
        raise Unmappable(f"it cannot be published: {error}") from None
    return topic


def _response(reply_to: object) -> str | None:
    if not isinstance(reply_to, str):
        return None
    try:
        check_topic(reply_to)
    except WireError:
        return None
    return str(reply_to)


def _expiry_s(ttl_ms: int | None) -> int | None:
    return None if ttl_ms is None else -(-ttl_ms // 1000)


def _correlation(value: Any) -> bytes | None:
    if value is None:
        return None
    if type(value) is bytes:
        return value
    text = _text("correlation-id", value).encode()
    return text


# ── from the network to AMQP ─────────────────────────────────────────────────────────────────────────────────


def outward(message: Message, bridge: str, *, message_id: str | None, ttl_ms: int | None) -> AmqpMessage:
    """The message to send. Raises ``Looped``, ``Unmappable``."""
    application: dict[str, Any] = {}
    for name, value in message.user_properties:
        if (
            name == BRIDGED
            or name in (MESSAGE_ID, SUBJECT)
            or (name == PROPERTY and priority_of([(name, value)]))
        ):
            continue
        application[name] = f"{application[name]}, {value}" if name in application else value
    said = " ".join(value for name, value in message.user_properties if name == BRIDGED)
    application[BRIDGED] = " ".join((*_hops(said, bridge), bridge))
    content_type = message.content_type
    if content_type is not None and not content_type.isascii():
        application.setdefault(CONTENT_TYPE, content_type)  # a symbol of AMQP has ASCII only
        content_type = None
    spoken = any(name == PROPERTY for name, _ in message.user_properties)
    return AmqpMessage(
        body=message.payload,
        durable=message.qos > 0,
        priority=message.priority if spoken and message.priority else None,
        ttl_ms=None if ttl_ms is None else min(ttl_ms, TTL_MAX_MS),
        message_id=message_id,
        subject=message.topic,
        reply_to=message.response_topic,
        correlation_id=message.correlation,
        content_type=content_type,
        application=application,
    )


def identity(message: Message, session: str, packet_id: int | None) -> str | None:
    """The message-id of a message of the network; None if it cannot come twice and nobody gave it one."""
    said = dict(reversed(message.user_properties))
    if MESSAGE_ID in said:
        return said[MESSAGE_ID]
    if "channel" in said and "id" in said:
        return said["id"]
    if packet_id is None:
        return None
    content = blake2b(digest_size=10)
    for part in (
        message.topic.encode(),
        message.payload,
        *(":".join(each).encode() for each in message.user_properties),
    ):
        content.update(len(part).to_bytes(8) + part)
    return f"{session}-{packet_id:x}-{content.hexdigest()}"


def dead_inward(payload: bytes, topic: str, rule: InRule, reason: str, bridge: str) -> Publication:
    """An AMQP message that could not be published, for the place of dead messages: its sections as they came."""
    return _dead(payload, topic, "application/amqp", str(rule), reason, bridge)


def dead_outward(message: Message, topic: str, rule: str, reason: str, bridge: str) -> Publication:
    """A message that the AMQP peer did not take, for the place of dead messages."""
    kept = [each for each in message.user_properties if each[0] != BRIDGED][: PROPERTIES_MAX - 8]
    return _dead(
        message.payload, topic, message.content_type, rule, reason, bridge, ("topic", message.topic), *kept
    )


def _dead(
    payload: bytes,
    topic: str,
    content_type: str | None,
    rule: str,
    reason: str,
    bridge: str,
    *more: tuple[str, str],
) -> Publication:
    said = (("dead-rule", rule), ("dead-reason", reason[:1_024].replace("\0", " ")), *more)
    return Publication(
        topic, payload, 1, "", content_type=content_type, user_properties=(*said, (BRIDGED, bridge))
    )
