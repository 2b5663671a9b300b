"""QoS 1 and 2 messages that one client is sending, by packet id, until they are answered for good.

A packet id is in at most one of these places, but for a QoS 1 message on an id whose QoS 2 message its client forgot:

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

Invariants: ``held`` = received minus released; never more than ``held_max`` ids in it, but for restored ones; never
more than ``receive_max`` unanswered ids of an MQTT 5 client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from tocsin.errors import ProtocolViolation

Verdict = Literal["commit", "under way", "received", "full"]
Release = Literal["release", "under way"]
Released = Literal["held", "stray"]

RECEIVE_MAX_EXCEEDED: Final = 0x93


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
        """One more that is unanswered, if it is not one of them already."""
        if self._receive_max is None or packet_id in self._unanswered:
            return
        if len(self._unanswered) >= self._receive_max:
            raise ProtocolViolation(
                f"more than the {self._receive_max} messages that may be unanswered came; wait for acknowledgements",
                RECEIVE_MAX_EXCEEDED,
            )
        self._unanswered[packet_id] = None
