"""The bytes between clients and a broker: MQTT 5, and the protocol of NATS.

Written for measuring, on purpose apart from ``tocsin.wire``: a generator that shared our codec would share its
mistakes. Topics are written as MQTT has them (``a/b``, ``+``, ``#``); for NATS they are translated.
"""

from __future__ import annotations

import json
from typing import Final, Protocol

NO_END: Final = 0  # the answer is not complete yet


class LoadError(Exception):
    """A broker did not do what the load needs; the text says what."""


class Dialect(Protocol):
    """One protocol, from the client's side."""

    settle_s: float  # how long to wait for what the server sends of its own accord; 0: it sends nothing

    def hello(self, client_id: str) -> bytes:
        """The first thing that a client says."""
        ...

    def subscribe(self, *filters: str) -> bytes: ...

    def publish(self, topic: str, payload: bytes) -> bytes: ...

    def delivery(self, topic: str, payload: bytes) -> bytes:
        """The answer to a subscription of one filter."""
        ...

    def answer_end(self, received: bytes) -> int:
        """Where the answer to ``hello`` or ``subscribe`` ends, or ``NO_END``; ``LoadError`` if it is a refusal."""
        ...

    def reply_to(self, unasked: bytes) -> bytes:
        """The answer to something that the server sent of its own accord."""
        ...


# ── MQTT 5 ───────────────────────────────────────────────────────────────────────────────────────────────────


def varint(number: int) -> bytes:
    written = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        written.append(low | 0x80 if number else low)
        if not number:
            return bytes(written)


def text(words: str) -> bytes:
    encoded = words.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


def packet_end(received: bytes, at: int = 0) -> tuple[int, int]:
    """Where the body of the packet at ``at`` begins and ends; (0, 0) if not even its length is there."""
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(received))):
        byte = received[place]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return place + 1, place + 1 + length
    return 0, 0


class Mqtt:
    """MQTT 5 without properties, which is what nearly all traffic is."""

    settle_s = 0.0

    def __init__(self, *, keep_session: bool = False) -> None:
        self._keep_session = keep_session

    def hello(self, client_id: str) -> bytes:
        properties = b"\x11\xff\xff\xff\xff" if self._keep_session else b""  # session expiry: never
        flags = b"\x00" if self._keep_session else b"\x02"
        head = text("MQTT") + b"\x05" + flags + b"\x00\x00"  # version, flags, no keep-alive
        return packet(0x10, head + varint(len(properties)) + properties + text(client_id))

    def subscribe(self, *filters: str, qos: int = 0) -> bytes:
        wanted = b"".join(text(each) + bytes((qos,)) for each in filters)
        return packet(0x82, b"\x00\x01\x00" + wanted)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bytes:
        return packet(0x31 if retain else 0x30, text(topic) + b"\x00" + payload)

    def publish_once_stored(self, topic: str, payload: bytes, packet_id: int) -> bytes:
        """A QoS 1 PUBLISH, which is answered by a PUBACK."""
        return packet(0x32, text(topic) + packet_id.to_bytes(2, "big") + b"\x00" + payload)

    def delivery(self, topic: str, payload: bytes) -> bytes:
        return self.publish(topic, payload)

    def answer_end(self, received: bytes) -> int:
        body, end = packet_end(received)
        if not body or len(received) < end:
            return NO_END
        kind = received[0] >> 4
        if kind == 2 and received[body + 1] >= 0x80:
            raise LoadError(f"the CONNACK refuses with {received[body + 1]:#04x}")
        if kind == 9 and received[end - 1] >= 0x80:
            raise LoadError(f"the SUBACK refuses with {received[end - 1]:#04x}")
        if kind not in (2, 9):
            raise LoadError(f"a packet of type {kind} came where an answer was expected")
        return end

    def reply_to(self, unasked: bytes) -> bytes:
        if unasked:
            raise LoadError(f"{len(unasked)} bytes came that nobody asked for: {unasked[:40]!r}")
        return b""


class Capabilities:
    """The features that a CONNACK announces: MQTT 5, section 3.2.2.3."""

    def __init__(self, connack: bytes) -> None:
        self.max_qos = 2
        self.retain = True
        body, end = packet_end(connack)
        # Behind flags, reason and, as there are fewer than 128 bytes of them, the properties' length.
        at = body + 3
        while at < end:
            identifier, at = connack[at], at + 1
            if identifier == 0x24:
                self.max_qos = connack[at]
            elif identifier == 0x25:
                self.retain = connack[at] == 1
            at = _behind(connack, identifier, at)


def _behind(connack: bytes, identifier: int, at: int) -> int:
    """Where the property that begins at ``at`` ends."""
    fixed = {0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}
    if identifier in fixed:
        return at + fixed[identifier]
    end = at + 2 + int.from_bytes(connack[at : at + 2], "big")
    if identifier == 0x26:  # a user property is a pair of strings
        end += 2 + int.from_bytes(connack[end : end + 2], "big")
    return end


# ── NATS ─────────────────────────────────────────────────────────────────────────────────────────────────────


def subject(topic: str) -> str:
    return topic.replace("/", ".").replace("+", "*").replace("#", ">")


class Nats:
    """The text protocol of NATS."""

    settle_s = 5.0  # a client is pinged about two seconds after it connected, whatever the ping interval

    def hello(self, client_id: str) -> bytes:
        options = {"verbose": False, "pedantic": False, "name": client_id, "lang": "raw", "protocol": 1}
        return b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n"

    def subscribe(self, *filters: str) -> bytes:
        wanted = "".join(f"SUB {subject(each)} {number}\r\n" for number, each in enumerate(filters, 1))
        return wanted.encode() + b"PING\r\n"

    def publish(self, topic: str, payload: bytes, *, reply: str = "") -> bytes:
        head = f"PUB {subject(topic)} {reply} {len(payload)}\r\n" if reply else self._head(topic, payload)
        return head.encode() + payload + b"\r\n"

    def delivery(self, topic: str, payload: bytes) -> bytes:
        return f"MSG {subject(topic)} 1 {len(payload)}\r\n".encode() + payload + b"\r\n"

    def answer_end(self, received: bytes) -> int:
        if b"-ERR" in received:
            raise LoadError(f"the server refuses: {received[received.index(b'-ERR') :][:80]!r}")
        at = received.find(b"PONG\r\n")
        return NO_END if at < 0 else at + 6

    def reply_to(self, unasked: bytes) -> bytes:
        if unasked.replace(b"PING\r\n", b""):
            raise LoadError(f"{len(unasked)} bytes came that nobody asked for: {unasked[:40]!r}")
        return b"PONG\r\n" * unasked.count(b"PING")

    def _head(self, topic: str, payload: bytes) -> str:
        return f"PUB {subject(topic)} {len(payload)}\r\n"
