"""What a client answers to deliveries, and what it is replied: PUBACK, PUBREC and PUBCOMP against its window."""

from __future__ import annotations

from typing import Final

from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket, PubRelPacket, PubRelReasonCode

from tocsin.core.delivery import Delivery

REFUSED_FROM: Final = 0x80

Answer = PubAckPacket | PubRecPacket | PubCompPacket


def hear(delivery: Delivery | None, packet: Answer) -> tuple[PubRelPacket | None, bool]:
    """What to reply at once, and whether the client waits for what it said to be stored."""
    if isinstance(packet, PubRecPacket):
        return _hear_pubrec(delivery, packet)
    if delivery is not None and isinstance(packet, PubAckPacket):
        delivery.puback(packet.packet_id)
    elif delivery is not None:
        delivery.pubcomp(packet.packet_id)
    return None, False


def _hear_pubrec(delivery: Delivery | None, packet: PubRecPacket) -> tuple[PubRelPacket | None, bool]:
    identifier, refused = packet.packet_id, int(packet.reason_code) >= REFUSED_FROM
    known, release = False, False
    if delivery is not None:
        known, release = delivery.pubrec(identifier, refused=refused)
    if release:
        return PubRelPacket(identifier), False
    if known or refused:
        return None, known
    return PubRelPacket(identifier, reason_code=PubRelReasonCode.PACKET_ID_NOT_FOUND), False
