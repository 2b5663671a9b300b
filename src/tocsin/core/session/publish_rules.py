"""Which topics one client may publish to: topic aliases, bounds, the server's own topics, and rights.

    publishing = Publishing(limits)
    publishing.topic_of(packet)        the hot path: the topic to publish to; None: the message goes nowhere
    publishing.takes(topic, messages)  the same of so many messages that have only a topic: whether they go on

A topic that breaks a bound, or an alias that means nothing, is a mistake of the client's and raises; a topic that is
not the client's to publish to is not, and gives None. Such are topics that begin with ``$`` and whatever the rules of
access deny. ``$meta/topic`` is the client's if ``topic`` is. ``$results/…`` is a question, which everybody may ask: its
answer depends on the right to hear the channel. A link between brokers brings topics of clients, and those that brokers
use among themselves (``wire.mqtt.topics.between_brokers``).

Topics repeat, message after message. Good topics are remembered, once for all clients with the same bounds; a client
with rules has no such shortcut.

Invariant: no alias beyond ``topic_alias_max`` is ever remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from mqtt5 import PublishPacket

from tocsin.core.session.limits import SessionLimits
from tocsin.errors import ProtocolViolation
from tocsin.wire.mqtt.topics import (
    ASSERT_PREFIX,
    HERE_PREFIX,
    META_PREFIX,
    ONE_PREFIX,
    RESULTS_PREFIX,
    TopicInvalid,
    between_brokers,
    topic_size,
)

Permission = Callable[[str], bool]

TOPIC_ALIAS_INVALID: Final = 0x94

_MEMO_MAX = 4_096  # topics that are remembered; as in wire.topics
_MEMO_TOPIC_MAX = 256  # characters of one of them; so a memo takes 4 MB at most
_BOUNDS_MAX = 8  # different bounds in one process: one broker has one, tests have some


class Publishing:
    """The topics of one client."""

    __slots__ = ("_aliases", "_aliases_max", "_good", "_levels_max", "_link", "_max_bytes", "_may", "refused")

    def __init__(self, limits: SessionLimits, *, link: bool = False) -> None:
        """``link``: of another broker, which marks some topics of its clients with a prefix."""
        self.refused = 0  # messages that went nowhere
        self._max_bytes = limits.topic_max_bytes + (len(HERE_PREFIX + ONE_PREFIX) if link else 0)
        self._levels_max = limits.topic_max_levels + link
        self._link = link
        self._aliases_max = limits.topic_alias_max
        self._aliases: dict[int, str] | None = None  # made when the first one comes
        self._may: Permission | None = None
        self._good = _remembered(self._max_bytes, self._levels_max, self._link)

    def permit(self, may: Permission | None) -> None:
        """Ask this before a message goes anywhere; None: everything is allowed."""
        self._may = may
        self._good = set() if may else _remembered(self._max_bytes, self._levels_max, self._link)

    def close(self) -> None:
        """The client may publish no more; who answered for its rights is not held any longer."""
        if self._may is not None:
            self.permit(_nothing)

    def topic_of(self, packet: PublishPacket) -> str | None:
        """The topic to publish to, None if the message goes nowhere, or the ``WireError`` that ends the connection."""
        topic, alias = packet.topic, packet.topic_alias
        if alias is not None:
            topic = self._resolve(topic, alias)
        if topic in self._good or self._judge(topic, 1):
            return topic
        return None

    def takes(self, topic: str, messages: int) -> bool:
        """``topic_of`` for so many messages with this topic and no alias: whether they go anywhere."""
        return topic in self._good or self._judge(topic, messages)

    def allows(self, topic: str, messages: int = 1) -> bool:
        """Whether a valid topic is this client's to publish to; if not, so many messages are counted."""
        if self._link:
            stream, allowed = topic, not topic.startswith("$") or between_brokers(topic)
        elif topic.startswith(RESULTS_PREFIX):
            return True
        else:
            stream = topic.removeprefix(META_PREFIX).removeprefix(ASSERT_PREFIX)
            allowed = stream != "" and not stream.startswith("$")
        if allowed and self._may is not None:
            allowed = self._may(stream)
        if not allowed:
            self.refused += messages
        return allowed

    def _resolve(self, topic: str, alias: int) -> str:
        if not 0 < alias <= self._aliases_max:
            limit = f"1 to {self._aliases_max} are" if self._aliases_max else "none is"
            raise ProtocolViolation(
                f"a PUBLISH has the topic alias {alias}; {limit} offered", TOPIC_ALIAS_INVALID
            )
        if self._aliases is None:
            self._aliases = {}
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise ProtocolViolation(
                f"a PUBLISH has only the topic alias {alias}, which stands for nothing yet"
            )
        return known

    def _judge(self, topic: str, messages: int) -> bool:
        if not topic:
            raise ProtocolViolation("a PUBLISH has neither a topic nor a topic alias")
        stream = topic.removeprefix(META_PREFIX)
        if len(stream) > self._max_bytes:  # first, so that the topic's size is asked for only if it is short
            raise TopicInvalid(topic, f"it has more than the {self._max_bytes} bytes that are allowed")
        size, levels = topic_size(stream)
        if size > self._max_bytes:
            raise TopicInvalid(topic, f"it has {size} bytes; at most {self._max_bytes} are allowed")
        if levels > self._levels_max:
            raise TopicInvalid(topic, f"it has {levels} levels; at most {self._levels_max} are allowed")
        if not self.allows(topic, messages):
            return False
        if self._may is None and len(topic) <= _MEMO_TOPIC_MAX:
            if len(self._good) >= _MEMO_MAX:
                self._good.clear()
            self._good.add(topic)
        return True


def _nothing(topic: str) -> bool:
    return False


@lru_cache(_BOUNDS_MAX)
def _remembered(max_bytes: int, levels_max: int, link: bool) -> set[str]:
    """The topics that are good within these bounds."""
    return set()
