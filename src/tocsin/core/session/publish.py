"""What one client publishes: the topics that are open to it, and the packet ids of its QoS 1 and 2 messages.

    publishing = Publishing(limits)
    publishing.topic_of(packet)        the hot path: the topic to publish to; None: the message goes nowhere
    publishing.takes(topic, messages)  the same of so many messages that have only a topic: whether they go on

**Topics** (``Publishing``). A topic that breaks a bound, or an alias that means nothing, is a mistake of the client's
and raises; a topic that is not the client's to publish to is not, and gives None. Such are topics that begin with ``$``
and whatever the rules of access deny. ``$meta/topic`` is the client's if ``topic`` is. ``$results/…`` is a question,
which everybody may ask: its answer depends on the right to hear the channel. A link between brokers brings topics of
clients, and those that brokers use among themselves (``wire.mqtt.topics.between_brokers``).

Topics repeat, message after message. Good topics are remembered, once for all clients with the same bounds; a client
with rules has no such shortcut.

**Packet ids** (``Inbound``) are remembered until their messages are answered for good. A packet id is in at most one of
these places, but for a QoS 1 message on an id whose QoS 2 message its client forgot:

    QoS 1     ──PUBLISH──► committing ──Committed──► free                                   PUBACK when it gets there
    QoS 2     ──PUBLISH──► committing ──Committed──► received ──PUBREL──► releasing ──Released──► free
                                                     PUBREC when it gets there            PUBCOMP when it gets there

A message that failed to be stored frees its id at once. *Received* and *releasing* together are what a session must
remember beyond its connection (``held``): a repeat of such a PUBLISH is answered, but not published again.

An id that is released without being held is a *stray*. The stored session may still hold it (a broker crashed between
the message and the note of it), so that it is released there too, before the answer says that the id is unknown.

Two bounds. ``receive_max`` is what CONNACK promised: so many messages of **this connection** may be unanswered (PUBACK,
PUBCOMP, or a refusal); MQTT 5 clients must keep to it, and 3.1.1 has no way to know it. ``held_max`` bounds what is
remembered, also over connections and for 3.1.1.

Invariants: no alias beyond ``topic_alias_max`` is ever remembered; ``held`` = received minus released; never more than
``held_max`` ids in it, but for restored ones; never more than ``receive_max`` unanswered ids of an MQTT 5 client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, Literal

from mqtt5 import PublishPacket

from tocsin.core.session.bridging import is_state_topic, state_topic
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
Verdict = Literal["commit", "under way", "received", "full"]
Release = Literal["release", "under way"]
Released = Literal["held", "stray"]

RECEIVE_MAX_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94

_MEMO_MAX = 4_096  # topics that are remembered; as in wire.topics
_MEMO_TOPIC_MAX = 256  # characters of one of them; so a memo takes 4 MB at most
_BOUNDS_MAX = 8  # different bounds in one process: one broker has one, tests have some


class Publishing:
    """The topics of one client."""

    __slots__ = (
        "_aliases",
        "_aliases_max",
        "_client_id",
        "_good",
        "_levels_max",
        "_link",
        "_max_bytes",
        "_may",
        "refused",
    )

    def __init__(self, limits: SessionLimits, client_id: str = "", *, link: bool = False) -> None:
        """``link``: of another broker, which marks some topics of its clients with a prefix."""
        self._client_id = client_id
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
        elif topic.startswith(RESULTS_PREFIX) or (is_state_topic(topic) and self._states(topic)):
            return True
        else:
            stream = topic.removeprefix(META_PREFIX).removeprefix(ASSERT_PREFIX)
            allowed = stream != "" and not stream.startswith("$")
        if allowed and self._may is not None:
            allowed = self._may(stream)
        if not allowed:
            self.refused += messages
        return allowed

    def _states(self, topic: str) -> bool:
        """Whether a bridge says there of itself that it is connected: no rule is about that."""
        return topic == state_topic(self._client_id)

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
        if self._may is None and len(topic) <= _MEMO_TOPIC_MAX and not is_state_topic(topic):
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


class Inbound:
    """The packet ids of one client's messages."""

    __slots__ = ("_committing", "_held_max", "_receive_max", "_received", "_strays", "_unanswered")

    def __init__(self, receive_max: int | None, held_max: int) -> None:
        self._receive_max = receive_max  # None: the client cannot know of it
        self._held_max = held_max
        self._committing: dict[int, int] = {}  # packet id → QoS
        self._received: dict[int, bool] = {}  # packet id of QoS 2 → its release is under way
        self._strays: set[int] = set()  # ids that are being released, and were not received
        self._unanswered: dict[int, None] = {}  # ids of this connection that count against receive_max

    def __len__(self) -> int:
        """How many messages are being made durable."""
        return len(self._committing)

    def held(self) -> tuple[int, ...]:
        return tuple(sorted(self._received))

    def restore(self, packet_ids: Iterable[int]) -> None:
        """These were received on an earlier connection, and not released."""
        self._received = dict.fromkeys(packet_ids, False)

    def knows(self, packet_id: int) -> bool:
        """Whether a message with this id is under way, or held."""
        return packet_id in self._committing or packet_id in self._received

    def publish(self, packet_id: int, qos: int, duplicate: bool) -> Verdict:
        """Classify a PUBLISH with this id: to be committed, a repeat, or one more than can be remembered.

        Raises ``ProtocolViolation`` if the client may not use this id, or not one more.
        """
        before = self._committing.get(packet_id)
        if before is not None:
            if before == qos and (duplicate or qos == 2):
                return "under way"
            raise ProtocolViolation(f"packet id {packet_id} is used again before its PUBLISH was answered")
        if qos == 2 and (packet_id in self._strays or self._received.get(packet_id)):
            raise ProtocolViolation(f"packet id {packet_id} is used again before its PUBREL was answered")
        if qos == 2 and packet_id in self._received:
            self._count(packet_id)
            return "received"
        if qos == 2 and len(self._received) + len(self._committing) >= self._held_max:
            return "full"
        self._count(packet_id)
        self._committing[packet_id] = qos
        return "commit"

    def committed(self, packet_id: int) -> int | None:
        """The QoS of a message that is durable now; None if there was no such."""
        qos = self._committing.pop(packet_id, None)
        if qos == 2:
            self._received[packet_id] = False
        elif qos == 1:
            self._unanswered.pop(packet_id, None)
        return qos

    def failed(self, packet_id: int) -> int | None:
        """The QoS of a message that could not be made durable; None if there was no such."""
        qos = self._committing.pop(packet_id, None)
        if qos is not None:
            self._unanswered.pop(packet_id, None)
        return qos

    def release(self, packet_id: int) -> Release:
        """Classify a PUBREL with this id. Raises ``ProtocolViolation`` if its PUBLISH is not answered yet."""
        if self._committing.get(packet_id) == 2:
            raise ProtocolViolation(f"packet id {packet_id} is released before its PUBLISH was answered")
        if packet_id in self._strays or self._received.get(packet_id):
            return "under way"
        if packet_id in self._received:
            self._received[packet_id] = True
        else:
            self._strays.add(packet_id)
        return "release"

    def released(self, packet_id: int) -> Released | None:
        """It is durable that this id is free; what it was until now, None if its release was not under way."""
        if packet_id in self._strays:
            self._strays.remove(packet_id)
            return "stray"
        if not self._received.get(packet_id):
            return None
        del self._received[packet_id]
        self._unanswered.pop(packet_id, None)
        return "held"

    def _count(self, packet_id: int) -> None:
        """One more that is unanswered, if it is not one of them already.

        Those that are on their way to the log may be too many: a client that sends a burst is read more slowly. Who
        is over the maximum with messages that wait for its own PUBREL stays over, as nothing but its end would help.
        """
        if self._receive_max is None or packet_id in self._unanswered:
            return
        if len(self._unanswered) - len(self._committing) >= self._receive_max:
            raise ProtocolViolation(
                f"more than {self._receive_max} messages at QoS 2 wait for their PUBREL; release some first",
                RECEIVE_MAX_EXCEEDED,
            )
        self._unanswered[packet_id] = None
