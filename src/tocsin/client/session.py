"""A client's side of its session with a broker, without a socket: packets in, packets and outcomes out.

``subscribe``, ``unsubscribe``, ``flush`` and ``publish`` give a request's number; ``Answered`` with that number
follows, now or on a later connection: what a break left unanswered is sent again (a flush fails). Subscriptions are
made anew where the broker does not know the session; ``Ended`` tells of one that it refuses.

    QoS 1    waiting ──PUBLISH──► under way ──PUBACK──► answered
    QoS 2    waiting ──PUBLISH──► under way ──PUBREC──► releasing (PUBREL) ──PUBCOMP──► answered

At most as many messages are under way as the broker takes; the rest wait, in order. Where the broker has lost the
session, what it has not acknowledged is sent as new (at QoS 2 it may then be there twice), and what it has received is
answered. What arrives is ``arrivals``' affair.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    Packet,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    PubRelReasonCode,
    QoS,
    RetainHandling,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tocsin.client.arrivals import Arrivals, Arrived
from tocsin.errors import AlreadySubscribed, PublishRefused, SubscriptionRefused, TocsinError, Unencodable
from tocsin.model.publication import Publication
from tocsin.wire.codec import V5
from tocsin.wire.topics import STREAMS_PREFIX

PACKET_IDS: Final = 65_535
REFUSED_FROM: Final = 0x80
NOWHERE: Final = (
    "tocsin/flush"  # to unsubscribe from what nobody has changes nothing, and its answer has a number
)

_QOS: Final = (QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)
_RETAINED: Final = RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS


class Answered(msgspec.Struct, frozen=True):
    """A request is done, or has failed."""

    request: int
    error: TocsinError | None = None


class Ended(msgspec.Struct, frozen=True):
    """The broker does not grant a subscription, at first or after a break."""

    topic_filter: str
    error: TocsinError


Effect = Packet | Answered | Ended | Arrived


class _Asked(msgspec.Struct, frozen=True):
    request: int
    name: str  # the filter
    packet: SubscribePacket | UnsubscribePacket


class _Wanted(msgspec.Struct):
    qos: int
    identifier: int | None
    granted: bool = False


class _Sending(msgspec.Struct):
    request: int
    publication: Publication
    sent: bool = False  # in the session that the broker has now
    received: bool = False  # PUBREC came


class Session:
    """See the module's text."""

    def __init__(self, receive_max: int) -> None:
        self.arrivals = Arrivals(receive_max)
        self._requests = 0
        self._packet_id = 0
        self._asked: dict[int, _Asked] = {}  # by packet id
        self._wanted: dict[str, _Wanted] = {}  # by filter
        self._window = 0  # how many messages of ours the broker takes at a time; 0: there is no connection
        self._sending: dict[int, _Sending] = {}  # by packet id, in order
        self._unsent: deque[int] = deque()  # those of them that are not sent on this connection

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────

    def connected(self, answer: ConnAckPacket) -> list[Effect]:
        resumed = answer.session_present
        self.arrivals.begin(resumed)
        effects: list[Effect] = []
        if not resumed:
            effects = [Answered(each.request) for each in self._sending.values() if each.received]
            self._sending = {key: each for key, each in self._sending.items() if not each.received}
            for each in self._sending.values():
                each.sent = False
        self._window = answer.receive_max
        self._unsent = deque(self._sending)
        asked = {each.name for each in self._asked.values()}
        for name, wanted in self._wanted.items():
            kept = (
                resumed and wanted.granted and not name.startswith(STREAMS_PREFIX)
            )  # a set is sent to who asks
            if name not in asked and not kept:
                self._ask_for(name, 0)
        return [*effects, *(each.packet for each in self._asked.values()), *self._send_waiting()]

    def interrupted(self, error: TocsinError) -> list[Effect]:
        self._window = 0
        flushes = [key for key, each in self._asked.items() if each.name == NOWHERE]
        return [Answered(self._asked.pop(key).request, error) for key in flushes]

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, topic_filter: str, qos: int) -> tuple[int, list[Effect]]:
        """Raises ``AlreadySubscribed``."""
        if topic_filter in self._wanted:
            raise AlreadySubscribed(topic_filter)
        identifier, waited = self.arrivals.want(topic_filter)
        self._wanted[topic_filter] = _Wanted(qos, identifier)
        self._requests += 1
        packet = self._ask_for(topic_filter, self._requests)
        return self._requests, [*([packet] if self._window else []), *waited]

    def _ask_for(self, name: str, request: int) -> Packet:
        wanted, packet_id = self._wanted[name], self._free_id()
        qos = _QOS[wanted.qos]
        how = TopicFilter(name, max_qos=qos, retain_as_published=False, retain_handling=_RETAINED)
        packet = SubscribePacket(packet_id, [how], subscription_id=wanted.identifier)
        self._asked[packet_id] = _Asked(request, name, packet)
        return packet

    def unsubscribe(self, topic_filter: str) -> tuple[int, list[Effect]]:
        self._wanted.pop(topic_filter, None)
        self.arrivals.forget(topic_filter)
        self._requests += 1
        packet = UnsubscribePacket(self._free_id(), [topic_filter])
        self._asked[packet.packet_id] = _Asked(self._requests, topic_filter, packet)
        return self._requests, [packet] if self._window else []

    def flush(self) -> tuple[int, list[Effect]]:
        """Answered when the broker has read everything that was sent before."""
        return self.unsubscribe(NOWHERE)

    def publish(self, publication: Publication) -> tuple[int, list[Effect]]:
        """A message at QoS 1 or 2."""
        self._requests += 1
        packet_id = self._free_id()
        self._sending[packet_id] = _Sending(self._requests, publication)
        self._unsent.append(packet_id)
        return self._requests, self._send_waiting()

    def _send_waiting(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._unsent and len(self._sending) - len(self._unsent) < self._window:
            packet_id = self._unsent.popleft()
            each = self._sending[packet_id]
            effects.append(PubRelPacket(packet_id) if each.received else _packet(each, packet_id))
            each.sent = True
        return effects

    def _free_id(self) -> int:
        for _ in range(PACKET_IDS):
            self._packet_id = self._packet_id % PACKET_IDS + 1
            if self._packet_id not in self._asked and self._packet_id not in self._sending:
                return self._packet_id
        raise Unencodable("PUBLISH", V5, f"{PACKET_IDS} requests wait for answers, and each has a number")

    # ── hearing ─────────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, packet: Packet) -> list[Effect]:
        """Raises ``ProtocolViolation`` if the broker sends more than we take."""
        match packet:
            case PublishPacket():
                return [*self.arrivals.arrive(packet)]
            case PubRelPacket(packet_id=packet_id):
                return [self.arrivals.release(packet_id)]
            case PubAckPacket():
                return self._acknowledged(packet)
            case PubRecPacket(packet_id=packet_id):
                if int(packet.reason_code) >= REFUSED_FROM:
                    return self._acknowledged(packet)
                if packet_id not in self._sending:
                    return [PubRelPacket(packet_id, reason_code=PubRelReasonCode.PACKET_ID_NOT_FOUND)]
                self._sending[packet_id].received = True
                return [PubRelPacket(packet_id)]
            case PubCompPacket(packet_id=packet_id) if packet_id in self._sending:
                return [Answered(self._sending.pop(packet_id).request), *self._send_waiting()]
            case SubAckPacket() | UnsubAckPacket() if packet.packet_id in self._asked:
                return self._answered(packet)
        return []

    def _acknowledged(self, packet: PubAckPacket | PubRecPacket) -> list[Effect]:
        each = self._sending.pop(packet.packet_id, None)
        if each is None:
            return []
        error = None
        if int(packet.reason_code) >= REFUSED_FROM:
            error = PublishRefused(each.publication.topic, _words(packet, packet.reason_code))
        return [Answered(each.request, error), *self._send_waiting()]

    def _answered(self, packet: SubAckPacket | UnsubAckPacket) -> list[Effect]:
        asked = self._asked.pop(packet.packet_id)
        wanted = self._wanted.get(asked.name)
        if wanted is None or not isinstance(packet, SubAckPacket):
            return [Answered(asked.request)]
        if int(packet.reason_codes[0]) < REFUSED_FROM:
            wanted.granted = True
            return [Answered(asked.request)]
        del self._wanted[asked.name]
        self.arrivals.forget(asked.name)
        error = SubscriptionRefused(asked.name, _words(packet, packet.reason_codes[0]))
        return [Answered(asked.request, error), Ended(asked.name, error)]


def _packet(each: _Sending, packet_id: int) -> PublishPacket:
    message = each.publication
    return message.packet(qos=message.qos, packet_id=packet_id, duplicate=each.sent, retain=message.retain)


def _words(packet: PubAckPacket | PubRecPacket | SubAckPacket, code: IntEnum) -> str:
    """Why a broker refused, as it said it."""
    return packet.reason_str or code.name.replace("_", " ").lower()
