"""A subscriber's side of QoS 1 and 2, with a memory of QoS 2 packet ids that survives connections."""

from __future__ import annotations

from mqtt5 import PubAckPacket, PubCompPacket, PublishPacket, PubRecPacket, PubRelPacket

from tests.unit.broker.harness import Peer


class Taker:
    """Takes numbers; ``held`` are the packet ids that it has not been released from."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.held: set[int] = set()

    async def take(self, peer: Peer) -> None:
        """The next packet, and our answer to it."""
        packet = await peer.next()
        if isinstance(packet, PublishPacket):
            assert packet.packet_id is not None
            if int(packet.qos) == 1:
                self.taken.append(int(packet.payload))
                peer.send(PubAckPacket(packet.packet_id))
                return
            if packet.packet_id not in self.held:
                self.held.add(packet.packet_id)
                self.taken.append(int(packet.payload))
            peer.send(PubRecPacket(packet.packet_id))
        elif isinstance(packet, PubRelPacket):
            self.held.discard(packet.packet_id)
            peer.send(PubCompPacket(packet.packet_id))
