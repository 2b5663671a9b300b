"""The weight of a message: the bytes that its texts and bytes take in memory, whatever they are for.

A message may have little in its payload and much in its properties. So whoever counts messages counts all of it, and
counts it here; what the place of the message adds (objects, entries of queues) the counter adds itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqtt5 import PublishPacket, Will

from tocsin.model.publication import Publication

PAIR_BYTES: Final = 170  # of a user property, beside its characters: a tuple and two texts


def weight_of(message: PublishPacket | Will, topic: str | None = None) -> int:
    """Of a packet or a will; ``topic``: the one that an alias stands for."""
    return _weight(
        message.topic if topic is None else topic,
        message.payload,
        message.content_type,
        message.response_topic,
        message.correlation_data,
        message.user_properties,
    )


def weight_of_publication(message: Publication) -> int:
    """Of a message as it is stored, without its stream's metadata."""
    return _weight(
        message.topic,
        message.payload,
        message.content_type,
        message.response_topic,
        message.correlation,
        message.user_properties,
    )


def _weight(
    topic: str,
    payload: bytes | None,
    content_type: str | None,
    response_topic: str | None,
    correlation: bytes | None,
    user_properties: Iterable[tuple[str, str]],
) -> int:
    size = len(topic) + len(payload or b"")
    if content_type:
        size += len(content_type)
    if response_topic:
        size += len(response_topic)
    if correlation:
        size += len(correlation)
    for name, value in user_properties:
        size += PAIR_BYTES + len(name) + len(value)
    return size
