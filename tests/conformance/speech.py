"""Clients that break rules: connections in either version, bytes that no packet class would write, and the answer."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import ConnectPacket

from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import ending, frame, text
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

BOTH = pytest.mark.parametrize("version", [V5, V311], ids=["MQTT 5", "MQTT 3.1.1"])

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
NO_PROPERTIES = b"\0"
LONE_SURROGATE = b"a\xed\xa0\x80"  # U+D800, which UTF-8 does not have
TRUNCATED = b"a\xc3"
NUL = b"a\0b"
ILL_FORMED = (LONE_SURROGATE, TRUNCATED)


async def stranger(door: Door, version: Version = V5) -> Peer:
    """A connection that has said nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    peer = Peer(reader, writer, version)
    door.look_after(peer)
    return peer


async def fate(door: Door, data: bytes, version: Version = V5) -> int | None:
    """How the broker ends the connection of a client that is in and sends these bytes."""
    peer = await door.peer("bad", version=version)
    peer.writer.write(data)
    return await ending(peer)


async def fate_of_connect(door: Door, data: bytes, version: Version = V5) -> int | None:
    """How the broker ends a connection that begins with these bytes."""
    peer = await stranger(door, version)
    peer.writer.write(data)
    return await ending(peer)


def said(code: int, version: Version) -> int | None:
    """What a client of this version is told with a code: 3.1.1 has no DISCONNECT from a server."""
    return code if version == V5 else None


def properties(version: Version, raw: bytes = b"") -> bytes:
    """The properties of a packet, where there are such."""
    return bytes((len(raw),)) + raw if version == V5 else b""


def connect_frame(
    version: Version,
    *payload: bytes,
    flags: int = 0x02,
    name: str = "MQTT",
    level: int | None = None,
    raw: bytes = b"",
) -> bytes:
    """A CONNECT with these flags and this payload, right or wrong."""
    head = text(name) + bytes((version if level is None else level, flags)) + b"\0\0"
    return frame(0x10, head, properties(version, raw), *payload)


def greeting(version: Version, client_id: str = "c") -> bytes:
    """A CONNECT that is right."""
    return encode(ConnectPacket(client_id, clean_start=True), version)
