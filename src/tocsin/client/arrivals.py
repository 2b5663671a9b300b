"""The messages that a broker sends to a client: which subscriptions get them, when they are acknowledged, which are
repeats.

**Addressees.** A message goes to the plain subscriptions whose filter matches its topic, and to the queries whose
identifier it carries: only the broker knows what a query matches. The identifier follows from the filter, so that it
is the same in the next process that has the same session. In a resumed session messages may come before the
subscription that they are for is made; they wait for it until ``abandon``. Messages of a filter that this process has
given up do not wait: a broker that was cut off from the store may have dropped the UNSUBSCRIBE.

**Acknowledging.** A message above QoS 0 is acknowledged when every subscription that got it has **settled** it: in the
order of arrival within a subscription, but not between two of them, so that a subscription without a reader does not
hold back the acknowledgements of the others. (MQTT 5, 4.6 asks for the order of arrival; brokers go by packet ids.)
What waits here is bounded by what the broker may send unacknowledged, and what was not dealt with is sent again, to
this client or to the next process of the same session.

**Repeats.** A message that waits here, or (QoS 2) whose PUBREC was sent, is not taken again when a broker repeats it;
a message that is settled between a break and its repeat is acknowledged with the repeat.
At QoS 1 those that were acknowledged lately are remembered over a break (``core.delivery.repeats``).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

import mqtt5
import msgspec

from tocsin.client.values import Arrived, Effect, Wanted
from tocsin.core.delivery.repeats import Repeats
from tocsin.core.filters import QueryFilter, RequestFilter, filter_type
from tocsin.errors import ProtocolViolation
from tocsin.wire.mqtt.topics import split_filter

SUBSCRIPTION_IDS: Final = 268_435_455
GIVEN_UP_MAX: Final = 1_000  # filters that are remembered
TOPICS_MAX: Final = 4_096  # whose subscriptions are remembered: topics repeat, message after message


class _Taken(msgspec.Struct):
    packet: mqtt5.PublishPacket
    content: int  # a hash
    waits_for: int  # how many subscriptions have not settled it
    repeated: bool = True  # it came on this connection, so that it can be acknowledged


class Arrivals:
    """Hands incoming messages to subscriptions, acknowledges them and drops repeats."""

    def __init__(self, receive_max: int) -> None:
        self.wanted: dict[str, Wanted] = {}  # by filter
        self._given_up: dict[str, Wanted] = {}  # filters that nobody here wants any more
        self.repeated = 0  # messages that were not taken again
        self._unasked = 0  # messages that were taken for no subscription of ours
        self._takers = lru_cache(TOPICS_MAX)(self._find_takers)
        self._receive_max = receive_max  # how many messages the broker may send before it has an answer
        self._claims = False  # whether subscriptions of a resumed session may still be made
        self._unclaimed: list[mqtt5.PublishPacket] = []  # until then
        self._taken: dict[int, _Taken] = {}  # by packet id: QoS 1 until acknowledged, QoS 2 until released
        self._repeats = Repeats()

    @property
    def unasked(self) -> int:
        """How many messages came that no subscription of ours takes, those among them that still wait for one."""
        return self._unasked + len(self._unclaimed)

    def begin(self, resumed: bool) -> None:
        """There is a connection; ``resumed``: in the same session as the one before."""
        self.interrupt()
        self._claims = resumed
        if not resumed:
            self._taken.clear()
        self._repeats.begin(resumed)

    def interrupt(self) -> None:
        """There is no connection: what came over the last one is not acknowledged over the next before it is repeated.
        Its broker does not know yet what it has sent, and would have us forget a QoS 2 message and repeat it then."""
        self._unclaimed.clear()  # they come again
        for taken in self._taken.values():
            taken.repeated = False

    def age(self) -> None:
        self._repeats.age()

    # ── which subscriptions get a message ───────────────────────────────────────────────────────────────────

    def want(self, how: mqtt5.TopicFilter) -> list[Effect]:
        """A subscription is made: what has waited for it."""
        query = filter_type(how.pattern) in (QueryFilter, RequestFilter)
        identifier = self._identifier(how.pattern) if query else None
        pattern, _ = split_filter(how.pattern)
        self.wanted[how.pattern] = Wanted(how, pattern, identifier)
        self._given_up.pop(how.pattern, None)
        self._takers.cache_clear()
        return self._arrive_again()

    def _identifier(self, topic_filter: str) -> int:
        used = {wanted.identifier for wanted in self.wanted.values()}
        number = int.from_bytes(blake2b(topic_filter.encode(), digest_size=8).digest())
        while number % SUBSCRIPTION_IDS + 1 in used:
            number += 1
        return number % SUBSCRIPTION_IDS + 1

    def forget(self, topic_filter: str) -> None:
        """A subscription is no more."""
        if (wanted := self.wanted.pop(topic_filter, None)) is not None:
            self._given_up[topic_filter] = wanted
            if len(self._given_up) > GIVEN_UP_MAX:
                del self._given_up[next(iter(self._given_up))]
        self._takers.cache_clear()

    def _find_takers(self, topic: str, identifiers: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(name for name, each in self.wanted.items() if each.takes(topic, identifiers))

    def abandon(self) -> tuple[int, list[Effect]]:
        """The subscriptions of a resumed session were made by now, or never will be: how many messages nobody gets."""
        self._claims = False
        return len(self._unclaimed), self._arrive_again()

    def _arrive_again(self) -> list[Effect]:
        packets, self._unclaimed = self._unclaimed, []
        return [effect for packet in packets for effect in self.arrive(packet)]

    # ── what is taken, and acknowledged ─────────────────────────────────────────────────────────────────────

    def arrive(self, packet: mqtt5.PublishPacket) -> list[Effect]:
        """Raises ``ProtocolViolation`` if there are more than we take."""
        takers, packet_id = self._takers(packet.topic, tuple(packet.subscription_ids)), packet.packet_id
        arrived: list[Effect] = [Arrived(packet, takers)] if takers else []
        if packet_id is None:
            self._unasked += not takers and not packet.topic.startswith("$")  # what brokers say by themselves
            return arrived
        taken = _Taken(packet, hash((packet.topic, packet.payload)), len(takers))
        if (answer := self._repeated(packet_id, taken)) is not None:
            self.repeated += 1
            return answer
        if len(self._taken) + len(self._unclaimed) >= self._receive_max:
            raise ProtocolViolation(f"more than {self._receive_max} unacknowledged messages came", 0x93)
        if self._claims and not takers and not self._is_given_up(packet):
            self._unclaimed.append(packet)
            return []
        self._taken[packet_id] = taken
        self._unasked += not takers
        return arrived + self._acknowledge(taken)

    def _is_given_up(self, packet: mqtt5.PublishPacket) -> bool:
        identifiers = tuple(packet.subscription_ids)
        return any(each.takes(packet.topic, identifiers) for each in self._given_up.values())

    def _repeated(self, packet_id: int, again: _Taken) -> list[Effect] | None:
        """How to answer a message that we have or had; None if it is new."""
        taken = self._taken.get(packet_id)
        if taken is not None and taken.content == again.content:
            taken.repeated = True
            return self._acknowledge(taken)
        packet = again.packet
        if self._repeats.is_repeat(packet_id, again.content, int(packet.qos), packet.duplicate):
            return [mqtt5.PubAckPacket(packet_id)]
        return None

    def settle(self, packet: mqtt5.PublishPacket) -> list[Effect]:
        """A subscription has dealt with it; what came in an earlier session no longer matters."""
        taken = self._taken.get(packet.packet_id or 0)
        if taken is None or taken.packet is not packet or not taken.waits_for:
            return []
        taken.waits_for -= 1
        return self._acknowledge(taken)

    def _acknowledge(self, taken: _Taken) -> list[Effect]:
        """Answer a message if nobody has to settle it any more, and the broker is there to hear it."""
        packet_id = taken.packet.packet_id or 0
        if taken.waits_for:
            return []
        if int(taken.packet.qos) == 2:
            return [mqtt5.PubRecPacket(packet_id)] if taken.repeated else []
        del self._taken[packet_id]
        self._repeats.acknowledged(packet_id, taken.content, heard=taken.repeated)
        return [mqtt5.PubAckPacket(packet_id)] if taken.repeated else []

    def release(self, packet_id: int) -> mqtt5.PubCompPacket:
        """The answer to PUBREL: we have forgotten the message."""
        if packet_id not in self._taken or self._taken[packet_id].waits_for:
            return mqtt5.PubCompPacket(packet_id, reason_code=mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND)
        del self._taken[packet_id]
        return mqtt5.PubCompPacket(packet_id)
