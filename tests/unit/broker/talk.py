"""What clients say to a broker, and see through: messages of any QoS, sessions that last, raw bytes, the end."""

from __future__ import annotations

import asyncio

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
)

from tests.unit.broker.harness import DEADLINE_S, Peer

ZERO, ONE, TWO = QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE
LASTING = 3_600


def lasting(client_id: str, *, clean: bool = False, receive_max: int = 100) -> ConnectPacket:
    return ConnectPacket(
        client_id, clean_start=clean, session_expiry_interval=LASTING, receive_max=receive_max
    )


def retained(topic: str, payload: bytes, qos: QoS = ONE) -> PublishPacket:
    return PublishPacket(topic, payload, qos=qos, retain=True, packet_id=int(qos) or None)


async def publish(
    peer: Peer, topic: str, payload: bytes, qos: QoS = ONE, packet_id: int = 1, *, retain: bool = False
) -> None:
    """Publish and see it through."""
    number = None if qos == ZERO else packet_id
    peer.send(PublishPacket(topic, payload, qos=qos, retain=retain, packet_id=number))
    if qos == ZERO:
        return
    if qos == ONE:
        assert (await peer.first(PubAckPacket)).packet_id == packet_id
    else:
        assert (await peer.first(PubRecPacket)).packet_id == packet_id
        peer.send(PubRelPacket(packet_id))
        assert (await peer.first(PubCompPacket)).packet_id == packet_id


async def receive(peer: Peer) -> PublishPacket:
    """Receive a message and see it through."""
    packet = await peer.first(PublishPacket)
    if packet.qos == ONE:
        assert packet.packet_id is not None
        peer.send(PubAckPacket(packet.packet_id))
    elif packet.qos == TWO:
        assert packet.packet_id is not None
        peer.send(PubRecPacket(packet.packet_id))
        assert (await peer.first(PubRelPacket)).packet_id == packet.packet_id
        peer.send(PubCompPacket(packet.packet_id))
    return packet


async def gather(peers: list[Peer], count: int) -> list[tuple[int, bytes]]:
    """The next messages that any of these get, each seen through: (who, what)."""
    found: list[tuple[int, bytes]] = []

    async def take(number: int, peer: Peer) -> None:
        while True:
            found.append((number, (await receive(peer)).payload))

    tasks = [asyncio.create_task(take(number, peer)) for number, peer in enumerate(peers)]
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                await asyncio.sleep(0.005)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def nothing_more(peer: Peer) -> None:
    """The broker has handled what this peer sent, and has nothing else to say."""
    peer.send(PingReqPacket())
    await peer.receive(PingRespPacket)


async def ending(peer: Peer) -> int | None:
    """How the broker ends a connection: the code of its last word, None if that is no refusal."""
    last: Packet | None = None
    while True:
        try:
            last = await peer.next()
        except ConnectionError:
            break
    return int(last.reason_code) if isinstance(last, ConnAckPacket | DisconnectPacket) else None


# ── bytes that no packet class would write ──────────────────────────────────────────────────────────────────


def frame(first: int, *parts: bytes) -> bytes:
    """A packet of this first byte, with its length written as it should be."""
    body = b"".join(parts)
    return bytes((first,)) + varint(len(body)) + body


def varint(number: int) -> bytes:
    written = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        written.append(low | 0x80 if number else low)
        if not number:
            return bytes(written)


def text(content: str | bytes) -> bytes:
    """A string or binary field."""
    raw = content.encode() if isinstance(content, str) else content
    return len(raw).to_bytes(2) + raw
