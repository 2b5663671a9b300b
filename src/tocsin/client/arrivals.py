"""The messages that a broker sends to a client: whom they are for, when they are acknowledged, what is a repeat.

**For whom.** A message goes to the plain subscriptions whose filter matches its topic, and to the queries whose
identifier it carries: only the broker knows what a query matches. The identifier follows from the filter, so that it
is the same in the next process that has the same session. In a resumed session messages may come before the
subscription that they are for is made; they wait for it until ``abandon``.

**Acknowledging.** A message above QoS 0 is acknowledged when every subscription that got it has **settled** it: in the
order of arrival within a subscription, but not between two of them, so that one that is not read on does not hold the
acknowledgements of the others back. (MQTT 5, 4.6 asks for the order of arrival; brokers go by packet ids.) What waits
here is bounded by what the broker may send unacknowledged, and what was not dealt with is sent again, to this client
or to the next process of the same session.

**Repeats.** A message that waits here, or (QoS 2) whose PUBREC was sent, is not taken again when a broker repeats it;
one that is settled between a break and its repeat is acknowledged with that.
At QoS 1 the last REMEMBERED that were acknowledged are remembered over a break, by packet id and content: the broker,
or another that took the session over, may not know of the acknowledgement. As messages are in order, the first that
is neither remembered nor marked as repeated ends this: whatever follows is new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec
from mqtt5 import Packet, PubAckPacket, PubCompPacket, PubCompReasonCode, PublishPacket, PubRecPacket

from tocsin.errors import ProtocolViolation
from tocsin.wire.topics import QUERY_PREFIX, matches, parse_filter

SUBSCRIPTION_IDS: Final = 268_435_455
REMEMBERED: Final = (
    4_096  # more than a broker repeats after a crash: it stores positions twice a second or so
)
TOPICS_MAX: Final = 4_096  # whose subscriptions are remembered: topics repeat, message after message


class Arrived(msgspec.Struct, frozen=True, eq=False):
    """A message for some subscriptions; above QoS 0 each of them has to settle it."""

    packet: PublishPacket
    takers: tuple[str, ...]  # filters


class _Taken(msgspec.Struct):
    packet: PublishPacket
    content: int  # a hash
    waits_for: int  # subscriptions that have not settled it; 1 if nobody has claimed it yet
    repeated: bool = True  # it came on this connection, so that it can be acknowledged


class Arrivals:
    """See the module's text."""

    def __init__(self, receive_max: int) -> None:
        self.repeated = 0  # messages that were not taken again
        self._receive_max = receive_max  # how many unacknowledged messages the broker may send
        self._plain: dict[str, str] = {}  # filter → what to match
        self._queries: dict[int, str] = {}  # identifier → filter
        self._takers: dict[str, list[str]] = {}  # topic → plain filters
        self._taken: dict[int, _Taken] = {}  # by packet id: not acknowledged
        self._unclaimed: list[_Taken] = []  # those of them that are for no subscription that was made
        self._claims = False  # whether subscriptions of a resumed session may still be made
        self._received: OrderedDict[int, int] = OrderedDict()  # QoS 2: settled, PUBREL awaited
        self._remembered: OrderedDict[int, int] = OrderedDict()  # QoS 1: acknowledged, the oldest first
        self._repeats: dict[int, int] = {}  # of these, what may come again on this connection

    def begin(self, resumed: bool) -> None:
        """There is a connection; ``resumed``: in the same session as the one before."""
        self._claims = resumed
        if not resumed:
            for past in (self._taken, self._unclaimed, self._received, self._remembered):
                past.clear()
        self._repeats = dict(self._remembered)
        for taken in self._taken.values():
            taken.repeated = False

    def want(self, topic_filter: str) -> tuple[int | None, list[Arrived]]:
        """A subscription is made: its identifier, if it needs one, and what has waited for it."""
        identifier = None
        if topic_filter.startswith(QUERY_PREFIX):
            identifier = self._identifier(topic_filter)
            self._queries[identifier] = topic_filter
        else:
            self._plain[topic_filter] = parse_filter(topic_filter).pattern
        self._takers.clear()
        waited = [(taken, self._takers_of(taken.packet)) for taken in self._unclaimed]
        self._unclaimed = [taken for taken, takers in waited if not takers]
        for taken, takers in waited:
            taken.waits_for = max(len(takers), 1)
        return identifier, [Arrived(taken.packet, takers) for taken, takers in waited if takers]

    def _identifier(self, topic_filter: str) -> int:
        digest = blake2b(topic_filter.encode(), digest_size=8).digest()
        identifier = int.from_bytes(digest) % SUBSCRIPTION_IDS + 1
        while identifier in self._queries:
            identifier = identifier % SUBSCRIPTION_IDS + 1
        return identifier

    def forget(self, topic_filter: str) -> None:
        """A subscription is no more."""
        self._plain.pop(topic_filter, None)
        self._queries = {key: name for key, name in self._queries.items() if name != topic_filter}
        self._takers.clear()

    def abandon(self) -> tuple[int, list[Packet]]:
        """The subscriptions of a resumed session were made by now, or never will be: how many messages nobody gets."""
        self._claims = False
        abandoned, self._unclaimed = self._unclaimed, []
        for taken in abandoned:
            taken.waits_for = 0
        return len(abandoned), [answer for taken in abandoned for answer in self._acknowledge(taken)]

    def arrive(self, packet: PublishPacket) -> list[Packet | Arrived]:
        """Raises ``ProtocolViolation`` if there are more than we take."""
        takers, packet_id = self._takers_of(packet), packet.packet_id
        if packet_id is None:
            return [Arrived(packet, takers)] if takers else []
        content = hash((packet.topic, packet.payload))
        if (answer := self._repeat(packet_id, content, int(packet.qos))) is not None:
            self.repeated += 1
            return [*answer]
        if not packet.duplicate:
            self._repeats.clear()
        if len(self._taken) >= self._receive_max:
            raise ProtocolViolation(f"more than {self._receive_max} unacknowledged messages came", 0x93)
        taken = self._taken[packet_id] = _Taken(packet, content, len(takers))
        if takers:
            return [Arrived(packet, takers)]
        if self._claims:
            taken.waits_for = 1
            self._unclaimed.append(taken)
        return [*self._acknowledge(taken)]

    def _repeat(self, packet_id: int, content: int, qos: int) -> list[Packet] | None:
        """How to answer a message that we have or had; None if it is new."""
        if self._received.get(packet_id) == content:
            return [PubRecPacket(packet_id)]
        if (waiting := self._taken.get(packet_id)) is not None and waiting.content == content:
            waiting.repeated = True
            return []  # acknowledged when it is settled
        if self._repeats.pop(packet_id, None) == content and qos == 1:
            return [PubAckPacket(packet_id)]
        return None

    def _takers_of(self, packet: PublishPacket) -> tuple[str, ...]:
        topic = packet.topic
        plain = self._takers.get(topic)
        if plain is None:
            if len(self._takers) >= TOPICS_MAX:
                self._takers.clear()
            plain = [name for name, pattern in self._plain.items() if matches(pattern, topic)]
            self._takers[topic] = plain
        return (*plain, *(self._queries[key] for key in packet.subscription_ids if key in self._queries))

    def settle(self, packets: Iterable[PublishPacket]) -> list[Packet]:
        """A subscription has dealt with these; those of an earlier session no longer matter."""
        answers: list[Packet] = []
        for packet in packets:
            taken = self._taken.get(packet.packet_id or 0)
            if taken is not None and taken.packet is packet:
                taken.waits_for -= 1
                answers += self._acknowledge(taken)
        return answers

    def _acknowledge(self, taken: _Taken) -> list[Packet]:
        """Answer a message if nobody has to settle it any more."""
        if taken.waits_for > 0:
            return []
        packet_id, qos = taken.packet.packet_id or 0, int(taken.packet.qos)
        del self._taken[packet_id]
        if qos == 1:
            _remember(self._remembered, packet_id, taken.content, REMEMBERED)
        else:
            _remember(self._received, packet_id, taken.content, self._receive_max)
        if not taken.repeated:
            self._repeats[packet_id] = taken.content
            return []
        return [PubAckPacket(packet_id) if qos == 1 else PubRecPacket(packet_id)]

    def release(self, packet_id: int) -> Packet:
        """The answer to PUBREL: we have forgotten the message."""
        if self._received.pop(packet_id, None) is None:
            return PubCompPacket(packet_id, reason_code=PubCompReasonCode.PACKET_ID_NOT_FOUND)
        return PubCompPacket(packet_id)


def _remember(contents: OrderedDict[int, int], packet_id: int, content: int, most: int) -> None:
    """Keep this as the newest, and no more than so many: beyond, the broker has given up the oldest."""
    contents[packet_id] = content
    contents.move_to_end(packet_id)
    if len(contents) > most:
        contents.popitem(last=False)
