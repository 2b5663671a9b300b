"""A broker that is as simple as it can be, and a wire that breaks: what the client's core is held against."""

from __future__ import annotations

import itertools
from collections import deque

from mqtt5 import (
    ConnAckPacket,
    Packet,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    UnsubAckPacket,
    UnsubAckReasonCode,
    UnsubscribePacket,
)

QOS = (QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)


class Broker:
    """One client's session at a broker. Packet ids of deliveries follow from their numbers, as Tocsin's do."""

    def __init__(self, *, receive_max: int, window: int) -> None:
        self.receive_max = receive_max  # of us: how much the client may send
        self.window = window  # of the client
        self.stored: list[bytes] = []  # what the client published
        self.held: set[int] = set()  # QoS 2 packet ids of these
        self.under_way = 0
        self.numbers = itertools.count(1)
        self.waiting: deque[tuple[int, int]] = deque()  # (number, QoS) to be delivered
        self.sent: dict[int, int] = {}  # number → QoS: not acknowledged
        self.released: dict[int, None] = {}  # numbers whose PUBREL is out
        self.out: deque[Packet] = deque()

    def deliver(self, qos: int) -> int:
        number = next(self.numbers)
        self.waiting.append((number, qos))
        self.send()
        return number

    def send(self, *, duplicate: bool = False) -> None:
        while self.waiting and len(self.sent) + len(self.released) < self.window:
            number, qos = self.waiting.popleft()
            self.sent[number] = qos
            self.out.append(self.packet(number, qos, duplicate))

    def packet(self, number: int, qos: int, duplicate: bool) -> PublishPacket:
        return PublishPacket(
            f"t/{number % 2}", b"%d" % number, qos=QOS[qos], packet_id=number, duplicate=duplicate
        )

    def connect(self, *, resumed: bool) -> ConnAckPacket:
        self.out.clear()
        self.under_way = 0
        if not resumed:
            self.held.clear()
            self.sent.clear()
            self.released.clear()
        self.out.extend(self.packet(number, qos, True) for number, qos in self.sent.items())
        self.out.extend(PubRelPacket(number) for number in self.released)
        return ConnAckPacket(session_present=resumed, receive_max=self.receive_max)

    def forget_acknowledgements(self, numbers: list[int]) -> None:
        """A crash: these were acknowledged at QoS 1, and that was not stored; nor was it that they were sent."""
        again = {**dict.fromkeys(numbers, 1), **self.sent}
        self.sent.clear()
        self.waiting = deque(sorted([*again.items(), *self.waiting]))

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubscribePacket(packet_id=packet_id):
                self.out.append(SubAckPacket(packet_id, [SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE]))
            case UnsubscribePacket(packet_id=packet_id):
                self.out.append(UnsubAckPacket(packet_id, [UnsubAckReasonCode.SUCCESS]))
            case PublishPacket(payload=payload, packet_id=packet_id):
                assert packet_id is not None
                self.under_way += 1
                assert self.under_way <= self.receive_max, "more than the broker takes"
                if int(packet.qos) == 1:
                    self.under_way -= 1
                    self.stored.append(payload)
                    self.out.append(PubAckPacket(packet_id))
                    return
                if packet_id not in self.held:
                    self.stored.append(payload)
                self.held.add(packet_id)
                self.out.append(PubRecPacket(packet_id))
            case PubRelPacket(packet_id=packet_id):
                self.under_way = max(0, self.under_way - 1)
                self.held.discard(packet_id)
                self.out.append(PubCompPacket(packet_id))
            case PubAckPacket(packet_id=number):
                self.sent.pop(number, None)
            case PubRecPacket(packet_id=number):
                if self.sent.pop(number, None) is not None or number in self.released:
                    self.released[number] = None
                    self.out.append(PubRelPacket(number))
            case PubCompPacket(packet_id=number):
                self.released.pop(number, None)
        self.send()
