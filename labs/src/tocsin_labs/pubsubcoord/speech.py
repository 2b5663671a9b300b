"""The bytes between the load's clients and a broker: MQTT 5, and the protocol of NATS.

Only what the load needs: to say hello, to subscribe to one topic, to publish payloads of one size, and to find the
payloads in what arrives. A subscriber has one topic, so that nobody reads topics.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

CONNACK, SUBACK, PUBLISH = 0x20, 0x90, 0x30
REFUSED: Final = 0x80  # reason codes from here on
USER_PROPERTY: Final = b"\x26"

Properties = tuple[tuple[str, str], ...]


class Refused(Exception):
    """A broker does not do what the load needs."""


class Speech(Protocol):
    """One protocol, from the client's side."""

    def hello(self, client: str) -> bytes: ...

    def subscribe(self, topic: str, request: Properties = ()) -> bytes: ...

    def frame(self, topic: str, payload_bytes: int, offer: Properties = ()) -> tuple[bytes, bytes]:
        """What stands before and behind a payload that is published."""
        ...

    def read(self, received: bytes, payload_bytes: int) -> tuple[int, list[bytes], int]:
        """How many answers came, which payloads, and how many bytes these were. Raises ``Refused``."""
        ...


class Mqtt:
    """MQTT 5 at QoS 0."""

    def hello(self, client: str) -> bytes:
        return _packet(0x10, _text("MQTT") + b"\x05\x02\x00\x00\x00" + _text(client))

    def subscribe(self, topic: str, request: Properties = ()) -> bytes:
        return _packet(0x82, b"\x00\x01" + _properties(request) + _text(topic) + b"\x00")

    def frame(self, topic: str, payload_bytes: int, offer: Properties = ()) -> tuple[bytes, bytes]:
        named = _text(topic) + _properties(offer)
        return _packet(PUBLISH, named + bytes(payload_bytes))[:-payload_bytes], b""

    def read(self, received: bytes, payload_bytes: int) -> tuple[int, list[bytes], int]:
        answers, payloads, at = 0, [], 0
        while (end := _end(received, at)) <= len(received) and end:
            kind = received[at] & 0xF0
            if kind == PUBLISH:
                payloads.append(received[end - payload_bytes : end])
            elif kind in (CONNACK, SUBACK):
                reason = received[at + 3] if kind == CONNACK else received[end - 1]
                if reason >= REFUSED:
                    raise Refused(f"a broker refuses with {reason:#04x}")
                answers += 1
            else:
                raise Refused(f"a packet of type {kind >> 4} came")
            at = end
        return answers, payloads, at


class Nats:
    """The protocol of NATS. Topics have dots there."""

    def hello(self, client: str) -> bytes:
        return b'CONNECT {"verbose":false,"pedantic":false,"name":"%s"}\r\nPING\r\n' % client.encode()

    def subscribe(self, topic: str, request: Properties = ()) -> bytes:
        return b"SUB %s 1\r\nPING\r\n" % self._subject(topic)

    def frame(self, topic: str, payload_bytes: int, offer: Properties = ()) -> tuple[bytes, bytes]:
        return b"PUB %s %d\r\n" % (self._subject(topic), payload_bytes), b"\r\n"

    def read(self, received: bytes, payload_bytes: int) -> tuple[int, list[bytes], int]:
        answers, payloads, at = 0, [], 0
        while (end := received.find(b"\r\n", at) + 2) > 1:
            if received.startswith(b"MSG ", at):
                if len(received) < end + payload_bytes + 2:
                    break
                payloads.append(received[end : end + payload_bytes])
                end += payload_bytes + 2
            elif received.startswith(b"PONG", at):
                answers += 1
            elif received.startswith(b"-ERR", at):
                raise Refused(received[at : end - 2].decode("utf-8", "replace"))
            at = end
        return answers, payloads, at

    @staticmethod
    def _subject(topic: str) -> bytes:
        return topic.replace("/", ".").encode()


Language = Literal["mqtt", "nats"]
SPEECHES: Final[dict[Language, Speech]] = {"mqtt": Mqtt(), "nats": Nats()}


def _text(words: str) -> bytes:
    encoded = words.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + _length(len(body)) + body


def _length(size: int) -> bytes:
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _properties(named: Properties) -> bytes:
    """User properties, with the length of all of them in front."""
    body = b"".join(USER_PROPERTY + _text(name) + _text(value) for name, value in named)
    return _length(len(body)) + body


def _end(received: bytes, at: int) -> int:
    """Where the packet at ``at`` ends; 0 if not even its length is there."""
    size = shift = 0
    for place in range(at + 1, min(at + 5, len(received))):
        byte = received[place]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return place + 1 + size
    return 0
