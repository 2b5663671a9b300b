"""A client's acknowledgements of deliveries: PUBACK, PUBREC and PUBCOMP against its window, and the replies."""

from __future__ import annotations

from typing import Final

from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket, PubRelPacket, PubRelReasonCode

from tocsin.core.delivery.window import DeliveryWindow
from tocsin.errors import ProtocolViolation

REFUSED_FROM: Final = 0x80

Answer = PubAckPacket | PubRecPacket | PubCompPacket


def hear(delivery: DeliveryWindow | None, packet: Answer) -> tuple[PubRelPacket | None, bool]:
    """The immediate reply, and whether the answer waits until the client's packet is stored.

    ``ProtocolViolation`` for PUBREC in answer to QoS 1, and PUBACK to QoS 2 (MQTT 5, 4.3.2 and 4.3.3).
    """
    sent = 0 if delivery is None else delivery.qos_of(packet.packet_id)
    if sent == 1 and isinstance(packet, PubRecPacket):
        raise ProtocolViolation("a message at QoS 1 was answered with PUBREC")
    if sent == 2 and isinstance(packet, PubAckPacket):
        raise ProtocolViolation("a message at QoS 2 was answered with PUBACK")
    if isinstance(packet, PubRecPacket):
        return _hear_pubrec(delivery, packet)
    if delivery is not None and isinstance(packet, PubAckPacket):
        delivery.puback(packet.packet_id)
    elif delivery is not None:
        delivery.pubcomp(packet.packet_id)
    return None, False


def _hear_pubrec(delivery: DeliveryWindow | None, packet: PubRecPacket) -> tuple[PubRelPacket | None, bool]:
    identifier, refused = packet.packet_id, int(packet.reason_code) >= REFUSED_FROM
    known, release = False, False
    if delivery is not None:
        known, release = delivery.pubrec(identifier, refused=refused)
    if release:
        return PubRelPacket(identifier), False
    if known or refused:
        return None, known
    return PubRelPacket(identifier, reason_code=PubRelReasonCode.PACKET_ID_NOT_FOUND), False
