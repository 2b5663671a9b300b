"""What the tests of the session share: sessions in each state, and what to look for in their effects."""

from __future__ import annotations

from typing import Any

import pytest
from mqtt5 import ConnectPacket, Packet, PublishPacket, QoS, SubscribePacket, TopicFilter, Will

from tocsin.core.machine import Effect
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.machine import Session
from tocsin.core.session.signals import Authenticated, Close, Opened, PacketArrived, Resumed, SendPacket
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5, V311, Version

LIMITS = SessionLimits(
    subscriptions_max=3,
    topic_max_bytes=20,
    topic_max_levels=4,
    client_id_max_bytes=10,
    keep_alive_max_s=60,
    early_max_bytes=1_000,
    session_expiry_max_s=100,
    receive_max=3,
    inbound_max=4,
    topic_alias_max=2,
)
S = 1_000_000
WILL = Will("gone", payload=b"bye", will_delay_interval=30, content_type="text/plain")
BOTH = pytest.mark.parametrize("version", [V311, V5])
_QOS = (QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)


def connecting(limits: SessionLimits = LIMITS) -> Session:
    session = Session(limits)
    session.handle(Opened(assigned_client_id="tocsin-1"), 0)
    return session


def arrive(session: Session, packet: Packet, version: Version | None = None, now_us: int = 0) -> list[Effect]:
    """A packet comes; in the session's own version unless told otherwise."""
    return session.handle(PacketArrived(packet=packet, version=version or session.version), now_us)


def resuming(version: Version = V5, limits: SessionLimits = LIMITS, **fields: Any) -> Session:
    session = connecting(limits)
    arrive(session, ConnectPacket("c", **{"clean_start": True, **fields}), version)
    session.handle(Authenticated(), 0)
    assert session.state == "resuming"
    return session


def connected(version: Version = V5, limits: SessionLimits = LIMITS, **fields: Any) -> Session:
    session = resuming(version, limits, **fields)
    session.handle(Resumed(present=False), 0)
    assert session.state == "connected"
    return session


def answer(packet: ConnectPacket, version: Version, limits: SessionLimits = LIMITS) -> list[Effect]:
    """What a CONNECT leads to when the client is who it says and has no stored session."""
    session = connecting(limits)
    effects = arrive(session, packet, version)
    if session.state == "authenticating":
        effects = session.handle(Authenticated(), 0)
    if session.state == "resuming":
        effects += session.handle(Resumed(present=False), 0)
    return effects


def message(packet_id: int, qos: int, topic: str = "a", **fields: Any) -> PublishPacket:
    return PublishPacket(topic, b"x", qos=_QOS[qos], packet_id=packet_id if qos else None, **fields)


def sent(effects: list[Effect]) -> Any:
    """The one packet that is sent."""
    (packet,) = [effect.packet for effect in effects if isinstance(effect, SendPacket)]
    return packet


def closing(effects: list[Effect]) -> Close:
    assert isinstance(effects[-1], Close)
    return effects[-1]


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


def any_filter(pattern: str) -> TopicFilter:
    """A filter as a peer can send it; the constructor refuses some that the reader lets through."""
    decoder = Decoder(1 << 16)
    decoder.feed(encode(ConnectPacket("c"), V5))
    raw = pattern.encode()
    body = b"\0\1\0" + len(raw).to_bytes(2, "big") + raw + b"\0"
    (packet,) = decoder.feed(bytes((0x82, len(body))) + body)
    assert isinstance(packet, SubscribePacket)
    return packet.topic_filters[0]
