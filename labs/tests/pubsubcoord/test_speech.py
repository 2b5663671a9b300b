"""The bytes of the load's clients."""

from __future__ import annotations

import pytest

from tocsin_labs.pubsubcoord.speech import Mqtt, Nats, Refused

PAYLOAD = bytes(range(64))
SIZE = len(PAYLOAD)
CONNACK = b"\x20\x03\x00\x00\x00"
SUBACK = b"\x90\x04\x00\x01\x00\x00"


def published(topic: str) -> bytes:
    head, tail = Mqtt().frame(topic, SIZE)
    return head + PAYLOAD + tail


@pytest.mark.parametrize("topic", ["a", "lan-1/topic-1", "t" * 200])
def test_an_mqtt_payload_is_found_in_what_was_published(topic: str) -> None:
    packet = published(topic)
    assert Mqtt().read(packet, SIZE) == (0, [PAYLOAD], len(packet))


def test_packets_that_come_in_pieces_are_read_when_they_are_whole() -> None:
    stream = CONNACK + SUBACK + published("a/b") + published("a/b")
    rest, answers = b"", 0
    payloads: list[bytes] = []
    for byte in stream:
        rest += bytes((byte,))
        more, found, end = Mqtt().read(rest, SIZE)
        answers, payloads, rest = answers + more, payloads + found, rest[end:]
    assert (answers, payloads, rest) == (2, [PAYLOAD, PAYLOAD], b"")


@pytest.mark.parametrize("packet", [b"\x20\x03\x00\x87\x00", b"\x90\x04\x00\x01\x00\x87", b"\xe0\x00"])
def test_a_refusal_and_a_strange_packet_are_said(packet: bytes) -> None:
    with pytest.raises(Refused):
        Mqtt().read(packet, SIZE)


def test_a_nats_payload_may_have_line_ends_in_it() -> None:
    payload = b"\r\n" * (SIZE // 2)
    stream = b"INFO {}\r\nPONG\r\nMSG a.b 1 64\r\n" + payload + b"\r\nPING\r\n"
    assert Nats().read(stream, SIZE) == (1, [payload], len(stream))
    for cut in range(len(b"INFO {}\r\nPONG\r\n"), len(stream) - len(b"PING\r\n")):
        answers, payloads, end = Nats().read(stream[:cut], SIZE)
        assert (answers, payloads) == (1, []) and end <= cut


def test_a_nats_error_is_said() -> None:
    with pytest.raises(Refused, match="Permissions"):
        Nats().read(b"-ERR 'Permissions Violation'\r\n", SIZE)
