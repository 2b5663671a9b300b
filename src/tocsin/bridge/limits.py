"""Bounds of a bridge, and how long it waits before it tries again."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tocsin import config
from tocsin.wire.mqtt import topics

_BROKERS: Final = config.Limits()
FIRST_US: Final = 500_000
LAST_US: Final = 30_000_000


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of each rule."""

    window: Annotated[int, Meta(ge=1, le=10_000)] = 100  # messages in flight
    window_bytes: Annotated[int, Meta(ge=1_024, le=1 << 32)] = 64 << 20  # the same, in bytes
    message_max_bytes: Annotated[int, Meta(ge=1_024, le=(1 << 20) - (16 << 10))] = (
        256 << 10
    )  # of an AMQP message
    tries: Annotated[int, Meta(ge=0, le=1_000_000)] = 10  # before a message is dead; 0: without a bound
    session_expiry_s: Annotated[int, Meta(ge=60, le=(1 << 32) - 1)] = (
        7 * 86_400
    )  # of an outward rule's session
    volatile_qos: Annotated[int, Meta(ge=0, le=1)] = 1  # of AMQP messages that are not durable


def check_topic(topic: str) -> None:
    """Raise ``TopicInvalid`` unless brokers take messages on this topic, by their default limits.

    A broker disconnects who publishes on another. Topics are often chosen by who writes to the other side: nobody there
    may end the bridge.
    """
    topics.check_topic(topic, max_bytes=_BROKERS.topic_max_bytes, max_levels=_BROKERS.topic_depth_max)


def is_taken(topic: str) -> bool:
    """Whether brokers take messages on this topic."""
    try:
        check_topic(topic)
    except topics.TopicInvalid:
        return False
    return True


def delay_us(tries: int) -> int:
    """How long to wait after so many failures: twice as long each time, up to half a minute."""
    return min(FIRST_US << min(max(tries - 1, 0), 16), LAST_US)
